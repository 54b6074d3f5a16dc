"""Normal and Student quantiles in closed form, so that the running collector never imports scipy (1.2 s)."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()


def normal_quantile(probability: float) -> float:
    """The z below which a standard normal variable falls with this probability."""
    return _NORMAL.inv_cdf(probability)


def normal_two_sided_p(z: float) -> float:
    """The probability of a standard normal variable at least as far from 0 as `z`."""
    return math.erfc(abs(z) / math.sqrt(2.0))


@lru_cache(maxsize=4096)
def student_quantile(probability: float, df: float) -> float:
    """The t below which Student's variable with `df` > 0 degrees of freedom falls with this probability (>= 0.5)."""
    low, high = 0.0, 2.0
    while _student_cdf(high, df) < probability:
        low, high = high, high * 4.0
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _student_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2.0


def _student_cdf(t: float, df: float) -> float:
    """P(T <= t) for t >= 0."""
    return 1.0 - 0.5 * regularized_beta(df / (df + t * t), df / 2.0, 0.5)


def regularized_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(1.0 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22)."""
    tiny = 1e-300
    d = 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    c, fraction = 1.0, d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1.0 / (1.0 + term * d or tiny)
            c = 1.0 + term / c or tiny
            step = d * c
            fraction *= step
        if abs(step - 1.0) < 1e-15:
            break
    return fraction
