"""Which network and settings suit a few hundred of your own images, without a GPU?

    python experiments/own_images.py photos  # draws 600 noisy images of three shapes, one folder per shape

The commands that train on them, and their results, are in own_images_epyc-2core_202611.md.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")


def draw(folder: Path, num_images: int = 600) -> None:
    """Write images of 48x40 pixels: one shape each, in a random colour, size and position, with noise."""
    random = np.random.default_rng(0)
    for number in range(num_images):
        shape = SHAPES[number % 3]
        ground, colour = (tuple(int(value) for value in random.integers(0, 256, 3)) for _ in range(2))
        image = Image.new("RGB", (48, 40), ground)
        size = random.integers(8, 16)
        x, y = random.integers(size + 2, 46 - size), random.integers(size, 40 - size)
        pen = ImageDraw.Draw(image)
        if shape == "circle":
            pen.ellipse([x - size, y - size, x + size, y + size], fill=colour)
        elif shape == "square":
            pen.rectangle([x - size * 0.85, y - size * 0.85, x + size * 0.85, y + size * 0.85], fill=colour)
        else:
            pen.polygon([(x, y - size), (x - size, y + size * 0.8), (x + size, y + size * 0.8)], fill=colour)
        noisy = np.asarray(image).astype(float) + random.normal(0, 25, (40, 48, 3))
        (folder / shape).mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / shape / f"{number}.png")


def main() -> None:
    draw(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
