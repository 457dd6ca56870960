"""The maths: pure functions of tensors, torch only. Rows are samples; docs/notation.md maps names to the paper's."""

from ._eigen import Batches
from ._health import diagnose
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
from ._top_classes import TopClasses, nearest_subspaces
from ._variational import VariationalTerms, mismatch, variational_terms

# isort: split
# Below: for the other rooms of this package, not for users. They may change without notice.
from ._batch_classes import BatchClasses as BatchClasses, read_batch_classes as read_batch_classes
from ._block_latching import (
    BLOCK_BUDGET as BLOCK_BUDGET,
    blank_atoms as blank_atoms,
    latch_blocks as latch_blocks,
    latch_blocks_batches as latch_blocks_batches,
)
from ._blocks import (
    BlockPrepared as BlockPrepared,
    Blocks as Blocks,
    block_terms as block_terms,
    block_terms_with_gradient as block_terms_with_gradient,
    move_blocks as move_blocks,
    prepare_block_step as prepare_block_step,
)
from ._classes import (
    Classes as Classes,
    ClassGroup as ClassGroup,
    HardClasses as HardClasses,
    SoftClasses as SoftClasses,
    class_capacity as class_capacity,
    safe_reciprocal as safe_reciprocal,
)
from ._closed_form import refuse_transforms as refuse_transforms
from ._dictionary_rate import expansion_gradients as expansion_gradients, inverse_of_sum as inverse_of_sum
from ._eigen import add_moments as add_moments, pseudo_random as pseudo_random
from ._focus import pull_weights as pull_weights
from ._inputs import (
    LEAST as LEAST,
    MOST as MOST,
    check_count as check_count,
    check_features as check_features,
    check_lengths as check_lengths,
    check_not_negative as check_not_negative,
    check_positive as check_positive,
    read_classes as read_classes,
    unit_features as unit_features,
)
from ._inverses import ClassMoments as ClassMoments, by_kernels as by_kernels, report_pivots as report_pivots
from ._linalg import (
    SHORTEST as SHORTEST,
    Guard as Guard,
    attach_gradient as attach_gradient,
    full_precision as full_precision,
    products_as_asked as products_as_asked,
    tracing as tracing,
    working_dtype as working_dtype,
)
from ._logdets import (
    carried_compression as carried_compression,
    compression as compression,
    compression_gradient as compression_gradient,
    compression_with_gradient as compression_with_gradient,
    expansion as expansion,
    expansion_gradient as expansion_gradient,
    expansion_with_gradient as expansion_with_gradient,
)
from ._mismatch import Scalar as Scalar, atom_terms as atom_terms
from ._own_atoms import (
    by_columns as by_columns,
    find_own_atoms as find_own_atoms,
    residuals_by_own_atoms as residuals_by_own_atoms,
)
from ._own_steps import (
    OwnPrepared as OwnPrepared,
    move_by_own_atoms as move_by_own_atoms,
    prepare_own_step as prepare_own_step,
)
from ._pairs import same_class_pairs as same_class_pairs
from ._problem import (
    Problem as Problem,
    build_problem as build_problem,
    problem_of as problem_of,
    weight_from as weight_from,
)
from ._projections import (
    check_codes_rule as check_codes_rule,
    codes_projection as codes_projection,
    project_unit_columns as project_unit_columns,
)
from ._rates import rates_of as rates_of
from ._step_sizes import dictionary_rate as dictionary_rate
from ._steps import (
    Atoms as Atoms,
    Prepared as Prepared,
    dictionary_gradient as dictionary_gradient,
    keep_finite as keep_finite,
    move_codes as move_codes,
    move_dictionary as move_dictionary,
    prepare_step as prepare_step,
)
from ._subspaces import (
    default_components as default_components,
    no_subspace as no_subspace,
    subspaces_from_moments as subspaces_from_moments,
)
from ._top_classes import (
    SCORE_BUDGET as SCORE_BUDGET,
    RunningTop as RunningTop,
    residuals_of as residuals_of,
    top_logits as top_logits,
)
from ._tracking import track_atoms as track_atoms, track_blocks as track_blocks
from ._variational import terms_of as terms_of, terms_with_gradient as terms_with_gradient

__all__ = [
    "Backend",
    "Batches",
    "ClassSubspaces",
    "CodesRule",
    "RateTerms",
    "TopClasses",
    "VariationalTerms",
    "class_subspaces",
    "coding_rate",
    "diagnose",
    "latch",
    "latch_batches",
    "maximal_rate_reduction",
    "mismatch",
    "nearest_subspace",
    "nearest_subspaces",
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
