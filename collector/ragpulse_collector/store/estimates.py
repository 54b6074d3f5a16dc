"""The estimator of docs/statistics.md as SQL: Hajek's mean and its interval, equal to `statistics.hajek` to 1e-9.

Scored units are weighted by 1/pi and added up by cluster: the user, else the session, else the trace. The names of the
parts follow `ragpulse_evaluators.statistics.moments`; that module says why. The sums for `statistics.Moments` are
here, too: with them the interval is computed in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragpulse_evaluators.statistics.distributions import STUDENT_975
from ragpulse_evaluators.statistics.moments import ENOUGH_OF_CLASS

_Z = 1.959963984540054
"""The normal quantile at 0.975."""

KEPT = "coalesce(upstream_pi, 1)"
"""The probability with which an upstream sampler kept a request, from a row of `traces` or `raw.trace_facts`."""
WEIGHT = f"(1 / {KEPT})"
"""How many requests a stored one stands for: the weight of every count, sum, share, mean and percentile."""
ESTIMATED = "coalesce(bool_or(upstream_pi < 1), false)"
"""Whether an upstream sampler dropped requests, of several rows: then figures are scaled up."""

_ALONE = "hash(trace_id)"
_SESSION = f"CASE WHEN session_id IS NOT NULL THEN hash(session_id) ELSE {_ALONE} END"
CLUSTER = f"CASE WHEN user_id IS NOT NULL THEN hash(user_id) ELSE {_SESSION} END"
"""Whose answers are alike, from a row of `raw.trace_facts`: the user's, else the session's, else the trace's own.

`hash(NULL)` is not NULL: a missing id would be one user of very many requests."""
ENOUGH_USERS = 5
"""With a smaller effective number of clusters there is no interval."""
FINER = (_SESSION, _ALONE)
"""CLUSTER for a team of fewer users that shall have one: sessions, then each answer alone."""
IDENTIFIED = "(CASE WHEN user_id IS NOT NULL THEN 2 WHEN session_id IS NOT NULL THEN 1 ELSE 0 END)::UTINYINT"
"""What a row of `raw.trace_facts` says of whose answer it is: 2 its user, 1 its session only, 0 nothing."""


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


def _each(likeness: str) -> str:
    """One over the number of independent answers that are as informative."""
    return f"squares + {likeness} * (cluster_squares - squares)"


def _variance(far: str) -> str:
    """The variance of the mean for the bound on the side whose end lies `far` away."""
    unseen = f"(CASE WHEN alone THEN 0.25 ELSE 1.0 END) * ({far} * most) ** 2"
    least = "greatest(shown, variance * each)"
    pooled = (
        f"least({least} + {unseen}, greatest({least}, p * (1 - p) * cluster_squares))"
        f" + 0.5 * {far} ** 2 * greatest(0.0, heavy - (2 * each) ** 2)"
    )
    of_classes = f"greatest(shown, by_class + rho * variance * (cluster_squares - squares)) + ({far} * most) ** 2"
    return (
        f"CASE WHEN by_class IS NULL THEN {pooled} WHEN alone THEN least({pooled}, by_class)"
        f" ELSE least({pooled}, {of_classes}) END"
    )


_KINDS = f"""
        kinds AS (
            SELECT *, low < 0 OR high > 1 AS unbounded, least(1.0, greatest(0.0, m)) AS p, clusters >= n AS alone,
                   CASE WHEN clusters > 1 THEN error / (1 - largest) ELSE error END AS shown,
                   CASE WHEN alone THEN 0.0 WHEN variance * (1 - own) <= 0 THEN 1.0
                        ELSE least(1.0, greatest(0.0, (between * clusters / (clusters - 1) - variance * own)
                                                      / (variance * (1 - own)))) END AS rho,
                   alone AND squares * 0.7 * n <= 1 AS alike, alike AND NOT graded AS simple,
                   student_975(greatest(1.0, round(1 / cluster_squares - 1, 3))) AS t,
                   NOT alone AND 1 / cluster_squares < {ENOUGH_USERS} AS few
            FROM spread),"""
"""Which interval fits: the kind of scores and users, and how alike the answers of a user are (`rho`)."""
_SHARES = f"""
        shares AS (
            SELECT *, low = high OR p <= 0 OR p >= 1 OR variance <= 0 AS same, {_each("rho")} AS each,
                   CASE WHEN alone OR low = high OR variance <= 0 THEN 1.0 ELSE greatest(0.0, 1 - squares / each) END
                       AS part,
                   CASE WHEN simple OR (alike AND low = high) THEN 1.0
                        ELSE 1 / (1 + ((t / {_Z!r}) ** 2 - 1) * part) END AS freedom,
                   {_each("least(1.0, rho + 1 / sqrt(2.0 * greatest(1, clusters - 1)))")} AS most,
                   (1 - rho) * heaviest ** 2 + rho * largest ** 2 AS heavy
            FROM kinds),"""
"""What the estimated variance costs, and how heavy the heaviest answer and user are."""
_SIZED = f"""
        sized AS (
            SELECT *, {_Z**2!r} / ({_Z**2!r} + freedom / cluster_squares) AS room,
                   CASE WHEN same THEN 1.0 ELSE p * (1 - p) / ({_variance("p")}) * freedom END AS below,
                   CASE WHEN same THEN 1.0 ELSE p * (1 - p) / ({_variance("(1 - p)")}) * freedom END AS above,
                   greatest(CASE WHEN error > 0 THEN least(n, p * (1 - p) / error) ELSE 1 / squares END,
                            CASE WHEN squares * n > 1 + 1e-9 THEN p * (1 - p) / by_class END) AS trials,
                   CASE WHEN alone AND NOT graded AND by_class IS NULL THEN 0.5 ELSE 0.0 END AS step,
                   CASE WHEN alone THEN error ELSE shown END AS held
            FROM shares),"""
"""How many independent answers are as informative, seen from either end of the scale."""
_BOUNDS = """
        bounds AS (
            SELECT *,
                   CASE WHEN few THEN NULL
                        WHEN unbounded THEN CASE WHEN low < high THEN m - t * sqrt(held) END
                        WHEN same THEN p - p * room
                        WHEN simple THEN wilson_lo(p, trials) ELSE wilson_lo(p - step / below, below) END AS lo,
                   CASE WHEN few THEN NULL
                        WHEN unbounded THEN CASE WHEN low < high THEN m + t * sqrt(held) END
                        WHEN same THEN p + (1 - p) * room
                        WHEN simple THEN wilson_hi(p, trials) ELSE wilson_hi(p + step / above, above) END AS hi
            FROM sized)"""
"""The interval: none, Student's, or Wilson's."""


BY_CLASS = (
    "sum(ww * (n / w * wy + 1) / (n + 2)) AS class_wwy, sum(ww * (n / w * wyy + 1) / (n + 2)) AS class_wwyy,"
    " min(nullif(n, 0)) AS class_n"
)
"""`class_wwy`, `class_wwyy` and `class_n` of `statistics.Moments`, from the sums of each class of pi."""


def by_class(source: str, keys: str) -> str:
    """Return the query for BY_CLASS, one row per `keys`."""
    return f"""
            SELECT {keys}, {BY_CLASS}
            FROM (SELECT {keys}, floor(log2(1 / pi)) AS class, count(y) AS n, sum(1 / pi) AS w,
                         sum((1 / pi) * (1 / pi)) AS ww, sum(y * (1 / pi)) AS wy, sum(y * (y * (1 / pi))) AS wyy
                  FROM {source} WHERE y IS NOT NULL GROUP BY {keys}, class)
            GROUP BY {keys}"""


def hajek(source: str, *, keys: str) -> str:
    """Return the query that estimates `y` weighted by 1/`pi` over the rows of `source`, one row per `keys`.

    Rows of one `cluster` count as dependent. `users` is NULL where no row is `identified`.
    """
    return f"""
        WITH picked AS ({source}),
        clustered AS (
            SELECT {keys}, cluster, count(*) AS c_n, sum(1 / pi) AS c_w, sum(y / pi) AS c_wy,
                   sum(1 / pi ** 2) AS c_ww, min(pi) AS rarest, min(y) AS c_low, max(y) AS c_high,
                   bool_or(y > 0 AND y < 1) AS c_between, bool_or(identified::BOOLEAN) AS known
            FROM picked GROUP BY {keys}, cluster),
        means AS (
            SELECT {keys}, sum(c_wy) / sum(c_w) AS m, sum(c_w) AS w, sum(c_n) AS n, count(*) AS clusters,
                   sum(c_ww) / sum(c_w) ** 2 AS squares, sum(c_w ** 2) / sum(c_w) ** 2 AS cluster_squares,
                   sum(c_ww / c_w) / sum(c_w) AS own, 1 / min(rarest) / sum(c_w) AS heaviest,
                   max(c_w) / sum(c_w) AS largest, min(c_low) AS low, max(c_high) AS high,
                   bool_or(c_between) AS graded, bool_or(known) AS identified
            FROM clustered GROUP BY {keys}),
        classed AS ({by_class("picked", keys)}),
        users AS (
            SELECT {keys}, sum((c_wy - m * c_w) ** 2) / any_value(w) ** 2 AS error,
                   sum((c_wy - m * c_w) ** 2 / c_w) / any_value(w) AS between
            FROM clustered JOIN means USING ({keys}) GROUP BY {keys}),
        spread AS (
            SELECT {keys}, any_value(COLUMNS(means.* EXCLUDE ({keys}))), any_value(error) AS error,
                   any_value(between) AS between, sum((y - m) ** 2 / pi) / any_value(w) AS variance,
                   any_value(CASE WHEN class_n >= {ENOUGH_OF_CLASS} AND low >= 0 AND high <= 1
                                  THEN (class_wwyy - 2 * m * class_wwy) / w ** 2 + m * m * squares END) AS by_class
            FROM picked JOIN means USING ({keys}) JOIN users USING ({keys}) JOIN classed USING ({keys})
            GROUP BY {keys}),
        {_KINDS}{_SHARES}{_SIZED}{_BOUNDS}
        SELECT {keys}, m AS estimate, lo, hi, n::BIGINT AS n, 1 / squares AS n_eff,
               CASE WHEN identified THEN clusters END AS users
        FROM bounds"""


def quantiles(source: str, column: str, shares: Sequence[float], *, keys: Sequence[str] = ()) -> str:
    """Return the query for the quantiles of the requests that the rows of `source` stand for: keys, then a list.

    Each row counts WEIGHT times. Where all weights are 1, this is `quantile_cont`, which is several times as fast.
    """
    by, parts = "".join(f"{key}, " for key in keys), f"PARTITION BY {', '.join(keys)} " if keys else ""
    found = []
    for share in shares:
        rank = f"(1 + (total - 1) * {share!r})"
        low, high = (f"min(x) FILTER (upto >= floor({rank}) + {more})" for more in (0, 1))
        found.append(f"{low} + any_value({rank} % 1) * (coalesce({high}, max(x)) - {low})")
    return f"""
        SELECT {by}[{", ".join(found)}] FROM (
            SELECT {by}{column} AS x, sum({WEIGHT}) OVER ({parts}ORDER BY {column}) + 1e-6 AS upto,
                   sum({WEIGHT}) OVER ({parts}) AS total
            FROM ({source}) WHERE {column} IS NOT NULL)
        GROUP BY ALL"""


CLUSTER_SUMS = (
    "count({y}) AS c_n, sum(CASE WHEN {y} IS NOT NULL THEN 1 / pi END) AS c_w, sum({y} * (1 / pi)) AS c_wy,"
    " sum({y} * ({y} * (1 / pi))) AS c_wyy, sum(CASE WHEN {y} IS NOT NULL THEN (1 / pi) * (1 / pi) END) AS c_ww,"
    " min(CASE WHEN {y} IS NOT NULL THEN pi END) AS c_rarest, min({y}) AS c_low, max({y}) AS c_high,"
    " count(*) FILTER ({y} > 0 AND {y} < 1) AS c_between"
)
"""What the answers of one cluster add up to, from a column `pi` and a value `{y}` that may be NULL."""
MOMENTS = (
    "sum(c_n), count(*) FILTER (c_n > 0), sum(c_w), sum(c_wy), sum(c_wyy), sum(c_ww), sum(c_w * c_w), sum(c_w * c_wy),"
    " sum(c_wy * c_wy), sum(c_wy * (c_wy / c_w)), sum(c_ww / c_w), 1 / min(c_rarest), max(c_w), min(c_low),"
    " max(c_high), sum(c_between), 0.0, 0.0, 0"
)
"""The fields of `statistics.Moments` for one group, from rows of CLUSTER_SUMS, which do not know classes of pi."""


def user_sums(source: str, keys: Sequence[str], *, cluster: str = CLUSTER, lost: str = "0::DOUBLE") -> str:
    """Return the query for the sums by `keys` of a column `y`, weighted by 1/`pi`, and over users (W = Σw, S = Σwy).

    After the keys: Σw, Σwy, ΣW², ΣWS, ΣS², Σ`lost`, the least and the largest `y`; all but `lost` null without any `y`.
    """
    by = ", ".join(keys)
    return f"""
        SELECT {by}, sum(w), sum(wy), sum(w * w), sum(w * wy), sum(wy * wy), sum(lost), min(low), max(high) FROM (
            SELECT {by}, {cluster} AS cluster, sum({lost}) AS lost, sum(CASE WHEN y IS NOT NULL THEN 1 / pi END) AS w,
                   sum(y * (1 / pi)) AS wy, min(y) AS low, max(y) AS high
            FROM ({source}) GROUP BY ALL) GROUP BY ALL ORDER BY ALL"""


SQUARED_ERROR = "greatest(0.0, cluster_ss - 2 * (wy / w) * cluster_ws + (wy / w) ** 2 * cluster_ww) / (w * w)"
"""The square of `statistics.Moments.se`, from columns named as its fields: to order groups by what they are worth."""
