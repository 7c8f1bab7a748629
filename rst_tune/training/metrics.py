"""Names of all metrics of a run. Errors are in percent, times in seconds.

Per epoch: losses and errors at its end, and the seconds spent in it. `pairs` and
`realized_extra_propagation` count from the start of the run, so their last value is the run's.
"""

TRAIN_LOSS = "train_loss"
VALIDATION_ERROR = "validation_error"
VALIDATION_LOSS = "validation_loss"
TEST_ERROR = "test_error"
TEST_LOSS = "test_loss"

EXTRA_PROPAGATION = "extra_propagation"
"""Expected extra forward-backward pairs per step over the whole horizon: 0 is the base optimizer, 1 is SAM."""
REALIZED_EXTRA_PROPAGATION = "realized_extra_propagation"
"""Extra pairs per step counted so far."""
PAIRS = "pairs"
"""Forward-backward passes on one batch since the start: a step of the base optimizer is 1, a SAM step 2."""

SECONDS = "seconds"
SECONDS_DATA = "seconds_data"
SECONDS_PASS1 = "seconds_pass1"
SECONDS_PASS2 = "seconds_pass2"
SECONDS_STEP = "seconds_step"
SECONDS_EVALUATION = "seconds_evaluation"
IMAGES_PER_SECOND = "images_per_second"

SHARPNESS = "sharpness"
"""Increase of the loss at radius rho along the gradient, on a fixed sample of the training images."""
GRADIENT_NORM = "gradient_norm"
SAMPLE_LOSS = "sample_loss"

TIMINGS = (
    *(SECONDS, SECONDS_DATA, SECONDS_PASS1, SECONDS_PASS2, SECONDS_STEP, SECONDS_EVALUATION),
    IMAGES_PER_SECOND,
)
"""Measured times: the only metrics that differ between two runs of the same configuration and seed."""

EPOCH_METRICS = (
    *(TRAIN_LOSS, VALIDATION_ERROR, VALIDATION_LOSS, EXTRA_PROPAGATION, REALIZED_EXTRA_PROPAGATION, PAIRS),
    *TIMINGS,
)
"""Keys of the metrics that `Run.epoch` returns."""
