"""Ray Tune: every sample of the space makes an RST, and the front is that of plain dominance."""

from types import SimpleNamespace

import pytest
from small_nets import mlp, sgd, train

from rst_tune.errors import InputError

tune = pytest.importorskip("ray.tune", reason="Ray Tune is not installed: pip install 'rst_tune[tune]'")
from rst_tune.integrations.ray import front_of, rst_from_config, search_space  # noqa: E402


def sampled(space):
    return {name: axis.sample() if hasattr(axis, "sample") else axis for name, axis in space.items()}


@pytest.mark.parametrize("_", range(10))
def test_every_sample_makes_an_rst(_):
    model, config = mlp(), sampled(search_space(rule=tune.choice(["sam", "asam"]), seed=3))
    opt = rst_from_config(config, sgd(model), model, total_steps=12, cap=3.0)
    assert (opt.rho, opt.gamma_gnr, opt.rule.name) == (config["rho"], config["gamma_gnr"], config["rule"])
    assert (opt.seed, opt.cap) == (3, 3.0)
    assert opt.schedule.extra_propagation(12) == pytest.approx(config["extra_propagation"])
    train(model, opt)


def test_a_configuration_without_a_schedule_is_refused():
    model = mlp()
    with pytest.raises(InputError, match=r"\['extra_propagation', 'shape'\] are missing: use search_space"):
        rst_from_config({"family": "constant", "rho": 0.1}, sgd(model), model, total_steps=3)


def test_the_front_has_what_nothing_dominates():
    points = [(3.0, 10), (2.0, 20), (2.5, 20), (1.0, 40), (float("nan"), 1), (4.0, 12), (2.0, 20)]
    results = [SimpleNamespace(metrics={"error": e, "pairs": c}, error=None) for e, c in points]
    results += [
        SimpleNamespace(metrics={"error": 0.0, "pairs": 1}, error=RuntimeError()),
        SimpleNamespace(metrics={"pairs": 1}, error=None),
        SimpleNamespace(metrics=None, error=None),
    ]
    front = front_of(results)
    assert [(r.metrics["error"], r.metrics["pairs"]) for r in front] == [(3.0, 10), (2.0, 20), (2.0, 20), (1.0, 40)]
