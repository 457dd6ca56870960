"""
A decision that knows its limits
================================

``RateReductionClassifier`` is an estimator of scikit-learn. On two columns one can see what it decides everywhere, and
where it refuses: ``predict`` with ``reject`` answers −1 for samples that fit no class.
"""

# %%
# Fit
# ---
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from vmcr2.sklearn import RateReductionClassifier

X, y = make_blobs(450, centers=[(-4, 0), (3, 4), (3, -4)], cluster_std=1.2, random_state=0)
model = RateReductionClassifier(random_state=0).fit(X, y)
print(f"right on {model.score(X, y):.3f} of the training samples")

# %%
# Look
# ----
# Colours are the classes that are predicted; grey is refused. ``reject=0.95`` accepts about 95 % of samples like those
# of training.
grid_x, grid_y = np.meshgrid(np.linspace(-10, 10, 160), np.linspace(-10, 10, 160))
places = np.column_stack([grid_x.ravel(), grid_y.ravel()])
answers = model.predict(places, reject=0.95).reshape(grid_x.shape)
colours = plt.get_cmap("tab10")
figure, axis = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
shades = np.array([(0.85, 0.85, 0.85), *(colours(j)[:3] for j in range(3))])
axis.imshow(shades[answers + 1], origin="lower", extent=(-10, 10, -10, 10), alpha=0.45)
axis.scatter(X[:, 0], X[:, 1], s=6, color=[colours(j) for j in y])
axis.set(xlabel="first column", ylabel="second column")
plt.show()
