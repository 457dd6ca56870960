"""
Add a class without training
============================

The features of a trained network are useful for classes that it has never seen. ``add_class`` fits a subspace to a few
pictures of a new class. Nothing is trained again.
"""

# %%
# The network sees eight digits, not 0 and not 6
# ----------------------------------------------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import vmcr2
from vmcr2.data import from_arrays, open_data

digits = open_data("digits")
train, test = digits.train(), digits.test()
seen = (train.labels != 0) & (train.labels != 6)
source = from_arrays(train.images[seen], train.labels[seen])
config = vmcr2.recipe("auto", data=source, epochs=40, device="cpu")
run = vmcr2.fit(config, source=source, out=Path(tempfile.mkdtemp()) / "eight", for_report=False)

# %%
# How many pictures does a new class need?
# ----------------------------------------
# On digits very few. On harder pictures more: ``docs/new-classes.md`` has figures of MNIST and CIFAR-100.
new = (test.labels == 0) | (test.labels == 6)
truth = [str(label) for label in test.labels.tolist()]
counts = (1, 2, 5, 10, 20, 50)
found, kept = [], []
for count in counts:
    larger = run
    for name in ("0", "6"):
        larger = larger.add_class(name, train.images[train.labels == int(name)][:count])
    right = [a == b for a, b in zip(larger.predict(test.images), truth, strict=True)]
    found.append(sum(r for r, n in zip(right, new.tolist(), strict=True) if n) / int(new.sum()))
    kept.append(sum(r for r, n in zip(right, new.tolist(), strict=True) if not n) / int((~new).sum()))

figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
axis.semilogx(counts, found, marker="o", label="found, of the two new digits")
axis.semilogx(counts, kept, marker="o", label="right, of the eight known digits")
axis.set(xlabel="pictures of each new digit", ylabel="share of test images", xticks=counts, ylim=(0, 1.02))
axis.set_xticks(counts, labels=map(str, counts))
axis.minorticks_off()
axis.legend(loc="lower right")
plt.show()
