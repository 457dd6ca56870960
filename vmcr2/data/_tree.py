"""Reads a folder of pictures in class folders: which picture belongs to which class and split."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ._errors import DataError
from ._natural import natural, natural_path
from ._split import Part
from ._walk import Found, Walk, shown

_NAMES: dict[str, Part] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "tst", "eval"), "test"),
}


class Picture(NamedTuple):
    """A picture's file and its class."""

    path: str
    """below the root, with slashes"""
    size: int
    mtime: int
    label: int


@dataclass
class Tree:
    """A folder as it is, with what is wrong with it."""

    root: Path
    class_names: tuple[str, ...] = ()
    parts: dict[Part, list[Picture]] = field(default_factory=dict)
    """what the folders say; a tree without split folders has "train" alone"""
    others: list[str] = field(default_factory=list)
    """files that are no pictures"""
    links: list[str] = field(default_factory=list)
    """links out of the tree, to nothing, or in a circle"""
    strays: list[str] = field(default_factory=list)
    """pictures beside the class folders"""
    beside: list[str] = field(default_factory=list)
    """folders beside train and test"""
    val_is_test: bool = False
    """there is a folder for validation but none for testing: it serves as the test set"""
    problems: list[str] = field(default_factory=list)
    """sentences for a person; nothing can be trained before they are solved"""


def folder_of(path: Path | str) -> Path:
    """The folder that a person named, resolved; or a sentence about what they named instead."""
    text = os.fspath(path)
    if "://" in text:
        raise DataError(f"{text} is a URL, and vmcr2 reads only local folders: download it and give the folder")
    place = Path(os.path.expanduser(text))
    if not place.exists():
        raise DataError(f"{place} does not exist: give a folder that has one folder of pictures for each class")
    if not place.is_dir():
        raise DataError(f"{place} is a file: give the folder that has one folder of pictures for each class")
    return place.resolve()


def read_tree(root: Path) -> Tree:
    """List a folder; nothing is decoded."""
    walk = Walk(root)
    tree = Tree(root, others=walk.others, links=walk.links)
    top, loose = walk.below("")
    splits = _split_folders(tree, top)
    tree.beside = [name for name in top if name not in splits.values()] if splits else []
    classes: dict[Part, dict[str, list[Found]]] = {}
    whole: dict[Part, str] = {"train": ""}
    for part, folder in (splits or whole).items():
        inner, beside = walk.below(folder) if folder else (top, loose)
        tree.strays += [found.path for found in beside]
        above = frozenset({str(root), str(root / folder)})
        classes[part] = {name: walk.all_below(name, above) for name in inner}
        tree.problems += _linked_classes(tree, folder)
    if splits:
        tree.strays += [found.path for found in loose]
    if "val" in classes and "test" not in classes:
        classes["test"] = classes.pop("val")
        tree.val_is_test = True
    for names in (tree.others, tree.links, tree.strays):
        names.sort(key=natural_path)
    tree.problems += _problems_of_classes(tree, classes)
    if not tree.problems:
        _add(tree, classes)
    return tree


def _split_folders(tree: Tree, top: list[str]) -> dict[Part, str]:
    """Folders by split, train first. Empty if the folders in the root are classes: one may be called "train"."""
    named: dict[Part, list[str]] = {}
    for name in top:
        if name.lower() in _NAMES:
            named.setdefault(_NAMES[name.lower()], []).append(name)
    peek = Walk(tree.root)  # one of its own, because the other remembers what it has seen
    looks = {name: peek.below(name) for names in named.values() for name in names}
    only_splits = len(looks) == len(top)
    if not any(folders for folders, _ in looks.values()):
        if only_splits and any(pictures for _, pictures in looks.values()):
            first = next(name for name, (_, pictures) in looks.items() if pictures)
            tree.problems.append(
                f"{tree.root / first} holds pictures directly: put them into folders in it, one for each class"
            )
        return {}
    if "train" not in named:
        if only_splits:
            tree.problems.append(
                f"{tree.root} has {shown(top)} but no training pictures: add a folder train with the same classes"
            )
        return {}
    for part, names in named.items():
        if len(names) > 1:
            tree.problems.append(f"{tree.root} has {shown(names)}, which all mean {part}: keep one of them")
    order: tuple[Part, ...] = ("train", "val", "test")
    return {part: named[part][0] for part in order if part in named}


def _linked_classes(tree: Tree, folder: str) -> list[str]:
    """To skip one file is a note. To skip a class would be another data set."""
    return [
        f"{tree.root / link} is a link out of {tree.root}: move or copy the class folder into it"
        for link in tree.links
        if os.path.dirname(link) == folder and (tree.root / link).is_dir()
    ]


def _problems_of_classes(tree: Tree, classes: Mapping[Part, Mapping[str, list[Found]]]) -> Iterator[str]:
    if tree.problems:  # of the splits: what follows would only repeat it
        return
    root, train = tree.root, classes["train"]
    if not any(train.values()):
        yield _no_pictures(tree)
        return
    for part, folders in classes.items():
        yield from _alike(root, folders)
        if not any(folders.values()):
            yield f"{root} has a folder for {part} without pictures: fill it or remove it"
    empty = [name for name, found in train.items() if not found]
    if empty:
        yield f"{root} has class folders without pictures ({shown(empty)}): fill or remove them"
    if len(train) == 1:
        yield f"{root} has one class ({shown(list(train))}): classification needs at least two class folders"
    known = {class_name(name) for name in train}
    for part, folders in classes.items():
        unknown = [name for name, found in folders.items() if found and class_name(name) not in known]
        if unknown:
            yield f"{root} has classes in {part} that train lacks ({shown(unknown)}): rename or remove these folders"


def _no_pictures(tree: Tree) -> str:
    if tree.strays:
        return (
            f"{tree.root} holds {len(tree.strays)} pictures directly ({shown(tree.strays, 2)}): put them into folders "
            "in it, one for each class"
        )
    if tree.links:
        return f"{tree.root} holds only links that lead out of it ({shown(tree.links, 2)}): copy the pictures into it"
    files = f", only files such as {shown(tree.others, 2)}" if tree.others else ""
    return f"{tree.root} holds no pictures{files}: give a folder that has one folder of pictures for each class"


def _alike(root: Path, folders: Mapping[str, object]) -> Iterator[str]:
    """Names that are one name on another computer: their classes would be mixed there without a word."""
    seen: dict[str, str] = {}
    for name in folders:
        try:
            name.encode()
        except UnicodeEncodeError:
            yield f"{root / shown([name])} has a name that is not UTF-8: rename it"
        other = seen.setdefault(class_name(name).casefold(), name)
        if other != name:
            how = "the form of their accents" if class_name(other) == class_name(name) else "upper and lower case"
            yield f"{root} has the class folders {other} and {name}, which differ only in {how}: rename one of them"


def class_name(folder: str) -> str:
    """A class is called like its folder. macOS writes accents in another form (NFD), so all are brought to one."""
    return unicodedata.normalize("NFC", folder.rsplit("/", 1)[-1])


def _add(tree: Tree, classes: Mapping[Part, Mapping[str, list[Found]]]) -> None:
    tree.class_names = tuple(sorted(map(class_name, classes["train"]), key=natural))
    label = {name: row for row, name in enumerate(tree.class_names)}
    for part, folders in classes.items():
        known = {name: label[class_name(name)] for name, inner in folders.items() if inner}
        pictures = [Picture(*found, known[name]) for name, inner in folders.items() for found in inner]
        pictures.sort(key=_by_name)
        tree.parts[part] = pictures


def _by_name(picture: Picture) -> str:
    """By the file's name first: numbered pictures come in the order of their numbers, whatever their classes."""
    folder, _, name = picture.path.rpartition("/")
    return f"{natural(name)}\0{natural_path(folder)}"
