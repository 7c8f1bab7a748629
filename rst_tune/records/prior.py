"""What the surrogate of a search assumes before any of its trials has ended, as plain numbers for the event log."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EarlierSearch", "Prior"]

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(gt=0, lt=1)]
_Spread = tuple[_Positive, _Positive, _Positive, _Positive, _Positive]


class EarlierSearch(BaseModel):
    """A search that a prior was learnt from: its name, its identity and its finished trials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    uid: str
    trials: int


class Prior(BaseModel):
    """Means and standard deviations of the surrogate's parameters before any training.

    `mean` and `mean_sd` are those of the coefficients of the prior mean: 1, L, L², gain, loss. `kernel` has amplitude,
    noise, scale of the task, length and share of the seed; `kernel_sd` is in logarithms, for the share in logits.
    `searches` are those that the numbers were learnt from; empty: the shipped ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: tuple[_Number, _Number, _Number, _Number, _Number]
    mean_sd: _Spread
    kernel: tuple[_Positive, _Positive, _Positive, _Positive, _Share]
    kernel_sd: _Spread
    searches: tuple[EarlierSearch, ...] = ()

    def describe(self) -> str:
        """Return the earlier searches in one line.

        >>> one = EarlierSearch(name="digits", uid="1a2b", trials=40)
        >>> five = (1.0, 1.0, 1.0, 1.0, 0.5)
        >>> Prior(mean=five, mean_sd=five, kernel=five, kernel_sd=five, searches=(one,)).describe()
        'learnt from digits (40 trials)'
        """
        named = ", ".join(f"{s.name} ({s.trials} trials)" for s in self.searches)
        return f"learnt from {named}" if named else "given by the experiment"
