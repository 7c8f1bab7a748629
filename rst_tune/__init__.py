"""Randomized sharpness-aware training: the optimizer, and the search for its schedule.

`import rst_tune` imports torch and nothing heavier. `search` and `Metric` need the extra `tune`, and are imported when
they are used.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rst_tune.method import schedules
from rst_tune.method.optimizer import RST

if TYPE_CHECKING:
    from rst_tune.api import search_function as search
    from rst_tune.records import Metric

__all__ = ["RST", "Metric", "schedules", "search"]
__version__ = "0.2.0"
_SEARCH_PACKAGES = ("ray", "optuna", "mlflow", "pydantic", "rich", "plotly")


def __getattr__(name: str) -> Any:
    if name == "search":
        if missing := [package for package in _SEARCH_PACKAGES if find_spec(package) is None]:
            raise ImportError(f"rst_tune.search needs {', '.join(missing)}: pip install 'rst_tune[tune]'")
        from rst_tune.api import search_function

        return search_function
    if name == "Metric":
        from rst_tune.records import Metric

        return Metric
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
