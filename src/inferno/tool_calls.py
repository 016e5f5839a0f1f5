"""How a model calls tools: what its template writes around a call, to be enforced and read back.

No family of models is known here by name. A conversation with calls is rendered, and what stands
around the names and the arguments is the format, as the model has been taught it. A template that
writes arguments as anything but a JSON object is refused. Knows templates and text; no wire.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferno.chat import ChatTemplate
from inferno.errors import InvalidOption, TemplateError

MAX_NAME = 64
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}")
# Some templates accept only ids of this form in a history, so all are of it.
ID_CHARACTERS = 9

# What is rendered to see the format. Nothing of it occurs in a template.
_ASKED, _SAID, _FOUND = "Zasked", "Zsaid", "Zfound"
_IDS = ("zFirstId1", "zOtherId2")
_NAMES = ("zfirst_tool", "zother_tool")
_ARGUMENTS = ({"zfirst_key": "zvalue"}, {"zother_key": "zvalue"})
_OFFERED = "zoffered_tool"

_ID_PATTERN = f"[A-Za-z0-9]{{{ID_CHARACTERS}}}"
_ANY_TEXT = "/(?s:.*)/"


@dataclass(frozen=True)
class Tool:
    """A function that may be called; its arguments are an object that `schema` allows."""

    name: str
    schema: Any


@dataclass(frozen=True)
class Piece:
    """What a piece of a reply is: content, or a call (by its number) that begins or goes on."""

    content: str = ""
    call: int = -1
    name: str = ""  # where the call begins
    arguments: str = ""


@dataclass(frozen=True)
class ToolFormat:
    """The text of calls: trigger, opening, name, middle, arguments, and closing; or instead of
    that `between`, then name, middle and arguments of another call.

    The `trigger` comes wherever calls begin and nowhere else: anywhere in a text, or only at its
    start. An id within is written as `_IDS[0]` here.
    """

    trigger: str
    is_first: bool  # calls come at the start of a text, or not at all
    opening: str
    middle: str
    closing: str
    between: str | None = None  # None: one call at a time
    control_tokens: Mapping[str, int] = field(default_factory=dict)  # those that occur in it

    @classmethod
    def of(
        cls, template: ChatTemplate, control_tokens: Mapping[str, int], ends: Collection[str]
    ) -> ToolFormat:
        """Return the format of a model's template; `ends` are the tokens that end its replies.

        Raises:
            InvalidOption: the template has no tools, or writes calls in a way that is not known.
        """
        try:
            offers = _OFFERED in _rendered(template, 0)
            one = _rendered(template, 1) if offers else ""
            said, prompt = _rendered(template, 0), _rendered(template, None)
        except TemplateError as error:
            raise _refusal(f"its template fails with tools: {error.message}") from None
        if not offers:
            raise _refusal("its template has no tools")
        found = _parts(one, 0)
        if found is None:
            raise _refusal("its template does not write arguments as a JSON object")
        lead, middle, rest = found
        lead_of_text = said[said.rindex(_ASKED) + len(_ASKED) : said.index(_SAID)]
        lead_of_prompt = prompt[prompt.rindex(_ASKED) + len(_ASKED) :]
        known = [token for token in control_tokens if token in lead + middle + rest + lead_of_text]
        # Of a prompt that opens a thought, the text's lead is the beginning.
        beyond = "" if lead_of_prompt.startswith(lead_of_text) else lead_of_text
        if any(token in beyond.removeprefix(lead_of_prompt) for token in known):
            raise _refusal("its template puts replies into channels")
        differing = (i for i, (a, b) in enumerate(zip(lead, lead_of_text, strict=False)) if a != b)
        start = next(differing, min(len(lead), len(lead_of_text)))
        for token in known:  # which two texts may have begun alike
            place = lead.rfind(token, 0, start + len(token) - 1)
            if place >= 0 and place < start < place + len(token):
                start = place
        opening = lead[start:].lstrip()
        end = min((rest.index(end) for end in ends if end in rest), default=None)
        if end is None:
            raise _refusal("its template does not end a call as it ends a reply")
        closing = rest[:end].rstrip("\n")
        trigger, is_first = _trigger(opening, known)
        if _IDS[0] in opening or _unwritable(opening + middle + closing):
            raise _refusal("its template writes what no grammar can")
        tokens = {t: control_tokens[t] for t in known if t in opening + middle + closing}
        return cls(
            trigger,
            is_first,
            opening.removeprefix(trigger),
            middle,
            closing,
            _between(template, middle),
            tokens,
        )

    def grammar(
        self,
        tools: Sequence[Tool],
        *,
        content: str | None = _ANY_TEXT,
        several: bool = True,
        thought: str | None = None,
    ) -> str:
        """Return a grammar, in Lark, of texts that call some of `tools`.

        Args:
            content: what else may come, in Lark; before calls, if it is any text. None: calls must.
            several: allow more than one call, if the format does.
            thought: what may come first, unless any text may; a lazy rule that knows `TEXT`. If
                it begins with that, the prompt has begun the thought, and it must end.
        """
        trigger, opening = self._lark(self.trigger), self._lark(self.opening)
        more = ""
        if several and self.between is not None:
            more = f"({self._lark(self.between)} call)*"
        calls = f"{opening} call {more} {self._lark(self.closing)}"
        names = " | ".join(f"call_{n}" for n in range(len(tools)))
        rules = [f"call: {names}"]
        for n, tool in enumerate(tools):
            head = self._lark(tool.name + self.middle)
            rules.append(f"call_{n}: {head} %json {json.dumps(tool.schema)}")
        begins = f"{trigger} {calls}"
        if content != _ANY_TEXT or self.is_first:
            before = ""
            if thought is not None:
                before = "thought BLANKS" if thought.startswith("TEXT") else "(thought BLANKS)?"
                rules += [f"thought[lazy]: {thought}", r"BLANKS: /\s*/", f"TEXT: {_ANY_TEXT}"]
            if content == _ANY_TEXT:
                other = re.escape(self.trigger).replace("/", r"\/")
                rules.append(f"PLAIN: {_ANY_TEXT} & ~/(?s:{other}.*)/")
                content = "PLAIN"
            said = begins if content is None else f"({content} | {begins})"
            rules.append(f"start: {before} {said}")
        elif self.trigger in self.control_tokens:
            rules += [f"start: TEXT | TEXT? {begins}", f"TEXT: {_ANY_TEXT}"]
        else:
            rules += [f"start: TEXT | begin {calls}", f"begin[lazy]: TEXT {trigger}"]
            rules.append(f"TEXT: {_ANY_TEXT}")
        return "\n".join(rules)

    def _lark(self, text: str) -> str:
        """Return `text` in Lark: strings, tokens by their ids, and ids of calls as a pattern."""
        special = "|".join(map(re.escape, [_IDS[0], *self.control_tokens]))
        parts = re.split(f"({special})", text)
        return " ".join(
            f"/{_ID_PATTERN}/"
            if part == _IDS[0]
            else f"<[{self.control_tokens[part]}]>"
            if part in self.control_tokens
            else json.dumps(part)
            for part in parts
            if part
        )


class CallReader:
    """Reads a reply as it comes, which follows a grammar of `format`.

    `num_complete` calls have come to their end.
    """

    def __init__(self, format: ToolFormat) -> None:
        self.num_complete = 0
        self._format = format
        self._rest = ""  # what has come and is not understood yet
        self._is_begun = False  # the text
        self._call = 0
        self._state = self._read_text
        self._name = re.compile(rf"({NAME.pattern}?)" + _pattern(format.middle))
        self._between = None if format.between is None else re.compile(_pattern(format.between))
        self._depth, self._in_string, self._is_escaped = 0, False, False

    def push(self, text: str) -> list[Piece]:
        """Take the next piece of the text; return what has become certain."""
        self._rest += text
        return list(self._read())

    def finish(self) -> list[Piece]:
        """End the text; return what was held back. Of a call that has no name yet, the text."""
        rest, self._rest = self._rest, ""
        if self._state == self._read_opening:
            return [Piece(self._format.trigger + rest)]
        if self._state == self._read_name and not self._call:
            return [Piece(self._format.trigger + self._format.opening + rest)]
        return [Piece(rest)] if rest and self._state == self._read_text else []

    def _read(self) -> Iterator[Piece]:
        while self._rest:
            state, length = self._state, len(self._rest)
            piece = state()
            if piece is not None:
                yield piece
            if state == self._state and length == len(self._rest):
                return

    def _take(self, length: int) -> str:
        taken, self._rest = self._rest[:length], self._rest[length:]
        return taken

    def _read_text(self) -> Piece | None:
        trigger, rest = self._format.trigger, self._rest
        if self._format.is_first:
            may_begin = not self._is_begun
            if may_begin and rest.startswith(trigger):
                self._take(len(trigger))
                self._state = self._read_opening
                return None
            if may_begin and trigger.startswith(rest):
                return None
            self._is_begun = True
            return Piece(self._take(len(rest)))
        place = rest.find(trigger)
        if place >= 0:
            content = self._take(place).rstrip()
            self._take(len(trigger))
            self._state = self._read_opening
            return Piece(content) if content else None
        # The end may yet become the trigger, or the blanks before it.
        held = next(n for n in range(len(trigger) - 1, -1, -1) if rest.endswith(trigger[:n]))
        certain = len(rest[: len(rest) - held].rstrip())
        return Piece(self._take(certain)) if certain else None

    def _read_opening(self) -> Piece | None:
        if len(self._rest) >= len(self._format.opening):
            self._take(len(self._format.opening))
            self._state = self._read_name
        return None

    def _read_name(self) -> Piece | None:
        match = self._name.match(self._rest)
        if match is None:
            return None
        self._take(match.end())
        self._state = self._read_arguments
        return Piece(call=self._call, name=match[1])

    def _read_arguments(self) -> Piece | None:
        end = len(self._rest)
        for index, character in enumerate(self._rest):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if not self._depth:
                    end = index + 1
                    self.num_complete += 1
                    self._state = self._read_what_follows
                    break
        return Piece(call=self._call, arguments=self._take(end))

    def _read_what_follows(self) -> Piece | None:
        match = self._between.match(self._rest) if self._between is not None else None
        if match is not None:
            self._take(match.end())
            self._call += 1
            self._state = self._read_name
        return None


def _rendered(template: ChatTemplate, calls: int | None) -> str:
    """Render a conversation with so many calls, or none but text; None: only its question."""
    asked = {"role": "user", "content": _ASKED}
    offered = {
        "name": _OFFERED,
        "description": "It does what is asked",
        "parameters": {
            "type": "object",
            "properties": {"what": {"type": "string", "description": "What is asked"}},
            "required": ["what"],
        },
    }
    tools = [{"type": "function", "function": offered}]
    if calls is None:
        return template.render([asked], True, tools)
    if not calls:
        said = {"role": "assistant", "content": _SAID}
        return template.render([asked, said, {"role": "user", "content": "Well"}], False, tools)
    called = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in zip(_IDS, _NAMES, _ARGUMENTS, strict=True)
    ][:calls]
    # Some templates write the last turn in a way of its own, so it is not the last.
    messages: list[Mapping[str, Any]] = [
        asked,
        {"role": "assistant", "tool_calls": called},
        *(
            {"role": "tool", "tool_call_id": c["id"], "name": n, "content": _FOUND}
            for c, n in zip(called, _NAMES, strict=False)
        ),
        {"role": "assistant", "content": "Done"},
        {"role": "user", "content": "Well"},
    ]
    return template.render(messages, False, tools)


def _parts(text: str, number: int) -> tuple[str, str, str] | None:
    """Return what stands before the name of a rendered call, before its arguments, and after
    them, up to what was found; None if it has another form."""
    before = text.rfind(_ASKED) + len(_ASKED)
    name = text.find(_NAMES[number], before)
    key = text.find(next(iter(_ARGUMENTS[number])), name)
    if name < 0 or key < 0:
        return None
    start, end = text.rfind("{", name, key), text.find("}", key) + 1
    found = text.find(_FOUND, end)
    try:
        is_object = start >= 0 and json.loads(text[start:end]) == _ARGUMENTS[number]
    except ValueError:
        return None
    if not is_object or found < 0:
        return None
    return text[before:name], text[name + len(_NAMES[number]) : start], text[end:found]


def _between(template: ChatTemplate, middle: str) -> str | None:
    """Return what stands between two calls, if the template can write two in one reply."""
    try:
        two = _rendered(template, 2)
    except TemplateError:  # some say that they do not
        return None
    first, second = _parts(two, 0), _parts(two, 1)
    if first is None or second is None or first[1] != middle:
        return None
    if second[1].replace(_IDS[1], _IDS[0]) != middle or _NAMES[1] not in first[2]:
        return None
    between = first[2][: first[2].index(_NAMES[1])]
    return None if _IDS[1] in between or _unwritable(between) else between


def _trigger(opening: str, control_tokens: Sequence[str]) -> tuple[str, bool]:
    """Return by which text calls are known, and whether only at the start of a reply."""
    for token in control_tokens:
        if opening.startswith(token):
            return token, False
    tag = opening.split("{")[0].split("[{")[0].rstrip(" \n[")
    return (tag, False) if len(tag) >= 3 else (opening, True)


def _pattern(text: str) -> str:
    return re.escape(text).replace(_IDS[0], _ID_PATTERN)


def _unwritable(text: str) -> bool:
    """Tell whether something of the rendered conversation has got in."""
    return any(word in text for word in (_ASKED, _SAID, _FOUND, *_NAMES, _IDS[1], "zvalue"))


def _refusal(reason: str) -> InvalidOption:
    return InvalidOption(
        f"`tools`: this model cannot be held to call tools: {reason}",
        hint="ask without tools, or serve a model whose template writes calls as JSON",
    )
