"""A contact sheet: many small images with their names in one picture."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.font_manager import FontProperties, findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from confrank.files import write_atomically

FONT = findfont(FontProperties(family=["DejaVu Sans"]))  # comes with matplotlib: Latin, Greek, Cyrillic and more
CELL = 96
CAPTION = 14
GAP = 6
COLUMNS = 10


def contact_sheet(pictures: Sequence[tuple[str, NDArray[np.uint8]]], path: Path) -> None:
    """Write a PNG of (name, image [h, w, 1 or 3]) in rows of ten, numbered in order; long names lose their start."""
    columns = min(COLUMNS, len(pictures))
    lines = -(-len(pictures) // columns)
    size = (columns * (CELL + GAP) + GAP, lines * (CELL + CAPTION + GAP) + GAP)
    sheet = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.truetype(FONT, 10)
    for number, (name, picture) in enumerate(pictures):
        left = GAP + number % columns * (CELL + GAP)
        top = GAP + number // columns * (CELL + CAPTION + GAP)
        thumb = _thumb(picture)
        sheet.paste(thumb, (left + (CELL - thumb.width) // 2, top + (CELL - thumb.height) // 2))
        draw.text((left, top + CELL + 1), _shortened(f"{number + 1}: ", name, draw, font), fill="black", font=font)
    content = io.BytesIO()
    sheet.save(content, "PNG")
    write_atomically(path, content.getvalue())


def _thumb(picture: NDArray[np.uint8]) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture[:, :, 0] if picture.shape[2] == 1 else picture))
    scale = CELL / max(image.size)
    # Tiny images are enlarged without smoothing, to show what the network sees.
    way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BICUBIC
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), way).convert("RGB")


def _shortened(number: str, name: str, draw: ImageDraw.ImageDraw, font: Any) -> str:
    """The number and as much of the end of the name as fits under an image; ? for what cannot be printed."""
    text = "".join(letter if letter.isprintable() else "?" for letter in name)
    caption = number + text
    while len(text) > 1 and draw.textlength(caption, font=font) > CELL:
        text = text[1:]
        caption = f"{number}..{text}"
    return caption
