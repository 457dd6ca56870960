"""Settings of vmcr2 0.1 that are gone: at their default they are ignored, else one sentence says who removed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vmcr2.runs import ALL_SETTINGS, Config, RunFolder, UserError, deciding_settings, load_run, recipe
from vmcr2.runs._retired import RETIRED

OLD = Path(__file__).parent / "old_folders"
OBJECTIVES = ("vmcr2", "mcr2", "ce")
"""Of vmcr2 0.1."""
SINCE = {
    **{"decay_all": True, "label_noise": 0.0, "least_area": 0.08, "readout": "auto", "stream": "auto"},
    **{"stored_size": 0, "channels": 3, "fit": "crop", "label": None, "test_path": None, "test_share": 0.2},
    **{"split_seed": 0, "validation": False, "input_noise": 0.0, "start_from": None, "weights": None},
    **{"backbone_rate": 1.0, "calibration_share": 0.0, "kept_samples": 5000, "patience": 0},
    **{"average_flips": False, "average_shifts": 0, "mix": "none", "mix_until": 1.0},
    **{"samples_per_class": 0, "block": False, "soft_memory": False},
}
"""Settings that came later, at what vmcr2 0.1 did."""
OTHER: dict[str, Any] = {
    **{"mu_end": 0.5, "weight_end": 40.0, "batch_expansion_end": 0.5, "nu_dictionary_end": 1.0, "nu_codes_end": 1.0},
    **{"keep_trace": True, "multiplier_rate": 0.05},
    **{"decay_power": 2.0, "sharpness": 0.05, "fresh_statistics": True},
}
"""A value that is not the default, for every setting that was removed."""


def old_flat(objective: str) -> dict[str, Any]:
    """config.json as vmcr2 0.1 wrote it: all settings, also those of other objectives."""
    flat: dict[str, Any] = json.loads((OLD / objective / "config.json").read_text())
    return flat


def test_every_removed_setting_is_tried_here() -> None:
    assert set(OTHER) == set(RETIRED)
    assert not set(RETIRED) & set(ALL_SETTINGS)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_settings_of_an_old_folder_are_all_retired_or_known(objective: str) -> None:
    flat = old_flat(objective)
    assert set(RETIRED) < set(flat)
    for name, value in flat.items():
        assert name in RETIRED or name in ALL_SETTINGS or name in ("recipe", "objective"), name
        if name in RETIRED:
            assert value == RETIRED[name].default


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_at_their_default_they_are_ignored(objective: str) -> None:
    flat = old_flat(objective)
    config = Config.from_flat(flat)
    found = config.flat()
    assert not set(RETIRED) & set(found)
    kept = {name: value for name, value in flat.items() if name in found}
    since = {name: value for name, value in SINCE.items() if name in found}
    assert json.loads(json.dumps(found)) == kept | since  # every other value is the file's
    assert config == Config.from_flat({name: value for name, value in flat.items() if name not in RETIRED})


@pytest.mark.parametrize("name", OTHER)
def test_another_value_is_one_sentence(name: str) -> None:
    flat = old_flat("vmcr2") | {name: OTHER[name]}
    with pytest.raises(UserError) as caught:
        Config.from_flat(flat)
    message = str(caught.value)
    assert f"{name}={OTHER[name]}" in message
    assert "0.2.0 removed" in message
    assert "manifest.json" in message  # which names the version to use
    assert "\n" not in message


@pytest.mark.parametrize("objective", ["mcr2", "ce"])
@pytest.mark.parametrize("name", [name for name, retired in RETIRED.items() if "objective" in retired.only_with])
def test_where_it_could_not_act_another_value_is_ignored_too(name: str, objective: str) -> None:
    flat = old_flat(objective)
    assert Config.from_flat(flat | {name: OTHER[name]}) == Config.from_flat(flat)


@pytest.mark.parametrize("objective", ["mcr2", "ce"])
@pytest.mark.parametrize("name", [name for name, retired in RETIRED.items() if "objective" not in retired.only_with])
def test_what_acted_with_every_objective_is_refused_with_every_one(name: str, objective: str) -> None:
    with pytest.raises(UserError, match=rf"it has {name}=.*, which vmcr2 0\.2\.0 removed"):
        Config.from_flat(old_flat(objective) | {name: OTHER[name]})


def test_a_value_that_was_removed_is_one_sentence_too() -> None:
    for value in ("simplex", "rescaled"):
        with pytest.raises(
            UserError, match=rf"^it has codes={value}, which vmcr2 0\.2\.0 removed: use the version in its manifest"
        ):
            Config.from_flat(old_flat("vmcr2") | {"codes": value})
        assert Config.from_flat(old_flat("ce") | {"codes": value}) == Config.from_flat(old_flat("ce"))


def test_a_power_of_a_constant_rate_could_not_act() -> None:
    flat = old_flat("vmcr2") | {"schedule": "constant"}
    assert Config.from_flat(flat | {"decay_power": 2.0}) == Config.from_flat(flat)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"^it has made_up=3, a setting that this vmcr2 does not know$"):
        Config.from_flat(old_flat("ce") | {"made_up": 3})


def test_settings_of_another_objective_are_left_out() -> None:
    flat = old_flat("ce") | {"memory": 77, "latch_every": 3, "atoms_per_class": 5, "mu": 4.0}
    config = Config.from_flat(flat)
    assert config == Config.from_flat(old_flat("ce"))
    assert not {"memory", "latch_every", "atoms_per_class", "mu"} & set(config.flat())


def test_settings_without_effect_are_read_though_they_could_not_be_set() -> None:
    """Old files have all settings, and what cannot act is no mistake there."""
    flat = old_flat("vmcr2") | {"augmentation": "none", "crop_padding": 3, "milestones": [0.9]}
    config = Config.from_flat(flat)
    assert config.deciding() == Config.from_flat(old_flat("vmcr2")).deciding()


def test_a_bad_value_in_a_file_is_still_one() -> None:
    with pytest.raises(UserError, match="epochs must be at least 1, got 0"):
        Config.from_flat(old_flat("ce") | {"epochs": 0})


def test_a_folder_with_one_says_so_with_its_name(tmp_path: Path) -> None:
    for name in ("manifest.json", "metrics.jsonl"):
        (tmp_path / name).write_text((OLD / "vmcr2" / name).read_text())
    (tmp_path / "config.json").write_text(json.dumps(old_flat("vmcr2") | {"sharpness": 0.05}))
    for attempt in (RunFolder(tmp_path).read_config, lambda: load_run(tmp_path)):
        with pytest.raises(UserError) as caught:
            attempt()
        message = str(caught.value)
        assert message.startswith(f"{tmp_path}: config.json cannot be used: it has sharpness=0.05")
        assert "0.2.0 removed" in message


@pytest.mark.parametrize("name", RETIRED)
def test_setting_one_today_says_that_it_was_removed(name: str) -> None:
    for attempt in (
        lambda: recipe("digits").with_settings([f"{name}={OTHER[name]}"]),
        lambda: recipe("digits", **{name: OTHER[name]}),
        lambda: Config().replace(**{name: RETIRED[name].default}),
        lambda: recipe("digits", objective="ce").with_settings([f"{name}=1"]),
    ):
        with pytest.raises(UserError, match=rf"^the setting {name} was removed in vmcr2 0\.2\.0 "):
            attempt()


def test_a_run_with_one_has_an_identity_all_the_same() -> None:
    """Reports compare runs that this version cannot read."""
    flat = old_flat("vmcr2")
    sharp = [deciding_settings(flat | {"sharpness": 0.05, "seed": seed}) for seed in (1, 2)]
    assert sharp[0] == sharp[1]
    assert sharp[0] != deciding_settings(flat)
