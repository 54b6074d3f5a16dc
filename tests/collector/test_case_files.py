"""Files of cases in every form: how lines end, encodings, and the column names of other packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.cli import run
from ragpulse_collector.cli.baseline import read_baseline, write_baseline
from ragpulse_collector.cli.case_files import read_rows
from ragpulse_collector.cli.options import Failure

SEPARATORS = ("\u2028", "\u2029", "\u0085", "\x0c", "\x0b", "\x1c", "\x1d", "\x1e")
CASE = {
    "query": "Where is Paris?",
    "response": "In France.",
    "contexts": ["Paris is in France."],
    "reference": "France",
}
_CELLS = ("query", "response", "contexts", "reference"), (
    "Where is Paris?", "In France.", '"[""Paris is in France.""]"', "France"
)  # fmt: skip
_YAML = "query: Where is Paris?\nresponse: In France.\ncontexts: [Paris is in France.]\nreference: France\n"
FORMS = {
    "cases.jsonl": json.dumps(CASE) + "\n",
    "cases.json": json.dumps([CASE], indent=2),
    "cases.yml": _YAML,
    "cases.yaml": "- " + _YAML.replace("\n", "\n  "),
    "cases.csv": "\n".join(",".join(row) for row in _CELLS),
    "semicolons.csv": "\n".join(";".join(row) for row in _CELLS),
    "cases.tsv": "\n".join("\t".join(row) for row in _CELLS),
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with mark"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_case(tmp_path: Path, name: str, mark: bytes) -> None:
    """In UTF-8 with or without its mark."""
    path = tmp_path / name
    path.write_bytes(mark + FORMS[name].encode())
    assert [dict(row.fields) for row in read_rows(path)] == [CASE]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    """A text may hold each separator that Python takes for the end of a line, in a baseline and in a file of cases."""
    text = f"one{separator}two"
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"query": text}, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    assert [row.fields["query"] for row in read_rows(path)] == [text]
    answers = read_baseline_of(tmp_path, text)
    assert [answer.query for answer in answers] == [text]


def read_baseline_of(folder: Path, query: str) -> list[Any]:
    """Write a baseline with one question and read it."""
    from ragpulse_collector.analysis.compare.regression import Answered

    path = folder / "baseline.jsonl"
    write_baseline(path, [Answered(query=query, response="", trace_id="", at="", retrieved=None)])
    return read_baseline(path)


def test_a_separator_in_a_text_does_not_break_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ragpulse evaluate` counts one case."""
    path = tmp_path / "cases.jsonl"
    row = {"query": "q\u2028q", "response": "a\u2029b", "reference": "a\u2029b"}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert run(["evaluate", str(path), "-e", "exact_match", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exact_match"]["n"] == 1


ENCODINGS = {
    "UTF-16": '{"query": "é"}'.encode("utf-16"),
    "UTF-16 without a mark": '{"query": "é"}'.encode("utf-16-le"),
    "UTF-32": '{"query": "é"}'.encode("utf-32"),
    "Latin-1": b'{"query": "ok"}\n{"query": "caf\xe9"}\n',
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "yaml"])
def test_another_encoding_is_named(tmp_path: Path, name: str, suffix: str) -> None:
    """With the command that converts the file."""
    path = tmp_path / f"cases.{suffix}"
    path.write_bytes(ENCODINGS[name])
    with pytest.raises(Failure, match=rf"looks like {name.split()[0]}.*iconv"):
        read_rows(path)


NAMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ragas": (
        {
            "user_input": "q",
            "response": "a",
            "retrieved_contexts": ["c"],
            "reference": "r",
            "reference_contexts": ["e"],
        },
        {"query": "q", "response": "a", "contexts": ["c"], "reference": "r", "metadata": {"reference_contexts": ["e"]}},
    ),
    "ragas of before": (
        {"question": "q", "answer": "a", "contexts": ["c"], "ground_truths": ["r", "s"]},
        {"query": "q", "response": "a", "contexts": ["c"], "reference": ["r", "s"]},
    ),
    "one truth": ({"question": "q", "ground_truth": "r"}, {"query": "q", "reference": "r"}),
    "deepeval": (
        {"input": "q", "actual_output": "a", "expected_output": "r", "retrieval_context": ["c"]},
        {"query": "q", "response": "a", "reference": "r", "contexts": ["c"]},
    ),
    "evals": ({"input": "q", "output": "a", "ideal": "r"}, {"query": "q", "response": "a", "reference": "r"}),
    "passages alone": ({"query": "q", "reference_contexts": ["e"]}, {"query": "q", "reference": ["e"]}),
    "twice the same": ({"query": "q", "question": "q"}, {"query": "q"}),
    "a list of one": ({"query": "q", "ideal": ["r"], "ground_truth": "r"}, {"query": "q", "reference": ["r"]}),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_packages_are_read(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As their evident meaning; the mapping is printed once for the file."""
    theirs, ours = NAMES[name]
    path = tmp_path / "cases.jsonl"
    path.write_text((json.dumps(theirs) + "\n") * 3, encoding="utf-8")
    assert [dict(row.fields) for row in read_rows(path)] == [ours] * 3
    printed = capsys.readouterr().err
    assert printed.count("read ") == (1 if set(theirs) - set(ours) else 0)
    assert all(field in printed for field in set(theirs) - set(ours) if field != "question" or name != "twice the same")


def test_columns_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """The message names the line and both columns."""
    path = tmp_path / "cases.jsonl"
    path.write_text('{"query": "q", "answer": "a", "output": "a"}\n{"query": "q", "answer": "a", "output": "b"}\n')
    with pytest.raises(Failure, match=r"cases.jsonl:2: 'answer' and 'output' both mean 'response' and differ"):
        read_rows(path)


def test_an_empty_cell_is_no_value_but_an_empty_answer(tmp_path: Path) -> None:
    """CSV cannot tell them apart: an empty answer is an answer."""
    path = tmp_path / "cases.csv"
    path.write_text("question,answer,ideal\nq,,\n")
    assert [dict(row.fields) for row in read_rows(path)] == [{"query": "q", "response": ""}]


@pytest.mark.parametrize(
    ("text", "contexts"),
    [
        ("contexts\n\"['a', 'b']\"\n", ["a", "b"]),
        ("retrieved_contexts\n\"['a'\n 'b']\"\n", ["a", "b"]),
        ('contexts\n"[""a"", ""b""]"\n', ["a", "b"]),
        ("input,context,source_file\nq,a|b,f.md\n", ["a", "b"]),
        ("input,context\nq,a|b\n", "a|b"),
    ],
)
def test_a_cell_with_a_list_is_a_list(tmp_path: Path, text: str, contexts: Any) -> None:
    """As pandas, numpy, JSON and DeepEval write it."""
    path = tmp_path / "cases.csv"
    path.write_text(text)
    (row,) = read_rows(path)
    assert row.fields["contexts"] == contexts


def test_a_list_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every command that reads cases."""
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(CASE) + "\n" + json.dumps({"contexts": "[Document(page_content='a')]"}) + "\n")
    assert run(["evaluate", str(path), "-e", "exact_match"]) == 2
    assert "cases.jsonl:2: contexts: " in capsys.readouterr().err
    path.write_text(json.dumps({"contexts": [{"title": "a"}]}) + "\n")
    assert run(["evaluate", str(path), "-e", "exact_match"]) == 2
    assert "cases.jsonl:1: contexts: a context has a text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.jsonl", '{"query": "q"}\nnot json\n', r"a.jsonl:2: not JSON"),
        ("a.jsonl", '"text"\n', r"a.jsonl:1: each case must be an object"),
        ("a.json", '[1]', r"a.json:1: each case must be an object"),
        ("a.json", '[{"query": "q"}', r"a.json: not JSON"),
        ("a.yaml", "a: [", r"a.yaml: not YAML"),
        ("a.yaml", "- 1\n", r"a.yaml:1: each case must be an object"),
        ("a.csv", "query,response\nq,a,b\n", r"a.csv:2: this row has another number of cells"),
        ("a.csv", "query,response\nq\n", r"a.csv:2: this row has another number of cells"),
        ("a.csv", 'query,response\n"q,a\n', r"a.csv:\d: not CSV"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_its_place(tmp_path: Path, name: str, text: str, why: str) -> None:
    """With file, line and form."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(Failure, match=why):
        read_rows(path)


def test_parquet_has_lists_objects_and_times(tmp_path: Path) -> None:
    """As any engine writes them; what is no Parquet is named."""
    import duckdb

    path = tmp_path / "cases.parquet"
    columns = "'q' AS question, [{'content': 'a', 'at': now()}] AS contexts, ['x'] AS ground_truths"
    duckdb.execute(f"COPY (SELECT {columns}, map {{'at': now()}} AS metadata) TO '{path}'")
    (row,) = read_rows(path)
    assert (row.fields["query"], row.fields["reference"], row.fields["contexts"][0]["content"]) == ("q", ["x"], "a")
    assert isinstance(row.fields["metadata"]["at"], str)
    path.write_text("text")
    with pytest.raises(Failure, match=r"cases\.parquet: not Parquet"):
        read_rows(path)
