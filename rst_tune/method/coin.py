"""X_t as a pure function of (seed, t): no state, no global generator, equal on all ranks and after a resume.

Each pair (seed, t) is mixed by the finalizer of splitmix64 (Steele, Lea and Flood, 2014), applied to the seed and then
to the seed's hash plus t steps of the golden-ratio counter. For a fixed seed X_t is monotone in p, so a
larger p only adds ascents and two schedules compared on one seed share their random numbers.
"""

MASK = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN = 0x9E37_79B9_7F4A_7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return z ^ (z >> 31)


def hash64(seed: int, *counters: int) -> int:
    """Return a 64-bit hash of a seed and any counters.

    >>> hash64(0, 1) == hash64(0, 1), hash64(0, 1) == hash64(1, 0)
    (True, False)
    """
    z = _mix((seed + GOLDEN) & MASK)
    for counter in counters:
        z = _mix((z + (counter + 1) * GOLDEN) & MASK)
    return z


def uniform(seed: int, *counters: int) -> float:
    """Return a number in [0, 1) with 53 random bits.

    >>> 0.0 <= uniform(0, 1) < 1.0
    True
    """
    return (hash64(seed, *counters) >> 11) * 2.0**-53


def toss(seed: int, t: int, p: float) -> bool:
    """Return X_t ~ Bernoulli(p): whether iteration t is sharpness-aware (Algorithm 1, line 4).

    >>> toss(0, 7, 0.0), toss(0, 7, 1.0)
    (False, True)
    """
    return uniform(seed, t) < p
