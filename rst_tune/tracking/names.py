"""The names of the metrics, parameters, tags and artifacts that are written to MLflow.

Errors are minimized; those of a classifier are in percent. Metrics per epoch keep the names of the event log
(`train_loss`, `validation_error`, ...), with the epoch as step; the names below are added by tracking.
"""

# Metrics of a trial that are known when it is sampled: parameters repeated as metrics, because MLflow filters
# parameters by equality only.
EXTRA_PROPAGATION = "extra_propagation"
"""Expected extra forward-backward pairs per step: 0 is the base optimizer, 1 is SAM."""
COMPUTE = "compute"
"""Expected pairs of the training over those of one base-optimizer training of the recipe's length."""
GAMMA_GNR = "gamma_gnr"
GAMMA_RST = "gamma_rst"
RHO = "rho"
SEED = "seed"
EPOCHS = "epochs"
SCHEDULE_PREFIX = "schedule."
"""Prefix of the schedule's numbers: `schedule.p` is the p of a constant schedule."""

# Metrics of a trial that are known later.
ERROR = "error"
"""Validation error at the end of training: the objective."""
TEST_ERROR = "test_error"
"""Error on the test set, which is read once, after confirmation."""
PAIRS = "pairs"
"""Forward-backward pairs since the start of the training, one value per epoch."""
PAIRS_SPENT = "pairs_spent"
"""All pairs of the trial, reported at its end."""
SECONDS_SPENT = "seconds_spent"
"""All seconds of the trial, reported at its end."""
RUNG_ERROR = "rung_error"
"""Validation error at a rung, with the rung's epoch as step."""
BY_PAIRS = ("validation_error", "train_loss")
"""Metrics per epoch that are logged a second time, with the pairs as step; the search's own metric is another."""
BY_PAIRS_SUFFIX = "_by_pairs"

# Metrics of the search. The step is the number of ended trials so far.
HYPERVOLUME = "hypervolume"
"""Hypervolume of the delivered front, from the analysis; one value per sync after which it may have changed."""
FRONT_SIZE = "front_size"
"""Number of configurations on the delivered front, from the analysis."""
HYPERVOLUME_MEASURED = "hypervolume_measured"
"""Hypervolume of the front of the measured means, one value per ended trial: a curve that never changes afterwards."""
SEARCH_PAIRS = "pairs"
TRIALS_FINISHED = "trials_finished"
"""Trials trained to their own end, including those with a shortened horizon."""
TRIALS_STOPPED = "trials_stopped"
TRIALS_FAILED = "trials_failed"
"""Trials that failed, diverged, ran out of memory or were lost."""
REFERENCE_ERROR = "reference_error"
REFERENCE_COMPUTE = "reference_compute"

# Tags.
SEARCH_ID = "search_id"
ROLE = "role"
"""`search` on the parent run; `trial` or `confirm` on a child run."""
TRIAL_KEY = "trial_key"
CONFIG_ID = "config_id"
STATUS = "status"
"""The value of `rst_tune.records.Status`."""
REASON = "reason"
FULL_HORIZON = "full_horizon"
FRONT = "front"
"""`true` while the trial's configuration is on the delivered front, else `false`."""
P_NONDOMINATED = "p_nondominated"
PHASE = "phase"
PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
"""The description of a run in MLflow's UI."""
USER = "mlflow.user"
SOURCE = "mlflow.source.name"
COMMIT = "mlflow.source.git.commit"

# Prefixes of parameters.
TASK_PREFIX = "task"
"""Model, recipe and data, on the parent and on every child: searches of different tasks compare by them."""
SAMPLED_PREFIX = "sampled"
"""The parameters as the sampler proposed them."""

# Artifacts of the search.
EXPERIMENT_FILE = "resolved/experiment.yaml"
SPACE_FILE = "resolved/space.yaml"
ENVIRONMENT_FILE = "resolved/environment.yaml"

# Registered models: a tag of each version, and the aliases.
MODEL_ID = "model_id"
CHEAPEST = "cheapest"
MOST_ACCURATE = "most-accurate"
KNEE = "knee"
