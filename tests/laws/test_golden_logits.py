"""The logits of models and prompts are what they were, on every instruction set anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import engines
import golden
from case_programs import Program, arm_program, program, windows_program
from inferno import _native


@pytest.fixture(scope="module", params=golden.MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = request.param
    path = golden.MODELS[name](tmp_path_factory.mktemp("golden") / f"{name}.gguf")
    # A writer that changed is not a kernel that did.
    assert golden.digest(path.read_bytes()) == golden.golden()[name]["file"]
    return path


def prompts(model: Path) -> dict[str, list[int]]:
    return golden.prompts(engines.load(model, threads=1).config.vocab_size)


def expected(model: Path) -> dict[str, str]:
    return {name: golden.golden()[model.stem][name] for name in prompts(model)}


@pytest.mark.parametrize("isa", _native.isas())
def test_logits_are_what_they_were(model: Path, isa: str) -> None:
    engine = engines.load(model, isa=isa, threads=2)
    found = {
        name: golden.digest(engine.logits(ids).tobytes()) for name, ids in prompts(model).items()
    }
    assert found == expected(model)


@pytest.fixture(scope="module")
def frozen(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the plan and its weights as bytes, which no Python is needed for."""
    path = tmp_path_factory.mktemp("frozen") / model.stem
    engine = engines.load(model, threads=1)
    path.write_bytes(_native.testing.freeze(engine._loaded.model))
    return path


def logits_of(program: Program, isa: str, model: Path, frozen: Path) -> dict[str, str]:
    return {
        name: golden.digest(program.logits(frozen, isa, ids))
        for name, ids in prompts(model).items()
    }


@pytest.mark.parametrize("isa", ["avx_vnni", "avx512_vnni"])
def test_emulated_intrinsics_give_the_same_logits(model: Path, frozen: Path, isa: str) -> None:
    found = logits_of(program("inferno_cases_emulated"), isa, model, frozen)
    assert found == expected(model)


def test_avx_vnni_in_the_encoding_of_avx512_gives_the_same_logits(
    model: Path, frozen: Path
) -> None:
    found = logits_of(program("inferno_cases_evex"), "avx_vnni", model, frozen)
    assert found == expected(model)


@pytest.mark.parametrize("isa", ["neon_i8mm", "neon_dotprod", "neon", "scalar"])
def test_an_emulated_arm_gives_the_same_logits(model: Path, frozen: Path, isa: str) -> None:
    assert logits_of(arm_program("max"), isa, model, frozen) == expected(model)


@pytest.mark.parametrize("isa", _native.isas())
def test_windows_gives_the_same_logits(model: Path, frozen: Path, isa: str) -> None:
    assert logits_of(windows_program(), isa, model, frozen) == expected(model)
