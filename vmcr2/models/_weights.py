"""Weights from a file that a person has, into the backbone of a network."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from ._backbone import HasBackbone
from ._libraries import CLASSIFYING
from ._state import check_fit, copy_state, first_few

_WRAPPERS = ("module.", "backbone.", "model.")
"""What training scripts put before names: DataParallel, and a network that holds the backbone."""
_HELPERS = ("aux1", "aux2", "AuxLogits")
"""Classifiers beside the last one, of torchvision's GoogLeNet and Inception."""


def load_weights(network: nn.Module, path: str | Path) -> None:
    """Copy a file's state_dict into the network's backbone; the head does not change.

    The file is .safetensors, .pt or .pth, and is read without running any code in it. The state may be under the key
    "state_dict" or "model". Prefixes such as "module." are removed where names then fit, and a classifying layer that
    the backbone does not have is ignored. Anything else that does not fit is a :class:`UserError`. Nothing is copied
    then.

    >>> import tempfile
    >>> from vmcr2.models import ResNet18
    >>> trained, net = ResNet18(8), ResNet18(16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(trained.state_dict(), f"{folder}/trained.pt")
    ...     load_weights(net, f"{folder}/trained.pt")
    >>> torch.equal(net.conv1.weight, trained.conv1.weight)
    True
    """
    if not isinstance(network, HasBackbone):
        raise UserError(f"weights {path} need a network with a backbone, such as resnet18: leave weights out")
    wanted = network.backbone_state()
    given = _renamed(read_state(path), wanted)
    try:
        check_fit(
            wanted,
            given,
            names=f"weights {path} are of another network",
            shapes=f"weights {path} do not fit this network, because shapes differ",
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    copy_state(wanted, given)


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The state_dict in a file."""
    file = Path(path).expanduser()
    found = _state_in(_read(file))
    if not isinstance(found, Mapping) or not found:
        raise UserError(f"weights {file} hold no state_dict: save network.state_dict()")
    others = [str(name) for name, value in found.items() if not isinstance(name, str) or not isinstance(value, Tensor)]
    if others:
        raise UserError(
            f"weights {file} hold more than tensors, such as {first_few(others, 3)}: save network.state_dict() alone"
        )
    return dict(found)


def sha256_of(path: str | Path) -> str:
    """Of a file's content."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(file, error) from error


def _read(file: Path) -> Any:
    kind = file.suffix.lower()
    if kind not in (".safetensors", ".pt", ".pth"):
        raise UserError(f"weights {file} must be a .safetensors, .pt or .pth file: save network.state_dict() as one")
    try:
        if kind == ".safetensors":
            from safetensors.torch import load_file

            file.open("rb").close()  # safetensors' own message for a missing file does not name it
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise _unreadable(file, error) from error
    except pickle.UnpicklingError as error:
        raise UserError(
            f"weights {file} hold Python objects, which are not loaded because they could run code: "
            "save network.state_dict() alone"
        ) from error
    except Exception as error:  # each library has its own for a broken file
        raise UserError(
            f"weights {file} cannot be read ({type(error).__name__}): the file is broken or of another kind"
        ) from error


def _unreadable(file: Path, error: OSError) -> UserError:
    if not file.exists():
        return UserError(f"there is no file {file}: give weights the path of a .safetensors, .pt or .pth file")
    return UserError(f"weights {file} cannot be read: {error.strerror or error}")


def _state_in(loaded: Any) -> Any:
    """The state_dict, which may be one entry among others of a training script's file."""
    if isinstance(loaded, Mapping):
        for key in ("state_dict", "model"):
            if isinstance(loaded.get(key), Mapping):
                return loaded[key]
    return loaded


def _renamed(state: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """The state by the network's names, without the classifying layer that the network does not have."""
    known = set(wanted)
    layers = {name.rpartition(".")[0] for name in known}
    found = {name: value for name, value in state.items() if name in known}  # names that fit as they are come first
    for name, value in state.items():
        fitting, bare = _without_wrappers(name, known)
        if fitting is not None and fitting not in found:
            found[fitting] = value
        elif name not in known and not _classifies(bare, layers):
            found[name] = value  # as the file has it, for the error
    return found


def _without_wrappers(name: str, known: set[str]) -> tuple[str | None, str]:
    """The longest ending of a name that the network has, or None; and the name without any wrapper."""
    while name not in known:
        wrapper = next((own for own in _WRAPPERS if name.startswith(own)), None)
        if wrapper is None:
            return None, name
        name = name.removeprefix(wrapper)
    return name, name


def _classifies(name: str, layers: set[str]) -> bool:
    """Whether it is of a classifying layer that the network does not have."""
    first = name.partition(".")[0]
    return first in _HELPERS or (first in CLASSIFYING and name.rpartition(".")[0] not in layers)
