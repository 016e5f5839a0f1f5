"""A model for EleutherAI's evaluation harness, `lm_eval`: its three questions, asked of an Engine.

    python -m inferno.lm_eval run --model inferno --model_args pretrained=model.gguf --tasks …

is its command line with this model in it. From Python, importing this module is enough:

    lm_eval.simple_evaluate(model=InfernoLM(engine), tasks=[…])

Answers depend neither on the order of requests nor on which are asked together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inferno.engine import Engine
from inferno.errors import InvalidOption
from inferno.options import SamplingParams
from inferno.passes import logit_blocks

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as error:
    raise ImportError(
        "`inferno.lm_eval`: expected the package lm_eval, found none\n"
        "hint: pip install 'inferno-engine[eval]'"
    ) from error

_log = logging.getLogger(__name__)

_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
# What a task does not say is off, as in its other models; not what a chat would like.
_NEUTRAL = SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


@register_model("inferno")
class InfernoLM(LM):  # type: ignore[misc]
    """An Engine, or the model that one is loaded from, as the harness asks it.

    Args:
        pretrained: an `Engine`, or what `Engine.load` takes.
        weights, threads, context: as `Engine.load` has them.
        max_gen_toks: how many tokens are generated where a task does not say.
        device, batch_size, max_batch_size: what the harness tells every model; without effect.

    Raises:
        What `Engine.load` raises.
    """

    def __init__(
        self,
        pretrained: str | Engine,
        *,
        weights: str | None = None,
        threads: int | None = None,
        context: int | None = None,
        max_gen_toks: int = 256,
        device: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(pretrained, Engine):
            self.engine = pretrained
        else:
            self.engine = Engine.load(pretrained, weights=weights, threads=threads, context=context)
        self.max_gen_toks = max_gen_toks

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return for each (context, continuation) the log probability of the second after the
        first, and whether greedy decoding says it.
        """
        return self._scores([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log probability of each text, of whatever length.

        Each token is scored once, after as many as the context holds.
        """
        totals = []
        for (text,) in (request.args for request in requests):
            scores = self._scores(list(self._windows(self.engine.tokenizer.encode(text))))
            totals.append(sum(score for score, _ in scores))
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return what follows each context, up to a text of `until`.

        Raises:
            InvalidOption: the task asks for an option that does not exist here.
        """
        texts = []
        for number, (context, options) in enumerate(request.args for request in requests):
            params = self._params(options, number)
            room = self.engine.context - (params.max_tokens or 0)
            if room < 1:
                raise InvalidOption(
                    f"`max_gen_toks`: expected less than the context, {self.engine.context:,} "
                    f"tokens, found {params.max_tokens:,}"
                )
            ids = self._cut(self.engine.encode_prompt(context) or [self._first_token], room)
            texts.append(self.engine.generate(ids, params).text)
        return texts

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return messages as a prompt, by the model's own template."""
        return self.engine.render_chat(
            chat_history,
            add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template, for the harness's records."""
        return self.engine.template.template if chat_template else None

    @property
    def tokenizer_name(self) -> str:
        """What tells this model's prompts from others' in the harness's cache."""
        return self.engine.config.name

    @property
    def _first_token(self) -> int:
        """What a text follows that follows nothing."""
        tokenizer = self.engine.tokenizer
        if tokenizer.bos_id is not None and tokenizer.adds_bos:
            return tokenizer.bos_id
        return min(self.engine.stop_ids)

    def _pair(self, context: str, continuation: str) -> tuple[list[int], int]:
        """Return the ids of both, and how many of them are the continuation's."""
        if not context:
            ids = self.engine.tokenizer.encode(continuation, special=True)
            return [self._first_token, *ids], len(ids)
        # A space belongs to the word after it, and to its token.
        stripped = context.rstrip()
        if stripped:
            context, continuation = stripped, context[len(stripped) :] + continuation
        first = self.engine.encode_prompt(context)
        ids = self.engine.encode_prompt(context + continuation)
        if len(ids) > len(first):
            return [*first, *ids[len(first) :]], len(ids) - len(first)
        # The last tokens of the context have swallowed the continuation: they are scored.
        common = _common_length(first, ids)
        return ids, len(ids) - common

    def _windows(self, ids: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield windows of a text, and how many ids at the end of each are scored."""
        sequence, size = [self._first_token, *ids], self.engine.context
        for start in range(0, len(ids), size):
            end = min(start + size, len(ids))
            yield sequence[max(0, end - size) : end + 1], end - start

    def _scores(self, sequences: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        """Return for the last `count` of each (ids, count) what `loglikelihood` does.

        In the order of their ids, so that what two have in common is processed once.
        """
        engine = self.engine
        cut = [(self._cut(ids, engine.context + 1), count) for ids, count in sequences]
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(cut)
        cache, cached = engine._new_cache(), list[int]()
        for number in sorted(range(len(cut)), key=lambda number: cut[number][0]):
            ids, count = cut[number]
            if not count:
                continue
            row = len(ids) - count - 1  # its logits are of the first that is scored
            if row < 0:
                raise InvalidOption(
                    f"Continuation: expected at most {engine.context:,} tokens, the context, "
                    f"found {count:,}"
                )
            cache.truncate(min(_common_length(cached, ids), row))
            cached = ids[:-1]
            total, is_greedy, position = 0.0, True, row + 1
            for rows in logit_blocks(engine, cached, row, cache):
                for logits in rows:
                    token = ids[position]
                    total += float(logits[token]) - engine._executor.log_sum_exp(logits)
                    is_greedy &= int(logits[: engine.num_tokens].argmax()) == token
                    position += 1
            scores[number] = (total, is_greedy)
        return scores

    def _cut(self, ids: list[int], size: int) -> list[int]:
        """Return the last `size` of ids, and say so if they are fewer."""
        if len(ids) > size:
            _log.warning(
                "a request of %s tokens is longer than the context: its first %s are left out",
                f"{len(ids):,}",
                f"{len(ids) - size:,}",
            )
        return ids[-size:]

    def _params(self, options: Mapping[str, Any], number: int) -> SamplingParams:
        """Return a task's options in our words; a sampled text has its request's own numbers."""
        options = dict(options)
        until = options.pop("until", None) or ()
        until = (until,) if isinstance(until, str) else until
        limits = [value for name in _MAX_TOKENS if (value := options.pop(name, None)) is not None]
        temperature = options.pop("temperature", None)
        samples = options.pop("do_sample", bool(temperature))
        return _NEUTRAL.merged(
            stop=tuple(text for text in until if text),
            max_tokens=int(limits[0]) if limits else self.max_gen_toks,
            temperature=(1.0 if temperature is None else temperature) if samples else 0.0,
            choice=number,
            **options,
        )


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids two sequences begin with alike."""
    count = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:count]) != np.asarray(b[:count]))
    return int(differ[0]) if len(differ) else count


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
