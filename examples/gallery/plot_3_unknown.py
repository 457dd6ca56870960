"""
Refuse what was never seen
==========================

A network always names one of its classes. The distance to the nearest class subspace says whether it should: *novelty*
is the share of a feature that lies outside, from 0 to 1. Here the network never sees the digits 8 and 9.
"""

# %%
# Train on eight digits
# ---------------------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import vmcr2
from vmcr2.data import from_arrays, open_data

digits = open_data("digits")
train, test = digits.train(), digits.test()
seen = train.labels < 8
source = from_arrays(train.images[seen], train.labels[seen])
config = vmcr2.recipe("auto", data=source, epochs=40, device="cpu")
run = vmcr2.fit(config, source=source, out=Path(tempfile.mkdtemp()) / "eight", for_report=False)

# %%
# Novelty of known and of foreign digits
# --------------------------------------
# The threshold comes from samples that were set aside: at most about 5 % of the known digits lie above it.
novelty = run.novelty(test.images)
known = test.labels < 8
threshold = run.threshold(0.05)
figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
axis.hist([novelty[known], novelty[~known]], bins=30, label=["digits 0 to 7", "8 and 9, never seen"])
axis.axvline(threshold, color="black", linestyle=":", label="refused above")
axis.set(xlabel="novelty", ylabel="test images")
axis.legend()
plt.show()

# %%
# ``predict`` with ``refuse`` does it in one call: the answer is None where a sample looks foreign.
answers = run.predict(test.images, refuse=0.05)
refused = [answer is None for answer in answers]
for title, rows in (("known digits", known), ("digits never seen", ~known)):
    chosen = [no for no, row in zip(refused, rows.tolist(), strict=True) if row]
    print(f"{title}: {sum(chosen)} of {len(chosen)} refused")
