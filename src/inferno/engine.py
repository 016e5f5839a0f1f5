"""A loaded model and everything around it: tokenizer, template, threads, native core.

Owns what sessions share. Knows no HTTP and no terminal.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from inferno import _native, hub
from inferno.catalogue import entry_of
from inferno.chat import ChatTemplate
from inferno.config import ModelConfig
from inferno.constraint import Constraints
from inferno.errors import InvalidCheckpoint, InvalidOption, InvalidText
from inferno.excerpt import shown
from inferno.generation import Generation, TokenLogprobs
from inferno.graph import Floats
from inferno.loading import (
    KV_CACHE_TYPES,
    LoadedModel,
    Progress,
    checked_kv_cache,
    load_model,
)
from inferno.machine import MAX_THREADS, default_threads
from inferno.options import SamplingParams
from inferno.passes import InTurn, at_once, hidden_blocks, logit_blocks
from inferno.prefix_cache import PAGE_POSITIONS, PrefixCache
from inferno.recipes import weight_choices
from inferno.scoring import POOLINGS, Score, pooled
from inferno.session import Rows, Session, context_full
from inferno.speculation import PassCosts
from inferno.token_ids import checked_ids
from inferno.tokenizer import Tokenizer, tokenizer_for
from inferno.weights import open_checkpoint


@dataclass(frozen=True)
class Memory:
    """What an engine takes, in bytes.

    Attributes:
        weights: the packed weights; there is no second copy.
        kv_cache_per_token: the keys and values of one position of one session.
        scratch: the activations of the largest forward pass so far; 0 before the first one.
    """

    weights: int
    kv_cache_per_token: int
    scratch: int


class Engine:
    """A model, ready to run; made by `Engine.load`.

    It is immutable but for its scratch and its prefix cache. Any number of sessions and threads of
    Python may use it; their forward passes take turns. It cannot be copied or pickled.

    Attributes:
        config (ModelConfig): the model's numbers, by their names in config.json: `hidden_size`,
            `vocab_size`, …
        tokenizer (Tokenizer): `encode(text, special=False)` makes ids of a text, `decode(ids)` a
            text of ids. With `special`, what looks like a control token is one.
        template (ChatTemplate): the model's chat template; for one that has none, ChatML's or
            Zephyr's.
        context (int): positions that a session can hold.
        isa (str): the instruction set of the kernels.
        threads (int): how many threads run a forward pass.
        weight_formats (tuple[str, ...]): the formats of the matrices, the largest share first.
        kv_cache (str): the type of cached keys and values.
        num_parameters (int): how many weights the checkpoint has.
        load_seconds (float): how long loading took, without fetching.
        system (str | None): the system message of chats that have none; None leaves it to the
            template.
        stop_ids (frozenset[int]): the ids that end a text.
        prefix_cache (PrefixCache): what any session has processed, for all of them; its `capacity`
            is in bytes, and 0 keeps nothing.
    """

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        loaded: LoadedModel,
        threads: _native.ThreadPool,
        isa: str,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.template = template
        self.context = loaded.context
        self.isa = isa
        self.threads = threads.size
        self.weight_formats = loaded.formats
        self.kv_cache = loaded.kv_cache
        self.load_seconds = 0.0
        self.num_parameters = 0
        self.system: str | None = None  # the system message of chats that have none
        self.stop_ids = frozenset({*config.eos_token_ids, *tokenizer.eos_ids})
        self.num_tokens = min(config.vocab_size, tokenizer.vocab_size)
        self._loaded = loaded
        self._pool = threads
        self._executor = _native.Executor(loaded.model, threads, isa)
        self._constraints = Constraints(tokenizer, self.num_tokens, self.stop_ids)
        self.prefix_cache = PrefixCache(loaded.pages, loaded.cache_bytes)
        self._pass_costs = PassCosts()

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        weights: str | None = None,
        threads: int | None = None,
        context: int | None = None,
        kv_cache: str = KV_CACHE_TYPES[0],
        isa: str | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Load a model, fetching it first if it is not here.

        Args:
            model: a `.gguf` file (the first of a split set), a directory with config.json and
                safetensors, a name of the catalogue, `hf.co/org/repo` with `:` and a file or type
                after it, or `ollama:name`.
            weights: quantize float weights while loading: "q4_0", "q4_k_m", "q8_0", "f16", …
                None keeps the types of the file, or does what the catalogue says of the model.
            threads: worker threads, 1 to 256; None for INFERNO_THREADS, or as many as the machine
                can spare.
            context: positions that a session can hold; None for the model's, or what fits in
                memory.
            kv_cache: type of cached keys and values: "f16" (the default), "f32" (twice the
                memory), or "q8_0" (half of it, for a small loss).
            isa: an instruction set; None for INFERNO_ISA, or the best of this CPU. It changes the
                speed, and no bit of a result.
            progress: called with (what, done bytes, total bytes) while fetching and loading; a
                total of 0 is not known.

        Raises:
            ModelNotFound: there is no such model.
            DownloadFailed: it could not be fetched.
            AccessDenied: its repository wants a token, or a licence accepted.
            InvalidCheckpoint: its files are damaged, or contradict themselves.
            UnsupportedModel: it has an architecture, a feature or a format that is not here yet.
            InvalidOption: an argument is not what is described above.
            OutOfMemory: it would not fit.
        """
        kv_cache = checked_kv_cache(kv_cache)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise InvalidOption(f"`threads`: expected an integer, found {shown(threads)}")
        if isa is not None and not isinstance(isa, str):
            raise InvalidOption(f"`isa`: expected a name, found {shown(isa)}")
        if progress is not None and not callable(progress):
            raise InvalidOption(f"`progress`: expected a function, found {shown(progress)}")
        isa = _chosen_isa(isa if isa is not None else os.environ.get("INFERNO_ISA", ""))
        threads = threads if threads is not None else default_threads()
        if not 1 <= threads <= MAX_THREADS:
            raise InvalidOption(f"`threads`: expected 1 to {MAX_THREADS}, found {shown(threads)}")
        pool = _native.ThreadPool(threads)
        report = progress or (lambda what, done, total: None)
        entry = entry_of(model)
        if weights is None and entry is not None:
            weights = entry.weights
        path = _quantized(model, weights) or hub.resolve(model, progress=report)
        began = time.perf_counter()  # fetching is not loading
        with open_checkpoint(path) as checkpoint:
            config = checkpoint.config
            if entry is not None:
                generation = {**entry.sampling, **config.generation}
                config = replace(config, name=entry.name, generation=generation)
            tokenizer = tokenizer_for(checkpoint)
            if tokenizer.vocab_size > checkpoint.config.vocab_size:
                raise InvalidCheckpoint(
                    f"Tokenizer: expected at most {checkpoint.config.vocab_size:,} tokens, "
                    f"the model's vocab_size, found {tokenizer.vocab_size:,}",
                    hint="the tokenizer is of another model",
                )
            template = ChatTemplate.of_model(checkpoint.chat_template, tokenizer)
            loaded = load_model(
                checkpoint,
                pool,
                weights=weights,
                context=context,
                kv_cache=kv_cache,
                progress=report,
            )
            engine = cls(config, tokenizer, template, loaded, pool, isa)
            engine.system = entry.system if entry is not None else None
            engine.num_parameters = sum(prod(t.shape) for t in checkpoint.tensors.values())
        engine.load_seconds = time.perf_counter() - began
        return engine

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Engine cannot be pickled or copied; load it again where it is needed")

    @property
    def memory(self) -> Memory:
        """What the engine takes, in bytes."""
        return Memory(
            self._loaded.model.weight_bytes,
            self._loaded.pages.bytes_per_position,
            self._executor.scratch_bytes,
        )

    def new_session(self) -> Session:
        """Return an empty session; it takes no memory before it holds tokens."""
        return Session(self)

    def generate(
        self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any
    ) -> Generation:
        """Continue a raw prompt, without a template.

        Args:
            prompt: text, in which control tokens count, or ids. Not for text that others wrote:
                for that, pass the ids that `tokenizer.encode` makes of it.
            params: how to choose tokens; None for the model's own defaults.
            overrides: fields of `SamplingParams` that replace those of `params`.

        Returns:
            A reply that is computed as it is read.

        Raises:
            InvalidOption: an override is unknown or out of range, or an id not in the vocabulary.
            InvalidText: the prompt is empty, or no Unicode.
            ContextFull: the prompt does not fit.
        """
        ids = self._prompt_ids(prompt)
        return self._generation(self.new_session(), ids, self._params(params, overrides))

    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        session: Session | None = None,
        **overrides: Any,
    ) -> Generation:
        """Answer messages, through the model's own template.

        Args:
            messages: `[{"role": "user", "content": "…"}, …]`, or one text as the user's. In them
                control tokens are only text. If none is a system message, they get
                `Engine.system`, if the catalogue has one for the model.
            params: how to choose tokens; None for the model's own defaults.
            session: what it has in common with the prompt is not processed again; it then holds
                the prompt and the reply.
            overrides: fields of `SamplingParams` that replace those of `params`.

        Returns:
            A reply that is computed as it is read.

        Raises:
            TemplateError: the template refuses the messages, or fails.
            InvalidOption: an override is unknown or out of range, or the session is of another
                engine.
            InvalidText: a message is no Unicode.
            ContextFull: the prompt does not fit.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        ids = self.encode_chat(messages)
        if session is not None and not isinstance(session, Session):
            raise InvalidOption(f"`session`: expected a Session, found {shown(session)}")
        if session is not None and session._engine is not self:
            raise InvalidOption("`session`: it belongs to another engine")
        return self._generation(
            session if session is not None else self.new_session(),
            ids,
            self._params(params, overrides),
        )

    def encode_prompt(self, text_or_ids: str | Iterable[int]) -> list[int]:
        """Return the ids of a raw prompt as `generate` has them: with BOS, if it is wanted."""
        return self._prompt_ids(text_or_ids)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[int]:
        """Return the ids of the prompt that `chat` answers.

        Args:
            messages: as for `chat`.
            add_generation_prompt: end with what begins the assistant's turn.
            tools: descriptions of functions, as OpenAI's interface has them, for the template.
            continue_final_message: leave the last message open, to be gone on with.
            variables: further variables of the template, such as `enable_thinking`.

        Raises:
            TemplateError: the template refuses the messages, or fails.
        """
        return self.template.encode(
            self.tokenizer,
            self._with_system(messages),
            add_generation_prompt,
            tools,
            continue_final_message=continue_final_message,
            **variables,
        )

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Return the same prompt as text, to be looked at.

        Do not feed it to a model: what looks like a control token in a message is one in this text.
        """
        return self.template.render(
            self._with_system(messages),
            add_generation_prompt,
            tools,
            continue_final_message=continue_final_message,
            **variables,
        )

    def logits(self, ids: Iterable[int]) -> Floats:
        """Return the logits after each of `ids`, from an empty cache: (len(ids), vocab_size) f32.

        The same ids give the same bits on any number of threads, in any instruction set.

        Raises:
            InvalidOption: an id is not in the vocabulary.
            ContextFull: there are more ids than the context has positions.
        """
        checked = checked_ids(ids, self.config.vocab_size, self.context)
        rows = list(logit_blocks(self, checked))
        return np.concatenate(rows) if rows else np.empty((0, self.config.vocab_size), np.float32)

    def score(self, text_or_ids: str | Iterable[int]) -> Score:
        """Return the log probability of each token of a raw prompt, given those before it.

        Raises:
            ContextFull: the text is longer than the context; `evaluation.evaluate` goes through
                longer ones in windows.
        """
        ids = self._prompt_ids(text_or_ids)
        logprobs: list[float] = []
        position = 1
        for block in logit_blocks(self, ids):
            for logits in block:
                if position < len(ids):
                    total = self._executor.log_sum_exp(logits)
                    logprobs.append(float(logits[ids[position]]) - total)
                position += 1
        return Score(tuple(ids), np.array(logprobs, dtype=np.float32))

    def token_logprobs(
        self, text_or_ids: str | Iterable[int], top: int = 0, *, in_turn: InTurn = at_once
    ) -> list[TokenLogprobs | None]:
        """Return for each token its log probability given those before it; None for the first.

        Args:
            text_or_ids: a raw prompt.
            top: so many of the most likely tokens at the same place come with it.
            in_turn: as in `embed`.

        Raises:
            ContextFull: the text is longer than the context.
        """
        if isinstance(top, bool) or not isinstance(top, int) or top < 0:
            raise InvalidOption(f"`top`: expected an integer from 0 on, found {shown(top)}")
        ids = self._prompt_ids(text_or_ids)
        found: list[TokenLogprobs | None] = [None] if ids else []
        for block in logit_blocks(self, ids, in_turn=in_turn):
            for logits in block:
                if len(found) < len(ids):
                    found.append(self._logprobs_of(ids[len(found)], logits, top))
        return found

    def embed(
        self,
        texts: Iterable[str | Iterable[int]],
        pooling: str = "mean",
        *,
        in_turn: InTurn = at_once,
    ) -> Floats:
        """Return a vector of length 1 for each text: (n, hidden_size) f32.

        Args:
            texts: texts, in which control tokens are only text, or ids. Texts get the token that
                this model begins every text with, if it has one.
            pooling: what becomes of the hidden states after the last norm, one a token: "mean",
                "last", or "cls", which is the first.
            in_turn: calls what it is given when a forward pass may run, with the rows that it may
                have; that returns the rows it had (`Scheduler.in_turn`).

        Raises:
            InvalidOption: another pooling, or no list.
            InvalidText: a text is empty.
            ContextFull: a text is longer than the context.
        """
        if pooling not in POOLINGS:
            raise InvalidOption(
                f"`pooling`: expected one of {', '.join(POOLINGS)}, found {shown(pooling)}"
            )
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InvalidOption(
                f"`texts`: expected a list of texts, found {shown(texts)}",
                hint="put a single text in a list",
            )
        all_ids = [self._ids_to_embed(number, text) for number, text in enumerate(texts)]
        vectors = np.empty((len(all_ids), self.config.hidden_size), np.float32)
        states: list[Floats] = []
        for number, rows in hidden_blocks(self, all_ids, in_turn):
            states.append(rows)
            if sum(map(len, states)) == len(all_ids[number]):
                vectors[number] = pooled(np.concatenate(states), pooling)
                states = []
        return vectors

    # ---- for sessions ---------------------------------------------------------------------------

    def _with_system(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        if self.system is None or _has_system(messages):
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def _logprobs_of(self, token: int, logits: Floats, top: int) -> TokenLogprobs:
        total = self._executor.log_sum_exp(logits)
        best = _native.top_logits(logits[: self.num_tokens], top)
        return TokenLogprobs(
            token, float(logits[token]) - total, tuple((i, logit - total) for i, logit in best)
        )

    def _forward(self, batch: list[Rows]) -> Floats:
        """Run a pass (see `Executor.forward`); for its new pages, older ones are given up."""
        self._make_room(batch)
        return self._executor.forward(batch)

    def _forward_hidden(self, batch: list[Rows]) -> Floats:
        """Run a pass for what its rows are after the last norm, instead of logits."""
        self._make_room(batch)
        return self._executor.forward_hidden(batch)

    def _make_room(self, batch: list[Rows]) -> None:
        pages = 0
        for cache, ids, _ in batch:
            length = len(cache)
            pages += -(-(length + len(ids)) // PAGE_POSITIONS) - length // PAGE_POSITIONS
        self.prefix_cache.make_room(pages)

    def _new_cache(self) -> _native.KvCache:
        return _native.KvCache(self._loaded.pages)

    def _ids_to_embed(self, number: int, text: str | Iterable[int]) -> list[int]:
        if isinstance(text, str):
            ids = self.tokenizer.encode(text)
            if self.tokenizer.adds_bos and self.tokenizer.bos_id is not None:
                ids = [self.tokenizer.bos_id, *ids]
        else:
            ids = self._prompt_ids(text)
        if not ids:
            raise InvalidText(
                f"`texts`: expected at least one token in each, found {shown(text)} at {number}",
                hint="this model starts no text by itself (no BOS)",
            )
        if len(ids) > self.context:
            raise context_full(0, len(ids), self)
        return ids

    def _generation(
        self, session: Session, ids: Sequence[int], params: SamplingParams
    ) -> Generation:
        if not ids:
            raise InvalidText(
                "The prompt is empty", hint="this model starts no text by itself (no BOS)"
            )
        if len(ids) > self.context:
            raise context_full(0, len(ids), self)
        return Generation(session, params, ids)

    def _params(
        self, params: SamplingParams | None, overrides: Mapping[str, Any]
    ) -> SamplingParams:
        """Merge: defaults, then the model's generation config, then what the caller said."""
        if params is None:
            params = SamplingParams().merged(**self.config.generation)
        elif not isinstance(params, SamplingParams):
            raise InvalidOption(f"`params`: expected SamplingParams, found {shown(params)}")
        return params.merged(**overrides)

    def _prompt_ids(
        self, text_or_ids: str | Iterable[int], *, previous: int | None = None
    ) -> list[int]:
        """Return ids; of text, as it reads after the token `previous` or at the start."""
        if not isinstance(text_or_ids, (str, bytes, bytearray, memoryview)):
            return checked_ids(text_or_ids, self.config.vocab_size, self.context)
        text = text_or_ids if isinstance(text_or_ids, str) else bytes(text_or_ids)
        ids = self.tokenizer.encode(text, special=True, previous=previous)
        bos = self.tokenizer.bos_id
        if previous is None and self.tokenizer.adds_bos and bos is not None and ids[:1] != [bos]:
            ids = [bos, *ids]
        return ids


def _has_system(messages: object) -> bool:
    """Tell whether a system message is there, or anything else that the template will refuse."""
    if not isinstance(messages, (list, tuple)):
        return True
    return any(not isinstance(m, Mapping) or m.get("role") == "system" for m in messages)


def _quantized(model: str | os.PathLike[str], weights: str | None) -> Path | None:
    """Return the copy of `model` that was quantized to `weights` before, if there is one."""
    path = hub.quantized_path(model, weights) if weights in weight_choices() else None
    return path if path is not None and path.is_file() else None


def _chosen_isa(name: str) -> str:
    """Return the instruction set `name`, or the best for an empty name."""
    if not (name.isascii() and name.isprintable()):  # no name of ours, and half of it may not cross
        raise InvalidOption(
            f"`isa`: expected one of {', '.join(_native.isas())}, found {shown(name)}"
        )
    chosen = _native.choose_isa(name)
    if chosen == "scalar" and not name:
        warnings.warn(
            "This CPU has none of the vector instructions that the kernels are written for, or a "
            "virtual machine hides them: plain C++ runs, some 30 times slower than AVX2",
            RuntimeWarning,
            stacklevel=3,
        )
    return chosen
