"""The picture at the top of README: how similar test digits are to each other, by cross-entropy and by V-MCR².

python -m docs.images.front        # two runs of digits on a CPU, ten seconds; writes docs/images/front.png
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from matplotlib import pyplot
from PIL import Image

from vmcr2.data import open_data
from vmcr2.runs import fit, recipe

TITLES = {"ce": "cross-entropy", "vmcr2": "rate reduction (V-MCR²)"}


def main() -> None:
    """Train both, and draw |cosines| of the test features, sorted by class."""
    test = open_data("digits").test()
    order = test.labels.argsort(stable=True)
    starts = torch.bincount(test.labels).cumsum(0)
    middles = starts - torch.bincount(test.labels) / 2
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.7), dpi=110, layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        for axis, (objective, title) in zip(axes, TITLES.items(), strict=True):
            run = fit(recipe("digits", objective=objective, device="cpu"), out=Path(folder) / objective)
            z = run.features(test.images[order])
            drawn = axis.imshow((z @ z.T).abs(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            axis.set_title(title)
            axis.set_xticks(middles, [str(digit) for digit in range(10)])
            axis.set_yticks(middles, [str(digit) for digit in range(10)])
            axis.tick_params(length=0)
    figure.colorbar(drawn, ax=axes, label="|cosine| of two test digits", shrink=0.8)
    target = Path(__file__).with_name("front.png")
    figure.savefig(target)
    Image.open(target).convert("RGB").quantize(96).save(target, optimize=True)  # a third of the bytes
    print(target)


if __name__ == "__main__":
    main()
