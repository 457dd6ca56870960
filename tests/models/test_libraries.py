"""``timm:NAME`` and ``torchvision:NAME``, with stand-ins for the libraries: real modules, and the calls that they got.

The real torchvision is in tests/gpu/test_torchvision.py.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vmcr2._shared import UserError
from vmcr2.models import Featurizer, ModelSettings, build
from vmcr2.models._libraries import remove_last_layer

WIDTH = 6


class Classifying(nn.Module):
    """A network of pictures whose last part has a name."""

    def __init__(self, channels: int = 3, **parts: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, WIDTH, 3)
        for name, part in parts.items():
            setattr(self, name, part)
        self.parts = list(parts)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).mean((2, 3))
        for name in self.parts:
            x = getattr(self, name)(x)
        return x


def vit_like() -> nn.Module:
    heads = nn.Sequential()
    heads.add_module("head", nn.Linear(WIDTH, 1000))
    return Classifying(heads=heads)


TORCHVISION: dict[str, Callable[[], nn.Module]] = {
    "resnet_like": lambda: Classifying(fc=nn.Linear(WIDTH, 1000)),
    "mobilenet_like": lambda: Classifying(
        classifier=nn.Sequential(nn.Linear(WIDTH, 9), nn.Hardswish(), nn.Dropout(), nn.Linear(9, 1000))
    ),
    "vit_like": vit_like,
    "swin_like": lambda: Classifying(norm=nn.LayerNorm(WIDTH), head=nn.Linear(WIDTH, 1000)),
    "nameless": lambda: Classifying(last=nn.Linear(WIDTH, 1000)),
    "failing": lambda: Classifying(fc=nn.Linear(-1, 2)),
}
CALLS = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> CALLS:
    """Both libraries, as far as they are used; the calls that build a network."""
    found: CALLS = []
    timm, torchvision, models = ModuleType("timm"), ModuleType("torchvision"), ModuleType("torchvision.models")

    def create_model(name: str, **options: Any) -> nn.Module:
        found.append((name, options))
        return Classifying(options["in_chans"], fc=nn.Identity())

    def get_model(name: str, **options: Any) -> nn.Module:
        found.append((name, options))
        return TORCHVISION[name]()

    timm.create_model = create_model  # type: ignore[attr-defined]
    timm.is_model = lambda name: name.split(".")[0] in ("resnet10t", "convnext_atto")  # type: ignore[attr-defined]
    timm.list_models = lambda: ["resnet10t", "convnext_atto"]  # type: ignore[attr-defined]
    models.get_model = get_model  # type: ignore[attr-defined]
    # all names include those of detectors, which would download
    models.list_models = lambda module=None: [*TORCHVISION, *([] if module is models else ["fasterrcnn"])]  # type: ignore[attr-defined]
    torchvision.models = models  # type: ignore[attr-defined]
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


@pytest.mark.parametrize(
    ("name", "width"), [("resnet_like", 6), ("mobilenet_like", 9), ("vit_like", 6), ("swin_like", 6)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_torchvision_s_networks_lose_their_last_layer(calls: CALLS, name: str, width: int, channels: int) -> None:
    net = build(f"torchvision:{name}", dim=5, input_shape=(channels, 8, 8))
    assert calls == [(name, {"weights": None})]
    assert type(net) is Featurizer
    assert net.head is not None
    assert net.head[0].in_features == width
    assert not any(isinstance(part, nn.Linear) and part.out_features == 1000 for part in net.modules())
    x = torch.rand(3, channels, 8, 8)
    z = net.eval()(x)
    assert torch.allclose(z.norm(dim=1), torch.ones(3))
    features = net.backbone(x.expand(-1, 3, -1, -1))
    assert features.shape == (3, width)
    raw = net.head(features)
    assert torch.allclose(z, raw / raw.norm(dim=1, keepdim=True), atol=1e-6)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_timm_s_networks_are_built_without_their_last_layer(calls: CALLS, channels: int) -> None:
    net = build("timm:resnet10t.some_tag", dim=5, input_shape=(channels, 8, 8))
    assert calls == [("resnet10t.some_tag", {"pretrained": False, "num_classes": 0, "in_chans": channels})]
    assert net.eval()(torch.rand(2, channels, 8, 8)).shape == (2, 5)


def test_a_width_that_equals_dim_gets_a_head_all_the_same(calls: CALLS) -> None:
    for name in ("timm:resnet10t", "torchvision:resnet_like"):
        net = build(name, dim=WIDTH, input_shape=(3, 8, 8))
        assert isinstance(net, Featurizer)
        assert net.head is not None


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("timm:resnet10", (3, 8, 8), "timm has no model 'resnet10' for pictures: did you mean resnet10t?"),
        ("timm:hf-hub:someone/theirs", (3, 8, 8), "timm has no model 'hf-hub:someone/theirs'"),
        ("timm:", (3, 8, 8), "timm has no model '' for pictures: timm.list_models() has those"),
        ("torchvision:resnet", (3, 8, 8), "torchvision has no model 'resnet' for pictures: did you mean resnet_like"),
        ("torchvision:fasterrcnn", (3, 8, 8), "torchvision has no model 'fasterrcnn' for pictures"),
        (
            "torchvision:nameless",
            (3, 8, 8),
            "has no classifying layer called fc, classifier, head, heads: use a network",
        ),
        ("torchvision:failing", (3, 8, 8), "torchvision:failing cannot be built (RuntimeError: "),
        ("torchvision:resnet_like", (2, 8, 8), "takes pictures of one or three channels, got 2: use timm:resnet_like"),
        ("torchvision:resnet_like", (64,), "torchvision:resnet_like takes pictures, but the samples are rows of shape"),
        ("timm:resnet10t", (64,), "timm:resnet10t takes pictures, but the samples are rows of shape (64,): use the"),
        ("timm:resnet10t", (3, 2, 2), "timm:resnet10t cannot take samples of shape (3, 2, 2) (RuntimeError: "),
    ],
)
def test_what_is_wrong_is_one_sentence(calls: CALLS, name: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)) as error:
        ModelSettings(name=name, dim=5).build(shape)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        ("missing", r"^{library} is not installed: pip install {library}$"),
        (
            ModuleNotFoundError("No module named 'yaml'", name="yaml"),
            r"^{library} is installed, but cannot be imported ",
        ),
        (ImportError("no libjpeg"), r"^{library} is installed, but cannot be imported \(ImportError: no libjpeg\): "),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            r"imported \(RuntimeError: operator torchvision::nms does not exist\): install a torchvision that was",
        ),
    ],
)
def test_an_import_that_fails_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, library: str, raised: str | Exception, sentence: str
) -> None:
    if raised == "missing":
        raised = ModuleNotFoundError(f"No module named {library!r}", name=library)
    original = builtins.__import__

    def failing(name: str, *others: Any) -> Any:
        if name == library:
            raise raised  # type: ignore[misc]
        return original(name, *others)

    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(UserError, match=sentence.format(library=library)):
        build(f"{library}:resnet18", dim=5, input_shape=(3, 8, 8))


def test_the_classifying_layer_is_the_last_of_its_part() -> None:
    squeezed = nn.Sequential(nn.Dropout(), nn.Conv2d(4, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    net = Classifying(classifier=squeezed)
    remove_last_layer(net, "it")
    assert [type(part) for part in squeezed] == [nn.Dropout, nn.Identity, nn.ReLU, nn.AdaptiveAvgPool2d]
    assert isinstance(net.stem, nn.Conv2d), "outside the classifying part nothing changes"
