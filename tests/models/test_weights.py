"""Weights from a file into a backbone: whole, or an error and nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vmcr2._shared import UserError
from vmcr2.models import MLP, Featurizer, ModelSettings, PreActResNet18, ResNet18, load_weights

State = dict[str, Tensor]


def network(**more: nn.Module) -> Featurizer:
    backbone = nn.Sequential()
    backbone.add_module("stem", nn.Linear(4, 6, bias=False))
    backbone.add_module("norm", nn.BatchNorm1d(6))
    for name, part in more.items():
        backbone.add_module(name, part)
    return Featurizer(backbone, 3, 6)


def file_state(net: Featurizer) -> State:
    """Other values than the network's, by the backbone's names."""
    return {name: torch.full_like(value, 7) for name, value in net.backbone.state_dict().items()}


def filled(net: Featurizer) -> bool:
    return all(bool((value == 7).all()) for value in net.backbone.state_dict().values())


def unchanged(net: nn.Module, before: State) -> bool:
    return all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def kept(net: nn.Module) -> State:
    return {name: value.clone() for name, value in net.state_dict().items()}


WRITERS: dict[str, Callable[[State, Path], None]] = {
    ".safetensors": lambda state, path: save_file(state, path),
    ".pt": lambda state, path: torch.save(state, path),
    ".pth": lambda state, path: torch.save(state, path),
}
WRAPPED: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}},
    "model": lambda state: {"model": state, "step": 12},
    "module.": lambda state: {f"module.{name}": value for name, value in state.items()},
    "backbone.": lambda state: {f"backbone.{name}": value for name, value in state.items()},
    "model.": lambda state: {f"model.{name}": value for name, value in state.items()},
    "module.backbone.": lambda state: {"state_dict": {f"module.backbone.{name}": v for name, v in state.items()}},
    "a classifier": lambda state: state | {"fc.weight": torch.ones(9, 6), "fc.bias": torch.ones(9)},
    "deep classifiers": lambda state: {
        f"module.{name}": value
        for name, value in (
            state | {f"{own}.0.weight": torch.ones(2) for own in ("head", "heads", "classifier")}
        ).items()
    },
    "old": lambda state: {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")},
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    net = network()
    head = kept(net.head)  # type: ignore[arg-type]
    WRITERS[kind](file_state(net), tmp_path / f"w{kind}")
    load_weights(net, tmp_path / f"w{kind}")
    assert filled(net)
    assert unchanged(net.head, head)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_training_scripts_write_around_it(wrapped: str, tmp_path: Path) -> None:
    net = network()
    torch.save(WRAPPED[wrapped](file_state(net)), tmp_path / "w.pt")
    load_weights(net, str(tmp_path / "w.pt"))
    net.backbone.norm.num_batches_tracked.fill_(7)  # which may be missing
    assert filled(net)


def test_names_that_begin_like_a_wrapper_fit_as_they_are(tmp_path: Path) -> None:
    net = network(model=nn.Linear(6, 6), head=nn.Linear(6, 6))
    torch.save(file_state(net), tmp_path / "w.pt")
    load_weights(net, tmp_path / "w.pt")
    assert filled(net)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda s: {"other": torch.ones(1)},
            "are of another network: missing stem.weight, norm.weight, norm.bias, norm.",
        ),
        (
            lambda s: s | {"extra.weight": torch.ones(1)},
            "are of another network: missing nothing; unexpected extra.weight",
        ),
        (lambda s: s | {"stem.weight": torch.ones(6, 5)}, "shapes differ: stem.weight (6, 5) instead of (6, 4)"),
        (lambda s: s | {"model.stem.weight": s["stem.weight"]}, "missing nothing; unexpected model.stem.weight"),
        (lambda s: {f"encoder.{name}": v for name, v in s.items()}, "unexpected encoder.stem.weight"),
        (lambda s: {**s, "epoch": 3}, "hold more than tensors, such as epoch: save network.state_dict() alone"),
        (lambda s: {}, "hold no state_dict: save network.state_dict()"),
        (lambda s: torch.ones(3), "hold no state_dict"),
        (lambda s: Path("x"), "hold Python objects, which are not loaded because they could run code: save"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_copied(
    change: Callable[[State], Any], sentence: str, tmp_path: Path
) -> None:
    net = network()
    before = kept(net)
    torch.save(change(file_state(net)), tmp_path / "w.pt")
    with pytest.raises(UserError, match=re.escape(sentence)) as error:
        load_weights(net, tmp_path / "w.pt")
    assert str(tmp_path / "w.pt") in str(error.value)
    assert "\n" not in str(error.value)
    assert unchanged(net, before)


def test_a_classifying_layer_that_the_backbone_has_must_fit(tmp_path: Path) -> None:
    net = network(fc=nn.Linear(6, 6))
    torch.save(file_state(net) | {"fc.weight": torch.ones(1000, 6)}, tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"shapes differ: fc\.weight \(1000, 6\) instead of \(6, 6\)"):
        load_weights(net, tmp_path / "w.pt")


def test_of_a_layer_that_the_backbone_has_nothing_is_ignored(tmp_path: Path) -> None:
    net = network(head=nn.LayerNorm(6))
    torch.save(file_state(net) | {"head.gain": torch.ones(6)}, tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"missing nothing; unexpected head\.gain$"):
        load_weights(net, tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("w.bin", b"x", "must be a .safetensors, .pt or .pth file: save network.state_dict() as one"),
        ("w.pt", None, "there is no file {path}: give weights the path of"),
        ("w.safetensors", None, "there is no file {path}: give weights the path of"),
        ("w.safetensors", b"nonsense", "cannot be read (SafetensorError): the file is broken or of another kind"),
        ("w.pt", b"", "cannot be read (EOFError): the file is broken or of another kind"),
        ("w.pth", b"PK\x03\x04broken", "cannot be read (RuntimeError): the file is broken or of another kind"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(sentence.format(path=path))):
        load_weights(network(), path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "w.pt").mkdir()
    with pytest.raises(UserError, match=r"w\.pt cannot be read: Is a directory"):
        load_weights(network(), tmp_path / "w.pt")


def test_a_network_without_a_backbone_takes_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="need a network with a backbone, such as resnet18: leave weights out"):
        load_weights(MLP(4, 3), tmp_path / "w.pt")


def test_the_setting_fills_the_network_and_knows_the_file(tmp_path: Path) -> None:
    """torchvision's names, as its files have them; see test_resnet.py for the names themselves."""
    path = tmp_path / "resnet18.pth"
    state = {name: value + 1 for name, value in ResNet18(4).backbone_state().items()}
    torch.save(state | {"fc.weight": torch.ones(1000, 512), "fc.bias": torch.ones(1000)}, path)
    settings = ModelSettings(name="resnet18", dim=8, weights=path)
    assert settings.weights == str(path)
    assert settings.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    net = settings.build((3, 32, 32))
    assert isinstance(net, ResNet18)
    assert all(torch.equal(value, state[name]) for name, value in net.backbone_state().items())
    path.unlink()
    other = settings.build((3, 32, 32), with_weights=False)  # a saved run is loaded without the file
    assert not torch.equal(other.get_parameter("conv1.weight"), state["conv1.weight"])
    with pytest.raises(UserError, match="there is no file"):
        settings.build((3, 32, 32))


def test_without_a_file_there_is_no_checksum() -> None:
    assert ModelSettings(name="resnet18").weights_sha256 is None
    with pytest.raises(UserError, match=r"there is no file /nowhere/w\.pt"):
        _ = ModelSettings(name="resnet18", weights="/nowhere/w.pt").weights_sha256


def test_the_random_numbers_do_not_depend_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(PreActResNet18(2).state_dict(), path)
    states = []
    for weights in (None, path):
        torch.manual_seed(5)
        net = ModelSettings(name="preact18", dim=8, weights=weights).build((3, 8, 8))
        states.append((net.get_parameter("head.0.weight"), torch.rand(3)))
    assert torch.equal(states[0][0], states[1][0])
    assert torch.equal(states[0][1], states[1][1])
