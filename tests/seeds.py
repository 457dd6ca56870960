"""The suite's seed: VMCR2_TEST_SEED, 0 unless said."""

from __future__ import annotations

import os

SEED = int(os.environ.get("VMCR2_TEST_SEED", "0"))
