"""The estimator of docs/statistics.md as SQL: Hajek's mean and its interval, equal to `statistics.hajek` to 1e-9.

Scored units are weighted by 1/pi. Scores of 0 and 1 only: Wilson with n* = min(n, m(1-m)/SE²); others: Student with
Kish's n minus one degrees of freedom, cut at 0 and 1; all equal: Wilson with Kish's n.
"""

from __future__ import annotations

_Z = 1.959963984540054
"""The normal quantile at 0.975."""

# log of Student's quantile at 0.975 as polynomials in u, three pieces of x = 1/df scaled to u in [-1, 1]; fitted to
# scipy.stats.t.ppf with a relative error below 3e-12 (DuckDB has no quantile of Student's distribution).
_STUDENT: tuple[tuple[float, float, tuple[float, ...]], ...] = (
    (0.0, 0.15, (
        0.7677402701010158, 0.09889999699177225, 0.004127079236869308, 3.343504411837453e-05, -7.855611129468857e-06,
        -6.76063403438915e-09, 2.6437366857015013e-08, -2.947721520795781e-09)),
    (0.15, 0.45, (
        1.1018633321114555, 0.24748472596271698, 0.01609885450947981, -0.0004142703128194654, -9.106716383985392e-05,
        8.451132783479146e-06, 6.456418505574649e-07, -9.997471918514475e-08, -1.3646832891872584e-08,
        2.151310449768505e-09)),
    (0.45, 1.0, (
        1.9187203197600322, 0.592996763505756, 0.03458709610443698, -0.004502418072426231, 0.00023538383836041668,
        7.37196192030354e-05, -2.278650296725425e-05, 2.055649548606534e-06, 4.698452432856345e-07,
        -1.876573073919581e-07, 1.5192309517280957e-08, 4.779240862580004e-09)),
)  # fmt: skip


def _polynomial(low: float, high: float, coefficients: tuple[float, ...]) -> str:
    u = f"((x - {(low + high) / 2:.10g}::DOUBLE) / {(high - low) / 2:.10g}::DOUBLE)"
    text = f"{coefficients[-1]!r}::DOUBLE"
    for coefficient in reversed(coefficients[:-1]):
        text = f"({coefficient!r}::DOUBLE + {u} * {text})"
    return f"exp({text})"


def _student_of_inverse() -> str:
    pieces = " ".join(f"WHEN x <= {high} THEN {_polynomial(low, high, c)}" for low, high, c in _STUDENT)
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
                   sqrt(sum(((y - m) / pi) ** 2)) / any_value(w) AS se
            FROM picked JOIN means USING ({keys}) GROUP BY {keys}),
        widths AS (
            SELECT *, low < 0 OR high > 1 AS unbounded, least(1.0, greatest(0.0, m)) AS p,
                   student_975(greatest(1.0, round(kish - 1, 3))) * se AS half,
                   CASE WHEN low = high OR se = 0 THEN kish ELSE least(n, m * (1 - m) / se ** 2) END AS trials
            FROM spread)
        SELECT {keys}, m AS estimate,
               CASE WHEN unbounded THEN CASE WHEN se > 0 THEN m - half END
                    WHEN graded AND low < high THEN greatest(0.0, m - half) ELSE wilson_lo(p, trials) END AS lo,
               CASE WHEN unbounded THEN CASE WHEN se > 0 THEN m + half END
                    WHEN graded AND low < high THEN least(1.0, m + half) ELSE wilson_hi(p, trials) END AS hi,
               n, kish AS n_eff
        FROM widths"""
