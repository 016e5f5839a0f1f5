"""Small vocabularies that tests of text share, as GGUF metadata and as objects of the libraries."""

from __future__ import annotations

import functools
import io
import json
import struct
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from inferno.tokenizer import Tokenizer

TEXT = (
    """The quick brown fox jumps over the lazy dog. It's 1,234 o'clock, isn't it?  Two  spaces,
\ttabs, and naïve café crème brûlée: déjà vu! 你好,世界。こんにちは。 Привет, мир! 😀 👩‍👩‍👧 end.
def f(x):\n    return x ** 2  # code\n\n\nuser assistant system tool think
"""
    * 3
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<think>", "</think>"]

AWKWARD = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\nfirst",
    " leading",
    "  two leading",
    "trailing ",
    "trailing  ",
    "\ttab first",
    "a\tb",
    "a\n\nb",
    "a  b   c",
    "😀",
    "a😀b",
    "👩‍👩‍👧",
    "e\u0301 o\u0308",
    "\u0301",
    "你好，世界",
    "日本語 テキスト",
    "Привет",
    "naïve café",
    "\x00\x01",
    "\ufeffbom",
    "\u00a0nbsp\u00a0",
    "it's 1234567 o'clock",
    "<|im_end|>",
    "<s>hi</s>",
    "<0x0A>",
    "<think>x</think>",
    "\u2581",
    "a\u2581b",
    " \u2581 ",
    "\U0010ffff",
    "user<|im_start|>",
    "لغة عربية",
    "𝔘𝔫𝔦",
    "x" * 300,
    "\ue000\uf8ff",
]


@functools.cache
def trained_byte_level() -> tokenizers.Tokenizer:
    """Return a GPT-2-like tokenizer with control and user-defined tokens, trained on TEXT."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=CONTROL,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    backend.add_tokens([AddedToken(text, normalized=False) for text in USER_DEFINED])
    return backend


@functools.cache
def byte_level_metadata() -> dict[str, Any]:
    """Return the same as a GGUF file would carry it."""
    backend = trained_byte_level()
    vocab = backend.get_vocab(with_added_tokens=True)
    texts = sorted(vocab, key=vocab.__getitem__)
    kinds = [3 if text in CONTROL else 4 if text in USER_DEFINED else 1 for text in texts]
    merges = json.loads(backend.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": vocab["<|im_start|>"],
        "tokenizer.ggml.eos_token_id": vocab["<|im_end|>"],
        "tokenizer.ggml.add_bos_token": False,
    }


@functools.cache
def trained_sentencepiece() -> sentencepiece.SentencePieceProcessor:
    """Return a Llama-like SentencePiece BPE model, trained on TEXT."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=460,
        byte_fallback=True,
        character_coverage=0.98,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=USER_DEFINED,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@functools.cache
def sentencepiece_metadata() -> dict[str, Any]:
    """Return the same as a GGUF file would carry it."""
    model = trained_sentencepiece()
    ids = range(model.get_piece_size())
    pieces = [model.id_to_piece(id) for id in ids]
    kinds = [
        2
        if model.is_unknown(id)
        else 3
        if model.is_control(id)
        else 6
        if model.is_byte(id)
        else 4
        if pieces[id] in USER_DEFINED
        else 1
        for id in ids
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [model.get_score(id) for id in ids],
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
    }


@functools.cache
def byte_level() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata())


@functools.cache
def sentencepiece_like() -> Tokenizer:
    return Tokenizer.from_gguf(sentencepiece_metadata())


@functools.cache
def stories() -> Tokenizer:
    """Return the vocabulary of stories260K, which is stored with real spaces."""
    data = (Path(__file__).parent / "data" / "tok512.bin").read_bytes()
    texts, scores, offset = [], [], 4
    while offset < len(data):
        score, length = struct.unpack_from("<fi", data, offset)
        texts.append(data[offset + 8 : offset + 8 + length].decode().replace(" ", "\u2581"))
        scores.append(score)
        offset += 8 + length
    texts[:3] = ["<unk>", "<s>", "</s>"]
    return Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(texts) - 259),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        }
    )
