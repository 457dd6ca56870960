"""
Skewed data
===========

Real classes are seldom of one size. Here five digits have 100 training images each, and the other five have 10. Rate
reduction counts each class by its share, so rare classes have little weight. ``class_weight="balanced"`` draws them
more often.
"""

# %%
# Two classifiers
# ---------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import train_test_split

from vmcr2.sklearn import RateReductionClassifier

images, labels = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(images / 16, labels, test_size=0.3, stratify=labels, random_state=0)
rows = np.concatenate([np.flatnonzero(y == j)[: 100 if j < 5 else 10] for j in range(10)])

predictions = {}
for title, weight in (("as they are", None), ('class_weight="balanced"', "balanced")):
    model = RateReductionClassifier(standardize=False, class_weight=weight, epochs=60, random_state=0)
    predictions[title] = model.fit(X[rows], y[rows]).predict(X_test)

# %%
# Recall, class by class
# ----------------------
# Look at the recall of every class and at the balanced accuracy, their mean. Plain accuracy hides a class that is
# never found, if the class is rare in the test set too.
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for at, (title, found) in enumerate(predictions.items()):
    score = balanced_accuracy_score(y_test, found)
    axis.bar(
        np.arange(10) + 0.4 * at - 0.2,
        recall_score(y_test, found, average=None),
        width=0.4,
        label=f"{title}: mean {score:.3f}",
    )
axis.set(xlabel="digit (5 to 9 have 10 training images)", ylabel="recall", xticks=range(10), ylim=(0, 1.02))
axis.legend(loc="lower left")
plt.show()
