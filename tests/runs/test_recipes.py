"""The paper's settings row by row, typed off the paper (§4.1, §5, appendix), and the names that lead to them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.data import DATASETS
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs import FAMILIES, RECIPES, Config, UserError, default_origin, find_recipe, recipe

SEARCH = Path(__file__).parents[2] / "experiments" / "search"

# §4.1 «Hyperparameters», what holds for every row of Table 2: SGD, ε², ν_Γ, ν_A, latching, no decay of the rate; and
# «transforms.ToTensor()» alone, no normalisation, in the appendix.
TABLE2 = {
    "optimizer": "sgd",
    "eps_sq": 0.5,
    "nu_dictionary": 5.0,
    "nu_codes": 5.0,
    "latch_every": 50,
    "latch_unit": "epochs",
    "schedule": "constant",
    "warmup_epochs": 0.0,
    "image_size": 32,
    "flip": True,
    "mean": (),
    "std": (),
    "loss_scale": 1.0,
    "components": 0,  # §4.2: ⌊d/k⌋
}
CROP8 = {"augmentation": "crop", "crop_padding": 8}  # Transformations 1
RESIZE = {"augmentation": "flip"}  # Transformations 2
SMALL = {"batch_size": 1000, "dim": 128, "atoms_per_class": 20}
LARGE = {"batch_size": 2000, "dim": 500, "atoms_per_class": 10}
# appendix, «Additional Experiments», with the transformations of the work it cites (FINDINGS §6)
PREACT = {
    "model": "preact18",
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "lr": 0.1,
    "epochs": 2000,
}
CIFAR_CROP4 = {
    "augmentation": "crop",
    "crop_padding": 4,
    "mean": (0.4914, 0.4822, 0.4465),
    "std": (0.2023, 0.1994, 0.2010),
}
IMAGENET_CROP = {
    "augmentation": "resized-crop",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}

# name of the family, its values, and epochs per objective
ROWS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    (
        "mnist",
        TABLE2 | SMALL | CROP8 | {"data": "mnist", "model": "mnist-cnn"},
        {"vmcr2": 2000, "mcr2": 2000, "ce": 2000},
    ),
    (
        "cifar10",
        TABLE2 | SMALL | CROP8 | {"data": "cifar10", "model": "resnet18"},
        {"vmcr2": 2000, "mcr2": 2000, "ce": 2000},
    ),
    (
        "cifar100",
        TABLE2 | LARGE | CROP8 | {"data": "cifar100", "model": "resnet18"},
        {"vmcr2": 2000, "mcr2": 2000, "ce": 2000},
    ),
    (
        "cifar100-d100",
        TABLE2 | LARGE | CROP8 | {"data": "cifar100", "model": "resnet18", "dim": 100},
        {"vmcr2": 2000, "mcr2": 2000},
    ),
    # «All training runs are 2000 epochs, excluding the MCR² runs for Tiny ImageNet, which we stop at 500 and 200 for
    # d=200 and d=500 respectively» (Figure 1; Table 2 says the same of d = 500)
    (
        "tiny-imagenet",
        TABLE2 | LARGE | RESIZE | {"data": "tiny-imagenet", "model": "resnet18"},
        {"vmcr2": 2000, "mcr2": 200, "ce": 2000},
    ),
    (
        "tiny-imagenet-d200",
        TABLE2 | LARGE | RESIZE | {"data": "tiny-imagenet", "model": "resnet18", "dim": 200},
        {"vmcr2": 2000, "mcr2": 500},
    ),
    (
        "cifar100-preact",
        TABLE2 | LARGE | PREACT | CIFAR_CROP4 | {"data": "cifar100"},
        {"vmcr2": 2000, "ce": 2000},
    ),
    (
        "tiny-imagenet-preact",
        TABLE2 | LARGE | PREACT | IMAGENET_CROP | {"data": "tiny-imagenet"},
        {"vmcr2": 2000, "ce": 2000},
    ),
]


def _said(family: str, values: dict[str, Any], objective: str, epochs: int) -> dict[str, Any]:
    """What the paper says of one row for one objective."""
    said = values | {"objective": objective, "epochs": epochs}
    if "preact" not in family:
        said["lr"] = 1e-2 if objective == "ce" else 1e-3
    if objective == "vmcr2":
        said |= {"mu": 0.1 if "preact" in family else 1.0, "weight": None, "batch_expansion": 0.0, "debias": False}
        said |= {"cap_codes_step": False, "codes": "free"}  # Algorithm 1, lines 8 and 9
    return said


PAPER = {
    f"{family}-{objective}-paper": _said(family, values, objective, count)
    for family, values, epochs in ROWS
    for objective, count in epochs.items()
}


@pytest.mark.parametrize("name", PAPER)
def test_the_literal_recipe_is_what_the_paper_says(name: str) -> None:
    """All of it that acts: what the rows share may belong to another objective, network or schedule."""
    acting = RECIPES[name]().config.acting()
    said = {key: value for key, value in PAPER[name].items() if key in acting}
    assert {key: acting[key] for key in said} == said
    left = set(PAPER[name]) - set(said)
    own = set(OBJECTIVES["vmcr2"].known()) - set(OBJECTIVES["ce"].known())
    assert left == (set() if name.split("-")[-2] == "vmcr2" else own & set(PAPER[name]))


def test_the_rows_are_those_of_the_paper_and_no_others() -> None:
    literal = {name for name in RECIPES if name.endswith("-paper")}
    assert literal == set(PAPER)
    plain = {name.removesuffix("-paper") for name in literal} | {f"digits-{name}" for name in ("vmcr2", "mcr2", "ce")}
    ruled = {f"{data}-{name}" for data in DATASETS for name in ("auto", "ce+mcr2", "ce+vmcr2")}
    assert set(RECIPES) == literal | plain | ruled
    assert sorted(FAMILIES) == sorted({*DATASETS, *(family for family, _, _ in ROWS)})


@pytest.mark.parametrize("name", RECIPES)
def test_names_say_what_is_in_them(name: str) -> None:
    parts = re.fullmatch(
        r"(digits|mnist|fashion-mnist|cifar100|cifar10|tiny-imagenet)(?:-d(\d+))?(-preact)?-"
        r"(auto|ce\+mcr2|ce\+vmcr2|vmcr2|mcr2|ce)(-paper)?",
        name,
    )
    assert parts is not None
    found = RECIPES[name]()
    assert found.config.recipe == name
    assert found.config.data.name == parts[1]
    assert parts[4] in (found.config.objective.name, "auto")
    if parts[2] is not None:
        assert found.config.model.dim == int(parts[2])
    assert (found.config.model.name == "preact18") == (parts[3] is not None)


@pytest.mark.parametrize("name", RECIPES)
def test_the_title_says_whether_it_is_the_papers(name: str) -> None:
    title = RECIPES[name]().title
    assert ("as the paper says" in title) == name.endswith("-paper")


ORIGIN = re.compile(
    r"§\d|[Aa]ppendix|Algorithm \d|Figure \d|[Tt]able|Eq\. \d|^not given in the paper, ours|^ours, not the paper's: "
    r"|^the rule: |^given$"
)


@pytest.mark.parametrize("name", RECIPES)
def test_every_value_that_a_recipe_sets_has_an_origin(name: str) -> None:
    found = RECIPES[name]()
    acting = found.config.acting()
    assert set(found.origins) <= set(acting)
    assert [key for key, origin in found.origins.items() if not ORIGIN.search(origin)] == []
    default = Config().replace(objective=found.config.objective.name).flat()
    changed = {key for key, value in acting.items() if value != default[key]} - {"recipe"}
    if acting.get("mu") is not None:
        changed -= {"weight"}  # unset because mu is set
    assert changed <= set(found.origins)


def test_a_value_that_no_recipe_sets_has_one_too() -> None:
    assert default_origin("seed") == default_origin("log_every") == "the trainer's default"
    assert default_origin("momentum") == default_origin("nu_codes") == "not given in the paper, ours: the default"


@pytest.mark.parametrize("name", RECIPES)
def test_an_origin_does_not_claim_the_paper_for_what_is_ours(name: str) -> None:
    """A value under a section of the paper is the paper's value; one under «not the paper's» differs from it."""
    found = RECIPES[name]()
    said = PAPER.get(name if name.endswith("-paper") else f"{name}-paper", {})
    for key, origin in found.origins.items():
        value = found.config.flat()[key]
        if origin.startswith("ours, not the paper's"):
            # a weight is another way to say μ: μm/2 is 1000 at the paper's μ and batch
            paper_value = said["mu"] * said["batch_size"] / 2 if key == "weight" else said[key]
            assert value != paper_value, key
        elif not origin.startswith("not given in the paper, ours"):
            assert said.get(key, value) == value, key


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-paper")])
def test_what_the_paper_leaves_open_is_said_to_be_ours(name: str) -> None:
    origins = RECIPES[name]().origins
    ours = {key for key, origin in origins.items() if origin.startswith("not given in the paper, ours")}
    assert ours == {"calibration_share", "decay_all"} | (set() if "-preact-" in name else {"momentum", "weight_decay"})
    assert not any(origin.startswith("ours, not the paper's") for origin in origins.values())


def best_of(name: str, components: int, least: float, study: str) -> dict[str, Any]:
    """The settings of the best run of a study («*»: of all) with so much ΔR; of two alike, the one with more."""
    lines = [json.loads(text) for path in SEARCH.glob(f"{study}.jsonl") for text in path.read_text().splitlines()]

    def merit(line: dict[str, Any]) -> tuple[float, float]:
        accuracy = line["holdout_accuracy_by_components"][str(components)] if components else line["head_accuracy"]
        return round(accuracy, 6), line["train_delta_r"]

    literal = {name, f"{name}-paper"}
    of_this = [line for line in lines if line.get("recipe") in literal and not line.get("variant")]
    best = max((line for line in of_this if line.get("train_delta_r", -1.0) >= least), key=merit)
    settings: dict[str, Any] = best["settings"]
    return settings


@pytest.mark.parametrize(
    ("name", "components", "least", "study", "longer"),
    [
        ("cifar100-vmcr2", 5, 200.0, "*", False),
        ("cifar100-mcr2", 5, 0.0, "*", True),
        ("cifar100-ce", 0, 0.0, "*", False),
        ("cifar100-d100-vmcr2", 1, 0.0, "narrow", True),
        ("cifar100-d100-mcr2", 1, 0.0, "narrow", True),
        ("mnist-vmcr2", 3, 44.0, "*", False),
    ],
)
def test_the_recipe_to_use_is_the_best_of_the_search(
    name: str, components: int, least: float, study: str, longer: bool
) -> None:
    """By the classifier that it has: so many components, or cross-entropy's head; ``longer`` than the search's runs."""
    config = recipe(name)
    best = Config.from_flat(best_of(name, components, least, study))
    assert (best.optim.epochs < config.optim.epochs) == longer
    ways = {key: config.flat()[key] for key in ("holdout", "calibration_share", "components", "epochs")}
    assert best.replace(**ways).deciding(seed=False) == config.deciding(seed=False)
    assert components in (0, config.run.components or config.model.dim // 100)


def test_the_embedded_default() -> None:
    flat = recipe("digits").flat()
    names = ("batch_size", "atoms_per_class", "hidden", "dim", "weight", "batch_expansion", "loss_scale", "lr")
    assert [flat[name] for name in names] == [431, 12, (256, 256), 128, 20.0, 0.3, 0.05, 0.3]


@pytest.mark.parametrize("name", [name.removesuffix("-paper") for name in PAPER])
def test_the_recipe_to_use_differs_only_where_it_says_so(name: str) -> None:
    """Beside each literal recipe: data, network, d, batch and, but for two data sets, augmentation are the same."""
    found, literal = RECIPES[name](), RECIPES[f"{name}-paper"]()
    own, paper = found.config.acting(), literal.config.acting()
    for key, value in own.items():
        if key not in ("recipe", "mu") and value != paper.get(key):
            assert "ours" in found.origins.get(key, default_origin(key)), key
    same = ("data", "model", "dim", "batch_size", "image_size", "augmentation")
    parts = (own["data"], own["model"]) == ("tiny-imagenet", "resnet18")
    for key in same[: 5 if parts or own["data"] == "mnist" else 6]:
        assert own[key] == paper[key]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds(name: str) -> None:
    config = RECIPES[name]().config
    info = DATASETS[config.data.name]
    shape = (info.image_shape[0], config.data.image_size, config.data.image_size)
    dim = config.model.dim
    with torch.device("meta"):
        network = config.model.build(shape)
        assert network.eval()(torch.zeros(2, *shape)).shape == (2, dim)
    objective = config.objective.build(info.classes, dim, torch.arange(info.classes), config.optim.batch_size)
    state = objective.module.state_dict()
    composed = "+" in config.objective.name
    rate, ce = ("rate.", "ce.") if composed else ("", "")
    if "vmcr2" in config.objective.name:
        assert state[f"{rate}dictionary"].shape == (dim, config.flat()["atoms_per_class"] * info.classes)
    elif "mcr2" in config.objective.name:
        memory = config.flat()["memory"]
        assert not memory or state[f"{rate}memory_features"].shape == (memory, dim)
    if "ce" in config.objective.name:
        assert state[f"{ce}head.weight"].shape == (info.classes, dim)
    assert Config.from_json(config.to_json()).acting() == config.acting()


def test_a_family_takes_an_objective() -> None:
    assert find_recipe("cifar100").config.recipe == "cifar100-vmcr2"
    for objective in OBJECTIVES:
        assert find_recipe("mnist", objective).config.recipe == f"mnist-{objective}"
        assert find_recipe(f"mnist-{objective}", objective).config.recipe == f"mnist-{objective}"
    assert find_recipe("cifar100-d100", "mcr2").config.model.dim == 100
    assert find_recipe("tiny-imagenet-preact", "ce").config.recipe == "tiny-imagenet-preact-ce"
    assert recipe("digits", objective="ce") == recipe("digits-ce")
    assert recipe("digits") == recipe("digits-vmcr2")


@pytest.mark.parametrize(
    ("name", "objective", "message"),
    [
        ("mnist-ce", "vmcr2", r"mnist-ce is for ce, but --objective is vmcr2"),
        ("cifar100-vmcr2-paper", "mcr2", r"is for vmcr2, but --objective is mcr2"),
        ("cifar100-d100", "ce", r"cifar100-d100 for ce: choose vmcr2 or mcr2"),
        ("cifar100-preact", "mcr2", r"cifar100-preact for mcr2: choose vmcr2 or ce"),
        ("digits", "mse", r"choose vmcr2 or mcr2 or ce"),
    ],
)
def test_a_contradiction_is_a_users_mistake(name: str, objective: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_recipe(name, objective)
    with pytest.raises(UserError, match=message):
        recipe(name, objective=objective)


def test_a_contradiction_by_a_setting_is_one_too() -> None:
    """A run that calls itself digits-vmcr2 but trains by cross-entropy at V-MCR²'s rate helps nobody."""
    with pytest.raises(UserError, match="objective"):
        recipe("digits-vmcr2").with_settings(["objective=ce"])
    assert recipe("digits-vmcr2").with_settings(["objective=vmcr2"]) == recipe("digits-vmcr2")
    assert Config().with_settings(["objective=ce"]).objective.name == "ce"  # one's own, without a recipe


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cifar-100", "cifar100"),
        ("cifar100-vmcr", "cifar100-vmcr2"),
        ("mnist-ce-papr", "mnist-ce-paper"),
        ("Digits", "digits"),
        ("tinyimagenet", "tiny-imagenet"),
        ("cifar100-d500-vmcr2", "cifar100-d100-vmcr2"),
    ],
)
def test_an_unknown_name_offers_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        find_recipe(name)
    message = str(caught.value)
    assert message.startswith(f"there is no recipe {name!r}: did you mean ")
    offered = message.partition("did you mean ")[2].partition("?")[0].split(" or ")
    assert near in offered
    assert set(offered) <= {*RECIPES, *FAMILIES}
    assert "`vmcr2 recipes`" in message


def test_a_name_near_to_nothing_says_where_the_list_is() -> None:
    with pytest.raises(UserError, match=r"^there is no recipe 'xyzzy' \(`vmcr2 recipes` lists all\), and no folder"):
        find_recipe("xyzzy")
