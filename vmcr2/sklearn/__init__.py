"""scikit-learn estimators for arrays: features on class subspaces, and classifiers that can refuse a point.

>>> from sklearn.datasets import load_wine
>>> from vmcr2.sklearn import RateReductionClassifier
>>> X, y = load_wine(return_X_y=True)
>>> RateReductionClassifier(epochs=40, random_state=0).fit(X, y).score(X, y) > 0.95
True
"""

from ._classifier import RateReductionClassifier
from ._embedding import RateReductionEmbedding
from ._nearest import NearestSubspaceClassifier

__all__ = ["NearestSubspaceClassifier", "RateReductionClassifier", "RateReductionEmbedding"]
