"""`inferno doctor`, run whole: it is quick, and what it says can be checked."""

from __future__ import annotations

import json

import pytest

from inferno import _native
from inferno.cli import main, serve
from inferno.server.listener import bind


def test_the_report_names_what_this_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert f"same bits        yes, in {len(_native.isas())} instruction" in output
    assert all(isa in output for isa in _native.isas())


def test_json_is_one_object_with_measured_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["isa"] == _native.choose_isa("")
    assert report["same_bits"] == dict.fromkeys(_native.isas(), True)
    for figure in ("read_bytes_per_second", "int8_macs_per_second", "float_macs_per_second"):
        assert report[figure] > 1e8


def test_a_port_that_is_taken_is_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("inferno.cli.serve.PORT", port)
        assert main(["doctor", "--json"]) == 0
        assert f"port {port}" in json.loads(capsys.readouterr().out)["port_conflict"]
    assert serve.port_conflict() is None


def test_wrong_bits_are_said_and_returned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.selftest.same_bits", lambda names: dict.fromkeys(names, False))
    assert main(["doctor"]) == 1
    assert "same bits        NO: " in capsys.readouterr().out


def test_an_impossible_isa_in_the_environment_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_ISA", "sse9")
    assert main(["doctor"]) == 2
    assert "`sse9`" in capsys.readouterr().err


def test_cores_of_several_kinds_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of big.LITTLE the kernel reports what all cores can run, which is what is used."""
    monkeypatch.setattr("inferno.machine.core_kinds", lambda: 2)
    assert main(["doctor"]) == 0
    assert "(its 2 kinds of cores have: " in capsys.readouterr().out
