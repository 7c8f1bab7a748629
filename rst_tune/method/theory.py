"""The paper's results on RST: the equivalent regularization, Theorem 1, its corollaries, and Theorem 2.

alpha_t is the learning rate, p_t the scheduling probability, rho the radius, beta the smoothness of the loss. A bound
is only computed when its assumptions hold; otherwise an error names the first violation and its t, counted from 0 as
in the paper.
"""

from collections.abc import Sequence
from math import fsum, inf, isfinite, log, prod, sqrt

from rst_tune.errors import InputError

ROUNDING = 1.0 + 1e-12


def gamma_rst(p: float, gamma_gnr: float = 1.0) -> float:
    """Return the expected strength of the regularization by RST, in units of rho: p · gamma_gnr (Equation 7).

    >>> gamma_rst(0.5, 2.0)
    1.0
    """
    return p * gamma_gnr


def check_assumptions(alpha: Sequence[float], p: Sequence[float], rho: float, beta: float) -> None:
    """Raise unless alpha_t <= 1/beta, sqrt(p_t)·rho <= 1/beta and 0 <= p_t <= 1 hold at every t.

    >>> check_assumptions([0.1, 0.1], [0.5, 0.5], rho=0.05, beta=10.0)
    """
    if len(alpha) != len(p) or not alpha:
        raise InputError(f"alpha and p must be of one length, at least 1, but got {len(alpha)} and {len(p)}")
    if not (isfinite(beta) and beta > 0.0 and rho >= 0.0):
        raise InputError(f"beta > 0 and rho >= 0 must hold, but got beta = {beta!r}, rho = {rho!r}")
    for t, (alpha_t, p_t) in enumerate(zip(alpha, p, strict=True)):
        if not 0.0 <= p_t <= 1.0:
            raise InputError(f"0 <= p_t <= 1 must hold, but p_t = {p_t!r} at t = {t}")
        if not 0.0 < alpha_t <= ROUNDING / beta:
            raise InputError(
                f"0 < alpha_t <= 1/beta = {1 / beta:.6g} must hold, but alpha_t = {alpha_t!r} at t = {t}: lower it"
            )
        if not sqrt(p_t) * rho <= ROUNDING / beta:
            raise InputError(
                f"sqrt(p_t)·rho <= 1/beta = {1 / beta:.6g} must hold, but it is {sqrt(p_t) * rho:.6g} at t = {t}: "
                "lower rho or p"
            )


def theorem1(gap: float, alpha: Sequence[float], p: Sequence[float], rho: float, beta: float) -> float:
    """Return the bound on the least expected squared gradient norm (Theorem 1).

    min_t ‖∇L(θ_t)‖² <= 2·gap/Σα_t + Σ(α_t p_t ρ² β²)/Σα_t, where gap = L(θ_0) − L_*.

    >>> round(theorem1(1.0, [0.1] * 10, [0.5] * 10, rho=0.1, beta=10.0), 6)
    2.5
    """
    check_assumptions(alpha, p, rho, beta)
    total = fsum(alpha)
    noise = fsum(a * q for a, q in zip(alpha, p, strict=True)) * rho**2 * beta**2
    return (2.0 * gap + noise) / total


def corollary1(gap: float, C: float, T: int, p: float, rho: float, beta: float, *, cosine: bool = False) -> float:
    """Return the bound for alpha_t = C/beta, or for alpha_t = (C/beta)(1 + cos(πt/T)), and constant p (Corollary 1).

    2·beta·gap/(C·T) + p·rho²·beta². The cosine rate starts at 2C/beta, so it needs 2C <= 1.

    >>> corollary1(1.0, 0.5, 10, 0.0, 0.1, 1.0)
    0.4
    """
    largest = 2.0 * C if cosine else C
    check_assumptions([largest / beta], [p], rho, beta)
    return 2.0 * beta * gap / (C * T) + p * rho**2 * beta**2


def corollary2(gap: float, C: float, T: int, p: float, rho: float, beta: float) -> float:
    """Return the bound for alpha_t = C/t, t = 1 … T, and constant p: 2·gap/(C·log T) + p·rho²·beta² (Corollary 2)."""
    check_assumptions([C], [p], rho, beta)
    if T < 2:
        raise InputError(f"T >= 2 must hold, but got T = {T}: log T is the denominator of the bound")
    return 2.0 * gap / (C * log(T)) + p * rho**2 * beta**2


def theorem2(
    alpha: Sequence[float], p: Sequence[float], rho: float, norms: Sequence[float], beta: float, varrho: float
) -> float:
    """Return the bound on (E[L(θ_T)] − L_*)/(L(θ_0) − L_*) (Theorem 2).

    Π_t (1 − α_t·ϱ·(1 − p_t·ρ_t²·β²)) with ρ_t = rho/‖∇L(θ_t)‖ and the Polyak-Lojasiewicz constant ϱ. ρ_t depends on the
    run: `norms` are the gradient norms, for an expectation over coins the least norm that any of them has at t.
    With p_t·ρ_t²·β² >= 1 the theorem gives no rate, which is an error.
    """
    check_assumptions(alpha, p, rho, beta)
    if not 0.0 < varrho <= beta * ROUNDING:
        raise InputError(f"0 < varrho <= beta must hold, but got varrho = {varrho!r}, beta = {beta!r}")
    factors = []
    for t, (alpha_t, p_t, norm) in enumerate(zip(alpha, p, norms, strict=True)):
        loss_of_rate = p_t * (rho / norm if norm else inf) ** 2 * beta**2 if p_t * rho else 0.0
        if not loss_of_rate < 1.0:
            raise InputError(
                f"p_t·(rho/‖∇L‖)²·beta² < 1 must hold, but it is {loss_of_rate:.6g} at t = {t} with ‖∇L‖ = {norm:.6g}: "
                "lower rho, or stop before the gradient is that small"
            )
        factors.append(1.0 - alpha_t * varrho * (1.0 - loss_of_rate))
    return prod(factors)
