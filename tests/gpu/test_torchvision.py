"""torchvision's own networks as featurizers: built, trained for two steps, filled from a file of torchvision's.

It needs a torchvision that can be imported, which is not so beside a torch for CPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.models import Featurizer, ModelSettings, build, load_weights
from vmcr2.objectives import CESettings
from vmcr2.training import Numerics, OptimSettings, Rows, Step


def torchvision_models() -> Any:
    try:
        import torchvision
    except Exception as error:  # PyPI's torchvision beside a torch for CPUs raises a RuntimeError
        pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
    return torchvision.models


models = torchvision_models()
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, SAMPLES = 16, 4
NETWORKS = {
    "resnet18": ((3, 32, 32), 512),
    "mobilenet_v3_small": ((3, 64, 64), 1024),
    "vit_b_16": ((3, 224, 224), 768),
    "convnext_tiny": ((3, 64, 64), 768),
    "efficientnet_b0": ((1, 64, 64), 1280),
    "swin_t": ((1, 64, 64), 768),
}


@pytest.fixture(params=NETWORKS)
def case(request: pytest.FixtureRequest) -> tuple[str, tuple[int, ...], int]:
    shape, width = NETWORKS[request.param]
    return request.param, shape, width


@pytest.mark.gpu
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_it_trains(case: tuple[str, tuple[int, ...], int], bfloat16: bool, rate: float) -> None:
    name, shape, width = case
    numerics = Numerics(DEVICE, bfloat16=bfloat16)
    net = numerics.place(build(f"torchvision:{name}", dim=DIM, input_shape=shape))
    assert isinstance(net, Featurizer)
    assert net.head is not None
    assert net.head[0].in_features == width
    labels = torch.arange(SAMPLES, device=DEVICE) % 2
    objective = CESettings().build(2, DIM, labels.cpu(), SAMPLES)
    objective.module.to(DEVICE)
    step = Step(
        net,
        objective,
        Rows(torch.rand(SAMPLES, *shape, device=DEVICE), labels),
        OptimSettings(lr=0.01, backbone_rate=rate, epochs=1),
        batch_size=SAMPLES,
        dim=DIM,
        seed=0,
        numerics=numerics,
    )
    step.begin(0)
    step.index.copy_(torch.arange(SAMPLES))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    for _ in range(2):
        step()
    assert not step.broke()
    assert ((step.features.norm(dim=1) - 1).abs() < 1e-4).all()
    moved = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert any(key.startswith("head.") for key in moved)
    assert any(key.startswith("backbone.") for key in moved) == (rate > 0)


def test_its_own_file_fits(case: tuple[str, tuple[int, ...], int], tmp_path: Path) -> None:
    name, shape, _ = case
    theirs = models.get_model(name, weights=None)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    net = build(f"torchvision:{name}", dim=DIM, input_shape=shape)
    assert isinstance(net, Featurizer)
    load_weights(net, tmp_path / "theirs.pth")
    for key, value in net.backbone.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[key]), key
    assert len(theirs.state_dict()) - len(net.backbone.state_dict()) in (1, 2)  # the last weight, and its bias


def test_the_file_of_its_resnet18_fits_ours(tmp_path: Path) -> None:
    theirs = models.resnet18(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    ours: Any = ModelSettings(name="resnet18", weights=str(tmp_path / "theirs.pth")).build((3, 64, 64)).eval()
    theirs.fc = torch.nn.Identity()
    x = torch.rand(2, 3, 64, 64)
    expected = theirs(x)
    assert (ours.backbone(x) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_networks_that_would_download_are_refused() -> None:
    for name in ("fasterrcnn_resnet50_fpn", "deeplabv3_resnet50"):
        with pytest.raises(ValueError, match=f"torchvision has no model '{name}' for pictures"):
            build(f"torchvision:{name}", dim=DIM, input_shape=(3, 64, 64))
