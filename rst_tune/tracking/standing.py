"""The tags that move: who is on the front now, and how surely."""

from rst_tune.analysis import noise
from rst_tune.analysis.records import Search
from rst_tune.tracking import names

__all__ = ["standing"]


def standing(search: Search) -> dict[str, dict[str, str]]:
    """Return, for every trial that ended, its tags `front` and (once there are replicates) `p_nondominated`."""
    tags = {trial.key: {names.FRONT: "false"} for trial in search.trials if trial.ended is not None}
    groups = search.by_config()
    for row in noise.summarise(search):
        own = {names.FRONT: str(row.on_front).lower()}
        if row.p_nondominated is not None:
            own[names.P_NONDOMINATED] = f"{row.p_nondominated:.2f}"
        tags |= {trial.key: own for trial in groups[row.config_id]}
    return tags
