from __future__ import annotations

import os

import pytest

from hub.fake_hub import Repository
from inferno import hub
from inferno.catalogue import CATALOGUE, RepositoryEntry
from inferno.errors import InvalidCheckpoint, InvalidOption, ModelNotFound
from inferno.hub import repositories

# Files and directories ────────────────────────────────────────────────────────────────────────────


def test_a_gguf_file_is_itself(tmp_path):
    file = tmp_path / "model.GGUF"
    file.write_bytes(b"GGUF")
    assert hub.resolve(file) == hub.resolve(str(file)) == file


def test_a_directory_with_a_config_is_itself(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert hub.resolve(tmp_path) == tmp_path


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert hub.resolve("~/model.gguf") == tmp_path / "model.gguf"


@pytest.mark.parametrize("target", ["nowhere", "model.gguf"])
def test_a_link_that_leads_nowhere_is_called_that(tmp_path, target):
    (tmp_path / "model.gguf").symlink_to(target)
    with pytest.raises(ModelNotFound, match="a link that leads nowhere") as caught:
        hub.resolve(tmp_path / "model.gguf")
    assert caught.value.hint is None


@pytest.mark.parametrize("model", [None, 5, [], [10**5000]])
def test_what_is_no_name_and_no_path_is_an_invalid_option(model):
    with pytest.raises(InvalidOption, match="`model`: expected a name or a path"):
        hub.resolve(model)


def test_a_directory_without_a_config_names_the_gguf_file_in_it(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(InvalidCheckpoint, match=r"expected a config\.json") as caught:
        hub.resolve(tmp_path)
    assert "model.gguf" in caught.value.hint


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_of_a_checkpoint_points_to_its_directory(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidCheckpoint) as caught:
        hub.resolve(tmp_path / name)
    assert str(tmp_path) in caught.value.hint


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "model.bin").write_text("{}")
    with pytest.raises(InvalidCheckpoint, match=r"expected a \.gguf file, found `\.bin`"):
        hub.resolve(tmp_path / "model.bin")


def test_a_device_is_refused():
    with pytest.raises(InvalidCheckpoint, match="expected a file or a directory"):
        hub.resolve(os.devnull)


def test_a_mistyped_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "model-q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match="no such file") as caught:
        hub.resolve(tmp_path / "model-q5.gguf")
    assert "did you mean" in caught.value.hint and "model-q4.gguf" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["", "x" * 5000, "a\0b", "../" * 2000, "nonesuch", "a/b", "\udcff.gguf"]
)
def test_a_name_that_is_nothing_is_not_found(name):
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve(name)
    assert caught.value.hint


def test_a_mistyped_name_suggests_one():
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve("smolm2-135m-instruct")
    assert caught.value.hint == "did you mean `smollm2-135m-instruct`?"


# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tinyllama", "tinyllama-1.1b-chat-v1.0"), ("Qwen2.5-0.5b-instrct", "qwen2.5-0.5b-instruct")],
)
def test_the_beginning_of_a_name_or_one_close_to_it_suggests_it(name, meant):
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve(name)
    assert caught.value.hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_an_entry_of_the_catalogue_can_be_chosen_by(entry):
    assert entry.name == entry.name.lower() and entry.licence and entry.bytes > 50_000_000
    if isinstance(entry, RepositoryEntry):
        assert repositories.is_repository(entry.repository)


def test_a_named_model_of_a_repository_is_fetched_from_it(fake_hub, monkeypatch):
    entry = CATALOGUE["smollm2-360m-instruct"]
    fake_hub.repositories[entry.repository] = Repository(
        {entry.file: b"GGUF" * 100, "other-q8_0.gguf": b"GGUF" * 100}
    )
    path = hub.resolve("SmolLM2-360M-Instruct")
    assert path.name == entry.file
    assert [model.name for model in hub.stored()] == [entry.name]
    assert hub.find(f"hf.co/{entry.repository}:Q8_0") == path  # the same, by its other name
    assert hub.remove(entry.name) == 400
    assert hub.stored() == []


def test_what_is_not_fetched_yet_is_found_nowhere_and_asks_no_network():
    assert hub.find("smollm2-360m-instruct") is None
    assert hub.find("hf.co/org/repo:Q8_0") is None


@pytest.mark.parametrize("forget", [hub.pull, hub.remove])
def test_a_path_is_neither_pulled_nor_removed(tmp_path, forget):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(InvalidOption):
        forget(str(file))
    assert file.exists()
    with pytest.raises(ModelNotFound):
        forget(str(tmp_path / "nonesuch.gguf"))


def test_a_quantized_copy_goes_by_the_name_of_what_it_was_made_from(home):
    for name in ("tinyllama-1.1b-chat-v1.0", "hf.co/org/repo"):
        path = hub.quantized_path(name, "q4_0")
        assert path.parent == home / "quantized"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    assert [(model.name, model.source) for model in hub.stored()] == [
        ("hf.co/org/repo", "quantized to q4_0"),
        ("tinyllama-1.1b-chat-v1.0", "quantized to q4_0"),
    ]
    assert hub.remove("TinyLlama-1.1B-Chat-v1.0") == 4
    assert hub.remove("hf.co/org/repo") == 4
    assert hub.stored() == []


def test_what_has_no_name_has_no_quantized_copy(tmp_path):
    assert hub.quantized_path(str(tmp_path), "q4_0") is None
    assert hub.quantized_path("model.gguf", "q4_0") is None
    assert hub.quantized_path("ollama:smollm2", "q4_0") is None
