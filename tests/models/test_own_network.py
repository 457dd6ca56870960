"""``package.module:factory``: how it is found, called and judged."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from seeds import SEED

from vmcr2._shared import UserError
from vmcr2.models import Featurizer, ModelSettings, ResNet18, build

SOURCE = """
import functools
from torch import nn
from vmcr2.models import Featurizer, ResNet18

class Convolutions(nn.Module):
    def __init__(self, input_shape, width=6):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(input_shape[0], width, 3), nn.AdaptiveAvgPool2d(1))
    def forward(self, x):
        return self.layers(x)

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
def complete(dim, input_shape):
    return nn.Linear(input_shape[0], dim)
def keyword(*, dim=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, dim))
def anything(*args, **kwargs):
    return nn.Linear(4, 7 + len(args) + len(kwargs))
def split(dim):
    return Featurizer(nn.Linear(4, dim), dim, dim)
def fixed():
    return ResNet18(9)
class Nets:
    @staticmethod
    def make():
        return nn.Linear(4, 7)
partial = functools.partial(complete, input_shape=(4,))
needy = lambda classes, dim: None
def positional(dim, /): return nn.Linear(4, dim)
def failing(): raise ZeroDivisionError("no width\\nin the settings")
def nothing(): pass
def leaving(): raise SystemExit("bye")
built = nn.Linear(4, 7)
number = 3
"""


@pytest.fixture(autouse=True)
def _mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with modules of a person's own, which is the current one."""
    (tmp_path / "mynet_x.py").write_text(SOURCE)
    (tmp_path / "nets_x").mkdir()
    (tmp_path / "nets_x" / "small.py").write_text("import beside_x\nmake = beside_x.make\n")
    (tmp_path / "beside_x.py").write_text("from torch import nn\ndef make():\n return nn.Linear(4, 7)\n")
    (tmp_path / "hungry_x.py").write_text("import no_such_library_x\n")
    (tmp_path / "broken_x.py").write_text("def make(:\n")
    (tmp_path / "script_x.py").write_text("import sys\nsys.exit('usage: script')\n")
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.split(".")[0].endswith("_x"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [
        ("mynet_x:plain", (1, 8, 8), 10),
        ("mynet_x:Convolutions", (2, 8, 8), 6),
        ("mynet_x:Nets.make", (4,), 7),
        ("mynet_x:anything", (4,), 7),
        ("nets_x.small:make", (4,), 7),
        ("beside_x:make", (4,), 7),
        ("mynet_x:complete", (4,), None),
        ("mynet_x:keyword", (1, 8, 8), None),
        ("mynet_x:partial", (4,), None),
    ],
)
def test_a_factory_gives_a_featurizer(name: str, shape: tuple[int, ...], width: int | None) -> None:
    before = list(sys.path)
    net = build(name, dim=5, input_shape=shape)
    assert type(net) is Featurizer
    assert sys.path == before
    assert (None if net.head is None else net.head[0].in_features) == width
    z = net(torch.rand(3, *shape))
    assert z.shape == (3, 5)
    assert torch.allclose(z.norm(dim=1), torch.ones(3))


def test_a_width_that_equals_dim_is_the_features() -> None:
    net = build("mynet_x:plain", dim=10, input_shape=(1, 8, 8))
    assert isinstance(net, Featurizer)
    assert net.head is None


def test_a_featurizer_is_taken_as_it_is() -> None:
    net = build("mynet_x:split", dim=5, input_shape=(4,))
    assert type(net) is Featurizer
    assert net.head is not None, "the factory asked for a head, although widths are equal"
    assert type(build("mynet_x:fixed", dim=9, input_shape=(3, 32, 32))) is ResNet18
    with pytest.raises(UserError, match=r"^mynet_x:fixed returns a network of 9 features, but dim is 5: build it with"):
        build("mynet_x:fixed", dim=5, input_shape=(3, 32, 32))


def test_the_seed_decides_the_weights_also_where_the_module_draws_when_it_is_imported() -> None:
    states = []  # the first one imports the module, which draws the weights of ``built``
    for seed in (SEED, SEED, SEED + 1):
        torch.manual_seed(seed)
        states.append(
            torch.cat([value.flatten() for value in build("mynet_x:plain", dim=5, input_shape=(64,)).parameters()])
        )
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "mynet_y:make",
            "there is no module 'mynet_y' in {here} or among the installed ones: start in the folder that",
        ),
        ("nets_x.large:make", "there is no module 'nets_x.large' in {here}"),
        ("hungry_x:make", "hungry_x cannot be imported (No module named 'no_such_library_x'): install that module"),
        ("broken_x:make", "broken_x fails when it is imported (SyntaxError: "),
        ("script_x:make", "script_x fails when it is imported (SystemExit: usage: script)"),
        ("mynet_x:plane", "mynet_x.py has no 'plane': did you mean plain?"),
        ("mynet_x:zzz", "mynet_x.py has no 'zzz': define it in {here}/mynet_x.py"),
        ("mynet_x:Nets.mak", "Nets has no 'mak': did you mean make?"),
        ("mynet_x:number.zzz", "int has no 'zzz'"),
        ("mynet_x:number", "number has the type int: name a function or class"),
        ("mynet_x:built", "built is a network that is built already: name a function or class that builds one"),
        (
            "mynet_x:needy",
            "needs the argument classes, but it gets dim and input_shape only, by name: give classes a default",
        ),
        ("mynet_x:positional", "needs the argument dim, but it gets dim and input_shape only, by name"),
        ("mynet_x:failing", "fails when it is called (ZeroDivisionError: no width)"),
        ("mynet_x:nothing", "returns a NoneType: it must return a torch.nn.Module"),
        ("os:abort", "os is part of Python and has no networks"),  # a stranger's config.json may name it
        ("mynet_x:leaving", "fails when it is called (SystemExit: bye)"),
        ("mynet_x:", "lacks a part: write module:factory, such as mynet:make for make in mynet.py"),
        (":make", "lacks a part"),
        ("mynet_x.py:plain", "names a file: write its module, with dots, as in mynet_x:plain"),
        ("./nets_x/small.py:make", "names a file: write its module, with dots, as in nets_x.small:make"),
        ("mynet_x:plain", "the network of mynet_x:plain cannot take samples of shape (4,) (RuntimeError: "),
    ],
)
def test_what_is_wrong_is_one_sentence(name: str, sentence: str, tmp_path: Path) -> None:
    before = list(sys.path)
    with pytest.raises(UserError, match=re.escape(sentence.format(here=tmp_path))) as error:
        ModelSettings(name=name, dim=5).build((4,))
    assert "\n" not in str(error.value)
    assert name in str(error.value)
    assert sys.path == before


def test_a_bad_dim_is_named_before_the_factory_runs() -> None:
    with pytest.raises(ValueError, match="dim must be at least 1 and whole, got 0"):
        build("mynet_x:failing", dim=0, input_shape=(4,))
