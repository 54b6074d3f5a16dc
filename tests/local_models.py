"""Tiny local models for tests: genuine tokenizer files, and ONNX graphs that compare words.

A token of the response is supported where it occurs among the contexts. A pair is supported as far as all tokens of the
claim occur there. `never` is a word that is never supported, wherever it stands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

Words = Literal["words", "pieces", "bytes", "sentencepiece"]
NEVER = "wrongword"
CORPUS = (
    "Refunds take five working days . nine weeks a month The library opens at at Sunday Sundays closed It is",
    "Briefly answer the following question passage output : 1 2 3 one two three four six seven eight ten passages",
    NEVER,
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
OPSET, IR = 17, 9


def tokenizer(kind: Words = "words") -> Tokenizer:
    """A tokenizer of one of the usual families, trained on a few words."""
    made = _FAMILIES[kind]()
    trainer = _trainer(kind)
    if trainer is not None:
        made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return made


def _words() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def _pieces() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return made


def _bytes() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return made


def _sentencepiece() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    return made


_FAMILIES = {"words": _words, "pieces": _pieces, "bytes": _bytes, "sentencepiece": _sentencepiece}


def _trainer(kind: Words) -> Any:
    special = list(SPECIAL)
    if kind == "words":
        return trainers.WordLevelTrainer(special_tokens=special)
    if kind == "pieces":
        return trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    if kind == "bytes":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    return trainers.UnigramTrainer(special_tokens=special, unk_token="[UNK]", show_progress=False)


def tagger(folder: Path, *, words: Words = "words", labels: Sequence[str] | None = ("supported", "hallucinated"),
           limit: int = 256, **config: Any) -> Path:  # fmt: skip
    """A folder with a model that labels tokens."""
    return _model(folder, "tokens", words, labels, limit, config)


def pairs(folder: Path, *, words: Words = "words", labels: Sequence[str] | None = ("entailment", "contradiction"),
          limit: int = 256, **config: Any) -> Path:  # fmt: skip
    """A folder with a model that classifies pairs; the label at place 0 is the one that means support."""
    return _model(folder, "pairs", words, labels, limit, config)


def _model(
    folder: Path, kind: str, words: Words, labels: Sequence[str] | None, limit: int, config: dict[str, Any]
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer(words)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    ending = "ForTokenClassification" if kind == "tokens" else "ForSequenceClassification"
    settings: dict[str, Any] = {"architectures": [f"Tiny{ending}"], "model_type": "tiny", "pad_token_id": 0}
    if labels is not None:
        settings["id2label"] = {str(number): name for number, name in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(settings | config))
    never = [number for word, number in made.get_vocab().items() if word.lstrip("Ġ▁#") == NEVER]
    onnx.save(graph(kind, len(labels or "ab"), never), folder / "model.onnx")
    return folder


def graph(kind: str, n_labels: int, never: Sequence[int] = (), outputs: int | None = None) -> onnx.ModelProto:
    """The graph: which tokens occur in the first text, by comparing every token with every token.

    `outputs` widens the last axis beyond the labels, for a graph that is not what its configuration says.
    """
    n = outputs or n_labels
    signs = np.array([8.0] + [-8.0] * (n - 1) if n > 1 else [16.0], dtype=np.float32)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "one": np.array(1, dtype=np.int64),
        "three": np.array(3, dtype=np.int64),
        "never": np.array(never or [-1], dtype=np.int64),
        "half": np.array(0.5, dtype=np.float32),
        "whole": np.array(1.0, dtype=np.float32),
        "signs": signs,
        "axis0": np.array([0], dtype=np.int64),
        "axis1": np.array([1], dtype=np.int64),
        "axis2": np.array([2], dtype=np.int64),
        "last": np.array([-1], dtype=np.int64),
    }
    node = helper.make_node
    nodes = [
        # A token of the first text: attended, of type 0.
        node("Sub", ["one", "token_type_ids"], ["first"]),
        node("Mul", ["first", "attention_mask"], ["shown_int"]),
        node("Cast", ["shown_int"], ["shown"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["shown", "axis1"], ["shown_row"]),
        node("Unsqueeze", ["input_ids", "axis1"], ["row"]),
        node("Unsqueeze", ["input_ids", "axis2"], ["column"]),
        node("Equal", ["row", "column"], ["same_bool"]),
        node("Cast", ["same_bool"], ["same"], to=TensorProto.FLOAT),
        node("Mul", ["same", "shown_row"], ["seen"]),
        node("ReduceMax", ["seen"], ["occurs"], axes=[2], keepdims=0),
        # A token that is never supported.
        node("Unsqueeze", ["input_ids", "last"], ["each"]),
        node("Equal", ["each", "never"], ["bad_bool"]),
        node("Cast", ["bad_bool"], ["bad_each"], to=TensorProto.FLOAT),
        node("ReduceMax", ["bad_each"], ["bad"], axes=[2], keepdims=0),
        node("Sub", ["occurs", "bad"], ["supported"]),
    ]
    if kind == "tokens":
        nodes.append(node("Identity", ["supported"], ["value"]))
    else:  # the lowest over the tokens of the second text that are no marks of its end
        nodes += [
            node("Mul", ["token_type_ids", "attention_mask"], ["second_int"]),
            node("Greater", ["input_ids", "three"], ["plain_bool"]),
            node("Cast", ["plain_bool"], ["plain"], to=TensorProto.FLOAT),
            node("Cast", ["second_int"], ["second"], to=TensorProto.FLOAT),
            node("Mul", ["second", "plain"], ["counted"]),
            node("Sub", ["supported", "whole"], ["lacking"]),
            node("Mul", ["lacking", "counted"], ["missed"]),
            node("ReduceMin", ["missed"], ["worst"], axes=[1], keepdims=0),
            node("Add", ["worst", "whole"], ["value"]),
        ]
    nodes += [
        node("Sub", ["value", "half"], ["offset"]),
        node("Unsqueeze", ["offset", "last"], ["wide"]),
        node("Mul", ["wide", "signs"], ["logits"]),
    ]
    feeds = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    shape: list[str | int | None] = ["batch", "sequence", n] if kind == "tokens" else ["batch", n]
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_graph(nodes, kind, feeds, [result], values)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
