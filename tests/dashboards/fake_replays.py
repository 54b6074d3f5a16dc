"""What a replay of the made-up day found."""

from collections.abc import Mapping, Sequence
from typing import Any


def replay_result(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A version that is stricter than the one in use, with three traces on which they disagree."""
    uncertain = {"value": 0.79, "lo": 0.71, "hi": 0.86}
    largest = [
        {
            "trace_id": row["trace_id"],
            "start_time": row["start_time"],
            "query": row["query"],
            "response": row["response"],
            "a": 0.93,
            "b": 0.21,
            "a_passes": True,
            "b_passes": False,
            "a_explanation": "all sentences covered" + ", worded too freely for a check of words" * 3 * number,
            "b_explanation": "the last sentence is nowhere in the contexts",
        }
        for number, row in enumerate(rows[:3])
    ]
    against = {
        "difference": {"value": -0.149, "lo": -0.18, "hi": -0.119},
        "verdict": "stricter",
        "least": None,
        "most": None,
        "need_more": None,
        "need_more_of": "answers",
        "evaluator": "faithfulness",
        "version": "a1b2c3d4e5f6",
        "judge": "openai/gpt-5-mini",
        "shared": 280,
        "a": 0.891,
        "b": 0.742,
        "agreement": uncertain,
        "both_pass": 200,
        "both_fail": 21,
        "only_a_fails": 9,
        "only_b_fails": 50,
        "largest": largest,
    }
    return {
        "value": 0.742,
        "lo": 0.716,
        "hi": 0.767,
        "n": 301,
        "n_eff": 301.0,
        "users": 58,
        "users_are": "users",
        "thin": False,
        "reason": None,
        "words": "0.74 ± 0.03 · 301 answers · 58 users",
        "passed": [220, 301],
        "histogram": [{"lo": number / 10, "hi": (number + 1) / 10, "n": number * 6} for number in range(10)],
        "left_out": [
            {"status": "skipped", "reason": "no contexts", "n": 4},
            {"status": "invalid", "reason": "<b>not JSON</b>", "n": 3},
        ],
        "labels": 20,
        "people": uncertain,
        "against": against,
    }
