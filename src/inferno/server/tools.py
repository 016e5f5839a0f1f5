"""`tools` and `tool_choice`: which functions a reply may or must call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from inferno.excerpt import shown
from inferno.server.failures import RequestFailed, failure_of, invalid, unsupported
from inferno.server.fields import Fields, wrong
from inferno.server.response_format import ANY_OBJECT, Form, check_enforceable
from inferno.server.service import in_thread
from inferno.tool_calls import MAX_NAME, NAME, Tool, ToolFormat

if TYPE_CHECKING:
    from inferno.server.service import Service
    from inferno.server.turns import Thinking

MAX_TOOLS = 256
CHOICES = ("none", "auto", "required")


@dataclass(frozen=True)
class ToolUse:
    """Tools that a reply may call, how, and whether it must."""

    described: list[dict[str, Any]]  # all of the request, as the template is told of them
    callable: Sequence[Tool]
    format: ToolFormat
    must_call: bool
    several: bool

    def options(self, form: Form | None, thinking: Thinking) -> dict[str, Any]:
        """Return the options of `SamplingParams` that hold a reply to it. Raises RequestFailed.

        `form` is what a reply without calls must have.
        """
        more: dict[str, Any] = {"several": self.several, "thought": thinking.rule}
        if self.must_call:
            more["content"] = None
        elif form is not None:
            more["content"] = form.lark()
        return {
            "grammar": self.format.grammar(self.callable, **more),
            "visible_tokens": tuple(self.format.control_tokens.values()),
        }


async def tools_of_request(fields: Fields, service: Service) -> ToolUse | None:
    """Read the tools of a request; None if it has none, or may call none. Raises RequestFailed."""
    # Schemas are compiled and templates rendered; who has no tools waits for no thread.
    read = partial(_tools_of, fields, service)
    return await in_thread(read) if fields.has("tools") else read()


def _tools_of(fields: Fields, service: Service) -> ToolUse | None:
    items = fields.items("tools", MAX_TOOLS)
    choice = fields.take("tool_choice")
    several = fields.flag("parallel_tool_calls", True)
    fields.refuse("functions", "expected `tools`, which took its place", [])
    fields.refuse("function_call", "expected `tool_choice`, which took its place", "none", "auto")
    names, must_call = _choice(choice)
    if not items:
        if must_call:
            raise invalid("tool_choice", "`tool_choice`: expected `tools` with it, found none")
        return None
    described = [_function(item, f"tools[{n}]") for n, item in enumerate(items)]
    known = [function["name"] for function in described]
    for name in known:
        if known.count(name) > 1:
            raise invalid("tools", f"`tools`: expected one {shown(name)}, found several")
    for name in names or ():
        if name not in known:
            raise invalid("tool_choice", f"`tool_choice`: {shown(name)} is none of the tools")
    if choice == "none":
        return None
    tools = [
        _tool(function, f"tools[{n}].function", fields)
        for n, function in enumerate(described)
        if names is None or function["name"] in names
    ]
    try:
        format = service.tool_format
    except Exception as error:
        raise failure_of(error) from None
    return ToolUse(
        [{"type": "function", "function": function} for function in described],
        tools,
        format,
        must_call,
        several and len(tools) + (names is None) > 1,  # a tool that is named is called once
    )


def _choice(choice: Any) -> tuple[list[str] | None, bool]:
    """Return which tools may be called (None: all of them), and whether one must."""
    if choice is None or choice in CHOICES:
        return None, choice == "required"
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function" and isinstance(named := choice.get("function"), dict):
        if isinstance(name := named.get("name"), str):
            return [name], True
    elif kind == "allowed_tools" and isinstance(allowed := choice.get("allowed_tools"), dict):
        items = allowed.get("tools")
        if isinstance(items, list) and items and allowed.get("mode") in ("auto", "required"):
            names = [_function(item, "tool_choice")["name"] for item in items]
            return names, allowed["mode"] == "required"
    raise wrong("tool_choice", "none, auto, required, or a function by its name", choice)


def _function(item: Any, where: str) -> dict[str, Any]:
    """Return the function of a tool, without what is null. Raises RequestFailed."""
    if isinstance(item, dict) and item.get("type", "function") != "function":
        raise unsupported(where, f"`{where}.type`: expected function, found {shown(item['type'])}")
    function = item.get("function") if isinstance(item, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        expected = f"a function whose name has 1 to {MAX_NAME} letters, digits, _ . or -"
        raise wrong(where, expected, item)
    assert isinstance(function, dict)
    return {key: value for key, value in function.items() if value is not None}


def _tool(function: dict[str, Any], where: str, fields: Fields) -> Tool:
    """Return a tool whose arguments can be held to its schema.

    Of a tool that is not `strict`, a schema that cannot be enforced is noted, and its arguments
    are any object.
    """
    schema = function.get("parameters", {"type": "object", "additionalProperties": False})
    where = f"{where}.parameters"
    if isinstance(schema, dict):
        schema = {"type": "object", **schema}
    if not isinstance(schema, dict) or schema["type"] not in ("object", ["object"]):
        raise wrong(where, "the schema of an object", schema)
    try:
        check_enforceable({"json_schema": schema}, where)
    except RequestFailed:
        if function.get("strict"):
            raise
        fields.note(where)
        return Tool(function["name"], ANY_OBJECT)
    return Tool(function["name"], schema)
