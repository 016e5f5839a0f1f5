"""The messages of a request to ids, by the model's chat template, within the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferno.excerpt import shown
from inferno.server.failures import invalid, too_long, unsupported
from inferno.server.fields import Fields, wrong
from inferno.server.messages import messages_of

if TYPE_CHECKING:
    from inferno.engine import Engine

# What the template is given by name already, or must not be.
RESERVED_VARIABLES = frozenset(
    {"self", "tokenizer", "messages", "tools", "add_generation_prompt", "continue_final_message",
     "bos_token", "eos_token"}
)  # fmt: skip


@dataclass(frozen=True)
class ChatPrompt:
    """The messages of a request, checked, and how the template is to render them."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    variables: dict[str, Any]
    add_generation_prompt: bool
    continue_final_message: bool
    drops_oldest_turns: bool

    def ids(self, engine: Engine) -> tuple[list[int], int]:
        """Return the ids, and how many messages were dropped for them to fit. Takes a while.

        Raises:
            RequestFailed: they do not fit, and nothing more may be dropped.
            InfernoError: the messages are wrong, or the template refused them.
        """
        ids = self._encode(engine, self.messages)
        if len(ids) <= engine.context:
            return ids, 0
        if not self.drops_oldest_turns:
            raise too_long(len(ids), engine.context)
        return self._fitting(engine, len(ids))

    def text(self, engine: Engine) -> str:
        """Return the prompt as the template writes it. Takes a while."""
        return engine.render_chat(
            self.messages,
            self.add_generation_prompt,
            self.tools,
            continue_final_message=self.continue_final_message,
            **self.variables,
        )

    def _encode(self, engine: Engine, messages: Sequence[dict[str, Any]]) -> list[int]:
        return engine.encode_chat(
            messages,
            self.add_generation_prompt,
            self.tools,
            continue_final_message=self.continue_final_message,
            **self.variables,
        )

    def _fitting(self, engine: Engine, whole: int) -> tuple[list[int], int]:
        """Drop the fewest of the oldest turns, whole ones; never a system message, nor the last."""
        is_system = [m.get("role") in ("system", "developer") for m in self.messages]
        # A turn begins with a user's message; the newest is what is to be answered.
        starts = [i for i, m in enumerate(self.messages) if m.get("role") == "user"]
        low, high, best = 1, len(starts) - 1, None
        while low <= high:
            turns = (low + high) // 2
            kept = [m for i, m in enumerate(self.messages) if is_system[i] or i >= starts[turns]]
            ids = self._encode(engine, kept)
            if len(ids) <= engine.context:
                best, high = (ids, len(self.messages) - len(kept)), turns - 1
            else:
                low = turns + 1
        if best is None:
            raise too_long(whole, engine.context)
        return best


def chat_prompt_of(
    fields: Fields, engine: Engine, tools: list[dict[str, Any]] | None = None
) -> ChatPrompt:
    """Read the fields that make the prompt of a chat but `tools`. Raises RequestFailed."""
    messages = messages_of(fields, engine)
    fields.refuse("audio", "this model makes no sound")
    if fields.take("modalities") not in (None, ["text"]):
        raise unsupported("modalities", '`modalities`: expected ["text"], this model makes text')
    fields.ignore("web_search_options")
    variables = fields.mapping("chat_template_kwargs") or {}
    for name in variables:
        if not name.isidentifier() or name in RESERVED_VARIABLES:
            raise invalid(
                "chat_template_kwargs", f"`chat_template_kwargs`: {shown(name)} cannot be set"
            )
    effort = fields.take("reasoning_effort")
    if effort is not None:
        if "reasoning_effort" in engine.template.template:
            variables = {"reasoning_effort": effort, **variables}
        else:
            fields.note("reasoning_effort")
    # As with llama.cpp, a reply that has begun is gone on with.
    is_begun = messages[-1].get("role") == "assistant" and "tool_calls" not in messages[-1]
    adds = fields.has("add_generation_prompt") and fields.flag("add_generation_prompt")
    continues = fields.flag("continue_final_message", is_begun and not adds)
    truncation = fields.one_of("truncation", ("disabled", "auto", "oldest_turns"))
    return ChatPrompt(
        messages,
        tools,
        variables,
        fields.flag("add_generation_prompt", not continues),
        continues,
        truncation == "oldest_turns",
    )


def completion_ids(fields: Fields, engine: Engine, most: int = 1) -> list[list[int]]:
    """Return the ids of each prompt of a completion: text, ids, or a list of at most so many.

    Control tokens in the text count, as there is no template. Takes a while. Raises RequestFailed.
    """
    prompt, suffix = fields.take("prompt"), fields.text("suffix")
    if prompt is None:
        prompt = "" if suffix is None else prompt
    if isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt and all(_is_id(id) for id in prompt)
    ):
        prompts = [prompt]
    elif isinstance(prompt, list) and prompt:
        prompts = prompt
    else:
        raise wrong("prompt", "text, ids, or a list of either", prompt)
    if len(prompts) > most:
        raise invalid("prompt", f"`prompt`: expected at most {most:,}, found {len(prompts):,}")
    if suffix is not None:
        prompts = [_infill(text, suffix, engine) for text in prompts]
    found = []
    for index, one in enumerate(prompts):
        if not isinstance(one, (str, list)):
            raise wrong(f"prompt[{index}]", "text or ids", one)
        ids = engine.encode_prompt(one)
        if not ids:
            raise invalid("prompt", "`prompt`: expected some text: this model has no BOS token")
        if len(ids) > engine.context:
            raise too_long(len(ids), engine.context, "prompt")
        found.append(ids)
    return found


# How vocabularies write the three markers of a text with a hole: Qwen and others, StarCoder and
# others, Code Llama.
INFILL_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
)


def _infill(prefix: Any, suffix: str, engine: Engine) -> list[int]:
    """Return the ids of the text between two, in the order prefix, suffix, middle."""
    if not isinstance(prefix, str):
        raise wrong("prompt", "text, with `suffix`", prefix)
    markers = infill_markers(engine)
    if markers is None:
        raise unsupported("suffix", "`suffix`: this model has no tokens for filling in")
    tokenizer = engine.tokenizer
    before, after, middle = markers
    head = tokenizer.encode(prefix, previous=before)
    tail = tokenizer.encode(suffix, previous=after)
    bos = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    return [*bos, before, *head, after, *tail, middle]


def infill_markers(engine: Engine) -> tuple[int, int, int] | None:
    """Return the tokens before a text, before its end, and before what is between; or None."""
    for markers in INFILL_MARKERS:
        before, after, middle = (engine.tokenizer.token_id(marker) for marker in markers)
        if before is not None and after is not None and middle is not None:
            return before, after, middle
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
