"""What each constant of the search is worth: the search with about half and about twice of it, beside the shipped one.

    python experiments/benchmarks/suite/constants.py            # four tasks, about an hour of one core
    python experiments/benchmarks/suite/constants.py --quick    # one constant, one task, two worlds

Printed are the true hypervolumes over the best known with 40 plain trainings, and the mean difference from the shipped
value over the same worlds, with its standard error. A constant whose change makes no difference beyond that error needs
no better value. No table of results has these worlds, but `ROUGHNESS` was chosen on them. New trainings are not kept.
"""

import argparse
import os
from functools import partial
from types import ModuleType

os.environ.setdefault("OMP_NUM_THREADS", "1")
import methods
import numpy as np
import torch
from bank import Bank
from prior import left_out
from run import Judge
from tasks import TASKS

from rst_tune.analysis import features, surrogate
from rst_tune.tuning import confirmation, model, proposals, sampler

BUDGET, FIRST_WORLD, WORLDS = 40.0, 300, 8
# One of much noise, one where longer training wins, one where length is all that matters, one that breaks down.
CHOSEN = ("digits-noisy", "digits-short", "cifar-bn", "clusters-hot")
CONSTANTS: dict[str, tuple[ModuleType, tuple[float, float]]] = {
    "N_CANDIDATES": (sampler, (150, 600)),
    "N_NEIGHBOURS": (sampler, (50, 200)),
    "NEIGHBOUR_SCALE": (sampler, (0.04, 0.16)),
    "P_KEEP_CATEGORY": (sampler, (0.6, 0.95)),
    "OVERHEAD": (sampler, (0.15, 0.6)),
    "REPEATS": (sampler, (2.0, 8.0)),
    "ROUGHNESS": (model, (1.5, 6.0)),
    "SEARCH_SEEDS": (proposals, (2, 8)),
    "MIN_SHARE": (confirmation, (0.0015, 0.006)),
    "CLIP": (surrogate, (1.0, 1.3)),
    "STRAIN_LIMIT": (surrogate, (1.35, 5.4)),
    "STRAIN_EXPONENT": (surrogate, (0.2, 0.8)),
    "LOCAL_SEED_SHARE": (surrogate, (0.25, 0.75)),
    "SMALL": (features, (0.05, 0.2)),
}


class Comparison:
    """Searches of some tasks and worlds, judged by their true hypervolumes."""

    def __init__(self, tasks: tuple[str, ...], worlds: int) -> None:
        self._judges = {name: Judge(Bank(TASKS[name])) for name in tasks}
        self._worlds = range(FIRST_WORLD, FIRST_WORLD + worlds)
        self.priors = {name: left_out(name) for name in tasks}  # measured before any constant is changed

    def hypervolumes(self) -> np.ndarray:
        """Return the hypervolume of each search, by task and world."""
        return np.array([self._of(name) for name in self._judges])

    def _of(self, name: str) -> list[float]:
        judge, prior = self._judges[name], self.priors[name]
        searches = [partial(methods.ours, judge.bank, BUDGET, world, prior=prior) for world in self._worlds]
        return [judge.value_of_any(found.configs) for found in judge.bank.run(searches)]


def main() -> None:
    """Print one line per changed constant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one constant, one task, two worlds")
    parser.add_argument("--constant", action="append", choices=list(CONSTANTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.constant or list(CONSTANTS)[: 1 if options.quick else None]
    comparison = Comparison(CHOSEN[-1:] if options.quick else CHOSEN, 2 if options.quick else WORLDS)
    shipped = comparison.hypervolumes()
    print(f"{'as shipped':24s} {shipped.mean():.3f}", flush=True)
    for name in names:
        module, values = CONSTANTS[name]
        own = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            found = comparison.hypervolumes()
            gaps = (found - shipped).ravel()
            error = gaps.std(ddof=1) / np.sqrt(len(gaps))
            said = f"{name} {value:g} for {own:g}"
            print(f"{said:32s} {found.mean():.3f}  {gaps.mean():+.3f} ± {error:.3f}", flush=True)
        setattr(module, name, own)


if __name__ == "__main__":
    main()
