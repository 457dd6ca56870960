"""A Hugging Face dataset of pictures is trained on like a folder: from_dataset takes it as it is.

    pip install datasets
    python examples/hugging_face.py

The dataset is made here from scikit-learn's digits, so that nothing is downloaded. With the network, it would be
datasets.load_dataset("mnist"), whose items have the same form: {"image": a PIL picture, "label": a number}.
"""

from __future__ import annotations

import tempfile
from typing import Any

import datasets
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import vmcr2
from vmcr2.data import from_dataset

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def make(pictures: Any, labels: Any) -> datasets.Dataset:
    """A dataset with the columns that collections of pictures have there."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    images = [Image.fromarray((15 * picture).astype("uint8")) for picture in pictures]
    return datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)


def main() -> float:
    """Train for a few seconds, and say what was learned."""
    digits = load_digits()
    parts = train_test_split(digits.images, digits.target, test_size=0.2, stratify=digits.target, random_state=0)
    train, test = make(parts[0], parts[2]), make(parts[1], parts[3])
    source = from_dataset(train, test, title="digits")
    config = vmcr2.recipe("auto", data=source, epochs=30, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        run = vmcr2.fit(config, source=source, out=f"{folder}/run")
        (first,) = run.predict(source.test().images[:1])
    accuracy = float(run.summary["readout_accuracy"])
    print(f"{source.num_classes} classes ({', '.join(source.class_names[:3])}, …), test accuracy {accuracy:.4f}")
    print(f"the first test picture is a {first}; it was labelled {NAMES[test[0]['label']]}")
    return accuracy


if __name__ == "__main__":
    main()
