"""`inferno doctor`: what this machine is to inferno, measured and checked, for a report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from inferno.cli.flags import Parser
from inferno.cli.serve import PORT, port_conflict
from inferno.cli.style import counted, format_bytes


def main(arguments: list[str]) -> int:
    """Print the report; 1 if a kernel's bits are wrong."""
    parser = Parser(
        "doctor",
        usage="doctor [OPTIONS]",
        description="Describe this machine as inferno sees it, measure its limits, and check that\n"
        "every instruction set computes the same bits.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse(arguments)
    report = examine()
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        for name, value in _lines(report):
            print(f"{name:<16} {value}")
    return 0 if all(report["same_bits"].values()) else 1


def examine() -> dict[str, Any]:
    """Return everything as plain data."""
    import inferno
    from inferno import machine
    from inferno.bench.limits import probe
    from inferno.hub import cache_folder
    from inferno.selftest import isas, same_bits

    names, used = isas()
    threads = machine.default_threads()
    limits = probe(threads, used)
    memory = machine.available_memory()
    home = cache_folder()
    return {
        "version": inferno.__version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "cpu": machine.cpu_name(),
        "core_kinds": machine.core_kinds(),
        "isas": names,
        "isa": used,
        "threads": threads,
        "affinity": machine.affinity(),
        "physical_cores": machine.physical_cores(),
        "cpu_quota": machine.cpu_quota(),
        "available_memory": memory,
        "huge_pages": _huge_pages(),
        "read_bytes_per_second": limits.read_bytes,
        "int8_macs_per_second": limits.int8_macs,
        "float_macs_per_second": limits.float_macs,
        "same_bits": same_bits(names),
        "cache": str(home),
        "cache_free_bytes": _free_bytes(home),
        "port_conflict": port_conflict(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("INFERNO_")},
    }


def _lines(r: dict[str, Any]) -> list[tuple[str, str]]:
    quota = "none" if r["cpu_quota"] is None else f"{r['cpu_quota']:g} CPUs"
    cores = r["physical_cores"] or "unknown"
    memory = r["available_memory"]
    # What the system reports is what all cores have in common.
    kinds = r["core_kinds"]
    whose = "this CPU has" if kinds == 1 else f"its {kinds} kinds of cores have"
    broken = [isa for isa, same in r["same_bits"].items() if not same]
    environment = " ".join(f"{k}={v}" for k, v in r["environment"].items()) or "nothing set"
    return [
        ("inferno", f"{r['version']}, Python {r['python']}, {r['system']}"),
        ("cpu", r["cpu"]),
        ("instructions", f"{r['isa']} ({whose}: {', '.join(r['isas'])})"),
        ("threads", f"{r['threads']} (affinity {r['affinity']}, cores {cores}, quota {quota})"),
        ("memory", "unknown" if memory is None else f"{format_bytes(memory)} available"),
        ("huge pages", r["huge_pages"]),
        ("reads", f"{r['read_bytes_per_second'] / 1e9:.1f} GB/s"),
        (
            "multiplies",
            f"{r['int8_macs_per_second'] / 1e9:.0f} G int8, "
            f"{r['float_macs_per_second'] / 1e9:.0f} G float pairs/s",
        ),
        (
            "same bits",
            f"NO: {', '.join(broken)}"
            if broken
            else f"yes, in {counted(len(r['same_bits']), 'instruction set')}",
        ),
        ("port", r["port_conflict"] or f"{PORT}, which `inferno serve` takes, is free"),
        ("cache", f"{r['cache']} ({format_bytes(r['cache_free_bytes'])} free)"),
        ("environment", environment),
    ]


def _huge_pages() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text("ascii")
    except OSError:
        return "unknown"
    chosen = text[text.find("[") + 1 : text.find("]")]
    return f"{chosen} (weights and cache ask for them)" if chosen == "madvise" else chosen


def _free_bytes(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
