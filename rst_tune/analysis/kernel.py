"""A Matérn covariance over groups of features, with one length scale per group."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, StationaryKernelMixin

__all__ = ["GroupedMatern"]

Array = NDArray[np.float64]


class GroupedMatern(StationaryKernelMixin, Kernel):  # type: ignore[misc]
    """k(x, y) = (1 + a + a²/3)·exp(-a), with a² = 5·Σ_g |x_g - y_g|² / l_g²: Matérn 5/2 over groups of features.

    All indicators of family and rule share one length scale, so that a space of nine families has no more parameters
    than one of three. scikit-learn's own kernels have one scale in all or one per feature.

    `sizes` are the numbers of features of the groups, in the order of the columns; `scales` are the l_g.

    >>> kernel = GroupedMatern(scales=(1.0, 2.0), sizes=(1, 2))
    >>> kernel(np.array([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])).round(3).tolist()
    [[1.0, 0.524], [0.524, 1.0]]
    """

    def __init__(
        self, scales: Sequence[float], sizes: Sequence[int], within: tuple[float, float] = (0.1, 10.0)
    ) -> None:
        self.scales, self.sizes, self.within = scales, sizes, within

    @property
    def hyperparameter_scales(self) -> Hyperparameter:
        """The fitted parameters."""
        return Hyperparameter("scales", "numeric", self.within, len(self.sizes))

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:
        """Return k(X, Y), and with `eval_gradient` its derivatives by the logarithms of the scales."""
        other = X if Y is None else Y
        edges = np.cumsum([0, *self.sizes])
        squares = [_squared_distances(X[:, a:b], other[:, a:b]) for a, b in pairwise(edges)]
        scaled = [square / scale**2 for square, scale in zip(squares, self.scales, strict=True)]
        a = np.sqrt(5 * np.sum(scaled, axis=0))
        fall = np.exp(-a)
        value = (1 + a + a**2 / 3) * fall
        if not eval_gradient:
            return value
        # d k / d log l_g
        return value, np.stack([5 / 3 * (1 + a) * fall * part for part in scaled], axis=2)

    def diag(self, X: Array) -> Array:
        """Return k(x, x): 1."""
        return np.ones(len(X))


def _squared_distances(x: Array, y: Array) -> Array:
    square = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :] - 2 * x @ y.T
    return np.asarray(np.maximum(square, 0.0))
