"""Which configurations are replicated."""

from rst_tune.records import Role, Status, Trial, TrialConfig
from rst_tune.tuning.confirmation import candidates


def trial(name, cost, error, **changes):
    schedule = {"family": "constant", "p": cost}
    config = TrialConfig(
        family="constant", schedule=schedule, extra_propagation=cost, gamma_gnr=1.0, gamma_rst=cost, rho=0.1
    )
    about = {"key": name, "number": 0, "role": Role.SEARCH, "config_id": name, "config": config, "seed": 0, "epochs": 1}
    about |= {"full_horizon": True, "sampled_at": 0.0, "ended_at": 1.0, "pairs": 1.0}
    return Trial(**(about | {"status": Status.COMPLETE, "error": error} | changes))


def test_a_lucky_run_is_replicated_and_the_baselines_always_are():
    crowd = [trial(f"around-{i}", 0.5 + i / 100, 6.0 + i / 100) for i in range(8)]
    lucky, base, sam = trial("lucky", 0.55, 2.0), trial("base", 0.0, 12.0), trial("sam", 1.0, 9.0)
    chosen = candidates([*crowd, lucky, base, sam], 4, {"base", "sam"})
    assert set(chosen) == {"base", "sam", "lucky", "around-0"}


def test_only_searching_trials_that_finished_are_candidates():
    trials = [trial("stopped", 0.1, 1.0, status=Status.STOPPED), trial("fresh", 0.1, 1.0, role=Role.CONFIRM)]
    assert candidates([*trials, trial("whole", 0.5, 5.0)], 4) == ["whole"]
    assert candidates(trials, 4) == []
