"""What the page's script draws: one small record per figure, under the figure's id."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ._classes import Angles, Codes, Spectra
from ._convergence import Panel
from ._feature_map import FeatureMap
from ._inner import InnerProducts
from ._read import Array, RunRecord
from ._series import as_payload, short

_ATOMS = 24


def lines(panel: Panel) -> dict[str, Any]:
    """Curves over epochs and seconds, and levels across them."""
    return {
        "type": "lines",
        "log": panel.log,
        "top": panel.top,
        "lines": [{"y": short(line.value), "label": line.label} for line in panel.lines],
        "curves": [
            {"label": curve.label, "style": curve.style, "points": curve.points} | as_payload(curve.series)
            for curve in panel.curves
        ],
    }


def inner_map(inner: InnerProducts, names: list[str]) -> dict[str, Any]:
    """|cosine| between samples; rows and columns are grouped by class."""
    shown = [names[j] for j in inner.classes]
    return _map("inner", {"": inner.values * 255}, shown, size=len(inner.values)) | {"sizes": inner.sizes}


def angle_map(angles: Angles, names: list[str]) -> dict[str, Any]:
    """Degrees between classes; the script shades what is close."""
    layers = {"smallest angle": angles.smallest / 90 * 255, "mean angle": angles.mean / 90 * 255}
    return _map("angle", layers, names) | {"full": 90}


def block_map(codes: Codes, names: list[str]) -> dict[str, Any]:
    """Which atoms a class uses, summed over blocks of atoms."""
    return _map("block", {"": np.sqrt(codes.blocks) * 255}, names)


def confusion_map(table: Array, names: list[str]) -> dict[str, Any]:
    """Counts; the script shades by share of the row."""
    return _map("confusion", {"": table}, names, bits=16)


def _map(
    kind: str, layers: dict[str, Array], names: list[str], *, bits: int = 8, size: int | None = None
) -> dict[str, Any]:
    number: type[np.unsignedinteger[Any]] = np.uint8 if bits == 8 else np.uint16
    return {
        "type": "map",
        "kind": kind,
        "size": len(names) if size is None else size,
        "layers": [{"label": label, "bits": bits, "data": packed(values, number)} for label, values in layers.items()],
        "names": names,
        "full": 1,
    }


def spectra_lines(spectra: Spectra, names: list[str]) -> dict[str, Any]:
    """Eigenvalues per class, logarithmic."""
    return {
        "type": "spectra",
        "values": [[short(value, 3) for value in row] for row in spectra.values.tolist()],
        "median": [short(value, 3) for value in spectra.median.tolist()],
        "ideal": spectra.ideal,
        "components": spectra.components,
        "names": names,
    }


def atom_stems(codes: Codes, names: list[str]) -> dict[str, Any]:
    """The strongest atoms of each class, as index and share."""
    k, q = codes.shares.shape
    count = min(q, max(_ATOMS, 2 * codes.atoms_per_class), 64)
    order = np.argsort(-codes.shares, axis=1, kind="stable")[:, :count]
    return {
        "type": "atoms",
        "atoms": q,
        "block": codes.atoms_per_class,
        "index": order.tolist(),
        "share": [[short(value, 3) for value in codes.shares[j, order[j]].tolist()] for j in range(k)],
        "names": names,
    }


def map_points(found: FeatureMap, run: RunRecord) -> dict[str, Any]:
    """Where samples stand between the places of their classes, and their shares of both nearest classes in percent."""
    order = np.argsort(-found.shares, axis=1, kind="stable")[:, :2]
    rows = np.arange(len(order))[:, None]
    return {
        "type": "points",
        "names": [run.name(j) for j in found.classes],
        "anchors": [[short(x, 4), short(y, 4)] for x, y in found.anchors.tolist()],
        "x": [short(x, 3) for x in found.points[:, 0].tolist()],
        "y": [short(y, 3) for y in found.points[:, 1].tolist()],
        "own": found.labels.tolist(),
        "nearest": order.tolist(),
        "share": np.rint(100 * found.shares[rows, order]).astype(int).tolist(),
    }


def angle_bars(angles: Angles) -> dict[str, Any]:
    """The histogram of the angles between classes."""
    return {"type": "bars", "counts": angles.histogram, "width": 90 / len(angles.histogram)}


def packed(values: Array, kind: type[np.unsignedinteger[Any]]) -> str:
    """Rounded, little-endian, base64."""
    top = np.iinfo(kind).max
    whole = np.rint(values).clip(0, top).astype(np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(whole.tobytes()).decode()


def embedded(payload: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in, and has no NaN."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
