"""From features to answers: calibrated probabilities, refusal, the nearest training samples."""

from ._calibration import (
    START as START,
    Array as Array,
    Calibration as Calibration,
    fit_calibration as fit_calibration,
    log_shares as log_shares,
)
from ._confidence import (
    Confidence as Confidence,
    calibration_error as calibration_error,
    confidence_error as confidence_error,
)
from ._export import Exported as Exported, check_target as check_target, export as export
from ._feature_file import save_features as save_features
from ._kept import KeptSamples as KeptSamples, Neighbors as Neighbors
from ._pipeline import OUTPUTS as OUTPUTS, Pipeline as Pipeline, Plain as Plain
from ._readout import (
    HEAD as HEAD,
    SUBSPACE as SUBSPACE,
    Answers as Answers,
    Readout as Readout,
)
from ._rows_file import check_output as check_output, rows_file as rows_file
from ._sheet import write_sheet as write_sheet
from ._top_answers import TopAnswers as TopAnswers, top_answers as top_answers
