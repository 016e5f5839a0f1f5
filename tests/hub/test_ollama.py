"""Ollama's folder as its versions since 0.1.30 write it, made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno import hub
from inferno.errors import InvalidCheckpoint, InvalidOption, ModelNotFound, UnsupportedModel
from inferno.hub import ollama

LAYER = "application/vnd.ollama.image."
DIGEST = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ollama"


@pytest.fixture
def image(folder):
    """Make a model of Ollama; `layers` are the kinds of its layers and their digests."""

    def make(
        name: str = "registry.ollama.ai/library/llama3.2/1b",
        layers: tuple[tuple[str, str], ...] = (("model", DIGEST), ("template", "cd" * 32)),
        content: bytes = b"GGUF...",
    ) -> Path:
        manifest = folder / "manifests" / name
        manifest.parent.mkdir(parents=True, exist_ok=True)
        entries = [
            {"mediaType": LAYER + kind, "digest": f"sha256:{digest}", "size": 1}
            for kind, digest in layers
        ]
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": entries}))
        blob = folder / "blobs" / f"sha256-{layers[0][1] if layers else DIGEST}"
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(content)
        return blob

    return make


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        ("registry.ollama.ai/library/llama3.2/1b", "ollama:llama3.2:1b"),
        ("registry.ollama.ai/library/smollm2/latest", "ollama:smollm2:latest"),
        ("registry.ollama.ai/somebody/model/q8_0", "ollama:somebody/model:q8_0"),
        ("hf.co/org/repo-GGUF/Q4_K_M", "ollama:hf.co/org/repo-GGUF:Q4_K_M"),
    ],
)
def test_a_blob_is_used_where_it_lies(image, manifest, name):
    blob = image(manifest)
    assert hub.resolve(name) == blob
    assert [(model.name, model.path, model.source) for model in hub.stored()] == [
        (name, blob, "Ollama")
    ]


def test_the_tag_may_be_left_out(image):
    blob = image("registry.ollama.ai/library/smollm2/latest")
    assert hub.resolve("ollama:smollm2") == hub.resolve("OLLAMA:smollm2:latest") == blob


def test_a_name_of_ollama_s_alone_is_suggested_with_the_prefix(image):
    image()
    for name in ("llama3.2:1b", "llama3.2"):
        with pytest.raises(ModelNotFound) as caught:
            hub.resolve(name)
        assert caught.value.hint == "did you mean `ollama:llama3.2:1b`?"


def test_another_tag_is_suggested(image):
    image()
    with pytest.raises(ModelNotFound, match="expected a manifest") as caught:
        hub.resolve("ollama:llama3.2:3b")
    assert caught.value.hint == "did you mean `ollama:llama3.2:1b`?"


def test_without_ollama_the_hint_says_where_was_looked(folder):
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve("ollama:smollm2")
    assert str(folder) in caught.value.hint and "OLLAMA_MODELS" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["ollama:", "ollama:a:", "ollama:../x", "ollama:a/b/c/d", "ollama:a:b:c", "ollama:a/../b"],
)
def test_a_name_that_cannot_be_is_an_invalid_option(name):
    with pytest.raises(InvalidOption, match="expected ollama:NAME"):
        hub.resolve(name)


def test_weights_that_are_gone_are_named(image):
    blob = image()
    blob.unlink()
    with pytest.raises(ModelNotFound, match="expected its weights in") as caught:
        hub.resolve("ollama:llama3.2:1b")
    assert "`ollama pull llama3.2:1b`" in caught.value.hint
    assert hub.stored() == []


@pytest.mark.parametrize("name", ["ollama:nul", "ollama:a:con", "ollama:com1/x"])
def test_a_device_of_windows_is_no_model(monkeypatch, name):
    monkeypatch.setattr("inferno.file_name.sys.platform", "win32")
    with pytest.raises(InvalidOption, match="expected ollama:NAME"):
        ollama.parse(name)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((("model", DIGEST), ("adapter", "ef" * 32)), "adapters"),
        ((("model", DIGEST), ("model", "ef" * 32)), "expected one file of weights, found 2"),
        ((("template", DIGEST),), "expected one file of weights, found 0"),
    ],
)
def test_what_is_more_or_less_than_one_file_is_unsupported(image, layers, message):
    image(layers=layers)
    with pytest.raises(UnsupportedModel, match=message):
        hub.resolve("ollama:llama3.2:1b")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"layers": 5}', '{"layers": [{}]}', "[" * 100_000, " " * (2 << 20)),
        json.dumps({"layers": [{"mediaType": LAYER + "model", "digest": "sha256:../../x"}]}),
    ],
    ids=range(9),
)
def test_a_damaged_manifest_is_named(image, folder, text):
    image()
    (folder / "manifests/registry.ollama.ai/library/llama3.2/1b").write_text(text)
    with pytest.raises(InvalidCheckpoint, match="1b: expected") as caught:
        hub.resolve("ollama:llama3.2:1b")
    assert caught.value.hint
    assert hub.stored() == []


def test_ollama_s_models_are_not_ours_to_fetch_or_delete(image):
    blob = image()
    with pytest.raises(InvalidOption) as caught:
        hub.remove("ollama:llama3.2:1b")
    assert "`ollama rm llama3.2:1b`" in caught.value.hint
    with pytest.raises(InvalidOption) as caught:
        hub.pull("ollama:llama3.2:1b")
    assert "`ollama pull llama3.2:1b`" in caught.value.hint
    assert blob.exists()


def test_the_folder_is_the_one_of_the_environment_the_user_or_the_service(
    monkeypatch, tmp_path, folder
):
    assert ollama.models_folder() == folder
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    service = tmp_path / "service"
    service.mkdir()
    monkeypatch.setattr(ollama, "SYSTEM_FOLDER", service)
    assert ollama.models_folder() == service
    (tmp_path / ".ollama" / "models").mkdir(parents=True)
    assert ollama.models_folder() == tmp_path / ".ollama" / "models"
