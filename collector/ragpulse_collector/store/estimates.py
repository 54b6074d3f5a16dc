"""The estimator of docs/statistics.md as SQL: Hajek's mean and its interval, equal to `statistics.hajek` to 1e-9.

Scored units are weighted by 1/pi. Scores in 0..1: Wilson with n* = min(n, m(1-m)/SE²), graded ones Student cut at 0 and
1, all equal ones Wilson with Kish's n. Where Kish's n is below 0.7 n: Wilson with n* at most Kish's n of such spread,
times Korn and Graubard's factor of degrees of freedom.
"""

from __future__ import annotations

from ragpulse_evaluators.statistics._distributions import STUDENT_975

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
                   sum(1 / pi) ** 2 / sum(1 / pi ** 2) AS kish,
                   count(*) AS n, min(y) AS low, max(y) AS high, bool_or(y > 0 AND y < 1) AS graded
            FROM picked GROUP BY {keys}),
        spread AS (
            SELECT {keys}, any_value(m) AS m, any_value(kish) AS kish, any_value(n) AS n, any_value(low) AS low,
                   any_value(high) AS high, any_value(graded) AS graded,
                   sqrt(sum(((y - m) / pi) ** 2)) / any_value(w) AS se,
                   sum((y - m) ** 2 / pi) / any_value(w) / any_value(kish) AS pooled
            FROM picked JOIN means USING ({keys}) GROUP BY {keys}),
        widths AS (
            SELECT *, low < 0 OR high > 1 AS unbounded, least(1.0, greatest(0.0, m)) AS p, kish >= 0.7 * n AS alike,
                   student_975(greatest(1.0, round(kish - 1, 3))) AS t
            FROM spread),
        sized AS (
            SELECT *, CASE WHEN low = high OR se = 0 THEN kish
                           WHEN alike THEN least(n, p * (1 - p) / se ** 2)
                           ELSE p * (1 - p) / greatest(se ** 2, pooled) END
                      * CASE WHEN alike THEN 1.0 ELSE (student_975(greatest(1.0, n - 1)) / t) ** 2 END AS trials
            FROM widths)
        SELECT {keys}, m AS estimate,
               CASE WHEN unbounded THEN CASE WHEN se > 0 THEN m - t * se END
                    WHEN graded AND alike AND low < high THEN greatest(0.0, m - t * se)
                    ELSE wilson_lo(p, trials) END AS lo,
               CASE WHEN unbounded THEN CASE WHEN se > 0 THEN m + t * se END
                    WHEN graded AND alike AND low < high THEN least(1.0, m + t * se)
                    ELSE wilson_hi(p, trials) END AS hi,
               n, kish AS n_eff
        FROM sized"""
