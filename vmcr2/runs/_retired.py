"""Settings that earlier versions had. If a run folder has one at its default, it is ignored; else it is an error."""

from __future__ import annotations

from typing import Any, NamedTuple


class Retired(NamedTuple):
    """A setting's default, the version that removed it, and the objective that it belonged to, if only one had it."""

    default: Any
    version: str
    objective: str | None = None


_ENDS = ("mu_end", "weight_end", "batch_expansion_end", "nu_dictionary_end", "nu_codes_end")
RETIRED = {
    **dict.fromkeys(_ENDS, Retired(None, "0.2.0", "vmcr2")),
    "keep_trace": Retired(False, "0.2.0", "vmcr2"),
    "multiplier_rate": Retired(0.0, "0.2.0", "vmcr2"),
    "focus": Retired(0.0, "0.2.0", "vmcr2"),
    "decay_power": Retired(1.0, "0.2.0"),
    "sharpness": Retired(0.0, "0.2.0"),
    "fresh_statistics": Retired(False, "0.2.0"),
}
