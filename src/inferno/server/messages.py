"""The messages of a request, checked, and as templates expect them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from inferno.server.failures import invalid
from inferno.server.fields import Fields, wrong
from inferno.tool_calls import ID_CHARACTERS

if TYPE_CHECKING:
    from inferno.engine import Engine

MAX_MESSAGES = 10_000


def messages_of(fields: Fields, engine: Engine) -> list[dict[str, Any]]:
    """Read `messages`; what a template will say of their contents is not known here.

    Raises:
        RequestFailed: there are none, or they have another shape.
    """
    messages = fields.items("messages", MAX_MESSAGES)
    if not messages:
        raise invalid("messages", "`messages`: expected at least one message, found none")
    knows_developer = "developer" in engine.template.template
    history = _Calls()
    checked = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise wrong(where, "an object with role and content", message)
        message = {key: value for key, value in message.items() if value is not None}
        if message.get("role") == "developer" and not knows_developer:
            message["role"] = "system"
        if "tool_calls" in message:
            message["tool_calls"] = history.called(message["tool_calls"], f"{where}.tool_calls")
        elif "content" not in message:
            raise invalid(f"{where}.content", f"`{where}.content`: expected text")
        if message.get("role") == "tool":
            message = history.answered(message)
        checked.append(message)
    return checked


class _Calls:
    """The calls of a history so far: templates want names and ids, and clients leave some out."""

    def __init__(self) -> None:
        self._count = 0
        self._names: dict[str, str] = {}  # by ids; those without an answer yet

    def called(self, calls: Any, where: str) -> list[dict[str, Any]]:
        """Return calls with ids, and with their arguments as objects. Raises RequestFailed."""
        if not isinstance(calls, list):
            raise wrong(where, "a list", calls)
        found = [self._call(call, f"{where}[{index}]") for index, call in enumerate(calls)]
        self._names = {call["id"]: call["function"]["name"] for call in found}
        return found

    def answered(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return what a tool has said, with the id and the name of the call that it answers."""
        id, name = message.get("tool_call_id"), message.get("name")
        if id is None:
            # The oldest call of this tool, or of any, that nobody has answered.
            waiting = [i for i, called in self._names.items() if name in (None, called)]
            id = waiting[0] if waiting else None
        if not isinstance(id, str) or id not in self._names:
            return message
        return {"name": self._names.pop(id), **message, "tool_call_id": id}

    def _call(self, call: Any, where: str) -> dict[str, Any]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(where, "a function with a name", call)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError):
                arguments = None
        elif arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise wrong(f"{where}.function.arguments", "a JSON object", function["arguments"])
        id = call.get("id")
        if id is not None and not isinstance(id, str):
            raise wrong(f"{where}.id", "a string", id)
        self._count += 1
        made_up = f"{self._count:0{ID_CHARACTERS}}"  # the same whenever the history is sent
        call = {key: value for key, value in call.items() if value is not None}
        return {"id": made_up, **call, "function": {**function, "arguments": arguments}}
