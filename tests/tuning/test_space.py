from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers import RandomSampler
from optuna.study import create_study

from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.method.ascent import RULES
from rst_tune.records import config_id
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.points import SAM, SGD, baselines, points_to_evaluate
from rst_tune.tuning.space import Space, TaskScale, schedule_preview, trial_config

SCALE = TaskScale(epochs=10, steps_per_epoch=10, rho=0.1)
TENTHS = [i / 10 for i in range(1, 10)]
PAPER = {
    "paper_constant": [("constant", {"p": p}) for p in TENTHS],
    "paper_piecewise1": [("piecewise", {"a": 0.0, "b": b}) for b in TENTHS],
    "paper_piecewise2": [("piecewise", {"a": 1.0, "b": b}) for b in TENTHS],
    "paper_piecewise3": [("piecewise", {"a": a, "b": 0.5}) for a in TENTHS],
    "paper_linear1": [("linear_group1", {"m": m}) for m in TENTHS],
    "paper_linear2": [("linear_group2", {"b": b}) for b in TENTHS],
    "paper_trigonometric": [(name, {}) for name in ("cos1", "cos2", "sin1", "sin2")],
}


def space_of(**fields) -> Space:
    return yaml_files.validate(Space, {"families": ["constant"], **fields}, "here")


@pytest.mark.parametrize("name", yaml_files.shipped("search_spaces"))
def test_every_shipped_space_samples_what_can_be_trained(name: str):
    space = load_space(name)
    assert isinstance(space, Space)
    assert space.description
    points = points_to_evaluate(space)
    if space.families:
        study = create_study(sampler=RandomSampler(seed=0))
        points += [space.sample(study.ask()) for _ in range(20)]
    for point in points:
        config = trial_config(point, SCALE)
        assert 0 <= config.extra_propagation <= 1
        assert schedules.from_dict(config.schedule).to_dict() == config.schedule
        assert config.gamma_rst == pytest.approx(
            config.gamma_gnr * schedules.from_dict(config.schedule).extra_propagation(config.total_steps)
        )


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_grids_are_exactly_its_groups_between_sgd_and_sam(name: str):
    space = load_space(name)
    assert isinstance(space, Space)
    drawn = [(p["schedule"]["family"], {k: v for k, v in p["schedule"].items() if k != "family"}) for p in space.grid()]
    assert drawn == PAPER[name]
    assert all(p["gamma_gnr"] == 1.0 and p["rule"] == "sam" for p in space.grid())
    assert points_to_evaluate(space) == [SGD, SAM]


def test_the_gamma_map_is_the_appendixs():
    grid = list(load_space("gamma_p").grid())
    assert sorted({p["c"] for p in grid}) == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert (min(p["gamma_rst"] for p in grid), max(p["gamma_rst"] for p in grid)) == (0.5, 1.5)


def test_the_spaces_cover_all_families():
    every = set(schedules.MEAN_FAMILIES.names())
    assert set(load_space("schedules").families) == every == set(load_space("grst").families)


def test_the_space_of_rules_has_every_rule():
    assert set(load_space("rules").rules) == set(RULES.names())


@given(
    family=st.sampled_from(schedules.MEAN_FAMILIES.names()),
    c=st.floats(0.05, 1.0),
    shape=st.floats(0, 1),
    steps=st.integers(20, 400),
)
@settings(max_examples=60, deadline=None)
def test_in_the_cost_parametrization_the_mean_is_c_and_gamma_follows(family, c, shape, steps):
    point = {"family": family, "c": c, "shape": shape, "gamma_rst": 0.9, "rule": "sam"}
    config = trial_config(point, TaskScale(epochs=1, steps_per_epoch=steps, rho=0.1))
    assert config.extra_propagation == pytest.approx(c, abs=1e-12)
    assert config.gamma_gnr * c == pytest.approx(0.9)


def test_a_rule_that_skips_passes_costs_less_than_p():
    """LookSAM takes the second pass in every fifth ascent, beginning with the first: E[ceil(N/5)], N ascents."""
    point = {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "looksam", "rule_options": {"k": 5}}
    short, long = (trial_config(point, replace(SCALE, steps_per_epoch=steps)) for steps in (5, 1000))
    assert short.extra_propagation == pytest.approx(0.108, abs=1e-6)
    assert long.extra_propagation == pytest.approx(0.1, abs=1e-4)
    assert long.compute == 1 + long.extra_propagation


@pytest.mark.parametrize("name", ["compute", "rules", "native"])
def test_a_candidate_costs_what_its_training_will_cost_without_summing_over_the_steps(name: str):
    space, study = load_space(name), create_study(sampler=RandomSampler(seed=0))
    exact = TaskScale(epochs=20, steps_per_epoch=100, rho=0.1, batch_size=64)
    for point in (space.sample(study.ask()) for _ in range(60)):
        trained, candidate = trial_config(point, exact), trial_config(point, replace(exact, exact=False))
        assert candidate.compute == pytest.approx(trained.compute, rel=0.02)
        for feature in ("horizon", "effect", "strain", "lateness", "rho", "gamma_gnr"):
            assert getattr(candidate, feature) == pytest.approx(getattr(trained, feature), rel=0.02, abs=1e-9)


def test_parameters_exist_only_when_their_family_is_sampled():
    space = space_of(families=["constant", "step-up"], gamma_rst={"low": 0.5, "high": 1.5})
    study = create_study(sampler=RandomSampler(seed=1))
    trials = [study.ask() for _ in range(30)]
    for trial, point in [(trial, space.sample(trial)) for trial in trials]:
        assert ("shape" in trial.params) == ("shape" in point) == (point["family"] == "step-up")


NATIVE = {"piecewise": {"a": [0.0, 1.0], "b": {"low": 0.1, "high": 0.9}}, "cos1": {}}
RHO = {"low": 0.05, "high": 0.4, "log": True}


@pytest.mark.parametrize(
    "fields",
    [
        {"families": ["constant", "ramp-up"], "gamma_rst": [0.5, 1.0, 1.5]},
        {"families": ["constant", "ramp-up"], "rho": RHO, "rules": ["sam", "asam"]},
        {"families": NATIVE, "parametrization": "native", "gamma_gnr": {"low": 1, "high": 3}, "rho": RHO},
        {
            "rules": {"sam": {}, "looksam": {"k": {"low": 2, "high": 9, "integer": True}}, "msam": {"rho": [1.0, 2.0]}},
            "gamma_rst": [1.0, 2.0],
            "rho": RHO,
            "rho_unit": "recipe",
            "horizon": {"low": 0.2, "high": 2.0},
            "policies": ["coin", "gradient-norm"],
            "cap": [2.0, 3.0],
        },
    ],
)
def test_a_sampled_point_gives_back_its_parameters(fields):
    space = space_of(**fields)
    study = create_study(sampler=RandomSampler(seed=3))
    for _ in range(20):
        trial = study.ask()
        point = space.sample(trial)
        again = space.sampled_params(point)
        assert again is not None
        assert trial.params.items() <= again.items()
        study.enqueue_trial(again)
        assert config_id(space.sample(study.ask())) == config_id(point)


@pytest.mark.parametrize(
    "change", [{"c": 0.01}, {"rule": "asam"}, {"family": "step-up"}, {"rho": 0.1}, {"gamma_rst": 9}]
)
def test_a_point_outside_the_space_has_no_parameters(change):
    point = {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}
    space = space_of(gamma_rst={"low": 0.5, "high": 1.5})
    assert space.sampled_params(point) is not None
    assert space.sampled_params(point | change) is None


def test_a_point_without_length_and_radius_has_those_of_the_recipe():
    space = space_of(gamma_rst=[1.0], horizon={"low": 0.2, "high": 2.0}, rho_unit="recipe", rho=RHO | {"high": 4.0})
    point = {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}
    assert space.sampled_params(point).items() >= {"horizon": 1.0, "rho": 1.0}.items()
    assert trial_config(point, SCALE).rho == trial_config(space.fill_defaults(point | {"rho": 1.0}), SCALE).rho == 0.1
    short = space_of(gamma_rst=[1.0], horizon={"low": 0.2, "high": 0.5})
    assert short.sampled_params(point) is None


def test_rules_of_one_pass_have_no_gamma_cap_or_gradient_policy():
    space = space_of(
        rules=["sam", "s2sam"], gamma_rst=[2.0], cap=3.0, policies=["coin", "gradient-norm"], extra_propagation=[0.5]
    )
    grid = list(space.grid())
    assert [(p["rule"], p.get("policy", "coin")) for p in grid] == [
        ("sam", "coin"), ("sam", "gradient-norm"), ("s2sam", "coin")
    ]  # fmt: skip
    assert not {"gamma_rst", "gamma_gnr", "cap"} & set(grid[-1])
    config = trial_config(grid[-1], SCALE)
    assert (config.gamma_gnr, config.extra_propagation, config.compute) == (1.0, 0.0, 1.0)


def test_the_baselines_are_the_base_optimizer_at_five_lengths_and_sam():
    configs = [trial_config(p, SCALE) for p in baselines(load_space("compute"))]
    kinds = [(True, 1.0), (False, 1.0), (True, 0.2), (True, 0.3), (True, 0.5), (True, 2.0)]
    assert [(c.is_base, c.horizon) for c in configs] == kinds
    assert configs[1].is_sam
    assert [config_id(p) for p in baselines(load_space("grst"))] == [config_id(SGD), config_id(SAM)]


def test_without_points_of_its_own_a_space_gives_the_baselines_alone_and_they_can_be_switched_off():
    space = load_space("grst")
    assert points_to_evaluate(space) == [SGD, SAM]
    assert points_to_evaluate(space.model_copy(update={"baselines": False})) == []


def test_the_users_own_points_come_after_the_baselines():
    point = {"family": "constant", "c": 0.33, "gamma_rst": 1.2}
    space = space_of(points_to_evaluate=[point], gamma_rst=[1.0])
    assert points_to_evaluate(space) == [SGD, SAM, {**point, "rule": "sam"}]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"families": ["constnat"]}, "families: .*'constnat'.*did you mean 'constant'"),
        ({"families": []}, "families: .*at least one"),
        ({"gamma_rst": 1, "gamma_gnr": 1}, "gamma_rst: .*not both"),
        ({"gamma_rst": 1, "extra_propagation": {"low": 0, "high": 1}}, "extra_propagation: .*above 0"),
        ({"extra_propagation": [0.5, 1.5]}, r"extra_propagation: .*\[0, 1\].*1.5"),
        ({"gamma_rst": {"low": 2, "high": 1}}, "gamma_rst.*low < high.*low=2"),
        ({"rho": {"low": 0, "high": 1, "log": True}}, "rho.*logarithmic.*low=0"),
        ({"gamma_rst": {"low": 1, "hihg": 2, "high": 2}}, "gamma_rst.range.hihg: .*did you mean 'high'"),
        ({"rules": ["sma"]}, "rules.sma: .*'sma'.*did you mean 'sam'"),
        ({"rules": {"looksam": {"kk": 2}}}, "rules.looksam: .*'kk'.*did you mean 'k'"),
        ({"rules": {"sma": {"rho": {"low": 0.1, "high": 1}}}}, "rules.sma: .*'sma'.*did you mean 'sam'"),
        ({"rules": {"sam": {"k": 2}}}, "rules.sam: .*'k'.*choices"),
        ({"rules": {"looksam": {"k": [2, 0]}}}, "rules.looksam: .*k.*0"),
        ({"rules": {"looksam": {"k": {"low": 5, "high": 2}}}}, "rules.looksam.k.range: .*low < high.*low=5"),
        ({"rules": {"asam": {"rho": {"low": -1, "high": 2}}}}, "rules.asam.rho: .*negative.*-1"),
        ({"rules": {}}, "rules: .*at least 1"),
        ({"policies": ["cion"]}, "policies: .*'cion'.*did you mean 'coin'"),
        ({"rules": ["s2sam"], "policies": ["gradient-norm"]}, "policies: .*'s2sam'.*add coin"),
        ({"rules": ["s2sam", "msam"], "gamma_rst": [0.5, 1.0]}, "gamma_rst: .*'s2sam'.*one pass.*vary rho"),
        ({"rules": ["msam"], "cap": 2.0}, "cap: .*'msam'.*one pass"),
        ({"horizon": 0}, "horizon: .*above 0.*starts at 0.*0.5 trains half as long"),
        ({"horizon": {"low": -1, "high": 1}}, "horizon: .*above 0.*-1"),
        ({"horizon": {"low": 0.5, "high": float("inf")}}, "horizon.range.high: .*finite.*inf"),
        ({"points_to_evaluate": [{"schedule": {"family": "cos1"}, "horizon": 0}]}, "points_to_evaluate: .*one epoch"),
        ({"points_to_evaluate": [{"schedule": {"family": "cos1"}, "gama_gnr": 2}]}, "points_to_evaluate: .*'gama_gnr'"),
        (
            {"points_to_evaluate": [{"family": "constant", "c": 0.5, "rule": "s2sam", "gamma_rst": 1.0}]},
            "points_to_evaluate: gamma_gnr = 1 must hold for rule 's2sam'.*2.0.*change rho",
        ),
        ({"parametrization": "native"}, "families: .*native.*maps"),
        ({"parametrization": "native", "families": {"piecewise": {"a": 0.0}}}, "families.piecewise: .*no b"),
        ({"parametrization": "native", "families": {"constant": {"p": [0.1, 1.2]}}}, "families.constant: .*1.2"),
        ({"points_to_evaluate": [{"c": 0.5}]}, "points_to_evaluate: .*family"),
        ({"famillies": 1}, "famillies: .*did you mean 'families'"),
    ],
)
def test_a_wrong_space_is_told_its_field_value_and_remedy(fields, says):
    with pytest.raises(InputError, match=f"^here: {says}"):
        space_of(**fields)


def test_the_preview_is_p_and_the_coins_of_that_seed():
    point = {"family": "step-up", "c": 0.5, "shape": 1.0, "gamma_rst": 1.0, "rule": "sam"}
    drawn = schedule_preview(trial_config(point, SCALE), seed=3)
    assert drawn.curve == drawn.coins  # a step from 0 to 1 leaves nothing to chance
    assert sum(drawn.curve) == pytest.approx(len(drawn.curve) / 2, abs=1)
