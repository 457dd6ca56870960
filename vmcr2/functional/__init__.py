"""The maths: pure functions of tensors, torch only. Rows are samples; docs/notation.md maps names to the paper's."""

# for the neighbouring rooms
from ._classes import ClassGroup as ClassGroup
from ._classes import HardClasses as HardClasses
from ._classes import class_capacity as class_capacity
from ._eigen import Batches
from ._latching import latch, latch_batches
from ._linalg import Guard as Guard
from ._linalg import normalize_rows
from ._logdets import Backend
from ._projections import flat_codes, project_nonnegative, project_simplex, project_unit_columns, rescale_trace
from ._rates import RateTerms, coding_rate, maximal_rate_reduction, rate_reduction
from ._spectral import variational_logdet, variational_spectral
from ._steps import CodesRule, lipschitz_codes, lipschitz_dictionary, variational_step
from ._subspaces import (
    ClassSubspaces,
    class_subspaces,
    nearest_subspace,
    principal_angles,
    subspace_overlap,
    subspace_residuals,
)
from ._variational import (
    VariationalGradients,
    VariationalTerms,
    mismatch,
    variational_compression,
    variational_expansion,
    variational_gradients,
    variational_terms,
)

__all__ = [
    "Backend",
    "Batches",
    "ClassSubspaces",
    "CodesRule",
    "RateTerms",
    "VariationalGradients",
    "VariationalTerms",
    "class_subspaces",
    "coding_rate",
    "flat_codes",
    "latch",
    "latch_batches",
    "lipschitz_codes",
    "lipschitz_dictionary",
    "maximal_rate_reduction",
    "mismatch",
    "nearest_subspace",
    "normalize_rows",
    "principal_angles",
    "project_nonnegative",
    "project_simplex",
    "project_unit_columns",
    "rate_reduction",
    "rescale_trace",
    "subspace_overlap",
    "subspace_residuals",
    "variational_compression",
    "variational_expansion",
    "variational_gradients",
    "variational_logdet",
    "variational_spectral",
    "variational_step",
    "variational_terms",
]
