"""`response_format`: which form a reply must have."""

from __future__ import annotations

from inferno.server.failures import unsupported
from inferno.server.fields import Fields, wrong

FORMATS = ("text", "json_object", "json_schema")


def response_format_of(fields: Fields) -> None:
    """Refuse what this version cannot hold a reply to. Raises RequestFailed."""
    value = fields.mapping("response_format")
    if value is None:
        return
    if value.get("type") not in FORMATS:
        raise wrong("response_format", "a type of " + ", ".join(FORMATS), value)
    if value["type"] != "text":
        raise unsupported(
            "response_format",
            "`response_format`: constrained output is not supported by this version",
        )
