"""The site is built strictly, asks nothing of other servers, and leaves nothing of the code out."""

from __future__ import annotations

import ast
import dataclasses
import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inferno
from inferno import _native, models
from inferno.catalogue import CATALOGUE
from inferno.cli import COMMANDS
from inferno.options import SamplingParams

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("src/inferno/**/*.py"))

# Variables of a terminal, of other programs that are read to find these, and of pip's own.
OTHERS = {"NO_COLOR", "TERM", "OLLAMA_MODELS", "OLLAMA_HOST"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(page: Path) -> str:
    """Return what a page says, without its tags."""
    content = page.read_text("utf-8").partition("<article")[2].partition("</article>")[0]
    return html.unescape(re.sub(r"<[^>]+>", "", content))


def variables_read() -> set[str]:
    """Return the names that the package looks up in `os.environ`, and its own wherever they are."""
    found: set[str] = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "os.environ.get",
                "getenv",
            ):
                arguments = node.args[:1]
            elif isinstance(node, ast.Constant):
                named = isinstance(node.value, str) and re.fullmatch("INFERNO_[A-Z_]+", node.value)
                arguments = [node] if named else []
            else:
                continue
            found |= {a.value for a in arguments if isinstance(a, ast.Constant)}
    return found


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) > 20
    for page in pages:
        markup = re.sub(r"<pre.*?</pre>", "", page.read_text("utf-8"), flags=re.DOTALL)
        loaded = re.findall(
            r'<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)="([^"]*)"', markup
        )
        assert loaded
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
    for sheet in site.glob("**/*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text("utf-8")), sheet


def test_every_public_name_is_in_the_reference_with_what_it_means(site: Path) -> None:
    pages = [(site / f"reference/{name}.html").read_text("utf-8") for name in ("python", "errors")]
    for name in inferno.__all__:
        if name == "__version__":
            continue
        assert sum(f'id="inferno.{name}"' in page for page in pages) == 1, name
        kind = getattr(inferno, name)
        assert kind.__doc__ and kind.__doc__.strip()
        for member, value in vars(kind).items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert f'id="inferno.{name}.{member}"' in pages[0], f"{name}.{member}: no docstring"


def test_the_reference_explains_every_sampling_parameter(site: Path) -> None:
    documented = (SamplingParams.__doc__ or "").partition("Attributes:\n")[2]
    listed = re.findall(r"^        (\w+): ", documented, re.MULTILINE)
    assert listed == [field.name for field in dataclasses.fields(SamplingParams)]


def test_every_command_and_flag_is_in_the_reference(site: Path) -> None:
    page = (site / "reference/command-line.html").read_text("utf-8")
    sources = "".join(path.read_text("utf-8") for path in ROOT.glob("src/inferno/cli/*.py"))
    flags = set(re.findall(r'"(--[a-z][a-z-]+)"', sources)) - {"--help", "--version"}
    flags |= {"--top-k", "--kv-cache", "--xtc-threshold", "--json-schema"}  # made of names
    for command in COMMANDS:
        assert f'id="inferno-{command}"' in page
    assert [flag for flag in sorted(flags) if not re.search(rf">{flag}\b", page)] == []


def test_every_endpoint_is_in_the_reference(site: Path) -> None:
    from inferno.server.app import create_app
    from inferno.server.guard import Access
    from inferno.server.service import Loading, Settings

    said = text_of(site / "reference/http.html")
    for path, methods in create_app(Loading(Settings()), Access()).openapi()["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in said
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for field in body.get("schema", {}).get("properties", {}):
                assert re.search(rf"\b{field}\b", said), f"{path}: {field}"


def test_every_field_that_is_explained_is_read_somewhere(site: Path) -> None:
    from inferno.server.openapi import MEANINGS

    page = (site / "reference/http.html").read_text("utf-8")
    assert [name for name in MEANINGS if f"<td><code>{name}</code></td>" not in page] == []


def test_every_variable_that_the_code_reads_is_in_the_reference(site: Path) -> None:
    found = variables_read()
    assert {"INFERNO_HOME", "INFERNO_ISA", "INFERNO_THREADS", "INFERNO_API_KEY", *OTHERS} <= found
    said = text_of(site / "reference/environment.html")
    assert [name for name in sorted(found) if name not in said] == []


def test_the_reference_lists_formats_models_and_instruction_sets(site: Path) -> None:
    formats = text_of(site / "reference/formats.html")
    for name, *_ in _native.formats():
        assert re.search(rf"\b{name}\b", formats), name
    isas = {path.stem for path in ROOT.glob("native/kernels/isa/*.cpp")}
    for name in (*_native.cache_types(), *isas):
        assert re.search(rf"\b{name}\b", formats), name
    named = text_of(site / "reference/models.html")
    for name in (*CATALOGUE, *models.supported()):
        assert name in named, name
