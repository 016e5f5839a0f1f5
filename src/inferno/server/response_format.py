"""Which form a reply must have: `response_format`, and what others than OpenAI call the same."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from inferno.constraint import check
from inferno.errors import InvalidOption
from inferno.options import SamplingParams
from inferno.server.failures import RequestFailed, invalid, unsupported
from inferno.server.fields import Fields, wrong
from inferno.server.service import in_thread

FORMATS = ("text", "json_object", "json_schema")
# llama.cpp's and ours, and vLLM's: each names an option of `SamplingParams`.
EXTRAS = {
    "json_schema": "json_schema",
    "regex": "regex",
    "grammar": "grammar",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_grammar": "grammar",
}
ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True)
class Form:
    """A constraint of a reply: an option of `SamplingParams` and its value."""

    kind: str
    value: Any

    @property
    def options(self) -> dict[str, Any]:
        return {self.kind: self.value}

    def lark(self) -> str:
        """Return the form as part of a grammar. Raises RequestFailed."""
        if self.kind == "json_schema":
            text = self.value if isinstance(self.value, str) else json.dumps(self.value)
            return f"%json {text}"
        if self.kind == "regex":
            # A slash ends an expression, and so would a line; what is escaped is left alone.
            spelled = {"/": r"\/", "\n": r"\n"}
            return "/" + re.sub(r"\\.|/|\n", lambda m: spelled.get(m[0], m[0]), self.value) + "/"
        raise unsupported(
            "grammar", "`grammar`: it cannot be combined with tools, or with a thought before it"
        )


async def form_of_request(fields: Fields) -> Form | None:
    """Read which form a reply must have; None if any. Raises RequestFailed."""
    # Constraints are compiled to see whether they can be enforced.
    names = ("response_format", "guided_choice", *EXTRAS)
    read = functools.partial(_form_of, fields)
    return await in_thread(read) if any(map(fields.has, names)) else read()


def _form_of(fields: Fields) -> Form | None:
    found: list[tuple[str, Form]] = []
    if (form := _openai_form(fields)) is not None:
        found.append(("response_format", form))
    for name, kind in EXTRAS.items():
        value = fields.take(name)
        if value is None or value == "":
            continue
        if kind != "json_schema" and not isinstance(value, str):
            raise wrong(name, "a string", value)
        found.append((name, Form(kind, value)))
    if (choices := fields.items("guided_choice", 1024)) is not None:
        if not choices or not all(isinstance(choice, str) for choice in choices):
            raise wrong("guided_choice", "a list of strings", choices)
        found.append(("guided_choice", Form("regex", "|".join(map(re.escape, choices)))))
    if len(found) > 1:
        (first, _), (second, _) = found[:2]
        raise invalid(second, f"`{second}`: expected one constraint, found `{first}` too")
    if not found:
        return None
    name, form = found[0]
    check_enforceable(form.options, name)
    return form


def check_enforceable(options: dict[str, Any], param: str) -> None:
    """Refuse what cannot be enforced, with the JSON pointer of it. Raises RequestFailed."""
    for kind, value in options.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if (objection := _objection(kind, text)) is not None:
            message = re.sub(r"^`\w+`", f"`{param}`", objection)
            raise RequestFailed(message, param=param, code="invalid_value")


@functools.lru_cache(maxsize=64)  # conversations send the same ones again and again
def _objection(kind: str, text: str) -> str | None:
    options: dict[str, Any] = {kind: text}
    try:
        check(SamplingParams(**options))
    except InvalidOption as error:
        return str(error)
    return None


def _openai_form(fields: Fields) -> Form | None:
    value = fields.take("response_format")
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") not in FORMATS:
        raise wrong("response_format", "a type of " + ", ".join(FORMATS), value)
    if value["type"] == "text":
        return None
    if value["type"] == "json_object":
        schema = value.get("schema")  # as llama.cpp has it
        return Form("json_schema", ANY_OBJECT if schema is None else schema)
    described = value.get("json_schema", value if "schema" in value else None)
    if not isinstance(described, dict) or not isinstance(described.get("schema"), (dict, bool)):
        raise wrong("response_format.json_schema", "an object with a schema", described)
    return Form("json_schema", described["schema"])
