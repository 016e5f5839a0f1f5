"""Names from outside, on the systems that take some of them for something else."""

from __future__ import annotations

import sys

import pytest

from inferno.file_name import is_file_name

NOWHERE = ["", ".", "..", "a/b", "a\\b", "..\\..\\x", "/etc/passwd", "a\0b"]
NOT_ON_WINDOWS = [
    *("con", "CON", "nul.gguf", "Aux.tar.gz", "com1", "LPT9.txt", "com¹", "conin$", "prn ", "nul:"),
    *("c:model.gguf", "model.gguf:stream", "a?b", "a*b", 'a"b', "a|b", "a<b", "a\nb", "a.", "a "),
]
EVERYWHERE = ["model.gguf", "console", "nullable.json", "com10", "co n", ".hidden", "a..b", "模型"]


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_a_name_with_a_folder_in_it_is_none(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert [name for name in NOWHERE if is_file_name(name)] == []
    assert [name for name in EVERYWHERE if not is_file_name(name)] == []


def test_devices_drives_streams_and_patterns_are_no_files_of_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert [name for name in NOT_ON_WINDOWS if is_file_name(name)] == []
    monkeypatch.setattr(sys, "platform", "linux")
    assert [name for name in NOT_ON_WINDOWS if not is_file_name(name)] == []
