"""
The figures of a run
====================

A run draws what it has learned. ``run.plot`` has five pictures; each is a figure of matplotlib, to change and to save.
"""

# %%
# A run
# -----
import tempfile
from pathlib import Path

import vmcr2

run = vmcr2.fit(vmcr2.recipe("digits", epochs=40, device="cpu"), out=Path(tempfile.mkdtemp()) / "digits")

# %%
# How training went
# -----------------
# ΔR, the two rates, and V-MCR²'s own terms, over the epochs.
run.plot.convergence()

# %%
# What the features look like
# ---------------------------
# Every class has a place on the circle. A sample stands near the classes in whose subspaces it lies.
run.plot.feature_map()

# %%
# The eigenvalues of every class: how many directions it uses.
run.plot.spectra()

# %%
# Which classes are hard
# ----------------------
run.plot.recall()
