"""How many of your own images are trained on, and the size to scale them to, without reading their pixels."""

import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confrank import recipes
from confrank.config import RunConfig
from confrank.data import custom_path
from confrank.data.custom import image_folders, split_folders
from confrank.data.pictures import picture_files, size_of
from confrank.data.texts import TEST_SHARE, num_training_texts
from confrank.files import npy_header
from confrank.recipes import IMAGE_SIZE, LONGEST_SIDE


def num_training_images(path: Path) -> int:
    """How many images of a folder of class folders, or of an .npz file, are trained on, if none are held out."""
    if path.is_file():
        return _num_in_npz(path)
    train, test = split_folders(path)
    if train is not None and test is not None:
        return len(picture_files(train))
    num_images = len(picture_files(path))
    return num_images - round(TEST_SHARE * num_images)


def _num_in_npz(path: Path) -> int:
    try:
        with zipfile.ZipFile(path) as archive, archive.open("train_images.npy") as stream:
            return npy_header(stream)[0][0]
    except Exception as error:  # zipfile and numpy raise many kinds of errors for damaged archives
        raise ValueError(f"expected an array train_images in {path}, but it cannot be read: {error}") from None


def usual_image_size(files: Iterable[Path]) -> int | None:
    """The size to scale images to if none is given; None for images of one size that are small already."""
    sizes = set()
    for file in files:
        with suppress(ValueError):  # whoever reads the image reports it
            sizes.add(size_of(file))
        if len(sizes) > 1 or any(max(size) > LONGEST_SIDE for size in sizes):
            return IMAGE_SIZE
    return None


def image_files(path: Path) -> list[Path]:
    """The files of the images in a folder, without those in folders that are no split; none for an .npz file."""
    return [file for folder in image_folders(path) for file in picture_files(folder)]


def config_for(given: Mapping[str, Any], root: Path | None = None) -> RunConfig:
    """The config with these settings, and for the others the defaults of the recipe and of your own data.

    The data decide the size of images, the number of epochs and, unless a recipe is given, how images are trained on.
    """
    names, recipe = ("dataset", "model", "lr"), given.get("recipe", RunConfig.recipe)
    usual = recipes.values(recipe, **{name: given[name] for name in names if name in given})
    dataset = str(given.get("dataset", RunConfig.dataset))
    path = custom_path(dataset, root)
    with suppress(ValueError, OSError):  # training reports what is wrong with the data
        if path is not None:
            share = 1 - given.get("holdout", RunConfig.holdout)
            if recipes.holds_texts(dataset):
                batch_size = given.get("batch_size", RunConfig.batch_size)
                usual["epochs"] = recipes.text_epochs(round(num_training_texts(path) * share), batch_size)
            else:
                if "recipe" not in given:
                    usual |= recipes.image_defaults(round(num_training_images(path) * share), given)
                if "image_size" not in given:
                    usual["image_size"] = usual_image_size(image_files(path))
    return RunConfig.from_dict({**usual, **given})
