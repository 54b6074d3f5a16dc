"""The command line against a running collector and against a closed file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from traffic import rag_trace, scored, send

from ragpulse_collector.cli import cli, run
from ragpulse_collector.cli.tables import print_json, table
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.settings import SettingsError

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector
    from ragpulse_collector.settings import Settings

Start = Callable[..., "Collector"]


def test_few_options_are_also_environment_variables() -> None:
    """Where the collector is, the key, the configuration and what it loads; never --limit, --json or --yes."""
    read = {
        (parameter.name, str(parameter.envvar))
        for command in cli.commands.values()
        for parameter in command.params
        if parameter.envvar is not None
    }
    assert read == {
        ("url", "('RAGPULSE_URL', 'RAGPULSE_ENDPOINT')"),
        ("api_key", "RAGPULSE_API_KEY"),
        ("config", "RAGPULSE_CONFIG"),
        ("loads", "RAGPULSE_LOAD"),
        ("judge", "RAGPULSE_JUDGE"),
    }


def test_traces_show_and_sql_answer(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking from the terminal prints what the API answers."""
    running = scored(collector)
    assert run(["traces", "--url", running.url]) == 0
    printed = capsys.readouterr().out
    assert "How tall is the Eiffel Tower?" in printed
    listed = [re.findall(r"(\w+)=\S+", line) for line in printed.splitlines() if "=" in line]
    assert [len(names) > 1 and names == sorted(names) for names in listed] == [True] * 3
    assert run(["show", f"{1:032x}", "--url", running.url]) == 0
    assert "groundedness" in capsys.readouterr().out
    assert run(["sql", "select count(*) as n from spans", "--json", "--url", running.url]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 9}]


@pytest.mark.parametrize(
    ("asked", "code", "heads", "told"),
    [
        ([], 0, "time question groundedness latency cost", "--wide also shows trace, tokens, scores"),
        (["--wide"], 0, "time question groundedness latency cost trace tokens scores", ""),
        (["--columns", "question, model,user_id"], 0, "question model user_id", ""),
        (["--columns", "modell"], 2, "", "--columns: 'modell' is no column; did you mean 'model'?"),
        (["--columns", "question,xyzzy"], 2, "", "'xyzzy' is no column: time, question, groundedness"),
    ],
)
def test_a_terminal_of_eighty_columns_keeps_what_matters(
    collector: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    asked: list[str], code: int, heads: str, told: str,
) -> None:  # fmt: skip
    """The first columns stay, texts are cut, no line is longer; a failure is red there, and a word everywhere."""
    running = scored(collector)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["traces", "--url", running.url, *asked]) == code
    printed = capsys.readouterr()
    table = [re.sub(r"\x1b\[\d*m", "", line) for line in printed.out.splitlines()]
    assert " ".join(table[1].split() if table else ()) == heads
    assert told in printed.err
    assert asked or max(map(len, table)) <= 80
    assert ("\x1b[31m" in printed.out) == (" fails" in printed.out)


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("日本語の質問はどうですか" * 5, "日本語の質問"),
        ("x" * 200, "xxxxx"),
        ("a" * 36, "a" * 36),
        ("a word " * 20, "a word"),
    ],
)
def test_long_texts_shrink_and_ids_do_not(
    question: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In cells of the terminal, of which an ideograph takes two; the columns behind them stay."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    table("", ("question", "n"), [(question, 1)], stored=True)
    _, row = capsys.readouterr().out.splitlines()
    assert row.startswith(shown)
    assert row.endswith(" 1")
    assert cell_len(row) <= 60


def test_a_trace_whose_first_span_has_not_arrived_is_shown(
    collector: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a latency; the list has the name of a root that is no request."""
    running = collector()
    probe = {**rag_trace(1)[0], "name": "GET /healthz", "attributes": []}
    send(running.url, [*rag_trace(0)[1:], probe])
    assert run(["show", f"{1:032x}", "--url", running.url]) == 0
    assert "  - ms" in capsys.readouterr().out
    assert run(["traces", "--roots", "other", "--url", running.url]) == 0
    assert "GET /healthz" in capsys.readouterr().out


def test_status_prints_one_figure_a_row(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """What is nested in the answer has a dotted name."""
    running = collector()
    assert run(["status", "--url", running.url]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^retention\.days +\S", printed, flags=re.MULTILINE)
    assert re.search(r"^roles +ingest, ", printed, flags=re.MULTILINE)
    assert not set("{[") & set(printed)


def test_metrics_print_value_interval_and_n(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """A quality number never stands without its interval and n."""
    running = scored(collector)
    assert run(["metrics", "quality:refusal", "--step", "1d", "--url", running.url]) == 0
    assert "1.00 (0.44-1.00) · 3 answers · 3 sessions" in capsys.readouterr().out


def test_replay_prints_the_bill_runs_and_repeats_free(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run only tells; a run scores everything once; a second run does nothing."""
    running = scored(collector)
    arguments = ["replay", "-e", "latency", "--since", "1d", "--url", running.url]
    assert run([*arguments, "--dry-run"]) == 0
    assert "3 units, 0 already scored" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)["replays"]
    assert (first["status"], first["ok"]) == ("done", 3)
    assert run([*arguments, "--dry-run"]) == 0
    assert "3 already scored" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    rows = connect(running.url).sql("select count(*) as n from scores where evaluator = 'latency'").rows()
    assert rows == [{"n": 3}]


def test_a_closed_file_is_read_and_replayed_without_a_server(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--db` reads a file no collector has open, and replays over it."""
    scored(collector).stop()
    db = str(tmp_path / "ragpulse.duckdb")
    assert run(["traces", "--db", db]) == 0
    assert "How tall" in capsys.readouterr().out
    assert run(["replay", "-e", "cost", "--since", "1d", "--db", db, "--json"]) == 0
    (done,) = json.loads(capsys.readouterr().out)["replays"]
    assert done["status"] == "done"


def test_a_closed_file_is_vacuumed(collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stays readable by its owner alone and holds what it held; a running collector's file is left alone."""
    running, db = scored(collector), tmp_path / "ragpulse.duckdb"
    running.stop()
    db.chmod(0o600)
    assert run(["vacuum", "--db", str(db)]) == 0
    assert "bytes before" in capsys.readouterr().out
    assert db.stat().st_mode & 0o777 == 0o600
    assert run(["sql", "select count(*) as n from traces", "--json", "--db", str(db)]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 3}]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["vacuum", "--db", "absent.duckdb"], 1, "absent.duckdb"),
        (["traces", "--url", "http://127.0.0.1:9"], 1, "ragpulse serve"),
        (["nonsense"], 2, "No such command"),
        (["replay"], 2, "--evaluator"),
        (["traces", "--db", "absent.duckdb"], 1, "absent.duckdb"),
        (["serve", "--roles", "cook"], 1, "roles"),
        (["serve", "--host", "0.0.0.0"], 1, "ragpulse key"),
        (["serve", "--roles", "cook"], 1, "--roles: "),
        (["freeze", "--since", "1q"], 2, "'1q': write an age such as 30m"),
        (["traces", "--since", "tomorrow"], 2, "'tomorrow': write an age"),
        (["freeze", "--limit", "-3"], 2, "--limit"),
        (["replay", "-e", "rouge", "--max-usd", "-1"], 2, "--max-usd"),
        (["tail", "--interval", "-1"], 2, "--interval"),
        (["key", "--scope", "admin", "--service", "a"], 1, "ragpulse: the key 'key' has the scope admin"),
        (["import", "phoenix", "http://127.0.0.1:9"], 1, "nothing answers at http://127.0.0.1:9"),
        (["import", "mlflow", "http://127.0.0.1:9"], 1, "start mlflow, or name its address"),
        (["traces", "--url", "http://me:secret@h"], 1, "ragpulse: 'h' is no address: it has no user (RAGPULSE_API_KEY"),
        (["traces", "--url", "banana"], 1, "'banana' is no address: it begins with http:// or https://"),
        (["traces", "--url", "127.0.0.1:4318"], 1, "it begins with http://"),
        (["tail", "--url", "ftp://127.0.0.1"], 1, "it begins with http://"),
        (["status", "--url", "http://"], 1, "it begins with http://"),
        (["sql", "select 1", "--url", "http://127.0.0.1:banana"], 1, "such as http://127.0.0.1:4318"),
        (["export", "out", "--url", "http://127.0.0.1:99999"], 1, "such as http://127.0.0.1:4318"),
        (["import", "phoenix", "banana"], 1, "it begins with http://"),
        (["import", "jsonl", "x.jsonl", "--url", "banana"], 1, "it begins with http://"),
        (["traces", "--url", "http://127.0.0.1:9", "--api-key", "two\nlines"], 1, "characters that no HTTP header"),
        (["traces", "--url", "http://127.0.0.1:9", "--api-key", "schlüssel☂"], 1, "characters that no HTTP header"),
    ],
)
def test_errors_are_one_line_with_the_mend(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """Usage errors exit 2, failures 1, each with one line a person can act on."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert told in errors[0]


def test_a_file_that_cannot_be_written_is_one_line(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Export, snapshot and page name the path and the reason."""
    running = scored(collector, 1)
    (row,) = connect(running.url).sql("select trace_id from traces").rows()
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder is needed")
    capsys.readouterr()
    for arguments, code in (
        (["export", f"{taken}/out"], 1),
        (["snapshot", f"{taken}/copy.duckdb"], 1),
        (["show", row["trace_id"], "--html", f"{taken}/page.html"], 2),
    ):
        assert run([*arguments, "--url", running.url]) == code
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert str(taken) in line


def test_since_takes_a_time_as_well(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """An age or a time: both choose the same traces."""
    url = scored(collector, 1).url
    for since in ("1d", "-1d", "2020-01-01", "2020-01-01T10:00Z"):
        assert run(["traces", "--since", since, "--json", "--url", url]) == 0
        assert len(json.loads(capsys.readouterr().out)["traces"]) == 1


REST = {"compare": ["prompt:1", "prompt:2"], "check": ["-e", "exact_match", "--min", "0.5"], "perturb": [],
        "plan": ["-e", "exact_match", "--half-width", "0.1"], "replay": ["-e", "exact_match", "--dry-run"]}  # fmt: skip
"""What a command needs beside --since and --url."""
SINCE = {name for name, command in cli.commands.items() if any(one.opts == ["--since"] for one in command.params)}
ZONED = {name for name, command in cli.commands.items() if any(one.opts == ["--tz"] for one in command.params)}


def test_named_days_are_days_of_a_zone(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever takes `today` takes --tz; the others need a time, and refuse the word."""
    assert set(REST) < ZONED < SINCE
    for name in SINCE:
        code = run([name, *REST.get(name, []), "--since", "today", "--url", "banana"])
        assert (code, "write an age" in capsys.readouterr().err) == ((2, True) if name not in ZONED else (code, False))


@pytest.mark.parametrize("name", sorted(ZONED))
def test_every_command_asks_in_its_zone(
    collector: Start, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """A zone that there is answers; another is refused by the operation, with its name."""
    monkeypatch.chdir(tmp_path)
    asked = [name, *REST.get(name, []), "--since", "yesterday", "--url", scored(collector, 1).url, "--tz"]
    capsys.readouterr()
    run([*asked, "Asia/Tokyo"])
    assert "tz" not in capsys.readouterr().err
    assert run([*asked, "Asia/Tokio"]) in (1, 2)
    assert "Asia/Tokyo" in capsys.readouterr().err


def test_a_time_without_an_offset_is_one_of_the_zone(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the API: midnight of a far zone, and of UTC."""
    url = scored(collector, 1).url
    starts = []
    for zone in ("UTC", "Asia/Tokyo"):
        assert run(["metrics", "requests", "--since", "2020-01-01", "--tz", zone, "--step", "all", "--json",
                    "--url", url]) == 0  # fmt: skip
        (answer,) = json.loads(capsys.readouterr().out)
        starts.append(answer["series"][0]["points"][0]["t"])
    assert starts == ["2020-01-01T00:00:00Z", "2019-12-31T15:00:00Z"]


def test_a_judge_that_is_missing_is_named_before_a_replay(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """No bill of an unnamed model, no run of skipped results: the line says what to add."""
    assert run(["replay", "-e", "faithfulness", "--dry-run", "--url", scored(collector, 1).url]) == 1
    assert "faithfulness needs a judge: name one with --judge" in capsys.readouterr().err


def test_a_configuration_that_is_gone_at_a_reload_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    """Without the file there would be no keys; a file that appears later is read."""
    monkeypatch.chdir(tmp_path)
    loads: list[Callable[[], Settings]] = []
    monkeypatch.setattr("ragpulse_collector.app.serve.serve", lambda load, **_: loads.append(load))
    assert run(["serve"]) == 0
    config = tmp_path / "ragpulse.toml"
    config.write_text("[collector]\nport = 5000\n")
    assert run(["serve"]) == 0
    assert [load().collector.port for load in loads] == [5000, 5000]
    config.unlink()
    assert loads[0]().collector.port == 4318
    with pytest.raises(SettingsError, match="No such file"):
        loads[1]()


def test_a_locked_file_names_the_running_collector(collector: Start, tmp_path: Path) -> None:
    """Another process that opens the file of a running collector is told about `--url`."""
    collector()
    for verb in ("traces", "vacuum"):
        arguments = [sys.executable, "-m", "ragpulse_collector", verb, "--db", str(tmp_path / "ragpulse.duckdb")]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert "--url" in done.stderr


def test_evaluate_reads_cases_and_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases in a file are scored with a summary; a broken line is named."""
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"response": "Paris", "reference": "paris"}\n{"response": "Rome", "reference": "Paris"}\n')
    out = tmp_path / "results.jsonl"
    assert run(["evaluate", str(cases), "-e", "exact_match", "--out", str(out), "--json"]) == 0
    assert [json.loads(line)["score"] for line in out.read_text().splitlines()] == [1.0, 0.0]
    capsys.readouterr()
    cases.write_text("{broken\n")
    assert run(["evaluate", str(cases), "-e", "exact_match"]) == 2
    assert f"{cases}:1" in capsys.readouterr().err


def test_key_prints_the_secret_once_and_only_its_hash_for_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What goes into the file is a hash of what is shown."""
    import hashlib
    import tomllib

    assert run(["key", "--scope", "read", "--name", "ops"]) == 0
    out = capsys.readouterr().out
    secret = out.split("(shown once): ")[1].split()[0]
    (made,) = tomllib.loads(out.partition("in ragpulse.toml:\n")[2])["collector"]["api_keys"]
    assert made["sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in out.partition("in ragpulse.toml")[2]


def test_doctor_names_what_is_wrong(collector: Start, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """An exporter that points elsewhere and an empty collector are found, each with its fix."""
    running = collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert run(["doctor", "--url", running.url]) == 1
    out = capsys.readouterr().out
    assert "RAGPULSE_URL" in out
    assert "no span has arrived" in out


def test_data_goes_out_as_files_while_the_collector_writes(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Export and snapshot write readable files of the user's own choosing."""
    import duckdb

    running = scored(collector)
    assert run(["export", str(tmp_path / "out"), "--url", running.url]) == 0
    capsys.readouterr()
    for command, taken, name in (("export", "out", "traces.parquet"), ("snapshot", "out/spans.parquet", "spans")):
        before = (tmp_path / "out/spans.parquet").read_bytes()
        assert run([command, str(tmp_path / taken), "--url", running.url]) == 1
        assert re.search(rf"{name}.* already: name another", capsys.readouterr().err)
        assert (tmp_path / "out/spans.parquet").read_bytes() == before
    query = f"select count(*) from '{tmp_path / 'out' / 'spans.parquet'}'"
    assert duckdb.execute(query).fetchall() == [(9,)]
    assert run(["snapshot", str(tmp_path / "copy.duckdb"), "--url", running.url]) == 0
    assert run(["traces", "--db", str(tmp_path / "copy.duckdb")]) == 0
    assert run(["export", str(tmp_path / "again"), "--db", str(tmp_path / "copy.duckdb")]) == 0
    assert run(["snapshot", str(tmp_path / "second.duckdb"), "--db", str(tmp_path / "copy.duckdb")]) == 0
    written = [
        tmp_path / "copy.duckdb",
        tmp_path / "second.duckdb",
        *(tmp_path / "out").iterdir(),
        *(tmp_path / "again").iterdir(),
    ]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}, "people's questions are for their owner alone"


def test_prune_deletes_by_age_and_leaves_a_note(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """What is older than the age goes; the audit names the deletion."""
    running = scored(collector)
    assert run(["prune", "--older-than", "1d", "--yes", "--url", running.url]) == 0
    assert len(connect(running.url).sql("select 1 from spans").rows()) == 9
    assert run(["prune", "--older-than", "1s", "--yes", "--url", running.url]) == 0
    assert connect(running.url).sql("select 1 from spans").rows() == []


def test_prune_of_a_service_asks_with_what_would_go(
    collector: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, nothing goes; with --yes all of the service does; an age or a service, not both, not neither."""
    running = scored(collector)
    held = connect(running.url).sql("select distinct service from traces").rows()[0]["service"]
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    assert run(["prune", "--service", held, "--url", running.url]) != 0
    assert "spans: 9" in capsys.readouterr().out
    assert len(connect(running.url).sql("select 1 from spans").rows()) == 9
    assert run(["prune", "--service", held, "--yes", "--url", running.url]) == 0
    assert connect(running.url).sql("select 1 from spans").rows() == []
    assert run(["prune", "--yes", "--url", running.url]) == 2
    assert run(["prune", "--service", held, "--older-than", "1d", "--yes", "--url", running.url]) == 2
    with pytest.raises(ClientError, match="name one of older_than"):
        connect(running.url).call("POST prune", {})


def test_remap_of_unchanged_mappings_changes_nothing(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Deriving the columns again under the same rules rewrites no row."""
    running = scored(collector)
    assert run(["remap", "--url", running.url]) == 0
    assert "9 spans read, 0 changed" in capsys.readouterr().out


def test_show_writes_one_self_contained_page(collector: Start, tmp_path: Path) -> None:
    """`--html` leaves a file that holds the trace and loads nothing."""
    running = scored(collector, 1)
    page = tmp_path / "trace.html"
    assert run(["show", f"{1:032x}", "--html", str(page), "--url", running.url]) == 0
    text = page.read_text()
    assert "The Eiffel Tower is 330 metres tall." in text
    assert "<script" not in text


@pytest.mark.parametrize("sign", ["\x7f", "\x9b31m", "\u202e", "\u2066", "\u200e", "\ud800", "\U000e0041", "\u2028"])
def test_json_for_a_terminal_escapes_what_a_terminal_obeys(sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C1, DEL and bidirectional signs in span texts; readable text of any language stays."""
    print_json({"query": f"größe {sign} 日本"})
    printed = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in printed)
    assert "größe" in printed
    assert json.loads(printed) == {"query": f"größe {sign} 日本"}
