"""Settings that earlier versions had. If a run folder has one at its default, it is ignored; else it is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Retired(NamedTuple):
    """A setting's default, the version that removed it, and the settings and values with which it acted."""

    default: Any
    version: str = "0.2.0"
    only_with: dict[str, tuple[Any, ...]] = {}  # noqa: RUF012 -- nobody writes to it


_VMCR2: dict[str, tuple[Any, ...]] = {"objective": ("vmcr2",)}
_ENDS = ("mu_end", "weight_end", "batch_expansion_end", "nu_dictionary_end", "nu_codes_end")
RETIRED = {
    **dict.fromkeys(_ENDS, Retired(None, only_with=_VMCR2)),
    "keep_trace": Retired(False, only_with=_VMCR2),
    "multiplier_rate": Retired(0.0, only_with=_VMCR2),
    "decay_power": Retired(1.0, only_with={"schedule": ("cosine", "linear")}),
    "sharpness": Retired(0.0),
    "fresh_statistics": Retired(False),
}
RETIRED_VALUES = {("codes", "simplex"): "0.2.0", ("codes", "rescaled"): "0.2.0"}
"""Values that a setting could have, and the version that removed them."""


def removed_in(name: str, value: Any, flat: Mapping[str, Any]) -> str | None:
    """The version that removed what a run used; None where it has nothing removed, or it could not act."""
    if name in RETIRED:
        default, version, only_with = RETIRED[name]
        acted = all(flat.get(other) in values for other, values in only_with.items())
        return version if value != default and acted else None
    return RETIRED_VALUES.get((name, value)) if isinstance(value, str) else None
