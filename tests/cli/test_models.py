"""`pull`, `list`, `rm` and `info` on caches of their own. What they fetch with has tests/hub."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from inferno import hub
from inferno.catalogue import CATALOGUE
from inferno.cli import info, main
from inferno.cli.list import age

REPOSITORY = "org/tiny-GGUF"
NAME = f"hf.co/{REPOSITORY}:Q8_0"


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "huggingface"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def cached_repository(caches: Path, llama_gguf: Path) -> Path:
    """The tiny Llama, as the hub's programs cache it."""
    storage = caches / "huggingface" / f"models--{REPOSITORY.replace('/', '--')}"
    commit = hashlib.sha1(b"1").hexdigest()
    snapshot = storage / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (storage / "blobs").mkdir()
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(commit)
    shutil.copy(llama_gguf, storage / "blobs" / "etag")
    (snapshot / "tiny-Q8_0.gguf").symlink_to("../../blobs/etag")
    return snapshot / "tiny-Q8_0.gguf"


@pytest.fixture
def cached_image(caches: Path, llama_gguf: Path) -> Path:
    """The tiny Llama, as Ollama has fetched it."""
    manifest = caches / "ollama/manifests/registry.ollama.ai/library/tiny/1b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "ab" * 32}
    manifest.write_text(json.dumps({"layers": [layer]}))
    blob = caches / "ollama" / "blobs" / ("sha256-" + "ab" * 32)
    blob.parent.mkdir()
    shutil.copy(llama_gguf, blob)
    return blob


# list ---------------------------------------------------------------------------------------------


def test_list_shows_the_models_of_every_cache(cached_repository, cached_image, capsys):
    assert main(["list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SIZE", "FROM", "MODIFIED"]
    assert [re.split(r"\s{2,}", row)[0] for row in rows] == [NAME, "ollama:tiny:1b"]
    assert "Hugging Face" in rows[0] and "Ollama" in rows[1]
    assert all(row.endswith(("ago", "just now")) for row in rows)


def test_an_empty_list_says_what_to_do_next(capsys):
    assert main(["list"]) == 0
    assert "`inferno list --all`" in capsys.readouterr().out


def test_list_all_has_every_name_with_its_size_and_licence(capsys):
    assert main(["list", "--all"]) == 0
    output = capsys.readouterr().out
    for entry in CATALOGUE.values():
        (line,) = [line for line in output.splitlines() if line.startswith(f"{entry.name} ")]
        assert entry.licence in line and "not fetched" in line and len(line) <= 80


def test_list_as_json_is_one_object(cached_repository, capsys):
    assert main(["list", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["name"], model["path"]) == (NAME, str(cached_repository))
    assert model["bytes"] == cached_repository.stat().st_size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (60, "1 minute ago"),
        (3 * 3600, "3 hours ago"),
        (47 * 3600, "1 day ago"),
        (8 * 86400, "1 week ago"),
        (70 * 86400, "2 months ago"),
        (800 * 86400, "2 years ago"),
    ],
)
def test_ages_are_said_as_people_do(seconds, text):
    assert age(seconds) == text


# rm -----------------------------------------------------------------------------------------------


def test_rm_deletes_and_says_what_it_freed(cached_repository, capsys):
    size = cached_repository.stat().st_size
    assert main(["rm", NAME.lower().replace("tiny-gguf", "tiny-GGUF")]) == 0
    assert "deleted hf.co/org/tiny-GGUF:q8_0" in capsys.readouterr().out
    assert size > 100_000 and hub.stored() == []
    assert main(["rm", NAME]) == 3


def test_rm_leaves_a_file_alone(llama_gguf, capsys):
    assert main(["rm", str(llama_gguf)]) == 2
    assert "delete" in capsys.readouterr().err and llama_gguf.exists()


# pull ---------------------------------------------------------------------------------------------


def test_pull_says_where_the_model_is(cached_repository, monkeypatch, capsys):
    monkeypatch.setattr(hub, "pull", lambda model, progress: cached_repository)
    assert main(["pull", NAME]) == 0
    assert capsys.readouterr().out.startswith(f"{NAME} is here: {cached_repository} (")
    assert main(["pull", NAME, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "model": NAME,
        "path": str(cached_repository),
        "bytes": cached_repository.stat().st_size,
    }


def test_pull_can_keep_a_quantized_gguf(llama_directory, monkeypatch, capsys):
    monkeypatch.setattr(hub, "pull", lambda model, progress: llama_directory)
    assert main(["pull", "hf.co/org/tiny", "--gguf", "--weights", "q8_0"]) == 0
    path = hub.quantized_path("hf.co/org/tiny", "q8_0")
    assert str(path) in capsys.readouterr().out
    assert main(["info", str(path), "--json"]) == 0
    formats = json.loads(capsys.readouterr().out)["formats"]
    assert formats["q8_0"] > 0.9 * sum(formats.values())
    assert main(["rm", "hf.co/org/tiny"]) == 0 and not path.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["pull"], 2),
        (["pull", "ollama:tiny"], 2),
        (["pull", "nonesuch"], 3),
        (["pull", NAME, "--weights", "q4_0"], 2),
        (["pull", NAME], 1),  # offline
        (["rm"], 2),
        (["info", "qwen2.5-0.5b-instruct"], 3),
        (["info", "model.gguf", "--context", "many"], 2),
    ],
)
def test_what_cannot_be_is_an_error_with_a_hint(arguments, code, capsys):
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "hint: " in error


# info ---------------------------------------------------------------------------------------------


def test_info_says_what_a_model_is(llama_gguf, capsys):
    assert main(["info", str(llama_gguf), "--context", "128"]) == 0
    output = capsys.readouterr().out
    facts = dict(re.findall(r"^([a-z ]+?) {2,}(.*)$", output, re.MULTILINE))
    assert facts["architecture"] == "llama (llama)"
    assert facts["layers"] == "2, width 64, 4 heads of 16, 2 for keys and values"
    assert facts["stops at"].startswith("2 <|im_end|>")
    assert "cache of 128 tokens" in facts["memory"]
    assert "<|im_start|>" in output.partition("chat template\n")[2]


def test_info_opens_a_blob_of_ollama_in_place(cached_image, capsys):
    assert main(["info", "ollama:tiny:1b"]) == 0
    assert str(cached_image) in capsys.readouterr().out


def test_info_says_what_does_not_fit(llama_gguf, capsys, monkeypatch):
    monkeypatch.setattr("inferno.description.available_memory", lambda: 1000)
    assert main(["info", str(llama_gguf)]) == 0
    assert "it does not fit" in capsys.readouterr().out


def test_info_prints_the_plan_with_shapes_and_bytes(llama_gguf, capsys):
    assert main(["info", str(llama_gguf), "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r" +0  embed .*  320 × 64 +f32  82 KB +model\.embed_tokens", lines[0])
    assert any(re.search(r"attention +layer 1 ", line) for line in lines)
    assert re.fullmatch(r" +\d+ operations, .* of weights", lines[-1])
    names = [line.index("model.") for line in lines if "model." in line]
    assert len(set(names)) == 1  # in a column


def test_info_as_json_has_everything_and_the_plan_if_asked(llama_gguf, capsys):
    assert main(["info", str(llama_gguf), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["num_hidden_layers"] == 2 and "plan" not in data
    assert data["memory"]["total"] == sum(
        data["memory"][part] for part in ("weights", "kv_cache", "scratch")
    )
    assert main(["info", str(llama_gguf), "--json", "--plan"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"][0]["operation"] == "embed"


def test_info_estimates_the_cache_that_is_asked_about(llama_gguf, capsys):
    def cache(*flags):
        assert main(["info", str(llama_gguf), "--json", *flags]) == 0
        data = json.loads(capsys.readouterr().out)
        return data["kv_cache"], data["memory"]["kv_cache"]

    assert cache() == cache("--kv-cache", "f16")
    assert cache("--kv-cache", "f32") == ("f32", 2 * cache()[1])
    assert main(["info", str(llama_gguf), "--kv-cache", "q8_0"]) == 0
    assert " q8_0 cache of 256 tokens" in capsys.readouterr().out
    assert main(["info", str(llama_gguf), "--kv-cache", "bf16"]) == 2
    assert "`kv_cache`: expected one of" in capsys.readouterr().err


def test_info_shows_the_whole_template_alone(llama_gguf, capsys):
    import checkpoints

    assert main(["info", str(llama_gguf), "--template"]) == 0
    assert capsys.readouterr().out == checkpoints.CHATML + "\n"


def test_what_a_hostile_file_says_is_shown_and_not_obeyed(llama_gguf, capsys, monkeypatch):
    from dataclasses import replace

    from inferno import description

    described = replace(description.describe(llama_gguf), chat_template="\x1b[2J", licence="\x1b]")
    monkeypatch.setattr(description, "describe", lambda *_, **__: described)
    assert main(["info", str(llama_gguf)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "text"), [(320, "320"), (134_515_008, "135 M"), (1_100_048_384, "1.10 B")]
)
def test_parameters_are_said_as_people_do(count, text):
    assert info.format_count(count) == text
