"""recipe("auto", data=…): the rule from a training set to every setting."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from vmcr2.data import DATASETS, DataSettings, Pictures, Source, Split, open_data
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs import Config, UserError, find_recipe, recipe
from vmcr2.runs._rule import Facts, facts_of, rule

PICTURES = (1, 28, 28)


def ruled(
    shape: tuple[int, int, int] = PICTURES, sizes: tuple[int, ...] = (6000,) * 10, **given: Any
) -> dict[str, Any]:
    """The rule's values, on a GPU if nothing else is said."""
    on_gpu = given.pop("on_gpu", True)
    return {name: one.value for name, one in rule(Facts(sizes, shape), on_gpu=on_gpu, **given).items()}


class Numbered:
    """A data set that consists of nothing but numbers."""

    path, class_names, shape = None, (), (1, 28, 28)

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))

    def labels(self, part: str) -> torch.Tensor:
        return self._labels

    def read(self, part: str) -> Split:
        return Split(torch.zeros(len(self._labels), 1, 28, 28, dtype=torch.uint8), self._labels)


def numbered(name: str, sizes: tuple[int, ...]) -> Source:
    names = tuple(f"class {j}" for j in range(len(sizes)))
    return Source(name, None, names, Numbered(sizes))  # type: ignore[arg-type]


# ---- what it looks at


def test_it_looks_at_numbers_only() -> None:
    """MNIST and Fashion-MNIST have the same numbers, and so have two sources of the same sizes."""
    apart = {"recipe", "data", "data_path"}
    for ask in (lambda name: recipe("auto", data=name), lambda name: recipe("auto", data=numbered(name, (70, 30)))):
        one, two = (ask(name).flat() for name in ("mnist", "fashion-mnist"))
        assert one["data"] != two["data"]
        assert {key: one[key] for key in one if key not in apart} == {key: two[key] for key in two if key not in apart}


def test_an_opened_set_and_its_name_get_the_same() -> None:
    assert recipe("auto", data=numbered("mnist", (6000,) * 10)) == recipe("auto", data="mnist")
    opened, named = recipe("auto", data=open_data("digits")), recipe("auto", data="digits")
    # 1437 images in ten classes, of which 143 are set aside: a name knows 129 of each
    assert (opened.optim.batch_size, named.optim.batch_size) == (1294 // 8, 1290 // 8)


def test_unbalanced_classes_are_counted() -> None:
    sizes = (500, 100, 20)
    source = numbered("mnist", sizes)
    assert facts_of(source).class_sizes == sizes
    assert sum(facts_of(source, 310).class_sizes) == pytest.approx(310, abs=2)
    config = recipe("auto", data=source)
    assert config.model.dim == 39
    assert config.optim.batch_size == 69  # an eighth of 620 less a tenth
    assert recipe("auto", data=source, calibration_share=0.0).optim.batch_size == 77


@pytest.mark.parametrize(
    ("shape", "model", "size"),
    [
        ((1, 8, 8), "mlp", 8),
        ((1, 15, 12), "mlp", 15),
        ((1, 16, 16), "resnet18", 32),
        ((1, 28, 28), "resnet18", 32),
        ((3, 32, 32), "resnet18", 32),
        ((3, 64, 64), "resnet18", 32),
        ((3, 65, 65), "resnet18", 64),
        ((3, 224, 300), "resnet18", 64),
        ((3, 20, 60), "resnet18", 60),  # one side inside the square and the other outside
        ((3, 20, 100), "resnet18", 20),
    ],
)
def test_the_network_fits_the_pictures(shape: tuple[int, int, int], model: str, size: int) -> None:
    values = ruled(shape)
    assert (values["model"], values["image_size"]) == (model, size)
    if model == "mlp":
        assert values["augmentation"] == "none"
    elif max(shape[1:]) > size:
        assert (values["augmentation"], values["least_area"]) == ("resized-crop", 0.5)
    else:
        needed = -(-(size - min(shape[1:])) // 2)
        assert (values["augmentation"], values["crop_padding"]) == ("crop", max(size // 8, needed))


def test_nothing_is_mirrored_unless_asked() -> None:
    for shape in ((1, 28, 28), (3, 32, 32), (3, 224, 224)):
        assert ruled(shape)["flip"] is False
    assert recipe("auto", data="cifar10").data.flip is False
    assert recipe("auto", data="cifar10", flip=True).data.flip is True


@pytest.mark.parametrize(("shape", "samples"), [((3, 32, 32), 50_000), ((1, 28, 28), 3000), ((1, 8, 8), 200_000)])
def test_a_cpu_gets_no_more_epochs_than_a_gpu(shape: tuple[int, int, int], samples: int) -> None:
    sizes = (samples // 10,) * 10
    slow, fast = (ruled(shape, sizes, on_gpu=on_gpu)["epochs"] for on_gpu in (False, True))
    assert fast == 200
    assert 3 <= slow < fast


def test_few_samples_get_whole_epochs_on_a_cpu_too() -> None:
    assert ruled((1, 8, 8), (140,) * 10, on_gpu=False)["epochs"] == 200


# ---- what a person gives counts, and the rest follows


def test_given_values_count_and_the_others_follow() -> None:
    plain, small = recipe("auto", data="cifar10"), recipe("auto", data="cifar10", batch_size=100, epochs=50)
    assert (small.optim.batch_size, small.optim.epochs) == (100, 50)
    assert (plain.objective.name, small.objective.name) == ("ce+mcr2", "ce+vmcr2")  # fewer of a class in a batch
    assert small.optim.lr == pytest.approx(plain.optim.lr / 10)
    wide = recipe("auto", data="cifar10", dim=512, objective="ce+mcr2")
    assert wide.flat()["rate_weight"] < plain.flat()["rate_weight"]
    assert recipe("auto", data="cifar10", rate_weight=0.5).flat()["rate_weight"] == 0.5
    short, long = (recipe("auto", data="cifar10", epochs=epochs).optim.average for epochs in (2, 200))
    assert short < long


def test_a_given_picture_size_decides_the_augmentation() -> None:
    assert ruled((3, 64, 64))["augmentation"] == "resized-crop"
    whole = ruled((3, 64, 64), image_size=64)
    assert (whole["augmentation"], whole["crop_padding"]) == ("crop", 8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_takes_any_objective(objective: str) -> None:
    config = recipe("auto", data="cifar10", objective=objective)
    assert config.objective.name == objective
    assert config.recipe == "auto"


def test_a_recipe_by_the_rule_follows_too() -> None:
    for name, objective in (("cifar10", "auto"), ("cifar10-auto", None), ("cifar10-auto", "auto")):
        config = recipe(name, objective=objective, batch_size=100)
        assert config.recipe == "cifar10-auto"
        assert config.replace(recipe="auto") == recipe("auto", data="cifar10", batch_size=100)
    assert find_recipe("cifar10-ce+mcr2").config.replace(recipe="auto") == recipe("auto", data="cifar10")


@pytest.mark.parametrize("data", DATASETS)
def test_every_set_of_the_catalogue_builds(data: str) -> None:
    config = recipe("auto", data=data)
    info = DATASETS[data]
    shape = (info.image_shape[0], config.data.image_size, config.data.image_size)
    with torch.device("meta"):
        assert config.model.build(shape).eval()(torch.zeros(2, *shape)).shape == (2, config.model.dim)
    labels = torch.arange(info.classes)
    objective = config.objective.build(info.classes, config.model.dim, labels, config.optim.batch_size)
    assert objective.head is not None
    assert Config.from_json(config.to_json()).acting() == config.acting()


def test_an_opened_set_is_found_again() -> None:
    """Its path goes into the settings, so that fit opens the same."""
    source = open_data("digits")
    assert recipe("auto", data=source).data.path is None
    elsewhere = dataclasses.replace(source, path="/some/where")  # type: ignore[arg-type]
    assert recipe("auto", data=elsewhere).data.path == "/some/where"


# ---- what is wrong is said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r'the recipe auto needs data: recipe\("auto", data=…\)'),
        (
            {"data": "digits", "objective": "mse"},
            r"objective takes auto, vmcr2, mcr2, ce, ce\+mcr2, ce\+vmcr2, got 'mse'",
        ),
        ({"data": "digits", "objective": ["ce"]}, r"objective takes auto, .*, got \['ce'\]"),
        ({"data": "digts"}, "did you mean digits"),
        ({"data": "digits", "lrr": 3}, "there is no setting 'lrr': did you mean lr"),
        ({"data": "digits", "batch_size": "many"}, "batch_size takes a whole number, got 'many'"),
        ({"data": "digits", "epochs": 0}, "epochs must be at least 1"),
        ({"data": "digits", "device": "tpu"}, "device takes auto, cpu or cuda"),
        ({"data": "digits", "crop_padding": 2}, "crop_padding acts with augmentation crop only"),
        ({"data": "digits", "objective": "ce", "weight": 5.0}, r"weight acts with vmcr2 or ce\+vmcr2 only"),
    ],
)
def test_a_users_mistake(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        recipe("auto", **given)


def test_opened_data_are_for_the_rule_alone() -> None:
    with pytest.raises(UserError, match="only the recipe auto takes opened data"):
        recipe("digits", data=open_data("digits"))
    assert recipe("mnist-vmcr2", data="fashion-mnist").data.name == "fashion-mnist"  # a name is a setting like others


# ---- odd pictures


@pytest.mark.parametrize(
    "shape", [(1, 16, 16), (3, 15, 20), (1, 23, 23), (3, 20, 40), (3, 8, 40), (3, 20, 100), (3, 300, 70)]
)
def test_pictures_of_any_usual_shape_can_be_trained_on(shape: tuple[int, int, int]) -> None:
    values = ruled(shape, sizes=(40, 40))
    assert values["image_size"] >= 16
    config = Config()._with({key: value for key, value in values.items() if key in DataSettings.known()})
    split = Split(torch.zeros(4, *shape, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    pictures = Pictures(split, config.data, seed=0, device=torch.device("cpu"))
    index = torch.arange(4)
    for seen in (pictures.training_batch(index, torch.tensor(0)), pictures.plain_batch(index)):
        assert seen.shape == (4, shape[0], config.data.image_size, config.data.image_size)


def test_pictures_like_a_line_are_refused() -> None:
    with pytest.raises(UserError, match=r"too narrow for the rule: make squares of them"):
        ruled((1, 1, 100))


def test_another_optimiser_gets_its_own_rate() -> None:
    assert (ruled(optimizer="adamw")["lr"], ruled()["lr"]) == (1e-3, 1.0)
    assert ruled(optimizer="adamw", lr=0.01)["lr"] == 0.01


@pytest.mark.parametrize("held", [1430, 1437, 5000, -1])
def test_a_hold_out_leaves_something_to_train_on(held: int) -> None:
    if held == 1430:
        assert recipe("auto", data="digits", holdout=held).data.holdout == held
        return
    with pytest.raises(UserError, match="holdout must be"):
        recipe("auto", data="digits", holdout=held)
