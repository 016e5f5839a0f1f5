"""`inferno quantize MODEL OUT.gguf`: write a model in smaller weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

from inferno.cli.flags import Parser
from inferno.cli.loading import LoadProgress
from inferno.cli.style import format_bytes
from inferno.cli.text_file import read_text
from inferno.errors import InvalidOption


def main(arguments: list[str]) -> int:
    """Quantize, and say how large the file is."""
    parser = Parser(
        "quantize",
        usage="quantize MODEL OUT.gguf --type TYPE [OPTIONS]",
        description="Write a model as a GGUF file in smaller weights, which llama.cpp opens too.\n"
        "With --calibrate, errors weigh as much as the text says they matter.",
        examples="examples:\n"
        "  inferno quantize path/to/model model.gguf --type q4_k_m --calibrate text.txt\n"
        "  inferno eval path/to/model --text other.txt --against model.gguf",
    )
    parser.add_argument("model", metavar="MODEL", help="float weights: file, directory or name")
    parser.add_argument("output", metavar="OUT.gguf", help="the file to write")
    parser.add_argument("--type", required=True, help="q4_k_m, q6_k, q4_0, q8_0, …")
    parser.add_argument(
        "--calibrate",
        metavar="FILE",
        help="some thousand words like those it will see",
    )
    parser.add_argument(
        "--quantizer",
        metavar="NAME",
        help="least_squares, reference (ggml's rule) or naive (least_squares)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads (all the machine spares)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)
    path = Path(options.output)
    if path.suffix != ".gguf":
        raise InvalidOption(
            f"Output {options.output}: expected a name that ends in .gguf",
            hint="GGUF is the only format that is written",
        )

    from inferno.conversion import DEFAULT_QUANTIZER
    from inferno.quantization import quantize

    text = None if options.calibrate is None else read_text("--calibrate", options.calibrate)
    try:
        with LoadProgress() as progress:
            quantize(
                options.model,
                path,
                options.type,
                calibration=text,
                quantizer=options.quantizer or DEFAULT_QUANTIZER,
                threads=options.threads,
                progress=progress,
            )
    except OSError as error:
        if error.errno is None:
            raise
        raise InvalidOption(
            f"Output {options.output}: expected a file to write, found: {os.strerror(error.errno)}",
            hint="write it to a folder of yours on a disk with room for it",
        ) from error
    size = path.stat().st_size
    if options.json:
        print(json.dumps({"path": str(path), "bytes": size, "type": options.type}))
    else:
        print(f"wrote {path} ({format_bytes(size)})")
    return 0
