"""The maths: pure functions of tensors, torch only. Rows are samples; docs/notation.md maps names to the paper's."""

from ._eigen import Batches
from ._latching import latch, latch_batches
from ._linalg import normalize_rows
from ._logdets import Backend
from ._projections import CodesRule
from ._rates import RateTerms, coding_rate, maximal_rate_reduction, rate_reduction
from ._spectral import variational_logdet, variational_spectral
from ._steps import variational_step
from ._subspaces import (
    ClassSubspaces,
    class_subspaces,
    nearest_subspace,
    principal_angles,
    subspace_overlap,
    subspace_residuals,
)
from ._variational import VariationalTerms, mismatch, variational_terms

# isort: split
# Below: for the other rooms of this package, not for users. They may change without notice.
from ._classes import Classes as Classes
from ._classes import ClassGroup as ClassGroup
from ._classes import HardClasses as HardClasses
from ._classes import SoftClasses as SoftClasses
from ._classes import class_capacity as class_capacity
from ._dictionary_rate import expansion_with_gradients as expansion_with_gradients
from ._eigen import OVERSAMPLE as OVERSAMPLE
from ._eigen import ROUNDS as ROUNDS
from ._eigen import Moments as Moments
from ._eigen import Samples as Samples
from ._eigen import add_moments as add_moments
from ._eigen import eigenpair_source as eigenpair_source
from ._eigen import leading_eigenpairs as leading_eigenpairs
from ._eigen import pseudo_random as pseudo_random
from ._inputs import check_count as check_count
from ._inputs import check_features as check_features
from ._inputs import check_not_negative as check_not_negative
from ._inputs import check_positive as check_positive
from ._inputs import read_classes as read_classes
from ._inputs import unit_features as unit_features
from ._linalg import Guard as Guard
from ._linalg import attach_gradient as attach_gradient
from ._linalg import full_precision as full_precision
from ._linalg import products_as_asked as products_as_asked
from ._linalg import tracing as tracing
from ._linalg import working_dtype as working_dtype
from ._logdets import carried_compression as carried_compression
from ._logdets import compression as compression
from ._logdets import expansion as expansion
from ._logdets import expansion_gradient as expansion_gradient
from ._logdets import hard_compression as hard_compression
from ._mismatch import Scalar as Scalar
from ._mismatch import atom_terms as atom_terms
from ._mismatch import model_coordinates as model_coordinates
from ._pairs import same_class_pairs as same_class_pairs
from ._problem import Problem as Problem
from ._problem import build_problem as build_problem
from ._problem import weight_from as weight_from
from ._projections import check_codes_rule as check_codes_rule
from ._projections import codes_projection as codes_projection
from ._projections import project_unit_columns as project_unit_columns
from ._rates import rates_of as rates_of
from ._steps import Atoms as Atoms
from ._steps import Prepared as Prepared
from ._steps import dictionary_gradient as dictionary_gradient
from ._steps import dictionary_rate as dictionary_rate
from ._steps import keep_finite as keep_finite
from ._steps import move_codes as move_codes
from ._steps import move_dictionary as move_dictionary
from ._steps import prepare_step as prepare_step
from ._subspaces import default_components as default_components
from ._subspaces import subspaces_from_moments as subspaces_from_moments
from ._variational import terms_of as terms_of

__all__ = [
    "Backend",
    "Batches",
    "ClassSubspaces",
    "CodesRule",
    "RateTerms",
    "VariationalTerms",
    "class_subspaces",
    "coding_rate",
    "latch",
    "latch_batches",
    "maximal_rate_reduction",
    "mismatch",
    "nearest_subspace",
    "normalize_rows",
    "principal_angles",
    "rate_reduction",
    "subspace_overlap",
    "subspace_residuals",
    "variational_logdet",
    "variational_spectral",
    "variational_step",
    "variational_terms",
]
