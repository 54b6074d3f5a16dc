"""What a range says in words: a sentence for each change, and the steady facts with their tone."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_dashboards.formats import by_unit, clock, counted, interval, metric_name, ms, percent, unit_of, usd
from ragpulse_dashboards.view import View

__all__ = ["in_words"]


def in_words(view: View, strip: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the first screen says in words: the sentences, the surest first, and the steady facts."""
    shifts = strip.get("changes") or []
    return {
        "sentences": [_sentence(view, one) for one in shifts],
        "steady": _steady(view, strip, targets),
        "shift": next((one for one in shifts if one["metric"].startswith("quality:") and one["worse"]), None),
    }


def _sentence(view: View, shift: Mapping[str, Any]) -> dict[str, Any]:
    """`Groundedness fell 0.94 → 0.73 at 18:12, when prompt qa v2 began.`, and where to go from there."""
    metric, before, after = shift["metric"], shift["before"]["value"], shift["after"]["value"]
    evaluator = metric.partition(":")[2]
    unit = unit_of(metric) if evaluator else shift["unit"]
    levels = " → ".join(f"{one:.2f}" if unit == "ratio" else by_unit(one, unit) for one in (before, after))
    cause = f", when {shift['cause']} began" if shift.get("cause") else ""
    name = {"cost_usd": "cost per answer"}.get(metric, metric_name(metric))
    verb = "fell" if after < before else "rose"
    began = f"{shift['t'][:19]}Z"  # fields of forms have room for seconds
    order = {"evaluator": evaluator, "sort": "worst"} if evaluator else {"sort": "slow"}
    return {
        "text": f"{name.capitalize()} {verb} {levels} at {clock(shift['t'])}{cause}.",
        "title": f"{shift['sureness']:.1f} standard errors; {shift['before']['n']:,} answers before,"
        f" {shift['after']['n']:,} after",
        "tone": "bad" if shift["worse"] else "good",
        "why": view.url("/explain", metric=metric, sel_from=began),
        "worst": view.url("/traces", from_=began, **order, **({"error": "true"} if "error" in metric else {})),
    }


def _steady(view: View, strip: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cost, errors, p95 and traffic, each toned by its target, else by its change."""
    unknown, errors = strip.get("cost_unknown_share"), strip.get("error_interval")
    cost_url = view.url("/figures", from_=view.start, metric="cost_usd", title="Cost")
    failing = interval(errors[0], errors[1], "share") if errors else ""
    facts = [
        ("Cost", "cost_usd", usd(strip["cost_usd"]), f"unknown for {percent(unknown)}" if unknown else "", cost_url),
        ("Errors", "error_rate", percent(strip["error_rate"]), failing, view.url("/traces", error="true")),
        ("p95", "latency_p95", ms(strip["latency_p95"]), "", view.url("/traces", sort="slow")),
        ("Traffic", "requests", counted(strip["n_traces"], "answer"), "", view.url("/traces")),
    ]
    shifts = {one["metric"]: one["worse"] for one in strip.get("changes") or []}
    return [
        {"name": name, "value": value, "sub": sub, "url": url, "tone": _tone(metric, targets, shifts)}
        for name, metric, value, sub, url in facts
    ]


def _tone(metric: str, targets: Sequence[Mapping[str, Any]], shifts: Mapping[str, bool]) -> str:
    states = {one["state"] for one in targets if one.get("metric") == metric}
    return "bad" if "missed" in states else "warn" if shifts.get(metric) or "undecided" in states else ""
