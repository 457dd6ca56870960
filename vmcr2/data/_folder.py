"""Opens a folder of pictures as a data set: one folder for each class, packed once into the cache."""

from __future__ import annotations

from pathlib import Path

import torch

from ._cache import cache_entry
from ._collector import paused_collector
from ._errors import DataError
from ._holdout import drawn_test_set
from ._source import Source
from ._split import Part
from ._stored_pictures import StoredPictures
from ._survey import Fit, Plan, check_options
from ._tree import Picture, Tree, folder_of, read_tree
from ._walk import shown
from ._workers import Progress


def from_folder(
    path: Path | str,
    *,
    image_size: int | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    test_share: float = 0.2,
    split_seed: int = 0,
    strict: bool = False,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> Source:
    """Pictures of your own: a folder with one folder for each class.

    It may have folders for training, testing and validation by any usual name (``train``, ``test``, ``val``, …) with
    the class folders in them. Otherwise a share of every class is kept for testing. Pictures of any size and mode are
    decoded by all cores, brought to one shape and packed into the cache; opening the folder again only lists it.

    Args:
        path: the folder.
        image_size: side of the square that pictures become. By default pictures of one size up to 128 stay as they
            are, and others become squares with the median of the shorter sides, at most 128.
        channels: 1 (grey) or 3 (colour); by default 1 if all pictures are grey.
        fit: how a picture becomes a square: "crop" keeps its middle, "stretch" distorts it, "pad" adds black.
        test_share: share of every class to test on, if there is no folder for testing.
        split_seed: which pictures these are.
        strict: refuse files that cannot be decoded, that are no pictures, and links out of the folder, instead of
            skipping them with a note.
        cache: folder for the packed pictures; by default $VMCR2_CACHE or ~/.cache/vmcr2/pictures.
        progress: called with what is being done, how many pictures are done, and of how many.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, shade in (("dark", 20), ("light", 220)):
    ...     (folder / name).mkdir()
    ...     for number in range(5):
    ...         Image.new("L", (8, 8), shade + number).save(folder / name / f"{number}.png")
    >>> source = from_folder(folder, cache=tempfile.mkdtemp())
    >>> source.class_names, source.sample_shape, len(source.train().labels), len(source.test().labels)
    (('dark', 'light'), (1, 8, 8), 8, 2)
    """
    check_options(image_size, channels, fit, test_share)
    root = folder_of(path)
    with paused_collector():
        tree = read_tree(root)
        for problem in tree.problems:
            raise DataError(problem)
        if strict:
            _refuse(tree)
        parts = tree.parts if "test" in tree.parts else _divided(tree, test_share, split_seed)
        entry = cache_entry(cache, root, tree.class_names, parts)
    reader, plan = entry.open(image_size, channels, fit, strict=strict, progress=progress)
    settings = {
        "data": "pictures",
        "data_path": str(tree.root),
        "stored_size": plan.stored_size,
        "channels": plan.shape[0],
        "fit": fit,
        "test_share": test_share,
        "split_seed": split_seed,
    }
    notes = (*_notes_of_tree(tree, parts, test_share, split_seed), *_notes_of_packing(reader, plan))
    return Source("pictures", tree.root, tree.class_names, reader, title=tree.root.name, settings=settings, notes=notes)


def _refuse(tree: Tree) -> None:
    for names, what in (
        (tree.links, "is a link out of the folder: copy what it points to"),
        (tree.others, "is no picture: remove it"),
        (tree.strays, "lies in no class folder: move it into one"),
    ):
        if names:
            raise DataError(f"{tree.root / names[0]} {what}, or do not ask for strict reading")


def _divided(tree: Tree, test_share: float, seed: int) -> dict[Part, list[Picture]]:
    """By the names of the files alone: a picture stays where it is when another is found to be broken."""
    pictures = tree.parts["train"]
    labels = torch.tensor([one.label for one in pictures])
    held = drawn_test_set(labels, test_share, len(tree.class_names), seed=seed).tolist()
    if not any(held):
        raise DataError(
            f"{tree.root} has one picture in every class, so none is left to test on: add pictures, or a folder test"
        )
    return {
        "train": [one for one, out in zip(pictures, held, strict=True) if not out],
        "test": [one for one, out in zip(pictures, held, strict=True) if out],
    }


def _notes_of_tree(tree: Tree, parts: dict[Part, list[Picture]], test_share: float, seed: int) -> list[str]:
    notes = []
    if tree.val_is_test:
        notes.append("There is no folder for testing: the validation pictures are the test set.")
    elif "test" not in tree.parts:
        notes.append(
            f"There is no folder for testing: {test_share:g} of every class, {len(parts['test'])} pictures, "
            f"are the test set, drawn with the seed {seed}."
        )
    for names, what in (
        (tree.others, "files that are no pictures"),
        (tree.links, "links that lead out of the folder"),
        (tree.strays, "pictures that lie in no class folder"),
        (tree.beside, "folders beside the training pictures"),
    ):
        if names:
            notes.append(f"Skipped {what} ({len(names)}): {shown(names, 3)}.")
    return notes


def _notes_of_packing(reader: StoredPictures, plan: Plan) -> list[str]:
    notes = []
    about = reader.notes
    if plan.fit != "exact":
        notes.append(f"Pictures are stored as {plan.shape[1]}×{plan.shape[2]} ({plan.fit}).")
    if about["broken"]:
        first = "; ".join(f"{shown([name])}: {reason}" for name, reason in about["first_broken"])
        beside = reader.file.with_suffix(".broken.txt")
        notes.append(f"Skipped pictures that cannot be decoded ({about['broken']}, all listed in {beside}): {first}.")
    if about["moving"]:
        notes.append(f"Of pictures with several frames ({about['moving']}) the first one is used.")
    if about["untested"]:
        notes.append(
            f"The accuracy of classes without a test picture ({len(about['untested'])}) cannot be measured: "
            f"{shown(about['untested'])}."
        )
    return notes
