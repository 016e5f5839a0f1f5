"""The names users import, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import inferno

NAMES = [
    "__version__",
    "Engine",
    "Memory",
    "Session",
    "Generation",
    "Stats",
    "TokenLogprobs",
    "SamplingParams",
    "Score",
    "InfernoError",
    "ModelNotFound",
    "AccessDenied",
    "DownloadFailed",
    "InvalidCheckpoint",
    "UnsupportedModel",
    "InvalidOption",
    "InvalidText",
    "TemplateError",
    "ContextFull",
    "OutOfMemory",
    "Busy",
    "NativeError",
]


def run(program: str) -> str:
    """Run a program in a Python that has imported nothing yet; return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_public_names_are_these() -> None:
    assert sorted(inferno.__all__) == sorted(NAMES)
    assert len(set(inferno.__all__)) == len(inferno.__all__)


@pytest.mark.parametrize("name", inferno.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    value = getattr(inferno, name)
    assert value is getattr(inferno, name)
    if name != "__version__":
        assert isinstance(value, type)
        assert value.__name__ == name
        assert value.__module__.startswith("inferno.")


def test_a_star_import_brings_exactly_the_public_names() -> None:
    program = "from inferno import *; print(*sorted(n for n in dir() if n != '__builtins__'))"
    own = {"__annotations__", "__doc__", "__loader__", "__name__", "__package__", "__spec__"}
    assert set(run(program).split()) - own == set(NAMES)


def test_dir_lists_the_public_names_alone() -> None:
    assert run("import inferno; print(*dir(inferno))").split() == sorted(NAMES)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match=r"inferno.*`Enigne`"):
        _ = inferno.Enigne
    with pytest.raises(ImportError, match="Enigne"):
        exec("from inferno import Enigne")


def test_every_public_error_is_an_inferno_error_with_a_code_of_its_own() -> None:
    errors = [getattr(inferno, name) for name in inferno.__all__ if name != "__version__"]
    errors = [error for error in errors if issubclass(error, BaseException)]
    assert all(issubclass(error, inferno.InfernoError) for error in errors)
    from inferno import errors as home

    defined = [value for value in vars(home).values() if isinstance(value, type)]
    assert set(errors) == set(defined)
    assert len({error.code for error in errors}) == len(errors)


def test_importing_inferno_imports_neither_numpy_nor_the_native_core() -> None:
    loaded = run("import sys, inferno; print(*sys.modules)").split()
    heavy = {"numpy", "inferno._native", "inferno.engine", "tokenizers", "jinja2", "subprocess"}
    assert "inferno" in loaded
    assert heavy.isdisjoint(loaded)


def test_errors_and_options_import_neither_numpy_nor_the_native_core() -> None:
    program = "import sys; from inferno import SamplingParams, InvalidOption; print(*sys.modules)"
    assert {"numpy", "inferno._native", "inferno.engine"}.isdisjoint(run(program).split())


def test_importing_a_submodule_by_its_path_works() -> None:
    """`inferno.chat` is a module, and no public name hides one."""
    for path in sorted((Path(inferno.__file__).parent).glob("[a-z]*.py")):
        value = getattr(inferno, path.stem, None)
        assert value is None or isinstance(value, types.ModuleType), path.stem


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert inferno.__version__ == version("inferno-engine")
