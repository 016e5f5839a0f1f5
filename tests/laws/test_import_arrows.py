"""The laws of ARCHITECTURE.md that say who knows whom, read off the source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src/inferno"
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
NETWORK = {"ftplib", "http", "httpx", "requests", "smtplib", "socket", "socketserver", "ssl"}
NETWORK |= {
    "aiohttp",
    "asyncio",
    "httpx2",
    "telnetlib",
    "urllib",
    "urllib3",
    "webbrowser",
    "xmlrpc",
}
QUOTING = {"urllib.parse.quote", "urllib.parse.unquote"}  # of names and references: no network
PROCESSES = {"multiprocessing", "pip", "pty", "subprocess"}
# What starts other programs without an import of its own.
PROCESS_CALLS = ("exec", "fork", "popen", "posix_spawn", "spawn", "system")


def imports_of(name: str) -> set[str]:
    """List what a module imports, wherever in it: `inferno.x` as `x`, everything else in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {imported.removeprefix("inferno.") for imported in found}


def room_of(imported: str) -> str:
    """Return the file or folder of the package that an import enters, or the library's name."""
    return imported.split(".")[0]


def importers_of(room: str) -> set[str]:
    return {name for name in FILES if room in map(room_of, imports_of(name))}


def names_in(room: str) -> list[str]:
    found = [name for name in FILES if room_of(name) == room]
    assert found, f"there is no {room}"
    return found


def rooms_known_to(room: str) -> set[str]:
    """List the other rooms of the package that `room` imports from."""
    known = {room_of(imported) for name in names_in(room) for imported in imports_of(name)}
    return known & {room_of(name) for name in FILES} - {room, ""}


def test_the_reader_of_imports_sees_them() -> None:
    """The absences below are worth as much as the eye that looks for them."""
    assert {"hub", "_native", "chat.ChatTemplate"} <= imports_of("engine")
    assert "generation.Generation" in imports_of("session")  # inside a function
    assert rooms_known_to("lowering") >= {"graph"}
    assert {"numpy", "inferno"}.isdisjoint(FILES)


def test_only_what_runs_models_or_probes_the_machine_knows_the_native_core() -> None:
    runs = {
        "loading",
        "session",
        "engine",
        "passes",
        "generation",
        "conversion",
        "quantization",
        "prefix_cache",
    }
    assert importers_of("_native") == runs | {"bench.limits", "selftest"}


def test_only_hub_and_bench_use_the_network_and_other_programs() -> None:
    for name in FILES:
        imported = set(map(room_of, imports_of(name) - QUOTING))
        # bench.servers talks to what `--against` names; the server answers who asks.
        if room_of(name) not in ("hub", "server") and name != "bench.servers":
            assert not imported & NETWORK, name
        # pip; a peer runs in a process of its own; git is asked for the commit.
        if name not in ("hub.wheels", "bench.contenders", "bench.provenance"):
            assert not imported & PROCESSES, name
    assert importers_of("huggingface_hub") == {"hub.repositories"}
    assert "subprocess" in imports_of("hub.wheels")


def test_hub_opens_no_connection_itself() -> None:
    """It goes through pip and the hub's own library, with the user's settings for them."""
    for name in names_in("hub"):
        found = {i for i in imports_of(name) if room_of(i) in NETWORK}
        assert found <= QUOTING, name


def test_nobody_starts_programs_through_os() -> None:
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                starts = node.value.id == "os" and node.attr.startswith(PROCESS_CALLS)
                assert not starts, (name, node.lineno)


# What a room may import of the package, beside `errors` and `excerpt`.
ALLOWED = {
    "catalogue": set(),
    "config": {"models", "options"},
    "constraint": {"expression", "grammar", "json_schema", "options", "tokenizer"},
    "excerpt": set(),
    "expression": set(),
    "file_name": set(),
    "grammar": {"json_schema", "expression"},
    "graph": set(),
    "hub": {"catalogue", "file_name"},
    "json_schema": {"expression"},
    "lowering": {"graph"},
    "machine": {"macos", "windows"},
    "macos": set(),
    "models": {"config", "graph"},
    "options": {"json_schema"},
    "pre_tokenizers": set(),
    "prefix_cache": set(),
    "scheduler": {"engine", "generation", "prefix_cache", "session"},
    "scoring": {"graph"},
    "template_environment": set(),
    "text_stream": {"tokenizer"},
    "weights": {"config", "file_name"},
    "windows": set(),
}


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_knows_few_others(room: str) -> None:
    assert rooms_known_to(room) - {"errors", "excerpt"} <= ALLOWED[room]


def test_two_rooms_know_the_library_of_grammars() -> None:
    assert importers_of("llguidance") == {"constraint", "grammar"}


def test_models_know_no_weights_engine_or_native_core() -> None:
    known = rooms_known_to("models")
    assert known.isdisjoint({"weights", "loading", "lowering", "engine", "session", "machine"})
    assert importers_of("_native").isdisjoint(names_in("models"))


def test_weights_know_no_models_lowering_or_engine() -> None:
    assert rooms_known_to("weights").isdisjoint({"models", "lowering", "loading", "engine"})


def test_tokenizer_and_chat_know_no_model() -> None:
    strangers = {"models", "lowering", "loading", "engine", "session", "generation", "machine"}
    for room in ("tokenizer", "chat", "text_stream"):
        assert rooms_known_to(room).isdisjoint(strangers), room


def test_session_knows_no_text() -> None:
    assert rooms_known_to("session").isdisjoint({"tokenizer", "chat", "text_stream"})


def test_nobody_imports_the_command_line() -> None:
    assert importers_of("cli") - set(names_in("cli")) == {"__main__"}


def test_the_command_line_knows_no_tensors() -> None:
    strangers = {"weights", "models", "lowering", "loading", "graph", "session", "generation"}
    assert rooms_known_to("cli").isdisjoint(strangers | {"engine"})
    for name in names_in("cli"):
        assert "numpy" not in map(room_of, imports_of(name)), name


def test_the_server_knows_no_tensors_and_nobody_but_the_command_line_knows_the_server() -> None:
    strangers = {"weights", "models", "lowering", "loading", "graph", "cli", "_native"}
    assert rooms_known_to("server").isdisjoint(strangers)
    assert importers_of("server") - set(names_in("server")) == {"cli.serve"}
    for name in names_in("server"):
        assert "numpy" not in map(room_of, imports_of(name)), name


def test_errors_import_nothing() -> None:
    assert imports_of("errors") == {"__future__.annotations"}


def test_every_import_is_of_the_standard_library_or_declared() -> None:
    """A package that happens to be installed here is none that users have."""
    declared = {"jinja2", "nanobind", "numpy", "platformdirs", "prompt_toolkit", "tqdm"}
    declared |= {"fastapi", "huggingface_hub", "llguidance", "prometheus_client", "starlette"}
    declared |= {"sqlalchemy", "tokenizers", "uvicorn", "argcomplete", "inferno", "_native"}
    ours = {room_of(name) for name in FILES}
    public = {"Engine", "Generation", "Session", "Stats"}  # `from inferno import Engine`
    for name in FILES:
        for imported in imports_of(name):
            room = room_of(imported)
            if name == "bench.llama_cpp_peer" and room == "llama_cpp":
                continue  # it runs where that is installed, and inferno is not
            if name in ("bench.chart", "bench.quality_chart") and room == "matplotlib":
                continue  # the extra `plot`
            known = room in declared | ours | public or room in sys.stdlib_module_names
            assert known, f"{name} imports {imported}"
