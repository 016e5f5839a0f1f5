"""The engine: what loading takes and refuses, logits, scores, prompts and chats."""

from __future__ import annotations

import json
import math
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
import engines
from inferno import (
    ContextFull,
    Engine,
    InfernoError,
    InvalidCheckpoint,
    InvalidOption,
    InvalidText,
    ModelNotFound,
    SamplingParams,
    _native,
)
from reference import forward

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 20}


@pytest.fixture(scope="module")
def engine(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model whose embedding has 80 rows that its tokenizer knows nothing of."""
    path = tmp_path_factory.mktemp("padded")
    return engines.load(checkpoints.tiny_llama(path, vocab=checkpoints.VOCAB_SIZE + 80))


# ---- loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, 257, 10**30, -(10**30), True, 2.0, "2", [2]])
def test_an_absurd_number_of_threads_is_refused(stories_gguf: Path, threads: Any) -> None:
    with pytest.raises(InvalidOption, match="`threads`"):
        Engine.load(stories_gguf, threads=threads)


@pytest.mark.parametrize("threads", ["0", "-3", "two", str(10**30)])
def test_an_absurd_number_of_threads_in_the_environment_is_refused(
    stories_gguf: Path, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.setenv("INFERNO_THREADS", threads)
    with pytest.raises(InvalidOption):
        Engine.load(stories_gguf)
    assert Engine.load(stories_gguf, threads=1).threads == 1


@pytest.mark.parametrize("isa", ["sse9", "AVX2", " scalar", 5, ["scalar"], b"scalar"])
def test_an_impossible_instruction_set_is_refused(stories_gguf: Path, isa: Any) -> None:
    with pytest.raises(InvalidOption):
        Engine.load(stories_gguf, threads=1, isa=isa)


def test_the_environment_chooses_the_instruction_set(
    stories_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_ISA", "scalar")
    assert engines.load(stories_gguf).isa == "scalar"
    best = _native.isas()[0]
    assert engines.load(stories_gguf, isa=best).isa == best
    monkeypatch.setenv("INFERNO_ISA", "")
    assert engines.load(stories_gguf).isa == best
    monkeypatch.setenv("INFERNO_ISA", "sse9")
    with pytest.raises(InvalidOption, match=r"`sse9`.*scalar"):
        engines.load(stories_gguf)


@pytest.mark.parametrize("kv_cache", ["q6_k", "", None, 16, ["f16"], "x" * 1000])
def test_another_type_of_cache_is_refused(stories_gguf: Path, kv_cache: Any) -> None:
    with pytest.raises(InvalidOption, match="`kv_cache`: expected one of f16, f32, q8_0") as caught:
        Engine.load(stories_gguf, threads=1, kv_cache=kv_cache)
    assert len(caught.value.message) < 200 and caught.value.hint


@pytest.mark.parametrize(
    ("asked", "meant"), [("F16", "f16"), ("q8", "q8_0"), ("Q8_0", "q8_0"), ("fp32", "f32")]
)
def test_a_type_of_cache_that_is_misspelled_is_guessed(
    stories_gguf: Path, asked: str, meant: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        Engine.load(stories_gguf, threads=1, kv_cache=asked)
    assert caught.value.hint == f"did you mean `{meant}`?"


def test_a_model_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for name in (str(tmp_path / "no.gguf"), "smollm3-9000b", tmp_path / "no.gguf"):
        with pytest.raises(ModelNotFound):
            engines.load(name)  # type: ignore[arg-type]


def test_a_path_may_be_a_string_or_a_path(stories_gguf: Path) -> None:
    by_string = engines.load(str(stories_gguf)).logits([1, 2])  # type: ignore[arg-type]
    assert by_string.tobytes() == engines.load(stories_gguf).logits([1, 2]).tobytes()


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    checkpoints.tiny_llama(tmp_path, vocab=100)
    with pytest.raises(InvalidCheckpoint, match=r"at most 100 tokens.*found 320"):
        engines.load(tmp_path)


def test_loading_reports_its_progress(stories_gguf: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    engines.load(stories_gguf, progress=lambda *report: reports.append(report))
    assert reports
    done = [done for what, done, total in reports if what == "loading"]
    assert done == sorted(done)
    assert reports[-1][1] == reports[-1][2] > 1_000_000


def test_an_error_of_the_caller_s_progress_is_passed_on(stories_gguf: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.load(stories_gguf, progress=stop)


def test_memory_is_counted(engine: Engine) -> None:
    stored = sum(tensor.nbytes for tensor in checkpoints.stories_tensors()[1].values())
    assert stored <= engine.memory.weights <= 1.1 * stored  # packed rows come in sixteens
    c = engine.config
    padded_head_dim = -(-c.head_dim // 16) * 16
    numbers = 2 * c.num_hidden_layers * c.num_key_value_heads * padded_head_dim
    assert engine.memory.kv_cache_per_token == 2 * numbers  # f16
    engine.logits([1])
    assert engine.memory.scratch > 0


def test_an_engine_outlives_its_file(tmp_path: Path, stories_gguf: Path) -> None:
    copy = tmp_path / "copy.gguf"
    shutil.copy(stories_gguf, copy)
    engine = engines.load(copy)
    expected = engine.logits([1, 2, 3]).tobytes()
    copy.unlink()
    assert engine.logits([1, 2, 3]).tobytes() == expected


# ---- logits and scores ---------------------------------------------------------------------------


def test_logits_are_one_row_of_the_vocabulary_an_id(engine: Engine) -> None:
    for count in (1, 2, 63, 64, 65, 130):
        logits = engine.logits(engines.random_ids(count, 512))
        assert (logits.shape, logits.dtype) == ((count, 512), np.float32)
    assert engine.logits([]).shape == (0, 512)


def test_logits_of_a_prefix_are_a_prefix_of_the_logits(engine: Engine) -> None:
    ids = engines.random_ids(130, 512)
    whole = engine.logits(ids)
    for count in (1, 64, 65, 129):
        assert engine.logits(ids[:count]).tobytes() == whole[:count].tobytes()


def test_logits_belong_to_the_caller(engine: Engine) -> None:
    first = engine.logits([1, 2])
    copy = first.copy()
    engine.logits([3, 4])
    assert first.tobytes() == copy.tobytes()
    first[:] = 0


@pytest.mark.parametrize(
    "ids", [[512], [-1], [2**31], [10**30], [0.0], [True], ["a"], "abc", 5, None, [[1]]]
)
def test_ids_that_are_none_are_refused_and_the_engine_goes_on(engine: Engine, ids: Any) -> None:
    with pytest.raises(InvalidOption, match="Token id"):
        engine.logits(ids)
    assert engine.logits([1]).shape == (1, 512)


def test_more_ids_than_the_context_are_refused(engine: Engine) -> None:
    for ask in (engine.logits, engine.score, engine.generate):
        with pytest.raises(ContextFull):
            ask([1] * (engine.context + 1))


def test_a_score_is_the_log_probability_of_each_token(engine: Engine) -> None:
    ids = engines.random_ids(100, 512)
    score = engine.score(ids)
    rows = forward.log_probabilities(engine.logits(ids))
    expected = rows[np.arange(99), ids[1:]]
    assert score.ids == tuple(ids)
    assert (score.logprobs.shape, score.logprobs.dtype) == ((99,), np.float32)
    np.testing.assert_allclose(score.logprobs, expected, atol=1e-5)
    assert score.perplexity == pytest.approx(math.exp(-expected.mean()), rel=1e-5)


def test_a_score_of_text_starts_with_bos(engine: Engine) -> None:
    score = engine.score("Once upon a time")
    assert score.ids[0] == engine.tokenizer.bos_id
    assert score.logprobs.tobytes() == engine.score(list(score.ids)).logprobs.tobytes()
    assert score.perplexity < 10 < engine.score("tnwe pue zm aotcOi").perplexity


def test_too_little_to_score_has_no_perplexity(engine: Engine) -> None:
    for little in ([], [5], ""):
        score = engine.score(little)
        assert score.logprobs.shape == (0,)
        assert math.isnan(score.perplexity)


def test_a_score_and_the_logprobs_of_a_generation_agree(padded: Engine) -> None:
    ids = [5, 6, 7]
    generation = padded.generate(ids, logprobs=1, ignore_eos=True, temperature=1, max_tokens=20)
    score = padded.score([*ids, *generation.tokens]).logprobs[len(ids) - 1 :]
    assert [entry.logprob for entry in generation.logprobs] == pytest.approx(score.tolist())


# ---- prompts -------------------------------------------------------------------------------------


def test_text_and_its_ids_are_the_same_prompt(engine: Engine) -> None:
    ids = [1, *engine.tokenizer.encode("Once upon", special=True)]
    expected = engine.generate("Once upon", **GREEDY).tokens
    for prompt in (ids, tuple(ids), np.array(ids), iter(ids), b"Once upon", "<s>Once upon"):
        assert engine.generate(prompt, **GREEDY).tokens == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (b"\xe6\xad", InvalidText),
        ("\ud83e", InvalidText),
        ([512], InvalidOption),
        ([-1], InvalidOption),
        (None, InvalidOption),
        (3.5, InvalidOption),
    ],
)
def test_a_prompt_that_is_none_is_refused_at_once(
    engine: Engine, prompt: Any, error: type[InfernoError]
) -> None:
    with pytest.raises(error):
        engine.generate(prompt)
    with pytest.raises(error):
        engine.score(prompt)
    assert engine.generate("Once", **GREEDY).text


@pytest.mark.parametrize("greedy", [True, False])
def test_ids_that_no_token_has_are_never_sampled(padded: Engine, greedy: bool) -> None:
    """Unused rows of a padded embedding are no tokens, whatever their logits."""
    assert padded.num_tokens == checkpoints.VOCAB_SIZE < padded.config.vocab_size
    ids = engines.random_ids(6, padded.config.vocab_size, seed=2)
    assert (padded.logits(ids).argmax(axis=1) >= padded.num_tokens).any()
    hot = {"temperature": 0} if greedy else {"temperature": 100, "top_k": 0, "top_p": 1, "min_p": 0}
    for id in ids:
        generation = padded.generate([id], max_tokens=20, ignore_eos=True, seed=1, **hot)
        assert len(generation.tokens) == 20
        assert max(generation.tokens) < padded.num_tokens


@pytest.mark.parametrize(
    "asked",
    [
        {"logit_bias": {checkpoints.VOCAB_SIZE: 100.0, checkpoints.VOCAB_SIZE + 79: 100.0}},
        {"prediction": [checkpoints.VOCAB_SIZE + 1] * 8},
        {"speculation": 8},
        {"regex": "[a-z ]{1,20}"},
        {"repetition_penalty": 5.0, "presence_penalty": 2.0},
    ],
    ids=lambda asked: next(iter(asked)),
)
@pytest.mark.parametrize("temperature", [0, 100])
def test_ids_that_no_token_has_are_never_sampled_whatever_is_asked(
    padded: Engine, asked: dict[str, Any], temperature: float
) -> None:
    wild = {"temperature": temperature, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 1}
    prompt = [7, 300, 7, 300, 7, 300, 7]  # which a guess finds to go on
    tokens = padded.generate(prompt, max_tokens=20, **wild, **asked).tokens
    assert tokens and max(tokens) < padded.num_tokens


def test_a_prompt_may_end_with_an_id_that_no_token_has(padded: Engine) -> None:
    last = padded.config.vocab_size - 1
    generation = padded.generate([5, last], temperature=0, max_tokens=5, ignore_eos=True)
    assert len(generation.tokens) == 5
    assert generation.text.encode()


# ---- the end of a text ---------------------------------------------------------------------------


def assert_each_ends(engine: Engine, ids: set[int]) -> None:
    """Each of `ids` ends a text, no other does, and none is part of it."""
    assert engine.stop_ids == ids
    for id in (*ids, 40):
        generation = engine.generate([5, 6], temperature=0, max_tokens=2, logit_bias={id: 100.0})
        assert generation.tokens == ((40, 40) if id == 40 else ())
        assert generation.finish_reason == ("length" if id == 40 else "stop")


def test_a_text_ends_at_each_id_that_any_file_of_a_directory_names(tmp_path: Path) -> None:
    path = checkpoints.tiny_llama(tmp_path)

    def change(name: str, **changes: Any) -> None:
        file = path / name
        found = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        file.write_text(json.dumps({**found, **changes}), "utf-8")

    change("config.json", eos_token_id=[20, 21])
    change("generation_config.json", eos_token_id=[21, 22])
    change("tokenizer_config.json", eos_token="er")
    er = engines.load(path).tokenizer.token_id("er")
    assert er is not None
    by_name = {0, 2}  # <|endoftext|> and <|im_end|>
    assert_each_ends(engines.load(path), {20, 21, 22, er} | by_name)


def test_a_text_ends_at_each_id_that_gguf_metadata_names(tmp_path: Path) -> None:
    engine = engines.load(engines.tiny_gguf(tmp_path / "model.gguf"))
    assert_each_ends(engine, {0, 2})


# ---- params --------------------------------------------------------------------------------------


def test_the_model_replaces_defaults_and_the_caller_replaces_both(
    tmp_path: Path, llama_directory: Path
) -> None:
    shutil.copytree(llama_directory, tmp_path, dirs_exist_ok=True)
    sampling = {"do_sample": True, "temperature": 0.3, "top_k": 7, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(sampling))
    engine = engines.load(tmp_path)
    params = engine._params(None, {})
    assert (params.temperature, params.top_k, params.top_p) == (0.3, 7, SamplingParams().top_p)
    assert engine._params(None, {"top_k": 9}) == params.merged(top_k=9)
    mine = SamplingParams(min_p=0.1)
    assert engine._params(mine, {"seed": 1}) == mine.merged(seed=1)


def test_a_generation_config_that_samples_nothing_is_greedy(
    tmp_path: Path, llama_directory: Path
) -> None:
    shutil.copytree(llama_directory, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text('{"do_sample": false}')
    engine = engines.load(tmp_path)
    prompt = "the cat"
    expected = engine.generate(prompt, ignore_eos=True, **GREEDY).tokens
    assert engine.generate(prompt, ignore_eos=True, max_tokens=20).tokens == expected


def test_a_path_that_is_spelled_like_a_catalogue_name_is_no_catalogue_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama_directory: Path
) -> None:
    shutil.copytree(llama_directory, tmp_path / "smollm2-135m-instruct")
    monkeypatch.chdir(tmp_path)
    engine = engines.load(Path("smollm2-135m-instruct"))
    assert engine.config.generation == engines.load(llama_directory).config.generation


# ---- chat ----------------------------------------------------------------------------------------


def test_a_text_is_the_message_of_a_user(engine: Engine) -> None:
    by_text = engine.chat("Tell me a story.", **GREEDY)
    by_message = engine.chat([{"role": "user", "content": "Tell me a story."}], **GREEDY)
    by_prompt = engine.generate("<|user|>\nTell me a story.</s>\n<|assistant|>\n", **GREEDY)
    assert by_text.tokens == by_message.tokens == by_prompt.tokens
    assert by_text.stats.prompt_tokens == by_prompt.stats.prompt_tokens


def test_a_chat_that_goes_on_processes_only_what_is_new(engine: Engine) -> None:
    session = engine.new_session()
    messages = [{"role": "user", "content": "Tell me a story of a cat."}]
    first = engine.chat(messages, session=session, **GREEDY)
    messages.append({"role": "assistant", "content": first.text})
    messages.append({"role": "user", "content": "And then?"})
    second = engine.chat(messages, session=session, **GREEDY)
    assert second.stats.cached_tokens >= first.stats.prompt_tokens
    assert second.text == engine.chat(messages, **GREEDY).text


def test_the_same_chat_again_processes_one_token(engine: Engine) -> None:
    session = engine.new_session()
    first = engine.chat("Tell me a story.", session=session, **GREEDY)
    assert first.text
    again = engine.chat("Tell me a story.", session=session, **GREEDY)
    assert again.text == first.text
    assert again.stats.cached_tokens == again.stats.prompt_tokens - 1


def test_another_chat_in_the_same_session_is_as_if_alone(engine: Engine) -> None:
    session = engine.new_session()
    assert engine.chat("Tell me a story.", session=session, **GREEDY).text
    found = engine.chat("Who is Lily?", session=session, **GREEDY).text
    assert found == engine.chat("Who is Lily?", **GREEDY).text


def test_a_session_of_another_engine_is_refused(engine: Engine, stories_gguf: Path) -> None:
    stranger = engines.load(stories_gguf).new_session()
    with pytest.raises(InvalidOption, match="`session`"):
        engine.chat("Hello", session=stranger)


@pytest.mark.parametrize(
    "messages",
    [None, [], 5, [5], ["hello"], [{}], [{"content": "a"}], {"role": "user"}],
)
def test_messages_that_are_none_are_refused(engine: Engine, messages: Any) -> None:
    with pytest.raises(InfernoError):
        engine.chat(messages, **GREEDY)


# ---- embeddings ----------------------------------------------------------------------------------


def transformers_states(path: Path, ids: list[int]) -> np.ndarray:
    """Ask transformers for the hidden states after the last norm: (n, hidden_size) float32."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        return np.array(model(torch.tensor([ids])).last_hidden_state[0].numpy())


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
@pytest.mark.parametrize("kind", ["llama_directory", "qwen2_directory"])
def test_embeddings_are_those_of_transformers(request, kind: str, pooling: str) -> None:
    path = request.getfixturevalue(kind)
    texts = [engines.random_ids(n, seed=n) for n in (1, 5, 40)]
    found = engines.load(path).embed(texts, pooling)
    assert found.shape == (3, 64) and found.dtype == np.float32
    for ids, vector in zip(texts, found, strict=True):
        states = transformers_states(path, ids)
        pooled = {"mean": states.mean(axis=0), "last": states[-1], "cls": states[0]}[pooling]
        # Keys and values are f16 in the cache: relative errors of 2^-11, some of which add up.
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), atol=2e-3)
        assert math.isclose(np.linalg.norm(vector), 1, rel_tol=1e-6)


def test_texts_to_embed_are_no_prompts(engine: Engine) -> None:
    bos = engine.tokenizer.bos_id
    assert bos is not None and engine.tokenizer.adds_bos
    ids = [bos, *engine.tokenizer.encode("</s> Hello")]
    assert (engine.embed(["</s> Hello"]) == engine.embed([ids])).all()
    assert engine.embed([]).shape == (0, engine.config.hidden_size)


def test_what_cannot_be_embedded_is_an_error(engine: Engine, llama_gguf: Path) -> None:
    with pytest.raises(InvalidOption, match=r"`pooling`: expected one of mean, last, cls"):
        engine.embed(["text"], pooling="max")
    for texts in ("text", b"text", None, 5):
        with pytest.raises(InvalidOption, match="`texts`: expected a list"):
            engine.embed(texts)  # type: ignore[arg-type]
    with pytest.raises(InvalidText, match="'' at 1"):
        engines.load(llama_gguf).embed(["text", ""])
    with pytest.raises(ContextFull):
        engine.embed([[1] * (engine.context + 1)])


# ---- company -------------------------------------------------------------------------------------


def test_two_engines_of_one_file_do_not_know_each_other(stories_gguf: Path) -> None:
    a, b = engines.load(stories_gguf), engines.load(stories_gguf, isa="scalar", threads=2)
    expected = a.generate("Once", **GREEDY).text
    stream = iter(a.generate("Once", **GREEDY))
    text = next(stream)
    assert b.generate("Once", **GREEDY).text == expected
    del b
    assert text + "".join(stream) == expected


def test_python_threads_may_all_ask_for_logits_at_once(engine: Engine) -> None:
    ids = [engines.random_ids(100, 512, seed=seed) for seed in range(4)]
    expected = [engine.logits(i).tobytes() for i in ids]
    wrong: list[int] = []

    def ask(number: int) -> None:
        for _ in range(10):
            if engine.logits(ids[number]).tobytes() != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_chats_without_a_system_message_get_the_engines(stories_gguf: Path) -> None:
    engine = engines.load(stories_gguf)
    user = {"role": "user", "content": "Hello"}
    ours, theirs = ({"role": "system", "content": text} for text in ("Be kind.", "Be brief."))

    def prompt(messages: str | list[dict[str, str]]) -> tuple[int, ...]:
        session = engine.new_session()
        _ = engine.chat(messages, session=session, max_tokens=0).text
        return session.tokens

    plain = prompt([user])
    engine.system = "Be kind."
    assert prompt("Hello") == prompt([user]) == prompt([ours, user]) != plain
    assert prompt([theirs, user]) not in (plain, prompt([user]))
    engine.system = None
    assert prompt([user]) == plain


@pytest.mark.parametrize("top", [-1, True, 1.0, "1", None])
def test_a_number_of_alternatives_that_is_none_is_refused(engine: Engine, top: Any) -> None:
    with pytest.raises(InvalidOption, match="`top`"):
        engine.token_logprobs([1, 2], top=top)


def test_a_cpu_without_vector_instructions_is_told_how_slow_it_is(
    llama_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFERNO_ISA", raising=False)
    monkeypatch.setattr(_native, "choose_isa", lambda name: "scalar")
    with pytest.warns(RuntimeWarning, match="30 times slower"):
        assert Engine.load(llama_gguf, threads=1).isa == "scalar"
    with warnings.catch_warnings():  # who asks for it knows
        warnings.simplefilter("error")
        Engine.load(llama_gguf, threads=1, isa="scalar")
