"""The cache of packed pictures: what belongs to one folder as it is now, packed when it is first asked for."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .._shared import UserError, atomic, lock
from ._collector import paused_collector
from ._errors import DataError
from ._split import Part
from ._stored_pictures import FORMAT, PictureFile, StoredPictures
from ._survey import Fit, Plan, Survey
from ._tree import Picture
from ._workers import Progress, decoded, decoding_task

_PROBE = 64
_NAMED = 10  # broken files in a note
_EVERY = 64  # pictures between two calls of progress


class _GuessedWrongError(Exception):
    """A picture is not what the first ones promised."""


@dataclass(frozen=True)
class Entry:
    """A folder's part of the cache: a survey, and one file for each shape that was asked for."""

    place: Path
    root: Path
    class_names: tuple[str, ...]
    parts: Mapping[Part, list[Picture]]

    def open(
        self, image_size: int | None, channels: int | None, fit: Fit, *, strict: bool, progress: Progress | None
    ) -> tuple[StoredPictures, Plan]:
        """The packed pictures, packed now if they are not there."""
        found = self._find(image_size, channels, fit, strict)
        if found is not None:
            return found
        with self._locked():
            found = self._find(image_size, channels, fit, strict)  # another process packed them meanwhile
            if found is not None:
                return found
            _remove_half_files(self.place)
            packing = _Packing(self, strict, progress)
            plan = packing.run(image_size, channels, fit)
        return StoredPictures(self.file(plan), self.root), plan

    def file(self, plan: Plan) -> Path:
        """Of a shape and a division into splits."""
        counts = {part: [one.path for one in pictures] for part, pictures in self.parts.items()}
        text = json.dumps([FORMAT, plan.shape, plan.fit, counts])
        return self.place / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.safetensors"

    @property
    def survey(self) -> Path:
        """Of the headers, without regard to shape and splits."""
        return self.place / "survey.json"

    def _find(
        self, image_size: int | None, channels: int | None, fit: Fit, strict: bool
    ) -> tuple[StoredPictures, Plan] | None:
        survey = Survey.read(self.survey)
        if survey is None:
            return None
        plan = survey.plan(image_size, channels, fit)
        if not self.file(plan).is_file():
            return None
        reader = StoredPictures(self.file(plan), self.root)
        if strict:
            for name, reason in reader.notes["first_broken"]:
                raise _broken(self.root / name, reason)
        return reader, plan

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"the cache {self.place} cannot be written ({error.strerror}): set VMCR2_CACHE to another folder"
            ) from error
        # without end: the other process packs the same pictures, and its result is what is needed here
        with lock(self.place, patience=math.inf):
            yield


def cache_entry(
    cache: Path | str | None, root: Path, class_names: tuple[str, ...], parts: Mapping[Part, list[Picture]]
) -> Entry:
    """Where the pictures of a folder are packed. A file that is added, removed or changed makes it another place."""
    base = Path(os.path.expanduser(cache or os.environ.get("VMCR2_CACHE") or "~/.cache/vmcr2/pictures"))
    if base.resolve().is_relative_to(root):
        raise DataError(f"the cache {base} lies among the pictures in {root}: set VMCR2_CACHE to another folder")
    digest = hashlib.sha256(json.dumps([FORMAT, str(root), class_names]).encode())
    for picture in sorted(one for pictures in parts.values() for one in pictures):
        digest.update(repr(tuple(picture)).encode())
    slug = re.sub(r"[^\w.-]+", "-", root.name, flags=re.ASCII)[:40]
    return Entry(base / f"{slug}-{digest.hexdigest()[:16]}", root, class_names, parts)


class _Packing:
    """Surveys and packs the pictures of an entry."""

    def __init__(self, entry: Entry, strict: bool, progress: Progress | None) -> None:
        self.entry = entry
        self.strict = strict
        self.progress = progress
        with paused_collector():
            self.rows = [(part, one) for part, pictures in entry.parts.items() for one in pictures]
            self.files = [(f"{entry.root}/{one.path}", one.size) for _, one in self.rows]

    def run(self, image_size: int | None, channels: int | None, fit: Fit) -> Plan:
        """Pack at once if a few pictures tell the shape; otherwise look at all first, which costs a second pass."""
        known = Survey.read(self.entry.survey)
        if known is None:
            few = self._survey(self.files[:: max(1, len(self.files) // _PROBE)], None)
            guess = few.plan(image_size, channels, fit) if few.sizes else None
            if guess is not None and (guess.fit == "exact" or image_size is not None):
                with suppress(_GuessedWrongError):
                    self._pack(guess, lambda survey: survey.plan(image_size, channels, fit) == guess)
                    return guess
            known = self._survey(self.files, self.progress)
            if not known.sizes:
                raise DataError(f"none of the {len(self.files)} pictures in {self.entry.root} can be decoded: {_LOOK}")
            known.write(self.entry.survey)
        plan = known.plan(image_size, channels, fit)
        self._pack(plan, None)
        return plan

    def _survey(self, files: list[tuple[str, int]], progress: Progress | None) -> Survey:
        """Of the headers."""
        survey = Survey()
        for row, (seen, _) in enumerate(decoded(files, decoding_task((0, 0, 0)))):
            if not isinstance(seen, str):
                survey.add(seen)
            if progress is not None and ((row + 1) % _EVERY == 0 or row + 1 == len(files)):
                progress("reading sizes", row + 1, len(files))
        return survey

    def _pack(self, plan: Plan, confirms: Callable[[Survey], bool] | None) -> None:
        """Write the file. A plan that was guessed is given up as soon as a picture contradicts it."""
        entry = self.entry
        target = entry.file(plan)
        self._demand_space(math.prod(plan.shape) * len(self.rows))
        expected = {part: len(pictures) for part, pictures in entry.parts.items()}
        names = json.dumps(entry.class_names)
        survey, broken = Survey(), list[tuple[str, str]]()
        try:
            with (
                atomic(target) as temporary,
                # names twice, because classes without test pictures are named again
                PictureFile(temporary, plan.shape, expected, reserve=2 * len(json.dumps(names)) + 16384) as file,
            ):
                kept = self._write_rows(file, plan, confirms, survey, broken)
                if confirms is not None and not (survey.sizes and confirms(survey)):
                    raise _GuessedWrongError
                about = {
                    "broken": len(broken),
                    "first_broken": [(name, reason[:200]) for name, reason in broken[:_NAMED]],
                    "moving": survey.moving,
                    "untested": self._untested(kept),
                }
                file.finish({"class_names": names, "notes": json.dumps(about)})
                if broken:
                    _write_broken(target.with_suffix(".broken.txt"), broken)
                if confirms is not None:
                    survey.write(entry.survey)
        except OSError as error:
            raise DataError(
                f"{target} cannot be written ({error.strerror}): set VMCR2_CACHE to another folder"
            ) from error

    def _write_rows(
        self,
        file: PictureFile,
        plan: Plan,
        confirms: Callable[[Survey], bool] | None,
        survey: Survey,
        broken: list[tuple[str, str]],
    ) -> dict[Part, Counter[int]]:
        """All pictures that can be decoded; returns how many of each class."""
        channels = plan.shape[0]
        task = decoding_task(plan.shape, plan.fit)
        kept: dict[Part, Counter[int]] = {part: Counter() for part in self.entry.parts}
        row_bytes = math.prod(plan.shape)
        with closing(decoded(self.files, task)) as pictures:
            for row, ((part, one), (seen, pixels)) in enumerate(zip(self.rows, pictures, strict=True)):
                if not isinstance(seen, str):
                    survey.add(seen)
                    # grey pictures promise nothing where colour is expected, but a coloured one ends the guess of grey
                    if confirms is not None and (len(pixels) != row_bytes or (channels == 1 and not confirms(survey))):
                        raise _GuessedWrongError
                if isinstance(seen, str) or len(pixels) != row_bytes:
                    reason = seen if isinstance(seen, str) else "it has changed while it was read"
                    if not os.path.exists(self.entry.root / one.path):  # all of them, if a disk was taken away
                        raise DataError(
                            f"{self.entry.root / one.path} is gone: it was removed while the pictures were packed; "
                            "start again"
                        )
                    if self.strict:
                        raise _broken(self.entry.root / one.path, reason)
                    broken.append((one.path, reason))
                else:
                    file.add(part, pixels, one.label)
                    kept[part][one.label] += 1
                if self.progress is not None and ((row + 1) % _EVERY == 0 or row + 1 == len(self.rows)):
                    self.progress("packing", row + 1, len(self.rows))
        return kept

    def _untested(self, kept: Mapping[Part, Counter[int]]) -> list[str]:
        """Names of the classes without a test picture. A class without a training picture is an error."""
        root = self.entry.root
        for label, name in enumerate(self.entry.class_names):
            if not kept["train"][label]:
                raise DataError(f"{root} has no training picture of the class {name} that can be decoded: {_LOOK}")
        for part, counts in kept.items():
            if not counts:
                raise DataError(f"{root} has no picture for {part} that can be decoded: {_LOOK}")
        return [name for label, name in enumerate(self.entry.class_names) if not kept["test"][label]]

    def _demand_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.entry.place).free
        if needed > free:
            raise DataError(
                f"packing {self.entry.root} needs {needed / 1e9:.1f} GB in {self.entry.place}, where {free / 1e9:.1f} "
                "GB are free: set VMCR2_CACHE to a folder with more space, or ask for a smaller image_size"
            )


_LOOK = "`vmcr2 data check` says why"


def _broken(path: Path, reason: str) -> DataError:
    return DataError(f"{path} cannot be decoded ({reason}): remove it, or do not ask for strict reading")


def _write_broken(path: Path, broken: list[tuple[str, str]]) -> None:
    with atomic(path) as temporary:
        lines = "".join(f"{_one_line(name)}\t{_one_line(reason)}\n" for name, reason in broken)
        temporary.write_text(lines, encoding="utf-8", errors="backslashreplace")


def _one_line(text: str) -> str:
    """Names of files may have line ends."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _remove_half_files(place: Path) -> None:
    """What killed processes left. Whoever holds a place's lock knows that nobody is writing there."""
    for half in place.glob(".*.tmp"):
        half.unlink(missing_ok=True)
    for other in {half.parent for half in place.parent.glob("*/.*.tmp")} - {place}:
        with suppress(UserError, OSError), lock(other):
            for half in other.glob(".*.tmp"):
                half.unlink(missing_ok=True)
