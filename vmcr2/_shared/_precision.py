"""Keeps a module's buffers in float32 or better, also if the network is in half precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class PreciseBuffers(nn.Module):
    """`.half()` and `.to(torch.bfloat16)` are for networks: floating-point buffers here keep at least float32."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PreciseBuffers:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = buffer.to(after.device)
        return self


def precise_dtype() -> torch.dtype:
    """Torch's default dtype, but at least float32."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)
