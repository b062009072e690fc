"""TrivialAugment: each operation against Pillow's, its draws, and the batch that training sees."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy.ndimage import gaussian_filter

from confrank.config import RunConfig
from confrank.data import DataSet, load, split_of
from confrank.errors import InputError
from confrank.methods import normalise
from confrank.training import Run
from confrank.training.draws import epoch_draws
from confrank.training.mixing import epoch_mixing
from confrank.training.store import fetch, store_on
from confrank.training.trivial_augment import OPERATIONS, change, epoch_changes, parameters

CPU = torch.device("cpu")
STRENGTHS = range(-30, 31)
ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "colour": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def by_pillow(image, name, strength):
    """An operation as the paper describes it, on one image."""
    share, size = strength / 30, abs(strength) / 30
    matrices = {
        "shear-x": (1, 0.99 * share, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, 0.99 * share, 1, 0),
        "translate-x": (1, 0, int(min(32, image.width) * share), 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, int(min(32, image.height) * share)),
    }
    if name in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[name])
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(1 + 0.99 * share)
    changed = {
        "identity": lambda: image,
        "rotate": lambda: image.rotate(135 * share),
        "posterize": lambda: ImageOps.posterize(image, 8 - round(6 * size)),
        "solarize": lambda: ImageOps.solarize(image, 255 * (30 - abs(strength)) / 30),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
    }
    return changed[name]()


def pictures(channels, height=32, width=32):
    """Noise, smooth images of high and low contrast, a nearly flat one and a flat one."""
    random = np.random.default_rng(0)
    shape = (2, height, width, channels)
    smooth = gaussian_filter(random.normal(size=shape), (0, 3, 3, 0))
    smooth *= np.array([60, 8])[:, None, None, None] / smooth.std()
    flat = np.full(shape, 90)
    flat[0, 3, 4] = 94
    images = np.concatenate([random.integers(0, 256, shape), (128 + smooth).clip(0, 255), flat])
    return images.astype(np.uint8)


def changed_and_expected(name, strength, images):
    changes = torch.tensor([parameters(name, strength, *images.shape[1:3])] * len(images))
    shape = images.shape[:3] if images.shape[3] == 1 else images.shape
    expected = [np.asarray(by_pillow(Image.fromarray(one), name, strength)) for one in images.reshape(shape)]
    return change(torch.from_numpy(images), changes).numpy(), np.stack(expected).reshape(images.shape).astype(int)


@pytest.mark.parametrize("images", [pictures(3), pictures(1, 8, 8), pictures(3, 20, 33)], ids=["32", "8", "20x33"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_against_pillow(name, images):
    """Pillow stretches in floating point, and its factors have more digits: both may differ by one grey level."""
    inexact = name == "autocontrast" or name in ENHANCERS
    # A grey image has no colour to change, and 64 pixels are too few to be equalized.
    is_idle = name == "identity" or (images.shape[3] == 1 and name in ("colour", "equalize"))
    equal, differs = [], False
    for strength in STRENGTHS if images.shape == (6, 32, 32, 3) else STRENGTHS[::5]:
        got, expected = changed_and_expected(name, strength, images)
        assert np.abs(got - expected).max() <= inexact
        equal.append((got == expected).mean())
        differs |= not np.array_equal(got, images)
    assert np.mean(equal) > 0.99
    assert differs != is_idle


def test_each_image_of_a_batch_gets_its_operation():
    images = torch.from_numpy(np.repeat(pictures(3)[2:3], len(OPERATIONS), axis=0))
    changes = torch.tensor([parameters(name, 20, 32, 32) for name in OPERATIONS])
    together = change(images, changes)
    for number in range(len(OPERATIONS)):
        assert torch.equal(together[number], change(images[:1], changes[number : number + 1])[0])
    assert len({one.numpy().tobytes() for one in together}) == len(OPERATIONS)
    assert together.min() >= 0 and together.max() <= 255


def test_the_changes_of_an_epoch_are_uniform_and_from_seed_and_epoch_alone():
    changes = epoch_changes(1, 2, 60_000, 32, 32)
    assert torch.equal(changes[:500], epoch_changes(1, 2, 60_000, 32, 32)[:500])
    for seed, epoch in ((1, 3), (2, 2)):
        assert not torch.equal(changes, epoch_changes(seed, epoch, 60_000, 32, 32))
    operation = changes[:, 0]
    share = operation.bincount(minlength=14) / 60_000
    assert torch.allclose(share, torch.full((14,), 1 / 14), atol=0.006)
    # Strength 0 has no sign, so that 61 settings are left; half of the others are negative.
    shear = changes[operation == OPERATIONS.index("shear-x"), 5]
    assert len(shear.unique()) == 61
    assert (shear > 0).float().mean().item() == pytest.approx(30 / 62, abs=0.03)
    assert (shear == 0).float().mean().item() == pytest.approx(1 / 31, abs=0.01)


def test_a_share_of_the_images_is_changed_as_all_would_be():
    every, half = (epoch_changes(1, 2, 4_000, 32, 32, share) for share in (1.0, 0.5))
    same = (every == half).all(1)
    assert torch.equal(half[~same, 0], torch.full_like(half[~same, 0], OPERATIONS.index("identity")))
    assert same.float().mean().item() == pytest.approx(0.5 + 0.5 / 14, abs=0.04)
    image = torch.from_numpy(pictures(3))
    unchanged = half[~same][: len(image)]
    assert torch.equal(change(image, unchanged), image.int())
    run = Run(RunConfig(augment="trivial-half", seed=3), load("digits"), CPU)
    assert torch.equal(run.draws.changes, epoch_changes(3, 0, 900, 8, 8, 0.5))


def test_images_that_cannot_be_changed():
    images = torch.from_numpy(pictures(3)[:2])
    changes = epoch_changes(0, 0, 2, 32, 32)
    for wrong in (images / 255, images.int(), images.permute(0, 3, 1, 2), images[..., :2], images[0]):
        with pytest.raises(InputError, match=r"\[b, h, w, c\] with 1 or 3 channels, but got torch.* of shape \["):
            change(wrong, changes)
    with pytest.raises(InputError, match=r"shape \[2, 10\], one row per image, but got \[1, 10\]; select the rows"):
        change(images, changes[:1])


def colourful():
    images = np.concatenate([pictures(3)] * 5)
    split = split_of(images, np.arange(len(images)) % 10)
    return DataSet("colourful", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def test_a_batch_is_changed_after_crop_and_flip_and_before_normalisation():
    store = store_on(CPU, colourful())
    draws = epoch_draws(0, 0, 30, padding=4, flip=True)
    changes = epoch_changes(0, 0, 30, 32, 32)
    plain, changed = fetch(store, draws, 7, 20), fetch(store, draws._replace(changes=changes), 7, 20)
    cropped = ((plain.image * store.std[:, None, None] + store.mean[:, None, None]) * 255).round().byte()
    expected = change(cropped.permute(0, 2, 3, 1), changes[7:27])
    assert torch.equal(changed.image, normalise(expected, store.mean, store.std))
    assert torch.equal(plain.index, changed.index) and torch.equal(plain.label, changed.label)


def test_order_crops_flips_and_mixing_stay_as_they_are():
    run = Run(RunConfig(augment="trivial", mix="both", seed=3), load("digits"), CPU)
    assert run.mixing is not None and run.draws.changes is not None
    plain = epoch_draws(3, 0, 900)
    assert all(torch.equal(mine, values) for mine, values in zip(run.draws, plain[:3], strict=False))
    mixing = epoch_mixing("both", 3, 0, run.num_steps, 8, 8)
    assert all(torch.equal(mine, values) for mine, values in zip(run.mixing.tensors, mixing.tensors, strict=True))
    first = run.draws.changes.clone()
    for _ in range(run.num_steps):
        run.step()
    run.finish_epoch()
    assert torch.equal(run.draws.changes, epoch_changes(3, 1, 900, 8, 8))
    assert not torch.equal(run.draws.changes, first)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_batch_is_the_same():
    store = store_on(CPU, colourful())
    draws = epoch_draws(0, 0, 30, padding=4, flip=True)._replace(changes=epoch_changes(0, 0, 30, 32, 32))
    compiled = torch.compile(fetch, fullgraph=True, dynamic=False)
    for start in (0, 14):
        position = torch.tensor([start])
        one, other = compiled(store, draws, position, 16), fetch(store, draws, position, 16)
        assert torch.equal(one.index, other.index)
        # A fused multiplication and addition rounds once: a grey level may differ.
        assert (one.image - other.image).abs().max() <= 1.01 / 255 / 0.25
        assert (one.image == other.image).float().mean() > 0.99
