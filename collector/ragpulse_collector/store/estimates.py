"""The estimator of docs/statistics.md as SQL: Hajek's mean and its interval, equal to `statistics.hajek` to 1e-9.

Scored units are weighted by 1/pi. Which interval is used, and the names of its parts, follow
`ragpulse_evaluators.statistics.weighted`; that module says why. The sums for `statistics.Moments` are here, too: with
them the interval is computed in Python.
"""

from __future__ import annotations

from ragpulse_evaluators.statistics.distributions import STUDENT_975

_Z = 1.959963984540054
"""The normal quantile at 0.975."""


def _polynomial(low: float, high: float, coefficients: tuple[float, ...]) -> str:
    u = f"((x - {(low + high) / 2:.10g}::DOUBLE) / {(high - low) / 2:.10g}::DOUBLE)"
    text = f"{coefficients[-1]!r}::DOUBLE"
    for coefficient in reversed(coefficients[:-1]):
        text = f"({coefficient!r}::DOUBLE + {u} * {text})"
    return f"exp({text})"


def _student_of_inverse() -> str:
    pieces = " ".join(f"WHEN x <= {high} THEN {_polynomial(low, high, c)}" for low, high, c in STUDENT_975)
    return f"CASE {pieces} END"


_CENTRE = f"((p + {_Z**2!r} / (2 * trials)) / (1 + {_Z**2!r} / trials))"
_HALF = (
    f"({_Z!r} * sqrt(greatest(0.0, p * (1 - p)) / trials + {_Z**2!r} / (4 * trials * trials))"
    f" / (1 + {_Z**2!r} / trials))"
)

MACROS: dict[str, str] = {
    "raw.student_of_inverse(x)": _student_of_inverse(),
    "student_975(df)": "raw.student_of_inverse(1.0 / df)",
    "wilson_lo(p, trials)": f"CASE WHEN p <= 0 THEN 0.0 ELSE greatest(0.0, {_CENTRE} - {_HALF}) END",
    "wilson_hi(p, trials)": f"CASE WHEN p >= 1 THEN 1.0 ELSE least(1.0, {_CENTRE} + {_HALF}) END",
}
"""Scalar macros: half of a 95 % interval's width in standard errors, and Wilson's bounds of a rate."""


def hajek(source: str, *, keys: str) -> str:
    """Return the query that estimates `y` weighted by 1/`pi` over the rows of `source`, one row per `keys`."""
    return f"""
        WITH picked AS ({source}),
        means AS (
            SELECT {keys}, sum(y / pi) / sum(1 / pi) AS m, sum(1 / pi) AS w,
                   sum(1 / pi) ** 2 / sum(1 / pi ** 2) AS kish, 1 / min(pi) / sum(1 / pi) AS heaviest,
                   count(*) AS n, min(y) AS low, max(y) AS high, bool_or(y > 0 AND y < 1) AS between
            FROM picked GROUP BY {keys}),
        spread AS (
            SELECT {keys}, any_value(COLUMNS(means.* EXCLUDE ({keys}))),
                   sqrt(sum(((y - m) / pi) ** 2)) / any_value(w) AS se,
                   sum((y - m) ** 2 / pi) / any_value(w) AS variance
            FROM picked JOIN means USING ({keys}) GROUP BY {keys}),
        kinds AS (
            SELECT *, low < 0 OR high > 1 AS unbounded, least(1.0, greatest(0.0, m)) AS p, p * (1 - p) AS most,
                   kish >= 0.7 * n AS alike, between AND low < high AS graded,
                   NOT unbounded AND NOT (alike AND graded AND (
                       kish >= (1 - 1e-9) * n AND (n < 10 OR least(p, 1 - p) >= 0.25)
                       OR most * least(p, 1 - p) >= 20 * greatest(se ** 2, variance / kish))) AS wilson,
                   wilson AND NOT (alike AND NOT graded) AS cautious, low = high OR most <= 0 AS same,
                   greatest(0.0, heaviest ** 2 - 4 / kish ** 2) AS heavy,
                   student_975(greatest(1.0, round(kish - 1, 3))) AS t
            FROM spread),
        sized AS (
            SELECT *,
                   CASE WHEN same THEN kish ELSE most / ({_cautious_error("p")}) END AS below,
                   CASE WHEN same THEN kish ELSE most / ({_cautious_error("(1 - p)")}) END AS above,
                   (student_975(greatest(1.0, round(n - 1.0, 3))) / t) ** 2 AS freedom,
                   CASE WHEN low = high OR se = 0 THEN kish ELSE least(n, most / se ** 2) END AS trials
            FROM kinds),
        bounds AS (
            SELECT *,
                   CASE WHEN cautious THEN wilson_lo(p - step / (below * freedom), below * freedom)
                        WHEN wilson THEN wilson_lo(p, trials)
                        WHEN NOT unbounded THEN greatest(0.0, m - t * se) WHEN se > 0 THEN m - t * se END AS lo,
                   CASE WHEN cautious THEN wilson_hi(p + step / (above * freedom), above * freedom)
                        WHEN wilson THEN wilson_hi(p, trials)
                        WHEN NOT unbounded THEN least(1.0, m + t * se) WHEN se > 0 THEN m + t * se END AS hi
            FROM (SELECT *, CASE WHEN between THEN 0.0 ELSE 0.5 END AS step FROM sized))
        SELECT {keys}, m AS estimate, lo, hi, n, kish AS n_eff FROM bounds"""


def _cautious_error(far: str) -> str:
    """SE² as the bound on the side whose end lies `far` away takes it."""
    spread = f"CASE WHEN graded THEN least(most, variance + 0.5 * {far} ** 2 / kish) ELSE variance END"
    return f"greatest(se ** 2, {spread} / kish) + 0.5 * {far} ** 2 * heavy"


MOMENTS = (
    "count({y}), sum(CASE WHEN {y} IS NOT NULL THEN 1 / pi END), sum({y} * (1 / pi)), sum({y} * ({y} * (1 / pi))),"
    " sum(CASE WHEN {y} IS NOT NULL THEN (1 / pi) * (1 / pi) END), sum((1 / pi) * ({y} * (1 / pi))),"
    " sum(({y} * (1 / pi)) * ({y} * (1 / pi))), min({y}), max({y}), min(CASE WHEN {y} IS NOT NULL THEN pi END),"
    " count_if({y} > 0 AND {y} < 1)"
)
"""The fields of `statistics.Moments` for one group, from a column `pi` and a value `{y}` that may be NULL.

All sums share a few products: this takes a fifth less time than dividing and filtering the terms of each sum.
"""
