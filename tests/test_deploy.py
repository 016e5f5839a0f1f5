"""The files of `deploy/`, as far as they can be checked without what they are for."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

from inferno.cli import COMMANDS
from inferno.cli.serve import PORT

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_the_unit_starts_a_command_that_there_is_and_ends_after_it() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(DEPLOY / "inferno.service")
    program, command, *flags = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "inferno"
    assert command in COMMANDS
    assert flags == ["--log-json"]
    assert unit["Service"]["DynamicUser"] == "yes"
    assert int(unit["Service"]["TimeoutStopSec"]) > 10


def test_the_image_runs_the_server_as_nobody_in_particular() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert [step for step, _ in steps if step == "FROM"] == ["FROM", "FROM"]
    last = dict(steps)
    assert last["USER"] == "inferno"
    assert '"serve"' in last["ENTRYPOINT"] and f'"{PORT}"' in last["ENTRYPOINT"]
    assert last["EXPOSE"] == str(PORT)
