"""The adapter for lm_eval, asked as the harness asks: by a stand-in, for the real one is large."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import engines
from inferno import Engine, InvalidOption

PAIRS = [
    ("Once upon a time there was a", " little dog."),
    ("Once upon a time there was a", " big house"),
    ("Once upon a time ", "there"),
    ("", "He lived in a house."),
    ("He lived", ""),
    ("The sea", " is blue and the sky"),
]


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """`inferno.lm_eval`, over a package that has no more than it needs."""
    registered: dict[str, type] = {}

    def register_model(name: str):
        return lambda cls: registered.setdefault(name, cls)

    package, api = ModuleType("lm_eval"), ModuleType("lm_eval.api")
    model, registry = ModuleType("lm_eval.api.model"), ModuleType("lm_eval.api.registry")
    model.LM = type("LM", (), {"__init__": lambda self: None})  # type: ignore[attr-defined]
    registry.register_model = register_model  # type: ignore[attr-defined]
    modules = {"lm_eval": package, "lm_eval.api": api}
    modules |= {"lm_eval.api.model": model, "lm_eval.api.registry": registry}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        patch.delitem(sys.modules, "inferno.lm_eval", raising=False)
        found = importlib.import_module("inferno.lm_eval")
        assert registered["inferno"] is found.InfernoLM
        yield found
    sys.modules.pop("inferno.lm_eval", None)


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def lm(adapter: Any, engine: Engine) -> Any:
    return adapter.InfernoLM(engine)


def requests(*arguments: tuple[Any, ...]) -> list[SimpleNamespace]:
    return [SimpleNamespace(args=one) for one in arguments]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def scored(engine: Engine, ids: list[int], count: int) -> tuple[float, bool]:
    """What `loglikelihood` says of the last `count` of ids, from the logits of all of them."""
    rows = log_softmax(engine.logits(ids[:-1]))[len(ids) - 1 - count :]
    targets = ids[len(ids) - count :]
    greedy = bool((rows.argmax(axis=1) == targets).all())
    return float(rows[np.arange(count), targets].sum()), greedy


def test_a_continuation_is_scored_after_its_context(lm: Any, engine: Engine) -> None:
    bos = engine.tokenizer.bos_id
    assert bos is not None and engine.tokenizer.adds_bos
    for (context, continuation), found in zip(
        PAIRS, lm.loglikelihood(requests(*PAIRS)), strict=True
    ):
        whole = [bos, *engine.tokenizer.encode(context + continuation)]
        first = [bos, *engine.tokenizer.encode(context.rstrip())]
        assert whole[: len(first)] == first
        count = len(whole) - len(first)
        expected = scored(engine, whole, count) if count else (0.0, True)
        assert found[1] == expected[1]
        # Twenty float32 logits of up to 20, and their differences: 2^-24 of each.
        assert abs(found[0] - expected[0]) < 20 * 20 * 2**-24 * 4


def test_what_greedy_decoding_says_is_greedy(lm: Any, engine: Engine) -> None:
    context = "Once upon a time there was a"
    text = engine.generate(context, temperature=0, max_tokens=8).text
    (answer,) = lm.loglikelihood(requests((context, text)))
    assert answer[1] and answer[0] < 0
    (other,) = lm.loglikelihood(requests((context, text + " potato")))
    assert not other[1] and other[0] < answer[0]


def test_neither_order_nor_company_changes_an_answer(lm: Any) -> None:
    together = lm.loglikelihood(requests(*PAIRS))
    assert [lm.loglikelihood(requests(pair))[0] for pair in PAIRS] == together
    assert lm.loglikelihood(requests(*reversed(PAIRS)))[::-1] == together


def test_a_context_is_processed_once_for_all_its_continuations(lm: Any, engine: Engine) -> None:
    context = "Once upon a time there was a little dog who lived by the sea"
    pairs = [(context, f" {word}") for word in ("and", "with", "house", "very")]
    rows = []
    with engines.watched(engine, lambda n: None) as watch:
        forward = watch.forward
        watch.forward = lambda batch: rows.extend(len(b[1]) for b in batch) or forward(batch)
        lm.loglikelihood(requests(*pairs))
    assert sum(rows) < len(engine.tokenizer.encode(context)) + 4 * len(pairs)


def test_a_text_longer_than_the_context_is_scored_token_by_token(
    adapter: Any, stories_gguf: Path
) -> None:
    engine = engines.load(stories_gguf, context=16)
    lm = adapter.InfernoLM(engine)
    text = "Once upon a time there was a little dog. He lived in a big house by the sea. " * 2
    sequence = [engine.tokenizer.bos_id, *engine.tokenizer.encode(text)]
    expected, position = 0.0, 1
    while position < len(sequence):
        end = min(position + 16, len(sequence))
        expected += scored(engine, sequence[max(0, end - 17) : end], end - position)[0]
        position = end
    found = lm.loglikelihood_rolling(requests((text,), ("",)))
    assert abs(found[0] - expected) < 1e-3 and found[1] == 0


def test_what_does_not_fit_loses_its_beginning_and_says_so(
    adapter: Any, stories_gguf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engines.load(stories_gguf, context=16)
    lm = adapter.InfernoLM(engine, max_gen_toks=4)
    context = "Once upon a time there was a little dog. He lived in a big house by the sea."
    (found,) = lm.loglikelihood(requests((context, " The")))
    ids = engine.encode_prompt(context + " The")
    assert abs(found[0] - scored(engine, ids[-17:], 1)[0]) < 1e-4
    assert "is longer than the context: its first" in caplog.text
    (text,) = lm.generate_until(requests((context, {})))
    ids = engine.encode_prompt(context)[-12:]
    assert text == engine.generate(ids, temperature=0, max_tokens=4).text
    with pytest.raises(InvalidOption, match="Continuation: expected at most 16 tokens"):
        lm.loglikelihood(requests(("a", context)))
    with pytest.raises(InvalidOption, match="`max_gen_toks`: expected less than the context"):
        lm.generate_until(requests(("a", {"max_gen_toks": 16})))


def test_a_text_ends_where_the_task_says(lm: Any, engine: Engine) -> None:
    prompt = "Once upon a time there was a"
    whole = engine.generate(prompt, temperature=0, max_tokens=40).text
    found = lm.generate_until(
        requests(
            (prompt, {"until": ["."], "max_gen_toks": 40}),
            (prompt, {"until": ".", "max_new_tokens": 40, "do_sample": False, "temperature": 0.7}),
            (prompt, {"until": ["", "\n\n\n"], "max_gen_toks": 5}),
        )
    )
    assert found[0] == found[1] == whole.split(".")[0]
    assert found[2] == engine.generate(prompt, temperature=0, max_tokens=5).text


def test_sampled_texts_are_reproduced_but_differ_from_each_other(lm: Any) -> None:
    asked = requests(*[("Once upon", {"do_sample": True, "max_gen_toks": 20})] * 3)
    found = lm.generate_until(asked)
    assert lm.generate_until(asked) == found and len(set(found)) == 3


def test_an_option_that_does_not_exist_is_refused(lm: Any) -> None:
    with pytest.raises(InvalidOption, match="Unknown sampling option `num_beams`"):
        lm.generate_until(requests(("a", {"num_beams": 4})))


def test_a_model_is_loaded_by_its_name(adapter: Any, stories_gguf: Path, engine: Engine) -> None:
    lm = adapter.InfernoLM(str(stories_gguf), threads=1, device="cuda:0", batch_size="auto")
    pair = requests(PAIRS[0])
    assert lm.loglikelihood(pair) == adapter.InfernoLM(engine).loglikelihood(pair)
    assert lm.tokenizer_name == engine.config.name


def test_chats_go_through_the_model_s_template(adapter: Any, llama_gguf: Path) -> None:
    engine = engines.load(llama_gguf)
    lm = adapter.InfernoLM(engine)
    messages = [{"role": "user", "content": "Hello"}]
    assert lm.apply_chat_template(messages) == engine.render_chat(messages)
    assert lm.chat_template(True) == engine.template.template and lm.chat_template() is None
    begun = [*messages, {"role": "assistant", "content": "Well"}]
    assert lm.apply_chat_template(begun, add_generation_prompt=False).rstrip().endswith("Well")


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    monkeypatch.delitem(sys.modules, "inferno.lm_eval", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'inferno-engine\[eval\]'"):
        importlib.import_module("inferno.lm_eval")
