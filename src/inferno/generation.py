"""The loop: prefill, sample, stop. Yields text as it becomes certain.

Knows ids and when to stop; what ids spell is `text_stream`'s business, which token is likely the
native core's.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from inferno import _native
from inferno.constraint import Constraint, Source
from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.options import SamplingParams
from inferno.session import Pending
from inferno.speculation import Drafter
from inferno.text_stream import TextStream

if TYPE_CHECKING:
    from inferno.session import Session


@dataclass(frozen=True)
class Stats:
    """What a generation took.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: so many of these had been processed before, and were not again.
        generated_tokens: tokens that were drawn, without the one that ended the text.
        prefill_seconds: from the beginning until the prompt was processed.
        decode_seconds: from there to the last token, with what the reader took in between.
        drafted: guessed tokens that were verified.
        accepted: so many of these became text.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class TokenLogprobs:
    """How likely a token was, by the raw logits, whatever the sampling parameters.

    Attributes:
        token: its id.
        logprob: its natural logarithm of the probability.
        top: the most likely ids at its place with theirs, the likeliest first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Generation:
    """A reply that is computed as it is read; made by `chat` and `generate`.

    Iterate it for pieces of text: whole characters, and nothing that may yet become a stop string.
    `str()`, `text`, `tokens`, `finish_reason`, `logprobs` and `stats` run it to its end first.

    Attributes:
        seed (int): the seed of its draws, given or fresh.
        stopped_by_text (bool): whether a stop string ended it.
    """

    def __init__(
        self, session: Session, params: SamplingParams, prompt: Sequence[int] | None = None
    ) -> None:
        self._session = session
        self._params = params
        self._prompt = prompt
        self._check(params)
        self._breakers = self._sequence_breakers()
        self._source = Source.of(params)
        if self._source is not None:
            session._engine._constraints.compile(self._source)
        self._constraint: Constraint | None = None
        self.seed = params.seed if params.seed is not None else secrets.randbits(64)
        self.stopped_by_text = False  # by one of the stop strings, when it is over
        self._pieces: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finish_reason: str | None = None
        self._failure: Exception | None = None
        self._prefill = Stats()  # what is known when the prompt is processed
        self._prefilled = self._counted = 0.0  # when that was, and when the last token came
        self._cancelled = False
        # Encoding and indexing a long prediction takes a while, so not in the midst of other texts.
        self._drafter = self._new_drafter(prompt[-1]) if prompt else None
        self._drafted, self._accepted = 0, 0
        self._attempt: tuple[int, int] | None = None  # what was drafted, and `_accepted` before
        self._revision = 0
        self._reading = threading.RLock()
        self._is_stepping = False
        self._is_scheduled = False
        self._may_draft = True
        self._steps = self._run()

    def _check(self, params: SamplingParams) -> None:
        vocab_size = self._session._engine.config.vocab_size
        options = (
            ("logit_bias", params.logit_bias),
            ("suppress_tokens", params.suppress_tokens),
            ("visible_tokens", params.visible_tokens),
            ("prediction", () if isinstance(params.prediction, str) else params.prediction or ()),
        )
        for name, tokens in options:
            for token in tokens:
                if token >= vocab_size:
                    raise InvalidOption(
                        f"`{name}`: token id {token} is not in the vocabulary of {vocab_size:,}"
                    )

    @property
    def params(self) -> SamplingParams:
        """How the tokens are chosen."""
        return self._params

    def __iter__(self) -> Iterator[str]:
        """Yield every piece of the text, from the first on, computing those that are missing."""
        position = 0
        while True:
            if position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            elif not self._advance() and position == len(self._pieces):
                return  # and no other reader has got the last one meanwhile

    def cancel(self) -> None:
        """Stop after the step that is running; may be called from any thread or signal handler."""
        self._cancelled = True

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The whole text, without the stop string that ended it."""
        return "".join(self._finished()._pieces)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The generated ids, without the one that ended the text."""
        return tuple(self._finished()._tokens)

    @property
    def finish_reason(self) -> str:
        """Why it ended.

        "stop": the model ended, a stop string came, or nothing can follow. "length": `max_tokens`
        or the context was reached. "cancelled": by `cancel`, or by Ctrl-C.
        """
        reason = self._finished()._finish_reason
        assert reason is not None
        return reason

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """One entry a token, if `SamplingParams.logprobs` asked for them; else empty."""
        return tuple(self._finished()._logprobs)

    @property
    def stats(self) -> Stats:
        """What it took."""
        return self._finished()._stats

    @property
    def _stats(self) -> Stats:
        """As far as it has come."""
        return replace(
            self._prefill,
            generated_tokens=len(self._tokens),
            drafted=self._drafted,
            accepted=self._accepted,
            decode_seconds=self._counted - self._prefilled,
        )

    def _finished(self) -> Generation:
        while self._advance():
            pass
        return self

    def _advance(self) -> bool:
        with self._reading:
            if self._is_stepping:  # this thread: an RLock lets no other in
                raise InvalidOption("The generation is being read already, by what was interrupted")
            if self._is_scheduled:
                raise InvalidOption("The generation is run by a scheduler; read what that hands on")
            if self._failure is not None:
                raise self._failure  # the steps are over, but not because the text is
            self._is_stepping = True
            try:
                self._pieces.append(self._next_piece())
            except StopIteration:
                return False
            except Exception as error:
                self._failure = error
                raise
            except BaseException:  # Ctrl-C
                self._finish_reason = "cancelled"
                raise
            finally:
                self._is_stepping = False
            return True

    def _next_piece(self) -> str:
        """Run the steps and the passes they ask for, up to the next piece of text."""
        event = next(self._steps)
        while isinstance(event, Pending):
            began = time.perf_counter()
            try:
                event.session._process(lambda: self._cancelled, event)
            except BaseException as error:
                event = self._steps.throw(error)
            else:
                event.seconds = time.perf_counter() - began
                event = next(self._steps)
        return event

    # ---- for the scheduler, which runs the passes of many ---------------------------------------

    def _resume(self, *, may_draft: bool) -> Pending | None:
        """Go on until a pass is needed, and return what it should process; None at the end."""
        with self._reading:
            self._is_scheduled, self._may_draft = True, may_draft
            try:
                for event in self._steps:
                    if isinstance(event, Pending):
                        return event
                    self._pieces.append(event)
            except Exception as error:
                self._failure = error
                raise
            return None

    def _end(self, error: Exception | None) -> None:
        """Go on no more: it is over anyway, or cancelled, or there was an error."""
        with self._reading:
            self._steps.close()
            self._is_scheduled = False
            self._failure = self._failure or error
            self._finish_reason = self._finish_reason or "cancelled"

    # ---- the loop -------------------------------------------------------------------------------

    def _run(self) -> Generator[Pending | str, None, None]:
        """Yield pieces of text, and before them what must be processed to know them."""
        session, params = self._session, self._params
        began = time.perf_counter()
        with session._exclusive():
            self._adopt_prompt()
            session._revision += 1
            self._revision = session._revision
            prompt_tokens = len(session)
            previous = session._tokens[-1]
            self._constraint = self._new_constraint(previous)
            pending = Pending(session)
            yield pending
            cached = pending.cached
            session._drop_draft()
            sampler = self._sampler() if session._next_logits is not None else None
            self._drafter = self._drafter or self._new_drafter(previous)
        self._prefilled = self._counted = time.perf_counter()
        self._prefill = Stats(prompt_tokens, cached, prefill_seconds=self._prefilled - began)
        if sampler is None:
            self._finish_reason = "cancelled"
            return
        stream = TextStream(
            session._engine.tokenizer,
            params.stop,
            previous=previous,
            visible=params.visible_tokens,
        )
        reason: str | None = None
        while (reason := reason or self._limit_reached()) is None:
            token = yield from self._step(sampler)
            if token is None:
                reason = "stop" if session._next_logits is not None else "cancelled"
                break
            piece = stream.push(token)
            ends = stream.stopped or (self._constraint is not None and self._constraint.is_complete)
            reason = "stop" if ends else None
            self._counted = time.perf_counter()
            if piece:
                yield piece
        self._finish_reason = reason
        self.stopped_by_text = stream.stopped
        with session._exclusive():
            session._drop_draft()
            # Who asks for no token reads ahead: let the one who then asks have nothing to compute.
            session._keep(with_logits=not self._tokens and reason == "length")
        rest = stream.finish()
        self._counted = time.perf_counter()
        if rest:
            yield rest

    def _step(self, sampler: _native.Sampler) -> Generator[Pending, None, int | None]:
        """Draw the next token and append it; None if the model ended, or the pass was cancelled."""
        session, engine = self._session, self._session._engine
        with session._exclusive():
            if session._revision != self._revision:
                raise InvalidOption(
                    "The session was changed while this generation was being read",
                    hint="finish one before the next, or give each a fork of the session",
                )
            if session._next_logits is None:
                yield from self._pass()
            if session._next_logits is None:
                return None
            logits = session._next_logits
            allowed = None
            if self._constraint is not None:
                mask = self._constraint.mask()
                if not mask.has_tokens:
                    return None
                allowed = mask.words
            token = sampler.sample(logits[: engine.num_tokens], len(session), allowed)
            if token in engine.stop_ids and not self._params.ignore_eos:
                return None
            if self._params.logprobs:
                self._logprobs.append(engine._logprobs_of(token, logits, self._params.logprobs))
            self._tokens.append(token)
            self._accepted += session._append_drawn(token)
        if self._constraint is not None:
            self._constraint.accept(token)
        if self._drafter is not None:
            self._drafter.take(token)
        if self._params.looks_back:
            sampler.accept(np.array([token], dtype=np.int32), True)
        return token

    def _pass(self) -> Generator[Pending, None, None]:
        """Ask for a pass over what is new, and guesses of what follows, if any pay."""
        session, drafter = self._session, self._drafter
        draft: list[int] = []
        if drafter is not None:
            if self._attempt is not None:
                drafted, before = self._attempt
                drafter.record(drafted, self._accepted - before)
            if self._may_draft:
                draft = self._draft(drafter, self._room() - 1)
        if self._constraint is not None:
            self._constraint.look_ahead(draft)
        pending = Pending(session, draft)
        yield pending
        # Who ran the pass may have dropped the guesses.
        drafted = len(pending.draft) if pending.is_done else 0
        self._drafted += drafted
        self._attempt = (drafted, self._accepted) if drafted else None
        if pending.seconds is not None:
            rows = pending.processed + len(pending.draft)
            session._engine._pass_costs.observe(rows, pending.seconds)

    def _draft(self, drafter: Drafter, limit: int) -> list[int]:
        """Return guesses of what follows; if the constraint leaves no choice, those."""
        session, constraint = self._session, self._constraint
        if constraint is not None and (forced := constraint.forced()):
            return drafter.draft_forced(forced, limit)
        draft = drafter.draft(session._tokens, session._ngrams(), limit)
        return draft if constraint is None else constraint.possible(draft)

    def _new_constraint(self, previous: int) -> Constraint | None:
        if self._source is None:
            return None
        constraint = self._session._engine._constraints.constraint(
            self._source,
            previous=previous,
            ignore_eos=self._params.ignore_eos,
            visible=self._params.visible_tokens,
        )
        constraint.look_ahead()  # while the prompt is processed
        return constraint

    def _room(self) -> int:
        """Return how many tokens may still come."""
        room = self._session._engine.context - len(self._session)
        limit = self._params.max_tokens
        return room if limit is None else min(room, limit - len(self._tokens))

    def _new_drafter(self, previous: int) -> Drafter | None:
        params, engine = self._params, self._session._engine
        if params.speculation == "off":
            return None
        if isinstance(params.prediction, str):
            prediction = engine.tokenizer.encode(params.prediction, previous=previous)
        else:
            prediction = list(params.prediction or ())
        count = params.speculation if isinstance(params.speculation, int) else None
        return Drafter(engine._pass_costs, prediction, count)

    def _adopt_prompt(self) -> None:
        """Bring the session to the prompt, if there is one."""
        if self._prompt is not None:
            self._session._adopt(self._prompt)
        elif not len(self._session):
            raise InvalidOption("`generate`: the session is empty", hint="feed it a prompt first")

    def _limit_reached(self) -> str | None:
        if self._cancelled:
            return "cancelled"
        return "length" if self._room() <= 0 else None

    def _sampler(self) -> _native.Sampler:
        p, engine = self._params, self._session._engine
        look_back = {
            name: -1 if getattr(p, name) is None else getattr(p, name)
            for name in ("repeat_last_n", "dry_penalty_last_n")
        }
        sampler = _native.Sampler(
            engine._executor,
            num_tokens=engine.num_tokens,
            temperature=p.temperature,
            top_k=p.top_k,
            typical_p=p.typical_p,
            top_p=p.top_p,
            min_p=p.min_p,
            repetition_penalty=p.repetition_penalty,
            presence_penalty=p.presence_penalty,
            frequency_penalty=p.frequency_penalty,
            dry_multiplier=p.dry_multiplier,
            dry_base=p.dry_base,
            dry_allowed_length=p.dry_allowed_length,
            dry_sequence_breakers=self._breakers,
            xtc_probability=p.xtc_probability,
            xtc_threshold=p.xtc_threshold,
            logit_bias=dict(p.logit_bias),
            suppress_tokens=p.suppress_tokens,
            seed=self.seed,
            choice=p.choice,
            **look_back,
        )
        if p.looks_back:
            sampler.accept(np.array(self._session._tokens, dtype=np.int32), False)
        return sampler

    def _sequence_breakers(self) -> set[int]:
        """Return the ids whose text contains one of `dry_sequence_breakers`."""
        ids: set[int] = set()
        if self._params.dry_multiplier:
            tokenizer = self._session._engine.tokenizer
            for text in self._params.dry_sequence_breakers:
                found = tokenizer.ids_containing(text)
                if not found:
                    raise InvalidOption(
                        f"`dry_sequence_breakers`: no token contains {shown(text)}",
                        hint="a breaker is looked for within tokens; take a shorter one",
                    )
                ids |= found
        return ids
