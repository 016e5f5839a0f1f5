"""The documents are true: their snippets and the examples run, and what they name exists.

A tiny checkpoint stands in for the default model, so nothing is fetched.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from documents import (
    ARCHITECTURE,
    DOCUMENTS,
    FENCE,
    LINK,
    PAGES,
    README,
    ROOT,
    SPAN,
    blocks,
    commands,
    name_of,
    prose,
    table,
)
from inferno import _native, models
from inferno.cli import COMMANDS, main
from inferno.options import SamplingParams

EXAMPLES = sorted(ROOT.glob("examples/*.py"))

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


# --------------------------------------------------------------------------- what runs


@pytest.mark.usefixtures("named_models")
@pytest.mark.parametrize(
    "document",
    [path for path in (README, *PAGES) if any(blocks(path, "python"))],
    ids=name_of,
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


@each_document
def test_blocks_of_data_can_be_read(document: Path) -> None:
    for _, code in blocks(document, "json"):
        json.loads(code)
    for _, code in blocks(document, "yaml"):
        yaml.safe_load(code)


@each_document
def test_every_block_says_what_it_is(document: Path) -> None:
    languages = {match[1] for match in FENCE.finditer(document.read_text("utf-8"))}
    assert languages <= {"", "cpp", "json", "make", "python", "sh", "text", "yaml"}


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
def test_benchmarks_and_flags_that_are_named_exist(document: Path) -> None:
    for line in commands(document):
        if match := re.search(r"(benchmarks/\w+\.py)(.*)", line):
            source = (ROOT / match[1]).read_text("utf-8")
            for flag in re.findall(r"--[a-z][a-z-]*", match[2]):
                assert f'"{flag}"' in source, line


@each_document
def test_relative_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(prose(document)):
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
    tops = ("_build", "src", "native", "tests", "examples", "benchmarks", "docs")
    paths = [str(path) for top in tops for path in ROOT.glob(f"{top}/**/*.*")]
    for name in SPAN.findall(prose(document)):
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
        *(path for path in ROOT.glob("native/bindings/module.cpp")),  # which have no header
        *(path for path in ROOT.glob("native/cases/main.cpp")),
    ]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in there)


# --------------------------------------------------------------------------- what is drawn


def test_the_figures_are_what_their_program_draws() -> None:
    program = runpy.run_path(str(ROOT / "docs/figures/draw.py"))
    drawn = {f"{f.__name__.replace('_', '-')}.svg": str(f()) for f in program["FIGURES"]}
    kept = {path.name: path.read_text("utf-8") for path in ROOT.glob("docs/figures/*.svg")}
    assert kept == drawn


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


@pytest.mark.parametrize(
    ("guide", "language", "file"),
    [
        ("add-an-architecture", "python", "src/inferno/models/gemma.py"),
        ("add-a-format", "cpp", "native/quant/iq4_nl.h"),
    ],
)
def test_a_guide_shows_the_file_that_it_adds(guide: str, language: str, file: str) -> None:
    _, code = next(blocks(ROOT / f"docs/guides/{guide}.md", language))
    assert code == (ROOT / file).read_text("utf-8")


def test_the_readme_names_the_formats() -> None:
    named = set(SPAN.findall(prose(README)))
    assert {name for name, *_ in _native.formats()} <= named


def test_the_readme_lists_the_instruction_sets() -> None:
    listed = table(README, "instruction set")
    headers = {path.stem for path in ROOT.glob("native/kernels/isa/*.h")} - {"isas"}  # the list
    assert sorted(listed) == sorted(headers)


def test_the_guide_names_every_sampling_parameter() -> None:
    spans = SPAN.findall((ROOT / "docs/guides/use-it-from-python.md").read_text("utf-8"))
    assert set(SamplingParams.__dataclass_fields__) <= set(spans)
