"""Randomized sharpness-aware training: the optimizer, and the search for its schedule.

`import rst_tune` imports torch and nothing heavier. The search lives in `rst_tune.tuning`.
"""

from rst_tune.method import schedules
from rst_tune.method.optimizer import RST

__all__ = ["RST", "schedules"]
__version__ = "0.2.0"
