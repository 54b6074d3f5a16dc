"""`groundedness_model`: what tiny models of both kinds read, exactly and whole, and how a bad folder is refused."""

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_models import IR, NEVER, OPSET, Words, graph, pairs, tagger
from onnx import TensorProto, helper

from ragpulse_evaluators import Case, EvaluationResult, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.local import open_model
from ragpulse_evaluators.local.graph import Graph
from ragpulse_evaluators.local.reading import Reader, TextPiece, windows

CONTEXTS = ("The library opens at nine.", "Refunds take five working days.", "It is closed at Sundays.")
FAMILIES: tuple[Words, ...] = ("words", "pieces", "bytes", "sentencepiece")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models of this module are."""
    return tmp_path_factory.mktemp("models")


async def scored(model: Path, response: str, contexts: tuple[str, ...] = CONTEXTS, **fields: Any) -> EvaluationResult:
    """The result of one case."""
    case = Case(**{"query": "How long?", "response": response, "contexts": contexts, **fields})
    return await get_evaluator("groundedness_model", model=str(model))(case)


@pytest.mark.parametrize("words", FAMILIES[:3])
async def test_a_tagger_marks_what_no_context_says(folder: Path, words: Words) -> None:
    """The span is exact, its sentence fails, and the other one is supported; parts are those of `groundedness`."""
    response = "Refunds take five working days. The library opens at wrongword nine."
    result = await scored(tagger(folder / words, words=words), response)
    assert (result.status, result.passing, result.label) == ("ok", False, "ungrounded"), result
    ((span),) = result.parts["spans"]
    assert response[span["start"] : span["end"]] == NEVER
    first, second = result.parts["sentences"]
    assert (first["supported"], second["supported"], second["rank"]) == (True, False, 1)
    assert second["reasons"] == [f"not supported: “{NEVER}”"]
    assert result.score == pytest.approx((first["score"] + second["score"]) / 2, abs=1e-4)
    assert result.parts["weakest"] == second["score"] < 0.01 < 0.99 < first["score"]
    built_in = await get_evaluator("groundedness")(Case(response=response, contexts=CONTEXTS))
    assert built_in.parts["sentences"][0].keys() == first.keys()
    assert built_in.parts.keys() <= result.parts.keys()


NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize(
    ("labels", "config"),
    [
        (NLI, {}),
        (("ENTAILMENT", "not_entailment"), {}),
        (("supported", "not supported"), {}),
        (("LABEL_0",), {}),
        (("Yes", "No"), {}),
    ],
)
async def test_a_classifier_of_pairs_reads_claim_by_claim(
    folder: Path, labels: tuple[str, ...], config: dict[str, Any]
) -> None:
    """Labels of NLI, of fact checkers, and one logit: the label's name says what means support."""
    model = pairs(folder / f"pairs{abs(hash(labels))}", labels=labels, **config)
    result = await scored(model, "Refunds take five working days. The library opens at eight.")
    assert [s["supported"] for s in result.parts["sentences"]] == [True, False], result
    assert [result.parts[name] for name in ("claims", "supported", "unclear")] == [2, 1, 0]


def reordered(folder: Path, labels: tuple[str, ...]) -> Path:
    """A model of pairs whose label of support is the last one."""
    model = pairs(folder, labels=labels)
    made = onnx.load(model / "model.onnx")
    signs = next(value for value in made.graph.initializer if value.name == "signs")
    signs.raw_data = onnx.numpy_helper.to_array(signs)[::-1].tobytes()
    onnx.save(made, model / "model.onnx")
    return model


async def test_the_name_of_a_label_counts_and_not_its_place(folder: Path) -> None:
    """The same graph with its labels turned round gives the same verdicts."""
    model = reordered(folder / "turned", ("contradiction", "neutral", "entailment"))
    assert (await scored(model, "Refunds take five working days.")).passing is True
    assert (await scored(model, "Refunds take five weeks.")).passing is False


async def test_a_template_makes_one_text_of_context_and_claim(folder: Path) -> None:
    """FactCG reads one text; braces of contexts and claims are no places of the template."""
    model = pairs(folder / "template", labels=None)
    noted = {"labels": ["supported", "unsupported"], "template": "{context} {claim}"}
    (model / "ragpulse-model.json").write_text(json.dumps(noted))
    result = await scored(model, "Refunds take {context} eight days.")
    assert (result.status, result.passing) == ("ok", True)  # everything stands in the one text


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)


@pytest.mark.parametrize("words", FAMILIES)
def test_batch_equals_single(folder: Path, words: Words) -> None:
    """What else is in the batch changes no probability: padding is masked."""
    model = open_model(str(tagger(folder / f"batch-{words}", words=words)))
    loaded = Graph(model)

    @given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
    def run(asked: list[tuple[str, str]]) -> None:
        encodings = [loaded.encode(*pair) for pair in asked]
        together = loaded.probabilities(encodings)
        for encoding, row in zip(encodings, together, strict=True):
            (alone,) = loaded.probabilities([encoding])
            assert row[: len(encoding)].tolist() == pytest.approx(alone.tolist(), abs=1e-6)

    run()


@pytest.mark.parametrize("words", FAMILIES[:3])
def test_offsets_are_exact_in_any_script(folder: Path, words: Words) -> None:
    """The one word that is never supported is found at its place, whatever stands around it."""
    reader = Reader(open_model(str(tagger(folder / f"offsets-{words}", words=words, limit=1024))))

    @given(texts, texts)
    def run(before: str, after: str) -> None:
        head = f"{before} "
        response = f"{head}{NEVER} {after}"
        (marks,) = reader.read("How?", [f"{before} {after}", before], response, [(0, len(response))])
        (found,) = [mark for mark in marks if response[mark.start : mark.end] == NEVER and mark.start == len(head)]
        assert found.supported < 0.01
        assert all(0 <= m.start < m.end <= len(response) and response[m.start : m.end].strip() for m in marks)

    run()


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6), st.integers(1, 40), st.integers(0, 20))
def test_windows_hold_every_character(contexts: list[str], most: int, fixed: int) -> None:
    """In order, without a gap, each within its limit, and not far more than needed."""
    pieces = [TextPiece(number, 0, len(text)) for number, text in enumerate(contexts)]

    def size(part: Sequence[TextPiece]) -> int:
        return fixed + sum(piece.end - piece.start for piece in part)

    found = windows(pieces, contexts, size, fixed + most)
    assert all(size(part) <= fixed + most for part in found)
    read = "".join(contexts[piece.source][piece.start : piece.end] for window in found for piece in window)
    assert read == "".join(contexts)


def test_windows_are_about_as_many_as_needed() -> None:
    """A thousand equal sentences: the template does not make more windows than it must."""
    text = "x" * 1000
    pieces = [TextPiece(0, start, start + 1) for start in range(1000)]
    assert len(windows(pieces, [text], lambda part: 90 + len(part), 190)) == 10
    assert len(windows(pieces, [text], lambda part: 90 + len(part), 1000)) == 2


@pytest.mark.parametrize("make", [tagger, pairs])
async def test_the_order_of_contexts_changes_nothing(folder: Path, make: Callable[..., Path]) -> None:
    """Every order gives the same scores and the same spans, in one window and in many."""
    model = make(folder / f"order-{make.__name__}", limit=110)
    response = "Refunds take five working days at nine. It opens at eight."
    contexts = tuple(f"{text} " * 9 for text in CONTEXTS)
    found = [await scored(model, response, order) for order in itertools.permutations(contexts)]
    assert len({(r.score, r.parts["weakest"], json.dumps(r.parts["spans"])) for r in found}) == 1
    assert found[0].status == "ok"


@pytest.mark.parametrize("make", [tagger, pairs])
@pytest.mark.parametrize("place", [0, 20, 39])
async def test_a_fact_is_found_wherever_it_stands(folder: Path, make: Callable[..., Path], place: int) -> None:
    """Contexts of many windows: the claim is supported by the one that holds it, and by no other."""
    model = make(folder / f"long-{make.__name__}", limit=128)
    passages = ["It is closed at Sundays, at Sundays it is closed. " * 6 for _ in range(40)]
    response = "Refunds take five working days."
    assert (await scored(model, response, tuple(passages))).passing is False
    passages[place] += response
    assert (await scored(model, response, tuple(passages))).passing is True


@pytest.mark.parametrize("make", [tagger, pairs])
async def test_a_long_response_is_read_to_its_end(folder: Path, make: Callable[..., Path]) -> None:
    """Longer than the window, in many sentences and in one: the last word counts, and the last sentence."""
    model = make(folder / f"answer-{make.__name__}", limit=128)
    said = "Refunds take five working days. "
    many = await scored(model, said * 60 + "Refunds take nine weeks.")
    assert [s["supported"] for s in many.parts["sentences"]] == [True] * 60 + [False]
    one = await scored(model, "Refunds take five working days " * 60 + NEVER)
    assert one.passing is False
    assert (await scored(model, "Refunds take five working days " * 60)).passing is True


async def test_nothing_to_claim_is_skipped(folder: Path) -> None:
    """Refusals, greetings and missing contexts are skipped, as by the built-in check."""
    model = tagger(folder / "nothing")
    for response in ("I cannot answer that from the documents.", "Hello!", "👍"):
        assert (await scored(model, response)).status == "skipped", response
    assert (await scored(model, "Refunds take five days.", ())).status == "skipped"


@pytest.mark.parametrize("make", [tagger, pairs])
async def test_marks_and_markup_are_not_read(folder: Path, make: Callable[..., Path]) -> None:
    """Citations, emphasis, links and code are no claims; places are those of the response as it is."""
    model = make(folder / f"markup-{make.__name__}")
    said = (
        "## Answer\n\n- Refunds take **five** working days [1].\n- The library opens [at nine](https://x.org) [2][3].\n"
    )
    code = "```\nwrongword = 1\n```\n"
    result = await scored(model, said + code)
    assert result.passing is True, result
    assert result.parts["code"][0]["unknown"] == [NEVER]
    response = f"{said}{code}It is closed at **{NEVER}** Sundays [1]."
    result = await scored(model, response)
    (span,) = result.parts["spans"]
    assert NEVER in response[span["start"] : span["end"]]
    assert [s["supported"] for s in result.parts["sentences"] if s["claim"]] == [True, True, False]


@pytest.mark.parametrize("query", [None, "", "long " * 5000, "{context} {count}"])
async def test_any_question_leaves_room_for_the_contexts(folder: Path, query: str | None) -> None:
    """Without a question the model reads its other template; a long one is cut."""
    model = tagger(folder / "question", limit=160)
    assert (await scored(model, "Refunds take five working days.", query=query)).passing is True


def test_the_version_is_that_of_the_files_and_the_rule(folder: Path) -> None:
    """Another threshold, another label, another byte of the graph: another version; another place: the same."""
    model = tagger(folder / "one")
    same = folder / "same"
    shutil.copytree(model, same)
    versions = [get_evaluator("groundedness_model", model=str(place)).version for place in (model, same)]
    assert versions[0] == versions[1]
    versions.append(get_evaluator("groundedness_model", model=str(model), threshold=0.4).version)
    turned = tagger(folder / "two", labels=("hallucinated", "supported"))
    versions.append(get_evaluator("groundedness_model", model=str(turned)).version)
    made = onnx.load(model / "model.onnx")
    made.producer_name = "another"
    onnx.save(made, same / "model.onnx")
    versions.append(get_evaluator("groundedness_model", model=str(same)).version)
    assert len(set(versions)) == 4


def _config(**changes: Any) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _written(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda model: (model / name).write_bytes(content)


def _several(model: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(model / "model.onnx", model / name)
    (model / "model.onnx").unlink()


def _external(location: str) -> Callable[[Path], None]:
    """Weights that are to be read from a file outside the folder."""

    def change(model: Path) -> None:
        (model.parent / "outside").write_bytes(bytes(64))
        if location == "inside":
            os.symlink("../outside", model / "inside")
        made = onnx.load(model / "model.onnx")
        value = next(value for value in made.graph.initializer if value.name == "signs")
        value.ClearField("raw_data")
        value.data_location = TensorProto.EXTERNAL
        for key, text in (("location", location), ("length", str(4 * value.dims[0]))):
            entry = value.external_data.add()
            entry.key, entry.value = key, text
        (model / "model.onnx").write_bytes(made.SerializeToString())

    return change


def _wide(model: Path) -> None:
    onnx.save(graph("tokens", 2, outputs=3), model / "model.onnx")


def _other_feed(model: Path) -> None:
    feed = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["batch", 2])
    answer = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])
    made = helper.make_graph([helper.make_node("Identity", ["pixel_values"], ["logits"])], "g", [feed], [answer])
    opset = [helper.make_opsetid("", OPSET)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=IR), model / "model.onnx")


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no configuration": (
        lambda model: (model / "config.json").unlink(),
        "there is no config.json: is it the folder of a model?",
    ),
    "damaged configuration": (_written("config.json", b'{"architectures": ['), "config.json is damaged"),
    "a list": (_written("config.json", b"[]"), "config.json is damaged: it holds no object"),
    "deep": (_written("config.json", b"[" * 100_000), "config.json is damaged"),
    "labels by names": (_config(id2label={"yes": 1}), "config.json is damaged: id2label.yes"),
    "labels as a list": (_config(id2label=["a", "b"]), "config.json is damaged: id2label"),
    "no room": (_config(max_position_embeddings=-5), "config.json is damaged: max_position_embeddings"),
    "architectures as a number": (_config(architectures=7), "config.json is damaged: architectures"),
    "no tokenizer": (lambda model: (model / "tokenizer.json").unlink(), "there is no tokenizer.json"),
    "damaged tokenizer": (_written("tokenizer.json", b"{}"), "cannot be loaded"),
    "no graph": (lambda model: (model / "model.onnx").unlink(), "has no ONNX graph: optimum-cli export onnx"),
    "only a pickle": (lambda m: (m / "model.onnx").rename(m / "pytorch_model.bin"), "has no ONNX graph"),
    "several graphs": (_several, "choose one with models add --file (a.onnx, b.onnx)"),
    "half a graph": (lambda m: os.truncate(m / "model.onnx", 200), "cannot be loaded"),
    "a pickle as a graph": (_written("model.onnx", b"\x80\x04cos\nsystem\n"), "cannot be loaded"),
    "generation": (_config(architectures=["LlamaForCausalLM"]), "the architecture LlamaForCausalLM is not supported"),
    "code of the hub": (_config(architectures=["HHEMv2Model"], auto_map={"AutoModel": "x.py"}), "is not supported"),
    "no architecture": (_config(architectures=None), "the architecture is not named is not supported"),
    "unnamed labels": (_config(id2label=None), "do not tell what is supported (LABEL_0, LABEL_1): ragpulse models add"),
    "other labels": (_config(id2label={"0": "PERSON", "1": "PLACE"}), "do not tell what is supported"),
    "labels of one meaning": (_config(id2label={"0": "neutral", "1": "contradiction"}), "do not tell"),
    "another width": (_wide, "its graph answers"),
    "other inputs": (_other_feed, "its graph wants pixel_values"),
    "weights elsewhere": (_external("../outside"), "cannot be loaded"),
    "weights behind a link": (_external("inside"), "cannot be loaded"),
    "absolute weights": (_external("/etc/passwd"), "cannot be loaded"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_folder_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    """Where the files say it, at once; where only loading says it, as the error of the case."""
    change, expected = BAD[kind]
    model = tagger(tmp_path / "model")
    change(model)
    try:
        result = await scored(model, "Refunds take five days.")
    except ConfigurationError as error:
        message = str(error)
    else:
        assert result.status == "error"
        message = result.explanation or ""
    assert expected in message
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("nobody/nothing", "the model nobody/nothing is not on this machine: ragpulse models add nobody/nothing"),
        ("../secret/x", "is neither a folder nor an id"),
        ("x", "is neither a folder nor an id"),
        ("a/../b", "is neither a folder nor an id"),
        ("half/way", "is half a download: run again ragpulse models add half/way"),
    ],
)
def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, expected: str) -> None:
    """Nothing is fetched: the line says what to run."""
    monkeypatch.setenv("RAGPULSE_MODELS", str(tmp_path))
    tagger(tmp_path / "half--way")
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        get_evaluator("groundedness_model", model=model)


def test_a_missing_package_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluator stays listed; the line says what to install."""
    monkeypatch.setattr("ragpulse_evaluators.registry.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ragpulse\[local\]'"):
        get_evaluator("groundedness_model", model=str(tagger(folder / "package")))
