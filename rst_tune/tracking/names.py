"""The names of everything MLflow is told, in one place: metrics, parameters, tags, artifacts.

Errors are in percent. Per-epoch metrics of a trial keep the names of the record's history (`train_loss`,
`validation_error`, ...), with the epoch as step. What follows are the names that tracking adds.
"""

# Metrics of a trial, known when it is drawn: the same numbers as its parameters, so that they filter by size.
EXTRA_PROPAGATION = "extra_propagation"
"""Expected extra forward-backward pairs a step: 0 is the base optimizer, 1 is SAM."""
NUMBERS = ("gamma_gnr", "gamma_rst", "rho", "seed", "epochs")
"""Numbers of a trial that are a parameter and a metric."""
SCHEDULE_PREFIX = "schedule."
"""Before the name of each number of the schedule: `schedule.p` is the p of a constant one."""

# Metrics of a trial, known later.
ERROR = "error"
"""Validation error at the end of training: what the front is made of."""
TEST_ERROR = "test_error"
"""Error on the test set, which is read once, after confirmation."""
PAIRS = "pairs"
"""Forward-backward pairs since the start of the training, one value an epoch."""
PAIRS_SPENT = "pairs_spent"
"""All pairs of the trial, also when it has no history."""
SECONDS_SPENT = "seconds_spent"
"""All seconds of the trial."""
RUNG_ERROR = "rung_error"
"""Validation error at a rung, with the rung's epoch as step."""
BY_PAIRS = ("validation_error", "train_loss")
"""Per-epoch metrics that are told a second time, with the pairs as step."""
BY_PAIRS_SUFFIX = "_by_pairs"

# Metrics of the search; the step is the number of ends so far.
HYPERVOLUME = "hypervolume"
"""Area between the front of the configurations' means, as measured, and the stored reference point."""
FRONT_SIZE = "front_size"
"""Points of that front. The delivered one goes by expected errors: see the tag `front` and the run's description."""
SEARCH_PAIRS = "pairs"
TRIALS_FINISHED = "trials_finished"
"""Trials trained to their own end, shorter ones included."""
TRIALS_STOPPED = "trials_stopped"
TRIALS_FAILED = "trials_failed"
"""Trials that failed or diverged."""
REFERENCE_ERROR = "reference_error"
REFERENCE_COST = "reference_extra_propagation"

# Tags.
SEARCH_ID = "search_id"
ROLE = "role"
"""`search` on the parent run; `trial` or `confirm` on a child."""
TRIAL_KEY = "trial_key"
CONFIG_ID = "config_id"
STATUS = "status"
"""waiting, running, complete, stopped, diverged or failed."""
REASON = "reason"
FULL = "full_horizon"
FRONT = "front"
"""`true` while the trial's configuration is on the front, else `false`."""
P_NONDOMINATED = "p_nondominated"
PHASE = "phase"
PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
"""The run's description in MLflow's UI."""

# Artifacts of the search.
EXPERIMENT_FILE = "resolved/experiment.yaml"
SPACE_FILE = "resolved/space.yaml"
ENVIRONMENT_FILE = "resolved/environment.yaml"

# Registered models: a tag of each version, and the aliases.
MODEL_ID = "model_id"
CHEAPEST = "cheapest"
MOST_ACCURATE = "most-accurate"
KNEE = "knee"
