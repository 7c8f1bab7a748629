"""Which configuration comes next: the points that are given, then what the study draws."""

from collections import deque
from collections.abc import Callable, Mapping

from rst_tune.analysis.records import config_id
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.priors import SAM, SGD, prior_points
from rst_tune.tuning.space import Coordinates, Space
from rst_tune.tuning.study import SearchStudy, Standing

__all__ = ["Draws"]

# A small discrete space repeats itself: a point that was seen is drawn again, so many times.
ATTEMPTS = 20
# The configurations' own seeds start here above the experiment's, beyond those of confirmation.
OWN_SEEDS = 10_000


class Draws:
    """The points of a search by configuration id, in the order in which they were drawn."""

    def __init__(self, experiment: Experiment, study: SearchStudy, standing: Callable[[], Standing]) -> None:
        self.points: dict[str, Coordinates] = {}
        self._numbers: dict[str, int] = {}
        self._study, self._standing = study, standing
        self._is_grid = experiment.sampler.name == "grid"
        self._seed, self._seeds = experiment.seed, experiment.seeds
        self._given = deque(_given(experiment.space, grid=self._is_grid))
        self._exhausted = False

    def resume(self, drawn: Mapping[str, Coordinates]) -> None:
        """Go on after the points that the record knows."""
        for identity, point in drawn.items():
            self._add(identity, point)
        self._study.reconcile(drawn)
        self._given = deque(point for point in self._given if config_id(point) not in drawn)

    def first_seed(self, identity: str) -> int:
        """Return the seed that a configuration is trained with first.

        In a grid all share it, to be compared seed by seed. A sampler learns from neighbours: if all had one seed, a
        region where that seed is lucky would look good as a whole, so there each configuration has its own.
        """
        if self._is_grid:
            return self._seed
        return self._seed + OWN_SEEDS + self._seeds * self._numbers[identity]

    def next(self) -> Coordinates | None:
        """Return a configuration that was not drawn before, or None when there are no more."""
        point = self._next_given() if self._given else self._next_drawn()
        if point is not None:
            self._add(config_id(point), point)
        return point

    def _add(self, identity: str, point: Coordinates) -> None:
        self._numbers.setdefault(identity, len(self.points))
        self.points[identity] = point

    def _next_given(self) -> Coordinates:
        point = self._given.popleft()
        self._study.take(point)
        return point

    def _next_drawn(self) -> Coordinates | None:
        if self._is_grid or self._exhausted:
            return None
        for attempt in range(ATTEMPTS):
            point = self._study.draw(len(self.points), attempt, self._standing())
            if config_id(point) not in self.points:
                return point
        self._exhausted = True
        return None


def _given(space: Space | str, *, grid: bool) -> list[Coordinates]:
    if not isinstance(space, Space):
        return [SGD, SAM]
    points = (*prior_points(space), *(space.grid() if grid else ()))
    return list({config_id(point): point for point in points}.values())
