"""Who is confirmed."""

from rst_tune.analysis.records import Trial
from rst_tune.tuning.confirm import candidates


def trial(name, cost, error, **changes):
    about = {"key": name, "number": 0, "role": "search", "config_id": name, "seed": 0, "epochs": 1, "full": True}
    about |= {"drawn": 0.0, "ended": 1.0, "pairs": 1.0, "status": "complete", "error": error}
    config = {"family": "constant", "extra_propagation": cost, "gamma_rst": cost, "rule": "sam"}
    return Trial(**(about | {"config": config} | changes))


def test_a_lucky_run_is_looked_at_again_and_the_ends_always_are():
    crowd = [trial(f"around-{i}", 0.5 + i / 100, 6.0 + i / 100) for i in range(8)]
    lucky, base, sam = trial("lucky", 0.55, 2.0), trial("base", 0.0, 12.0), trial("sam", 1.0, 9.0)
    chosen = candidates([*crowd, lucky, base, sam], 4, {"base", "sam"})
    assert set(chosen) == {"base", "sam", "lucky", "around-0"}


def test_only_searching_trials_that_finished_are_candidates():
    trials = [trial("stopped", 0.1, 1.0, status="stopped"), trial("fresh", 0.1, 1.0, role="confirm")]
    assert candidates([*trials, trial("whole", 0.5, 5.0)], 4) == ["whole"]
    assert candidates(trials, 4) == []
