"""One axis of a search space: a number, a list of numbers, or a range; and how each is sampled."""

from typing import Annotated, Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Suggester(Protocol):
    """Where a space gets its values from: an Optuna trial, or anything with these methods."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return a number of the range."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """Return a whole number of the range."""
        ...

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        """Return one of the choices."""
        ...


class Range(BaseModel):
    """An interval, sampled uniformly or (`log`) uniformly in its logarithm; `integer`: only whole numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: Finite
    high: Finite
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"`low < high` must hold, but got low={self.low}, high={self.high}: swap them")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low > 0, but got low={self.low}: raise it or drop `log`")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"a range of integers has whole ends, but got low={self.low}, high={self.high}")
        return self


def form(axis: Any) -> str:
    """Return which of its forms an axis has, given as plain data or validated."""
    return "range" if isinstance(axis, dict | Range) else "list" if isinstance(axis, list) else "number"


Axis = Annotated[
    Annotated[Finite, Tag("number")]
    | Annotated[list[Finite], Field(min_length=1), Tag("list")]
    | Annotated[Range, Tag("range")],
    Discriminator(form),
]


def bounds(axis: Axis) -> tuple[float, float]:
    """Return the lowest and the highest value."""
    if isinstance(axis, Range):
        return axis.low, axis.high
    values = axis if isinstance(axis, list) else [axis]
    return min(values), max(values)
