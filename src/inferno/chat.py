"""Messages to a prompt, through the model's own chat template.

Control tokens come from the template alone: what users write is disguised while the template
renders, so `<|im_end|>` in a message stays eleven characters of text. Knows nothing of sampling,
sessions or the wire.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferno.errors import InvalidOption, InvalidText, TemplateError
from inferno.excerpt import shown
from inferno.tokenizer import checked_text

if TYPE_CHECKING:
    import jinja2

    from inferno.tokenizer import Tokenizer

# For models that carry no template. ChatML if the vocabulary has its tokens, else the format of
# Zephyr and TinyLlama, whose markers are plain text that any vocabulary can spell.
CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
ZEPHYR = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}
"""

MAX_TEMPLATE_CHARACTERS = 1 << 20  # the longest known template has 30,000
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
# How Jinja says that it does not know a feature.
_UNKNOWN_FEATURE = re.compile(
    r"(?:Encountered unknown tag|No (?P<kind>filter|test) named) '(?P<name>[^']*)'\..*", re.DOTALL
)
PRIVATE_USE = range(0xE000, 0xF900)


class ChatTemplate:
    """A chat template, compiled; `bos_token` and `eos_token` are what it may write."""

    def __init__(self, template: str, bos_token: str = "", eos_token: str = "") -> None:
        """Compile `template`.

        Raises:
            TemplateError: it is no valid Jinja2, or longer than any sane template.
        """
        if len(template) > MAX_TEMPLATE_CHARACTERS:
            raise TemplateError(
                f"Chat template: expected at most {MAX_TEMPLATE_CHARACTERS:,} characters, "
                f"found {len(template):,}"
            )
        self.template = template
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._compiled  # noqa: B018 - find syntax errors now

    @classmethod
    def of_model(cls, template: str | None, tokenizer: Tokenizer) -> ChatTemplate:
        """Return a model's own template, or a fallback: ChatML or Zephyr, by its vocabulary.

        Raises:
            TemplateError: `template` is no valid Jinja2.
        """
        if template is None:
            chatml = {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.control_tokens)
            template = CHATML if chatml else ZEPHYR
        bos = "" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id)
        eos = tokenizer.token_text(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""
        return cls(template, bos, eos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Return the prompt as text; tokenizing it is `encode`'s business, which trusts no message.

        `messages` are `{"role", "content"}`; content is a string, a list of text parts, or None.
        With `continue_final_message` the last message stays open, to be written on, and no
        generation prompt is added.

        Raises:
            InvalidOption: messages of the wrong shape.
            InvalidText: a string with lone surrogates.
            TemplateError: the template refused the messages, failed, or ran away.
        """
        return self._render(
            _checked_messages(messages),
            add_generation_prompt,
            _plain(tools, "tools"),
            continue_final_message,
            _plain(variables, "variables"),
        )

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[int]:
        """Return the ids of the prompt, in which control tokens are the template's alone.

        BOS is there once if the tokenizer wants it, whether or not the template writes it.

        Raises:
            As `render`.
        """
        disguise = _Disguise(tokenizer, self.template)
        plain = (
            _checked_messages(messages),
            _plain(tools, "tools"),
            _plain(variables, "variables"),
        )
        disguise.see(plain)
        roles = [disguise.role(message["role"]) for message in plain[0]]
        inputs, tools_, variables_ = (disguise.apply(value) for value in plain)
        for message, role in zip(inputs, roles, strict=True):
            message["role"] = role
        prompt = self._render(
            inputs, add_generation_prompt, tools_, continue_final_message, variables_
        )
        if disguise.stand_ins:
            ids = tokenizer.encode_disguised(prompt, disguise.stand_ins)
        else:
            ids = tokenizer.encode(prompt, special=True)
        if tokenizer.adds_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
            ids.insert(0, tokenizer.bos_id)
        return ids

    @functools.cached_property
    def _compiled(self) -> jinja2.Template:
        from inferno.template_environment import BoundedEnvironment

        return self._compile(BoundedEnvironment)

    @functools.cached_property
    def _compiled_mutable(self) -> jinja2.Template:
        from inferno.template_environment import MutableBoundedEnvironment

        return self._compile(MutableBoundedEnvironment)

    def _compile(self, environment: Callable[[], jinja2.Environment]) -> jinja2.Template:
        import jinja2

        from inferno.template_environment import bounded

        try:
            with bounded():
                return environment().from_string(self.template)
        except jinja2.TemplateSyntaxError as error:
            feature = _UNKNOWN_FEATURE.fullmatch(error.message or "")
            if feature:
                kind = feature["kind"] or "tag"
                raise TemplateError(
                    f"Chat template, line {error.lineno}: the {kind} `{feature['name']}` is not "
                    "one that chat templates have",
                    hint="they are Jinja2's as `transformers` sets it up, in one file; look for "
                    "another conversion of the model",
                ) from None
            raise TemplateError(
                f"Chat template, line {error.lineno}: {error.message}",
                hint="the template comes with the model; is its file damaged?",
            ) from None
        except Exception as error:
            raise TemplateError(f"Chat template does not compile: {_described(error)}") from None

    def _render(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        tools: Any,
        continue_final_message: bool,
        variables: dict[str, Any],
    ) -> str:
        """Render checked inputs, up to the end of the last message if it is to be continued."""
        tag = ""
        if continue_final_message:
            seen = {self.template, *_strings([messages, tools, variables])}
            tag = next(_unused_characters(seen))
            if not isinstance(messages[-1].get("content"), str):
                raise InvalidOption(
                    f"`messages[{len(messages) - 1}].content`: expected text to continue, "
                    "found none"
                )
            # The space tells whether the template trims what follows the text.
            messages[-1]["content"] += tag + " "
        inputs = {
            "documents": None,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            **variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        prompt = self._run(inputs)
        if not continue_final_message:
            return prompt
        head, found, rest = prompt.rpartition(tag)
        if not found:
            raise TemplateError("the template leaves out the message that is to be continued")
        return head if rest.startswith(" ") else head.rstrip()

    def _run(self, inputs: dict[str, Any]) -> str:
        """Run the template, once more with lists that can change, or "" for missing content."""
        import jinja2

        from inferno.template_environment import TooMuchWork, bounded

        def attempt(template: jinja2.Template) -> str:
            with bounded():  # a copy, for a template may change what it is given
                return template.render(_plain(inputs, "inputs"))

        def attempt_either() -> str:
            try:
                return attempt(self._compiled)
            except jinja2.exceptions.SecurityError:
                return attempt(self._compiled_mutable)

        try:
            try:
                return attempt_either()
            except (jinja2.UndefinedError, TypeError):
                if all("content" in message for message in inputs["messages"]):
                    raise
                # Templates differ in what they make of an assistant turn with only tool calls.
                for message in inputs["messages"]:
                    message.setdefault("content", "")
                return attempt_either()
        except TooMuchWork as error:
            raise TemplateError(
                f"Chat template ran away: {error}", hint="the template comes with the model"
            ) from None
        except jinja2.TemplateRuntimeError as error:  # a name, test or right that it lacks
            raise TemplateError(f"Chat template failed: {error}") from None
        except jinja2.TemplateError as error:
            raise TemplateError(str(error)) from None  # raise_exception: the template's own words
        except Exception as error:
            raise TemplateError(f"Chat template failed: {_described(error)}") from None


class _Disguise:
    """Replaces characters of user text by private-use ones, so that no control token matches.

    The first character of every look-alike is replaced: also that of a beginning at the end of a
    string, which the next string might complete. One character stands for one, so lengths, `trim`,
    `split` and `in` see what they would have seen. `stand_ins` maps each replacement, as it may
    turn up in a prompt, to what it stands for.
    """

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        self.stand_ins: dict[str, str] = {}
        self._tokens = tuple(tokenizer.control_tokens)
        self._look_alike, self._beginnings, self._longest = _look_alikes(self._tokens)
        self._template = template
        self._replacements: dict[str, str] = {}
        self._seen = {template}

    def see(self, value: Any) -> None:
        """Note the strings in `value`; no character of theirs may become a replacement."""
        self._seen.update(_strings(value))

    @functools.cached_property
    def _unused(self) -> Iterator[str]:
        return _unused_characters(self._seen)

    def apply(self, value: Any) -> Any:
        """Return `value` with all strings in it disguised, keys included."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self.apply(key): self.apply(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.apply(item) for item in value]
        return value

    def role(self, role: str) -> str:
        """Return `role` disguised also where the template might build a control token of it.

        `'<|' + role + '|>'` is how some templates write `<|user|>`; with the role `im_end` it
        would end the turn. A role that the template names itself is its own affair.
        """
        named = role in ROLES or f"'{role}'" in self._template or f'"{role}"' in self._template
        if not named and any(role in token for token in self._tokens):
            # Not a letter if possible, for templates that write roles in capitals.
            return self._replace(
                role,
                {next((spot for spot, character in enumerate(role) if not character.isalpha()), 0)},
            )
        return self._text(role)

    def _text(self, text: str) -> str:
        spots = {match.start() for match in self._look_alike.finditer(text)}
        for end in {len(text), len(text.rstrip())}:
            spots |= {
                end - length
                for length in range(1, min(end, self._longest) + 1)
                if text[end - length : end] in self._beginnings
            }
        return self._replace(text, spots) if spots else text

    def _replace(self, text: str, spots: set[int]) -> str:
        characters = list(text)
        for spot in spots:
            original = characters[spot]
            if original not in self._replacements:
                stand_in = self._replacements[original] = next(self._unused)
                # JSON that a template writes in ASCII spells the stand-in as an escape.
                self.stand_ins |= {stand_in: original, f"\\u{ord(stand_in):04x}": original}
            characters[spot] = self._replacements[original]
        return "".join(characters)


@functools.lru_cache(maxsize=4)
def _look_alikes(tokens: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str], int]:
    """Return a pattern for the places where any of `tokens` begins, their beginnings, and how long
    the longest of these is."""
    starts = "|".join(sorted({re.escape(token[:3]) for token in tokens}))
    whole = "|".join(map(re.escape, tokens))
    pattern = re.compile(f"(?=(?:{starts}))(?={whole})" if tokens else r"(?!)")
    # Beginnings that are letters are left alone: half of all words end with a letter of a token.
    beginnings = frozenset(
        token[:length]
        for token in tokens
        if len(token) <= 256 and not token[0].isalnum()
        for length in range(1, len(token))
    )
    return pattern, beginnings, max(map(len, beginnings), default=0)


def _unused_characters(texts: Collection[str]) -> Iterator[str]:
    """Yield the private-use characters that `texts` contain neither plain nor as JSON escapes.

    Raises:
        InvalidText: there is none left.
    """
    used = set().union(*texts)
    escaped = [text.lower() for text in texts if "\\u" in text]
    for code in PRIVATE_USE:
        if chr(code) not in used and not any(f"\\u{code:04x}" in text for text in escaped):
            yield chr(code)
    raise InvalidText("Messages: expected ordinary text, found every private-use character in it")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _checked_messages(messages: Any) -> list[dict[str, Any]]:
    """Return `messages` as fresh plain data, contents as strings, keys that are None left out."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidOption(
            f"`messages`: expected a list of messages, found {type(messages).__name__}",
            hint='a message is {"role": "user", "content": "Hello"}',
        )
    if not messages:
        raise InvalidOption("`messages`: expected at least one message, found none")
    return [
        _checked_message(message, f"messages[{index}]") for index, message in enumerate(messages)
    ]


def _checked_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidOption(
            f"`{where}`: expected an object with role and content, found {type(message).__name__}"
        )
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidOption(f'`{where}.role`: expected a name such as "user", found {shown(role)}')
    plain: dict[str, Any] = _plain(
        {
            key: _joined(value, f"{where}.content") if key == "content" else value
            for key, value in message.items()
            if value is not None
        },
        where,
    )
    # Templates read a message's reasoning under one of several names; give it under all.
    reasoning = next((plain[key] for key in REASONING_KEYS if key in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _joined(content: Any, where: str) -> str:
    """Return the text of a message's content, its parts joined without anything between."""
    if isinstance(content, str):
        return checked_text(content)
    if isinstance(content, (bytes, Mapping)) or not isinstance(content, Sequence):
        raise InvalidOption(
            f"`{where}`: expected text or a list of text parts, found {type(content).__name__}"
        )
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if not isinstance(part, Mapping) or kind != "text":
            raise InvalidOption(
                f'`{where}[{index}]`: expected a part of type "text", found {shown(kind)}',
                hint="images, audio and files need a model that can take them",
            )
        text = part.get("text")
        if not isinstance(text, str):
            raise InvalidOption(
                f"`{where}[{index}].text`: expected a string, found {type(text).__name__}"
            )
        texts.append(checked_text(text))
    return "".join(texts)


def _plain(value: Any, where: str) -> Any:
    """Return a copy of `value` in plain JSON types: richer objects have methods to exploit."""
    try:
        return _plain_copy(value, where)
    except RecursionError:
        raise InvalidOption(f"`{where}`: expected JSON, found endless nesting") from None


def _plain_copy(value: Any, where: str) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return checked_text(str.__str__(value))
    if isinstance(value, Mapping):
        return {_plain_copy(key, where): _plain_copy(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain_copy(item, where) for item in value]
        return items if isinstance(value, list) else tuple(items)
    raise InvalidOption(f"`{where}`: expected JSON values, found {type(value).__name__}")


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
