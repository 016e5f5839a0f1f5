"""The documents are true: their snippets and the examples run, and what they name exists.

A tiny checkpoint stands in for the default model, so nothing is fetched.
"""

from __future__ import annotations

import importlib
import io
import re
import runpy
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from inferno import _native, errors, hub, models
from inferno.catalogue import CATALOGUE
from inferno.cli import COMMANDS, main
from inferno.options import SamplingParams

ROOT = Path(__file__).parents[2]
README, ARCHITECTURE, CONTRIBUTING = (
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
)
GUIDES = sorted(ROOT.glob("docs/guides/*.md"))
DOCUMENTS = [README, ARCHITECTURE, CONTRIBUTING, *sorted(ROOT.glob("docs/**/*.md"))]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def blocks(document: Path, language: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, code) of the fenced blocks of a document."""
    text = document.read_text("utf-8")
    for match in FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start(2)), match[2]


def commands(document: Path) -> list[str]:
    """List the lines of shell blocks and the code spans, without comments."""
    prose = FENCE.sub("", document.read_text("utf-8"))
    lines = [line for _, code in blocks(document, "sh") for line in code.splitlines()]
    return [line.split("  #")[0].strip() for line in [*lines, *SPAN.findall(prose)]]


def table(document: Path, heading: str) -> dict[str, list[str]]:
    """Return a table's rows by their first cell, which is in backticks: the one so headed."""
    text = document.read_text("utf-8")
    start = text.index(f"\n| {heading} |")
    rows = text[start:].strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}


@pytest.fixture
def named_models(monkeypatch: pytest.MonkeyPatch, stories_gguf: Path) -> None:
    """Let the names of the catalogue mean a tiny model."""
    resolve = hub.resolve

    def substitute(model: Any, **options: Any) -> Path:
        return stories_gguf if model in CATALOGUE else resolve(model, **options)

    monkeypatch.setattr(hub, "resolve", substitute)


# --------------------------------------------------------------------------- what runs


@pytest.mark.usefixtures("named_models")
@pytest.mark.parametrize(
    "document",
    [path for path in (README, *GUIDES) if any(blocks(path, "python"))],
    ids=lambda path: path.name,
)
def test_the_snippets_of_a_document_run_in_order(document: Path) -> None:
    namespace: dict[str, Any] = {}
    output = io.StringIO()
    found = list(blocks(document, "python"))
    assert found
    for line, code in found:
        # Blank lines before it: a traceback names the line of the document.
        with redirect_stdout(output):
            exec(compile("\n" * line + code, str(document), "exec"), namespace)
    assert output.getvalue().strip()


@pytest.mark.usefixtures("named_models")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


# --------------------------------------------------------------------------- what is named


@each_document
def test_make_targets_that_are_named_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        match[1] for line in commands(document) if (match := re.match(r"make ([a-z]\S*)", line))
    }
    assert named <= targets


@each_document
def test_commands_and_flags_that_are_named_exist(document: Path) -> None:
    helps = {}
    for command in COMMANDS:
        with redirect_stdout(io.StringIO()) as output, pytest.raises(SystemExit):
            importlib.import_module(f"inferno.cli.{command}").main(["--help"])
        helps[command] = output.getvalue()
    for line in commands(document):
        match = re.match(r"(?:\S*/)?inferno ([a-z]\S*)(.*)", line)
        if match:
            assert match[1] in COMMANDS, line
            for flag in re.findall(r"--[a-z][a-z-]*", match[2]):
                assert re.search(rf"{flag}\b", helps[match[1]]), line


@each_document
def test_relative_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(FENCE.sub("", document.read_text("utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.is_relative_to(ROOT) and target.exists(), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, link


@each_document
def test_files_that_are_named_exist(document: Path) -> None:
    tops = ("_build", "src", "native", "tests", "examples", "benchmarks")
    paths = [str(path) for top in tops for path in ROOT.glob(f"{top}/**/*.*")]
    for name in SPAN.findall(FENCE.sub("", document.read_text("utf-8"))):
        if re.fullmatch(r"\w[\w./-]*\.(py|pyi|h|cpp)", name):
            assert any(path.endswith(f"/{name}") for path in paths), name


def test_the_file_tree_names_every_module_and_header_and_no_other() -> None:
    tree = next(code for _, code in blocks(ARCHITECTURE, "text"))
    named: list[str] = []
    folders: list[str] = []
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        del folders[depth:]
        if not name.endswith("/"):
            named.append("".join(folders) + name)
            continue
        folders.append(name)
        init = "".join(folders) + "__init__.py"
        if (ROOT / init).exists():
            named.append(init)
    there = [
        *(path for path in ROOT.glob("src/inferno/**/*.py")),
        *(path for path in ROOT.glob("native/**/*.h")),
        *(path for path in ROOT.glob("native/bindings/module.cpp")),  # which has no header
    ]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in there)


# --------------------------------------------------------------------------- what is drawn


def test_the_chart_is_of_the_results_that_stand_beside_it(tmp_path: Path) -> None:
    """The command in README draws docs/speed.svg: the same words and figures."""
    pytest.importorskip("matplotlib")
    line = next(line for line in commands(README) if "--plot" in line and "results/" in line)
    _, _, results, _, drawn = line.split()
    if not (ROOT / results).exists():
        pytest.skip("no results are kept")
    redrawn = tmp_path / "redrawn.svg"
    assert main(["bench", str(ROOT / results), "--plot", str(redrawn)]) == 0
    old, new = ((path).read_text("utf-8") for path in (ROOT / drawn, redrawn))
    words = re.findall(r"<text[^>]*>(.*?)</text>", new, re.DOTALL)
    assert words and words == re.findall(r"<text[^>]*>(.*?)</text>", old, re.DOTALL)


# --------------------------------------------------------------------------- what is listed


def test_the_readme_lists_the_architectures() -> None:
    assert sorted(table(README, "architecture")) == models.supported()


def test_the_guide_shows_the_file_that_it_adds() -> None:
    _, code = next(blocks(ROOT / "docs/guides/add-an-architecture.md", "python"))
    assert code == (ROOT / "src/inferno/models/gemma.py").read_text("utf-8")


def test_the_readme_lists_the_formats() -> None:
    blocks = {name: columns for name, columns, _ in _native.activations()}

    def multiplied(activation: str) -> str:
        return "float32" if activation == "f32" else f"int8 blocks of {blocks[activation]}"

    listed = [[name, *facts] for name, facts in table(README, "format").items()]
    assert listed == [
        [name, f"{size * 8 / columns:g}", "yes" if encodes else "no", multiplied(activation)]
        for name, activation, columns, size, _, encodes in _native.formats()
    ]


def test_the_readme_lists_the_instruction_sets() -> None:
    listed = table(README, "instruction set")
    assert sorted(listed) == sorted(path.stem for path in ROOT.glob("native/kernels/isa/*.h"))


def test_the_guide_lists_the_errors() -> None:
    listed = table(ROOT / "docs/guides/use-it-from-python.md", "class")
    kinds = errors.InfernoError.__subclasses__()
    assert list(listed) == [kind.__name__ for kind in kinds]
    for kind in kinds:
        assert listed[kind.__name__] == [f"`{kind.__bases__[1].__name__}`", f"`{kind.code}`"]


def test_the_guide_names_every_sampling_parameter() -> None:
    spans = SPAN.findall((ROOT / "docs/guides/use-it-from-python.md").read_text("utf-8"))
    assert set(SamplingParams.__dataclass_fields__) <= set(spans)
