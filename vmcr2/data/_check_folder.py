"""Looks at a folder of pictures before anybody trains: sizes, balance, unreadable files, pictures on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations, islice, product
from pathlib import Path

from ._findings import Findings
from ._split import Part
from ._survey import Survey
from ._tree import Picture, Tree, folder_of, read_tree
from ._walk import shown
from ._workers import Progress, decoded, decoding_task

_EVERY = 64  # pictures between two calls of progress
_NAMED = 3
_DIGEST = 32


@dataclass
class _Look:
    """What was seen of one split."""

    survey: Survey = field(default_factory=Survey)
    classes: Counter[int] = field(default_factory=Counter)
    """readable pictures by class"""
    broken: list[tuple[str, str]] = field(default_factory=list)
    """path and reason"""
    files: dict[bytes, list[Picture]] = field(default_factory=dict)
    """by what is in the file"""
    pixels: dict[bytes, list[Picture]] = field(default_factory=dict)
    """by what is in the picture"""


def check_folder(path: Path | str, *, progress: Progress | None = None) -> Findings:
    """Decode every picture of a folder, and say what is there and what is wrong. It writes nothing.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for place in ("train/a", "train/b", "test/a"):
    ...     (folder / place).mkdir(parents=True)
    ...     Image.new("L", (8, 8), 99 if place.endswith("a") else 0).save(folder / place / "1.png")
    >>> print(check_folder(folder).problems[0])
    1 test picture is also a training picture (train/a/1.png = test/a/1.png): remove them from one of the two.
    """
    tree = read_tree(folder_of(path))
    found = _Found([], list(tree.problems))
    if not tree.problems:  # otherwise it is not clear which class a picture belongs to
        looks = _look(tree, progress)
        for part, look in looks.items():
            found.rows += _rows_of_part(part, look)
        _add_unreadable(found, looks, tree)
        _add_copies(found, looks)
        _add_two_classes(found, looks)
    found.rows += _left_out(tree)
    return Findings(str(tree.root), tuple(found.rows), tuple(found.problems))


@dataclass
class _Found:
    """The parts of :class:`Findings`, while they are collected."""

    rows: list[tuple[str, str]]
    problems: list[str]


def _look(tree: Tree, progress: Progress | None) -> dict[Part, _Look]:
    files = [(part, one) for part, pictures in tree.parts.items() for one in pictures]
    looks: dict[Part, _Look] = {part: _Look() for part in tree.parts}
    task = decoding_task((3, 0, 0), digest=True)
    with closing(decoded([(f"{tree.root}/{one.path}", one.size) for _, one in files], task)) as answers:
        for row, ((part, one), (seen, digests)) in enumerate(zip(files, answers, strict=True)):
            look = looks[part]
            if isinstance(seen, str):
                look.broken.append((one.path, seen))
            else:
                look.survey.add(seen)
                look.classes[one.label] += 1
                look.files.setdefault(digests[:_DIGEST], []).append(one)
                look.pixels.setdefault(digests[_DIGEST:], []).append(one)
            if progress is not None and ((row + 1) % _EVERY == 0 or row + 1 == len(files)):
                progress("checking", row + 1, len(files))
    return looks


def _rows_of_part(part: Part, look: _Look) -> Iterator[tuple[str, str]]:
    most, least = max(look.classes.values(), default=0), min(look.classes.values(), default=0)
    yield part, f"{look.classes.total()} pictures in {len(look.classes)} classes"
    if not look.classes:
        return
    yield f"{part}: largest and smallest class", f"{most} and {least} pictures, {most / least:.3g} : 1"
    sizes = sorted(look.survey.sizes.elements(), key=lambda size: (size[0] * size[1], size))
    text = " / ".join(f"{width}×{height}" for width, height in (sizes[0], sizes[(len(sizes) - 1) // 2], sizes[-1]))
    yield f"{part}: smallest / median / largest", "all " + text.split(" / ")[0] if sizes[0] == sizes[-1] else text
    yield f"{part}: modes", ", ".join(f"{mode} {count}" for mode, count in look.survey.modes.most_common())
    if look.survey.moving:
        yield f"{part}: several frames", f"{look.survey.moving} pictures, of which the first frame is used"


def _left_out(tree: Tree) -> list[tuple[str, str]]:
    kinds = (
        ("files that are no pictures", tree.others),
        ("links out of the folder", tree.links),
        ("pictures in no class folder", tree.strays),
        ("folders beside train", tree.beside),
    )
    return [(what, f"{len(names)}: {shown(names, _NAMED)}") for what, names in kinds if names]


def _add_unreadable(found: _Found, looks: Mapping[Part, _Look], tree: Tree) -> None:
    broken = [one for look in looks.values() for one in look.broken]
    found.rows.append(("unreadable", str(len(broken))))
    found.rows += [(shown([name]), reason) for name, reason in broken]
    if broken:
        found.problems.append(
            f"{len(broken)} pictures in {tree.root} cannot be decoded: mend or remove them, or they are skipped."
        )
    for part, look in looks.items():
        gone = [name for row, name in enumerate(tree.class_names) if not look.classes[row]]
        if gone and (part == "train" or len(gone) == len(tree.class_names)):
            found.problems.append(f"{part} has no readable picture of {shown(gone)}: add some, or remove the class.")


class _Pairs:
    """Equal pictures: how many pairs, and the first few. Thousands of blank pictures are millions of pairs."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, count: int, pairs: Iterable[tuple[Picture, Picture]]) -> None:
        self.count += count
        self.first += [f"{a.path} = {b.path}" for a, b in islice(pairs, _NAMED - len(self.first))]

    def __str__(self) -> str:
        pairs = "1 pair" if self.count == 1 else f"{self.count} pairs"
        return f"{pairs}: {self.example(_NAMED)}" if self.count else "0"

    def example(self, most: int = 1) -> str:
        """The first few, ready to print."""
        more = f" and {self.count - most} more" if 1 < most < self.count else ""
        return shown(self.first[:most]) + more


def _add_copies(found: _Found, looks: Mapping[Part, _Look]) -> None:
    """Pictures that a network is trained and tested on. In a tree without a test folder, those that are there twice."""
    train = looks["train"]
    others = [part for part in looks if part != "train"]
    for what, kind in (("same file", "files"), ("same pixels", "pixels")):
        ours: dict[bytes, list[Picture]] = getattr(train, kind)
        for part in others:
            theirs: dict[bytes, list[Picture]] = getattr(looks[part], kind)
            pairs = _Pairs()
            shared = [digest for digest in theirs if digest in ours]
            for digest in shared:
                a, b = ours[digest], theirs[digest]
                pairs.add(len(a) * len(b), product(a, b))
            found.rows.append((f"{what} in train and {part}", str(pairs)))
            count = sum(len(theirs[digest]) for digest in shared)
            if count and kind == "pixels":
                is_also = "picture is also a training picture" if count == 1 else "pictures are also training pictures"
                found.problems.append(f"{count} {part} {is_also} ({pairs.example()}): remove them from one of the two.")
        if not others:
            pairs = _Pairs()
            for same in ours.values():
                pairs.add(len(same) * (len(same) - 1) // 2, combinations(same, 2))
            found.rows.append((f"{what} twice", str(pairs)))
            if pairs.count and kind == "pixels":
                found.problems.append(
                    f"Some pictures are there twice ({pairs.example()}), so one of the two may be tested on: keep one."
                )


def _add_two_classes(found: _Found, looks: Mapping[Part, _Look]) -> None:
    """One of the two labels is wrong."""
    first: dict[bytes, Picture] = {}
    pairs = _Pairs()
    for look in looks.values():
        for digest, same in look.pixels.items():
            for one in same:
                other = first.setdefault(digest, one)
                if other.label != one.label:
                    pairs.add(1, [(other, one)])
    found.rows.append(("same pixels in two classes", str(pairs)))
    if pairs.count:
        found.problems.append(f"Equal pictures have different classes ({pairs.example()}): correct one of them.")
