"""`inferno pull MODEL`: fetch a model, or bring it up to date; on request, quantize it once."""

from __future__ import annotations

import json

from inferno.cli.flags import Parser
from inferno.cli.loading import LoadProgress
from inferno.cli.style import format_bytes, printable


def main(arguments: list[str]) -> int:
    """Fetch and say where it is."""
    parser = Parser(
        "pull",
        usage="pull MODEL [OPTIONS]",
        description="Fetch a model into the cache, verified. An interrupted download goes on\n"
        "where it stopped. HF_TOKEN opens gated repositories; HF_HOME moves the cache.",
        examples="examples:\n"
        "  inferno pull qwen2.5-0.5b-instruct\n"
        "  inferno pull hf.co/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0\n"
        "  inferno pull tinyllama-1.1b-chat-v1.0 --gguf",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="name, hf.co/ORG/REPO, or hf.co/ORG/REPO:TYPE"
    )
    parser.add_argument(
        "--gguf", action="store_true", help="also keep a quantized GGUF, which loads faster"
    )
    parser.add_argument(
        "--weights", metavar="FORMAT", help="type of that GGUF, e.g. q4_0 (the catalogue's)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)

    from inferno import hub
    from inferno.conversion import quantize_once
    from inferno.errors import InvalidOption

    if options.weights is not None and not options.gguf:
        raise InvalidOption(
            "`--weights`: expected --gguf with it, found it alone",
            hint="without --gguf a model is kept as it is, and quantized while it is loaded",
        )
    with LoadProgress() as progress:
        path = hub.pull(options.model, progress=progress)
        if options.gguf:
            path = quantize_once(options.model, path, options.weights, progress)
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if options.json:
        print(json.dumps({"model": options.model, "path": str(path), "bytes": size}))
    else:
        print(f"{printable(options.model)} is here: {path} ({format_bytes(size)})")
    return 0
