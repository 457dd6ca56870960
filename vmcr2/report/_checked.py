"""What of a run folder can be shown. Values of the wrong kind, size or shape are left out, and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs import ALL_SETTINGS

_LONGEST = 10_000
_MOST = 2**53
_MOST_CLASSES = 10**7
_WHOLE = ("epochs", "planned_epochs", "best_epoch", "parameters", "train_images", "test_images", "holdout_images")
_ABOVE_ZERO = ("dim", "eps_sq", "epochs")


def checked_settings(flat: Mapping[str, Any], file: str, problems: list[str]) -> dict[str, Any]:
    """Settings by flat name: texts, numbers and lists of them, as a configuration has."""
    good = {name: value for name, value in flat.items() if _is_setting(name, value)}
    _name_the_rest(flat, good, file, problems)
    return good


def checked_manifest(found: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Texts and numbers, what it says of the data, and the recipe's values."""
    good = {name: value for name, value in found.items() if _is_plain(value)}
    for name in ("data", "recipe"):
        if isinstance(inner := found.get(name), dict):
            good[name] = checked_settings(inner, f"manifest.json, {name}", problems)
    _name_the_rest(found, good, "manifest.json", problems)
    return good


def checked_summary(found: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Texts and numbers; whole numbers where something is counted, and a time that is one."""
    good = {name: value for name, value in found.items() if _is_plain(value)}
    for name in _WHOLE:
        if name in good and not (_is_whole(good[name]) and good[name] >= 0):
            del good[name]
    if "seconds" in good and not _is_time(good["seconds"]):
        del good["seconds"]
    _name_the_rest(found, good, "summary.json", problems)
    return good


def checked_metrics(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The numbers of each line, in the order of the epochs; NaN is what a run can measure, and stays."""
    numbers = [{name: value for name, value in line.items() if _is_number(value)} for line in lines]
    known = [line for line in numbers if _is_whole(line.get("epoch"))]
    for line in known:
        if "seconds" in line and not _is_time(line["seconds"]):
            del line["seconds"]
    return sorted(known, key=lambda line: line["epoch"])


class _Form(NamedTuple):
    """What a tensor of an evaluation must be."""

    kinds: str
    """of numbers, as numpy calls them"""
    fits: Callable[[tuple[int, ...], int, int], bool]
    """its shape, with k classes, of which r are shown"""
    below: str = ""
    """"k": its numbers are classes"""


_CLASSES = _Form("iu", lambda shape, k, r: len(shape) == 1, "k")
_SAMPLES = _Form("f", lambda shape, k, r: len(shape) == 2)
_COUNTS = _Form("iu", lambda shape, k, r: shape == (k,))
_ANGLES = _Form("f", lambda shape, k, r: shape == (r, r))
_FORMS: dict[str, _Form] = {
    **{"features": _SAMPLES, "unseen_features": _SAMPLES, "labels": _CLASSES, "unseen_labels": _CLASSES},
    "num_classes": _Form("iu", lambda shape, k, r: shape == ()),
    "shown_classes": _CLASSES,
    "train_sizes": _Form("iu", lambda shape, k, r: shape == (r,)),
    "spectra": _Form("f", lambda shape, k, r: len(shape) == 2 and shape[0] == r),
    "effective_ranks": _Form("f", lambda shape, k, r: shape == (k,)),
    **{"smallest_angles": _ANGLES, "mean_angles": _ANGLES, "class_sizes": _COUNTS, "class_right": _COUNTS},
    "confusion": _Form("iu", lambda shape, k, r: shape == (k, k)),
    "confused": _Form("iu", lambda shape, k, r: len(shape) == 2 and shape[1] == 3),
    "codes": _Form("f", lambda shape, k, r: len(shape) == 2 and shape[1] == k),
    "nearest_pictures": _Form("u", lambda shape, k, r: len(shape) == 5 and shape[0] == r and shape[2] in (1, 3)),
    "nearest_index": _Form("iu", lambda shape, k, r: len(shape) == 2 and shape[0] == r),
    "worst_pictures": _Form("u", lambda shape, k, r: len(shape) == 4 and shape[1] in (1, 3)),
    **{"worst_labels": _CLASSES, "worst_predicted": _CLASSES},
}
_TOGETHER = (
    ("features", "labels"),
    ("unseen_features", "unseen_labels"),
    ("smallest_angles", "mean_angles"),
    ("class_sizes", "class_right", "confused"),
    ("worst_pictures", "worst_labels", "worst_predicted"),
)
"""Without one of them the others are of no use."""
_SAME_LENGTH = (_TOGETHER[0], _TOGETHER[1], _TOGETHER[4])


def checked_tensors(found: Mapping[str, NDArray[Any]], problems: list[str]) -> dict[str, NDArray[Any]]:
    """Those of the right kind, shape and range. What this version does not know is left as it is."""
    k = _number_of_classes(found)
    shown = found.get("shown_classes")
    r = len(shown) if shown is not None and shown.ndim == 1 else k
    good = {name: value for name, value in found.items() if name not in _FORMS or _fits(name, value, k, r)}
    for names in _TOGETHER:
        if any(name in good for name in names) and not _goes_together(names, good):
            good = {name: value for name, value in good.items() if name not in names}
    widths = {good[name].shape[1] for name in ("features", "unseen_features") if name in good}
    if len(widths) > 1:
        good = {name: value for name, value in good.items() if name not in _TOGETHER[1]}
    if "num_classes" in found and not {"num_classes", "shown_classes"} <= good.keys():
        good = {}  # nobody knows which classes the rest is of
    if left_out := sorted(found.keys() - good.keys()):
        problems.append(f"evaluation.safetensors: {', '.join(left_out)} cannot be shown, and are left out.")
    return good


def _number_of_classes(found: Mapping[str, NDArray[Any]]) -> int:
    """As the file says, or by its tables; 0 if nothing says it."""
    said = found.get("num_classes")
    if said is not None and said.shape == () and said.dtype.kind in "iu" and 0 < int(said) <= _MOST_CLASSES:
        return int(said)
    return next((len(found[name]) for name in ("confusion", "spectra") if name in found and found[name].ndim == 2), 0)


def _goes_together(names: tuple[str, ...], good: Mapping[str, NDArray[Any]]) -> bool:
    if not all(name in good for name in names):
        return False
    return names not in _SAME_LENGTH or len({len(good[name]) for name in names}) == 1


def _fits(name: str, value: NDArray[Any], k: int, r: int) -> bool:
    form = _FORMS[name]
    if value.dtype.kind not in form.kinds or not form.fits(value.shape, k, r) or not all(value.shape[1:]):
        return False
    if name == "num_classes" and int(value) != k:
        return False
    if not value.size:
        return name not in ("shown_classes", "spectra", "confusion")
    return _in_range(name, value, k)


def _in_range(name: str, value: NDArray[Any], k: int) -> bool:
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    classes = value[:, :2] if name == "confused" else value
    if (_FORMS[name].below == "k" or name == "confused") and int(classes.max()) >= k:
        return False
    return name == "nearest_index" or int(value.min()) >= 0  # -1: the class has no sample


def _name_the_rest(found: Mapping[str, Any], good: Mapping[str, Any], file: str, problems: list[str]) -> None:
    if left_out := sorted(str(name)[:60] for name in found.keys() - good.keys()):
        more = ", …" if len(left_out) > 5 else ""
        problems.append(f"{file}: {', '.join(left_out[:5])}{more} cannot be shown, and are left out.")


def _is_setting(name: str, value: Any) -> bool:
    kind = ALL_SETTINGS[name].kind if name in ALL_SETTINGS else None
    if kind is int and not _is_whole(value):
        return False
    if kind is float and not (_is_number(value) and math.isfinite(value)):
        return False
    if name in _ABOVE_ZERO and value <= 0:
        return False
    if isinstance(value, list):
        return len(value) <= _LONGEST and all(map(_is_plain, value))
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return value is None or isinstance(value, bool) or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _MOST)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0
