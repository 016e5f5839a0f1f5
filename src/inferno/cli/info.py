"""`inferno info MODEL`: what a model is and what it would take, without loading it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from inferno.cli.flags import Parser
from inferno.cli.style import format_bytes, printable

if TYPE_CHECKING:
    from inferno.description import Description

TEMPLATE_LINES = 12  # what a glance takes in; --template shows all of it


def main(arguments: list[str]) -> int:
    """Print facts, or the plan."""
    parser = Parser(
        "info",
        usage="info MODEL [OPTIONS]",
        description="Describe a model on this disk, and what it would take to load it.",
        examples="examples:\n  inferno info model.gguf --context 4096\n"
        "  inferno info hf.co/org/repo:Q4_K_M --plan",
    )
    parser.add_argument("model", metavar="MODEL", help=".gguf file, directory or name")
    parser.add_argument(
        "--context", type=int, metavar="N", help="tokens to estimate the memory for (the model's)"
    )
    parser.add_argument(
        "--weights", metavar="FORMAT", help="as if quantized while loading, e.g. q4_0"
    )
    parser.add_argument(
        "--kv-cache", metavar="TYPE", default="f16", help="type of its keys and values (f16)"
    )
    parser.add_argument(
        "--plan", action="store_true", help="the operations of a forward pass, shapes and bytes"
    )
    parser.add_argument("--template", action="store_true", help="the whole chat template, alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)

    from inferno.description import describe

    d = describe(
        options.model,
        weights=options.weights,
        context=options.context,
        kv_cache=options.kv_cache,
    )
    if options.json:
        print(json.dumps(_as_data(d, with_plan=options.plan), indent=1))
    elif options.template:
        print(printable(d.chat_template or ""))
    elif options.plan:
        _print_plan(d)
    else:
        for name, value in _facts(d):
            print(f"{name:<14} {printable(value)}")
        if d.chat_template is not None:
            _print_template(d.chat_template)
    return 0


def _facts(d: Description) -> list[tuple[str, str]]:
    c, memory = d.config, d.memory
    types = ", ".join(
        f"{format} {format_share(count / d.parameters)}" for format, count in d.formats.items()
    )
    heads = f"{c.num_attention_heads} heads of {c.head_dim}"
    if c.num_key_value_heads != c.num_attention_heads:
        heads += f", {c.num_key_value_heads} for keys and values"
    stops = ", ".join(f"{id} {text}" for id, text in d.stop_tokens.items()) or "none"
    free = d.available_memory
    fits = "" if free is None else f"; {format_bytes(free)} free"
    if free is not None and memory.total > free:
        fits += ": it does not fit"
    facts = [
        ("model", c.name),
        ("architecture", f"{c.model_type} ({c.architecture})"),
        ("parameters", format_count(d.parameters)),
        ("types", f"{types} ({d.container}, {format_bytes(d.bytes)})"),
        ("layers", f"{c.num_hidden_layers}, width {c.hidden_size}, {heads}"),
        ("vocabulary", f"{c.vocab_size:,} tokens"),
        ("context", f"{c.max_position_embeddings:,} tokens"),
        (
            "memory",
            f"{format_bytes(memory.total)} = {format_bytes(memory.weights)} weights"
            + (f" as {d.weights}" if d.weights else "")
            + f" + {format_bytes(memory.kv_cache)} {d.kv_cache} cache of {memory.context:,} tokens"
            f" + {format_bytes(memory.scratch)} scratch{fits}",
        ),
        ("stops at", stops),
        ("licence", d.licence or "unknown"),
        ("source", d.source or "unknown"),
        ("file", str(d.path)),
    ]
    return facts


def format_share(share: float) -> str:
    """Return a part of a whole: 62 %, or <1 % of what is there all the same."""
    return "<1 %" if share < 0.005 else f"{100 * share:.0f} %"


def format_count(count: int) -> str:
    """Return a number of parameters as people say it: 135 M, 1.10 B."""
    if count < 999_500:
        return f"{count:,}"
    return f"{count / 1e6:.0f} M" if count < 999.5e6 else f"{count / 1e9:.2f} B"


def _print_template(template: str) -> None:
    lines = printable(template).splitlines()
    print("chat template")
    for line in lines[:TEMPLATE_LINES]:
        print(f"  {line[:76]}" + ("…" if len(line) > 76 else ""))
    if len(lines) > TEMPLATE_LINES or any(len(line) > 76 for line in lines):
        print("  (shortened; --template shows all of it)")


def _print_plan(d: Description) -> None:
    lines = []
    for number, row in enumerate(d.plan):
        reads = " × ".join(str(width) for width in row["reads"])
        parts = (reads, row.get("packed"), row.get("writes"))
        lines.append(
            (
                f"{number:>4}",
                row["operation"],
                f"layer {row['layer']}" if "layer" in row else "",
                " → ".join(str(part) for part in parts if part not in (None, "")),
                " × ".join(map(str, row.get("shape", ()))),
                row.get("format", ""),
                format_bytes(row["bytes"]) if "bytes" in row else "",
                printable(row.get("matrix", "")),
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
    print(f"      {len(d.plan)} operations, {format_bytes(d.memory.weights)} of weights")


def _as_data(d: Description, *, with_plan: bool) -> dict[str, Any]:
    c, memory = d.config, d.memory
    data: dict[str, Any] = {
        "model": c.name,
        "path": str(d.path),
        "container": d.container,
        "architecture": c.architecture,
        "model_type": c.model_type,
        "parameters": d.parameters,
        "bytes": d.bytes,
        "formats": dict(d.formats),
        "num_hidden_layers": c.num_hidden_layers,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim,
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_position_embeddings,
        "weights": d.weights,
        "kv_cache": d.kv_cache,
        "memory": {
            "context": memory.context,
            "weights": memory.weights,
            "kv_cache_per_token": memory.kv_cache_per_token,
            "kv_cache": memory.kv_cache,
            "scratch": memory.scratch,
            "total": memory.total,
            "available": d.available_memory,
        },
        "stop_tokens": {str(id): text for id, text in d.stop_tokens.items()},
        "chat_template": d.chat_template,
        "licence": d.licence,
        "source": d.source,
    }
    if with_plan:
        data["plan"] = [dict(row) for row in d.plan]
    return data
