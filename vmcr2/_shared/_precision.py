"""Keeps a module's buffers in float32 or better, also if the network is in half precision, and writable."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class PreciseBuffers(nn.Module):
    """`.half()` and `.to(torch.bfloat16)` are for networks: floating-point buffers here keep at least float32.

    A buffer that is made inside ``torch.inference_mode`` could not be written to outside of it: here it is a copy that
    can be.
    """

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """As of any module; never a tensor of the inference mode."""
        super().register_buffer(name, None if tensor is None else _writable(tensor), persistent)

    @torch.inference_mode(False)
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PreciseBuffers:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = buffer.to(after.device)
        return self


@torch.inference_mode(False)
def _writable(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor


def precise_dtype() -> torch.dtype:
    """Torch's default dtype, but at least float32."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)
