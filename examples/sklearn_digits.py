"""Digits before and after training: pixels, features of an untrained network, features learned by rate reduction.

Three lines train; the rest draws test images. The upper row is t-SNE with the distance 1 − |cosine|. The lower row is
the |cosines| between images, sorted by class: after training, classes are blocks that are orthogonal to one another.
(Two principal components would not help: they show two of 128 directions, and all directions are then alike.)

    python examples/sklearn_digits.py [PICTURE.png]

The default is ./digits-features.png. The example never replaces a file that it did not make.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.model_selection import train_test_split

from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionEmbedding

Array = np.ndarray[Any, Any]
TITLE = "digits' features, vmcr2"
"""Written into the picture: by it the example recognises its own files."""


def unit(rows: Array) -> Array:
    """Rows of length 1."""
    lengths: Array = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


def cosines(z: Array, y: Array) -> tuple[float, float]:
    """Mean |cosine| within a class, without self-pairs, and between classes."""
    similar = np.abs(unit(z) @ unit(z).T)
    same = y[:, None] == y
    np.fill_diagonal(similar, np.nan)
    return float(np.nanmean(similar[same])), float(np.nanmean(similar[~same]))


def learn(epochs: int = 60) -> tuple[dict[str, Array], Array, dict[str, float]]:
    """Features of the test images by name, their labels, and the accuracy of the nearest subspace on each."""
    images, labels = load_digits(return_X_y=True)
    train, test, y, truth = train_test_split(images / 16, labels, test_size=0.3, stratify=labels, random_state=0)

    embedding = RateReductionEmbedding(standardize=False, epochs=epochs, random_state=0)
    features = embedding.fit(train, y).transform(test)
    accuracy = NearestSubspaceClassifier(fit_intercept=False).fit(embedding.transform(train), y).score(features, truth)

    # with so small an lr, the network stays as it was initialised
    before = RateReductionEmbedding(standardize=False, epochs=1, lr=1e-12, random_state=0).fit(train, y)
    found = {"pixels": test, "network, before": before.transform(test), "network, after": features}
    scores = {"network, after": accuracy}
    for name, fitted in (("pixels", train), ("network, before", before.transform(train))):
        scores[name] = NearestSubspaceClassifier(fit_intercept=False).fit(fitted, y).score(found[name], truth)
    return found, truth, scores


def draw(found: dict[str, Array], y: Array, scores: dict[str, float], path: Path) -> None:
    """Two rows of pictures: t-SNE, |cosines|."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    figure, axes = pyplot.subplots(2, len(found), figsize=(9, 6), dpi=75, layout="constrained")
    order = np.argsort(y, kind="stable")
    for (above, below), (name, z) in zip(axes.T, found.items(), strict=True):
        apart = np.clip(1 - np.abs(unit(z) @ unit(z).T), 0, None)
        flat = TSNE(metric="precomputed", init="random", max_iter=500, random_state=0).fit_transform(apart)
        points = above.scatter(flat[:, 0], flat[:, 1], c=y, cmap="tab10", s=5)
        above.set_title(f"{name}\nnearest subspace {scores[name]:.3f}", fontsize=10)
        sorted_rows = unit(z)[order][::5]
        heat = below.imshow(
            np.abs(sorted_rows @ sorted_rows.T), cmap="viridis", vmin=0, vmax=1, interpolation="nearest"
        )
        for axis in (above, below):
            axis.set_xticks([])
            axis.set_yticks([])
    figure.colorbar(points, ax=axes[0], ticks=range(10), label="digit")
    figure.colorbar(heat, ax=axes[1], label="|cosine|")
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    title = PngInfo()
    title.add_text("Title", TITLE)
    picture.quantize(256, method=Image.Quantize.FASTOCTREE).save(path, pnginfo=title)  # a third of the file size


def ours(path: Path) -> bool:
    """Whether this file is a picture that this example made."""
    return TITLE.encode() in path.read_bytes()[:4096]


def main() -> None:
    """Learn, print, draw."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-features.png")
    if path.exists() and not ours(path):
        sys.exit(f"{path} exists and is not a picture of this example: name another file")
    found, y, scores = learn()
    for name, z in found.items():
        within, between = cosines(z, y)
        print(f"{name:16} nearest subspace {scores[name]:.3f}, |cosine| within {within:.3f}, between {between:.3f}")
    draw(found, y, scores, path)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
