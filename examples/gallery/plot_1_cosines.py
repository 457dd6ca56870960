"""
Three objectives, three shapes of features
==========================================

Cross-entropy pulls every class onto one line. Rate reduction gives every class a few directions of its own, at right
angles to those of the other classes. This example trains the same network three times on digits and looks.
"""

# %%
# Train
# -----
# A recipe has every setting. ``fit`` trains, evaluates on the test images and writes a run folder.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import vmcr2
from vmcr2.data import open_data

place = Path(tempfile.mkdtemp())
titles = {"ce": "cross-entropy", "mcr2": "exact MCR²", "vmcr2": "V-MCR²"}
runs = {
    name: vmcr2.fit(vmcr2.recipe(f"digits-{name}", epochs=60, device="cpu"), out=place / name, for_report=False)
    for name in titles
}
for name, run in runs.items():
    found = run.summary
    print(
        f"{titles[name]:14} nearest subspace {found['test_accuracy']:.3f}, full-train ΔR {found['train_delta_r']:.1f}"
    )

# %%
# Look at the angles
# ------------------
# A pixel is the absolute cosine between two test images, sorted by class. White is a right angle. The dark squares on
# the diagonal are the classes.
test = open_data("digits").test()
order = torch.cat([torch.where(test.labels == j)[0][:20] for j in range(10)])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for axis, (name, run) in zip(axes, runs.items(), strict=True):
    features = run.features(test.images[order])
    image = axis.imshow((features @ features.T).abs(), cmap="Blues", vmin=0, vmax=1)
    axis.set(title=titles[name], xticks=[], yticks=[])
figure.colorbar(image, ax=axes, label="|cosine|", shrink=0.8)
plt.show()

# %%
# Count the dimensions
# --------------------
# The eigenvalues of a class's second moment say how many directions it uses. Unit features have eigenvalues that sum
# to 1. Cross-entropy's first eigenvalue has nearly all of it; under rate reduction about ten share it. The dotted line
# is ⌊d/k⌋ = 12, the room that a class has: 128 features for 10 classes.
train = open_data("digits").train()
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, run in runs.items():
    features = run.features(train.images)
    classes = [features[train.labels == j] for j in range(10)]
    spectra = torch.stack([torch.linalg.svdvals(rows).square() / len(rows) for rows in classes])
    axis.semilogy(range(1, 21), spectra.mean(dim=0)[:20], marker="o", markersize=3, label=titles[name])
axis.axvline(128 // 10, color="grey", linewidth=0.8, linestyle=":")
axis.set(xlabel="direction of a class", ylabel="its share of the class, mean of 10 classes", xticks=range(2, 21, 2))
axis.legend()
plt.show()
