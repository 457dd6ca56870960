"""Settings that earlier versions had. A run folder that has one at its default is read as if it had not."""

from __future__ import annotations

from typing import Any, NamedTuple


class Retired(NamedTuple):
    """A setting's default, the version that removed it, and the one objective it acted with, if there was one."""

    default: Any
    version: str
    objective: str | None = None


RETIRED = {
    "mu_end": Retired(None, "0.2.0", "vmcr2"),
    "weight_end": Retired(None, "0.2.0", "vmcr2"),
    "batch_expansion_end": Retired(None, "0.2.0", "vmcr2"),
    "nu_dictionary_end": Retired(None, "0.2.0", "vmcr2"),
    "nu_codes_end": Retired(None, "0.2.0", "vmcr2"),
    "keep_trace": Retired(False, "0.2.0", "vmcr2"),
    "multiplier_rate": Retired(0.0, "0.2.0", "vmcr2"),
    "focus": Retired(0.0, "0.2.0", "vmcr2"),
    "decay_power": Retired(1.0, "0.2.0"),
    "sharpness": Retired(0.0, "0.2.0"),
    "fresh_statistics": Retired(False, "0.2.0"),
}
