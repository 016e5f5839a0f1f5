"""The Hugging Face hub, played by one of paper on this machine."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hub.fake_hub import FakeHub, Repository
from inferno import hub
from inferno.errors import (
    AccessDenied,
    DownloadFailed,
    InvalidCheckpoint,
    InvalidOption,
    ModelNotFound,
    UnsupportedModel,
)
from inferno.hub import repositories
from inferno.hub.repositories import Reference

Q4, Q8 = (bytes([kind]) + bytes(range(256)) * 200 for kind in (4, 8))
NAME = "hf.co/org/tiny-GGUF"


@pytest.fixture
def ggufs(fake_hub: FakeHub) -> FakeHub:
    """A repository of two types, and what else lies in such."""
    fake_hub.repositories["org/tiny-GGUF"] = Repository(
        {
            "README.md": b"# tiny",
            "tiny-Q4_K_M.gguf": Q4,
            "tiny-Q8_0.gguf": Q8,
            "mmproj-tiny-f16.gguf": b"GGUF" * 40,
        }
    )
    return fake_hub


@pytest.fixture
def shards(fake_hub: FakeHub) -> FakeHub:
    """A repository of safetensors in two files with an index."""
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    fake_hub.repositories["org/tiny"] = Repository(
        {
            "config.json": b"{}",
            "tokenizer.json": b"{}",
            "model.safetensors.index.json": json.dumps(index).encode(),
            "model-1.safetensors": Q4,
            "model-2.safetensors": Q8,
            "pytorch_model.bin": Q8 + Q8,
        }
    )
    return fake_hub


def in_cache(folder: Path) -> set[str]:
    """List what the cache shows as complete, and what is underway."""
    shown = {path.name for path in folder.glob("models--*/snapshots/*/*")}
    return shown | {path.suffix for path in folder.glob("models--*/blobs/*.*")}


# References ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("hf.co/org/repo", Reference("org/repo")),
        ("HF.co/org/Repo-1.1B_x:Q4_K_M", Reference("org/Repo-1.1B_x", "Q4_K_M")),
        ("huggingface.co/org/repo:a/b.gguf", Reference("org/repo", "a/b.gguf")),
        ("https://huggingface.co/org/repo/", Reference("org/repo")),
        (
            "https://hf.co/org/repo/resolve/main/m.gguf?download=true",
            Reference("org/repo", "m.gguf"),
        ),
        ("https://hf.co/org/repo/blob/main/sub/m.gguf", Reference("org/repo", "sub/m.gguf")),
        ("org/repo", None),
        ("hf.company/org/repo", None),
    ],
)
def test_what_a_name_refers_to(name, reference):
    assert repositories.parse(name) == reference


@pytest.mark.parametrize(
    "name",
    [
        *("hf.co", "hf.co/", "hf.co/org", "hf.co/a/b/c", "hf.co/org/repo:", "hf.co/../repo"),
        "hf.co/org/repo:../../x.gguf",
        "hf.co/org/re po",
        "hf.co/org/repo:a\0b",
        "hf.co/org/" + "x" * 99,
    ],
)
def test_a_reference_that_cannot_be_is_an_invalid_option(name):
    with pytest.raises(InvalidOption, match=r"expected hf\.co/ORG/REPO"):
        hub.resolve(name)


def test_a_repository_without_its_host_is_suggested_with_it():
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve("org/repo")
    assert "`hf.co/org/repo`" in caught.value.hint


# Fetching -----------------------------------------------------------------------------------------


def test_a_type_is_found_whatever_its_case(ggufs, hub_cache):
    path = hub.resolve(f"{NAME}:q8_0")
    assert path.name == "tiny-Q8_0.gguf" and path.read_bytes() == Q8
    assert in_cache(hub_cache) == {"tiny-Q8_0.gguf"}  # and nothing that nobody asked for


def test_a_file_is_found_by_its_name(ggufs):
    assert hub.resolve(f"{NAME}:tiny-Q4_K_M.gguf").read_bytes() == Q4


def test_without_a_type_it_is_the_one_that_people_expect(ggufs):
    assert hub.resolve(NAME).read_bytes() == Q4


def test_what_is_cached_asks_no_network(ggufs):
    path = hub.resolve(f"{NAME}:Q8_0")
    ggufs.requests.clear()
    assert hub.resolve(f"{NAME}:q8_0") == hub.resolve(f"{NAME}:tiny-Q8_0.gguf") == path
    assert ggufs.requests == []


def test_the_cache_is_the_one_of_all_programs(ggufs):
    """What the library fetched is found, and what was fetched here the library finds."""
    import huggingface_hub

    path = huggingface_hub.hf_hub_download("org/tiny-GGUF", "tiny-Q8_0.gguf", endpoint=ggufs.url)
    ggufs.requests.clear()
    assert hub.resolve(f"{NAME}:Q8_0") == Path(path)
    assert ggufs.requests == []
    ours = hub.resolve(f"{NAME}:Q4_K_M")
    found = huggingface_hub.try_to_load_from_cache("org/tiny-GGUF", "tiny-Q4_K_M.gguf")
    assert Path(found) == ours
    (repository,) = huggingface_hub.scan_cache_dir().repos
    assert repository.size_on_disk == len(Q4) + len(Q8)  # each once


def test_all_files_of_a_split_set_are_fetched(fake_hub):
    names = [f"Q8_0/big-Q8_0-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    contents = [bytes([number]) * 100 for number in (1, 2, 3)]
    fake_hub.repositories["org/big"] = Repository(dict(zip(names, contents, strict=True)))
    path = hub.resolve("hf.co/org/big:Q8_0")
    assert path.name == "big-Q8_0-00001-of-00003.gguf"
    assert [file.read_bytes() for file in sorted(path.parent.iterdir())] == contents


def test_a_directory_of_safetensors_has_its_shards_and_no_other_weights(shards, hub_cache):
    path = hub.resolve("hf.co/org/tiny")
    assert path.is_dir()
    assert in_cache(hub_cache) == {
        *("config.json", "tokenizer.json", "model.safetensors.index.json"),
        *("model-1.safetensors", "model-2.safetensors"),
    }
    shards.requests.clear()
    assert hub.resolve("hf.co/org/tiny") == path and shards.requests == []


def test_an_index_that_names_a_missing_shard_is_told_before_the_others_are_fetched(shards):
    del shards.repositories["org/tiny"].files["model-2.safetensors"]
    with pytest.raises(InvalidCheckpoint, match=r"names 'model-2\.safetensors', which"):
        hub.resolve("hf.co/org/tiny")
    assert shards.transfers("model-1.safetensors") == []


def test_a_directory_that_lacks_a_shard_is_not_taken_for_complete(shards, hub_cache):
    path = hub.resolve("hf.co/org/tiny")
    (path / "model-2.safetensors").unlink()
    assert hub.find("hf.co/org/tiny") is None
    assert (hub.resolve("hf.co/org/tiny") / "model-2.safetensors").read_bytes() == Q8


def test_progress_counts_all_files_up_to_the_total(shards):
    steps = []
    hub.resolve("hf.co/org/tiny", progress=lambda *step: steps.append(step))
    assert {what for what, _, _ in steps} == {"fetching hf.co/org/tiny (apache-2.0)"}
    done = [done for _, done, _ in steps]
    assert done == sorted(done)
    assert steps[-1][1] == steps[-1][2] >= len(Q4) + len(Q8)
    assert len({total for _, _, total in steps}) == 1  # which a log that shows one line has right


def test_pull_brings_a_new_version_and_resolve_does_not(ggufs):
    hub.resolve(f"{NAME}:Q8_0")
    repository = ggufs.repositories["org/tiny-GGUF"]
    repository.files["tiny-Q8_0.gguf"] = Q8[::-1]
    repository.version = 2
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8
    assert hub.pull(f"{NAME}:Q8_0").read_bytes() == Q8[::-1]
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8[::-1]


def test_pull_of_what_is_the_newest_transfers_nothing(ggufs):
    hub.pull(f"{NAME}:Q8_0")
    ggufs.requests.clear()
    hub.pull(f"{NAME}:Q8_0")
    assert ggufs.transfers() == []


# What goes wrong ----------------------------------------------------------------------------------


def test_a_dropped_connection_is_taken_up_where_it_broke(ggufs, capfd):
    ggufs.cuts["tiny-Q8_0.gguf"] = [1000, 5000]
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8
    assert capfd.readouterr() == ("", "")  # the bar, if any, is ours
    assert [r.range for r in ggufs.transfers()] == [None, "bytes=1000-", "bytes=6000-"]


def test_an_interrupted_download_goes_on_the_next_time(ggufs, hub_cache):
    def interrupt(what: str, done: int, total: int) -> None:
        if 3000 <= done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.resolve(f"{NAME}:Q8_0", progress=interrupt)
    assert in_cache(hub_cache) == {".partial"}
    assert hub.find(f"{NAME}:Q8_0") is None
    (partial,) = hub_cache.glob("models--*/blobs/*.partial")
    kept = partial.stat().st_size
    assert 2000 <= kept < len(Q8)
    ggufs.requests.clear()
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8
    assert [r.range for r in ggufs.transfers()] == [f"bytes={kept}-"]
    assert in_cache(hub_cache) == {"tiny-Q8_0.gguf"}


def test_what_is_kept_of_a_failed_download_is_gone_on_with(ggufs, hub_cache):
    ggufs.cuts["tiny-Q8_0.gguf"] = [1000] + [0] * 6  # the library gives up after five
    with pytest.raises(DownloadFailed, match="the transfer failed") as caught:
        hub.resolve(f"{NAME}:Q8_0")
    assert "goes on where it stopped" in caught.value.hint
    assert hub.find(f"{NAME}:Q8_0") is None
    ggufs.cuts.clear()
    ggufs.requests.clear()
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8
    assert [r.range for r in ggufs.transfers()] == ["bytes=1000-"]


def test_a_hub_that_ignores_ranges_sends_all_of_it_again(ggufs):
    ggufs.cuts["tiny-Q8_0.gguf"] = [1000]
    ggufs.ignores_ranges = True
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8


@pytest.mark.parametrize(
    "beginning", [b"\xff" * 1000, b"\xff" * (len(Q8) + 1)], ids=["cut", "long"]
)
def test_a_partial_file_of_something_else_does_not_get_the_name(ggufs, hub_cache, beginning):
    etag = hashlib.sha256(Q8).hexdigest()
    blobs = hub_cache / "models--org--tiny-GGUF" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{etag}.partial").write_bytes(beginning)
    if len(beginning) < len(Q8):
        with pytest.raises(DownloadFailed, match="expected 51,201 bytes with hash"):
            hub.resolve(f"{NAME}:Q8_0")
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8


@pytest.mark.parametrize("name", ["tiny-Q8_0.gguf", "config.json"])
def test_bytes_that_are_not_those_the_hub_lists_are_not_used(ggufs, shards, hub_cache, name):
    ggufs.altered.add(name)
    model = f"{NAME}:Q8_0" if name.endswith("gguf") else "hf.co/org/tiny"
    with pytest.raises(DownloadFailed, match=f"{name}: expected .* with hash") as caught:
        hub.resolve(model)
    assert "nothing of it was kept" in caught.value.hint
    assert name not in in_cache(hub_cache) and hub.find(model) is None
    ggufs.altered.clear()
    assert hub.resolve(model).exists()


def test_a_full_disk_in_the_middle_leaves_nothing_that_is_used(ggufs, hub_cache, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DownloadFailed, match="No space left on device") as caught:
            hub.resolve(f"{NAME}:Q8_0")
    assert "free some space" in caught.value.hint and "HF_HOME" in caught.value.hint
    assert hub.find(f"{NAME}:Q8_0") is None and in_cache(hub_cache) == {".partial"}
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_disk_that_fills_up_while_it_writes_leaves_nothing_that_is_used(
    ggufs, hub_cache, monkeypatch
):
    """The device of full disks, in the place of the partial file."""
    real_open = os.open

    def open_full(path, flags, *rest):
        path = "/dev/full" if str(path).endswith(".partial") else path
        return real_open(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_full)
        with pytest.raises(DownloadFailed, match="No space left on device"):
            hub.resolve(f"{NAME}:Q8_0")
    assert hub.find(f"{NAME}:Q8_0") is None and in_cache(hub_cache) == set()


def test_too_little_space_is_told_before_the_transfer(ggufs, monkeypatch, tmp_path):
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadFailed, match="expected 0 MB free") as caught:
        hub.resolve(f"{NAME}:Q8_0")
    assert "HF_HOME" in caught.value.hint and ggufs.transfers() == []


def test_two_processes_that_pull_the_same_fetch_it_once(ggufs, hub_cache, home):
    """The first is held in the middle of the transfer until the second waits for it."""
    program = (
        "import sys; from inferno import hub\n"
        "def say(what, done, total):\n"
        "    if what.startswith('waiting'): print('waiting', flush=True)\n"
        f"print(hub.resolve({NAME + ':Q8_0'!r}, progress=say))"
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": ggufs.url,
        "HF_HUB_CACHE": str(hub_cache),
        "HF_TOKEN": "",
    }
    is_underway, may_go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        is_underway.set()
        may_go_on.wait(timeout=60)

    ggufs.on_transfer = hold

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
        )

    first = start()
    try:
        assert is_underway.wait(timeout=60)
        second = start()
        assert second.stdout.readline() == "waiting\n"
    finally:
        may_go_on.set()
    outputs = [process.communicate(timeout=60)[0].splitlines()[-1] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert outputs[0] == outputs[1] and Path(outputs[0]).read_bytes() == Q8
    assert len(ggufs.transfers("tiny-Q8_0.gguf")) == 1


# Who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "hf_wrong"])
def test_a_gated_repository_says_how_to_get_in(ggufs, monkeypatch, token):
    ggufs.repositories["org/tiny-GGUF"].gated = True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(AccessDenied, match="the repository is gated") as caught:
        hub.resolve(f"{NAME}:Q8_0")
    assert f"{ggufs.url}/org/tiny-GGUF" in caught.value.hint and "HF_TOKEN" in caught.value.hint


def test_a_token_opens_what_is_gated_or_private(ggufs, monkeypatch):
    ggufs.repositories["org/tiny-GGUF"].gated = True
    ggufs.repositories["org/tiny-GGUF"].is_private = True
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert hub.resolve(f"{NAME}:Q8_0").read_bytes() == Q8
    assert {request.token for request in ggufs.requests} == {"hf_right"}


def test_a_missing_repository_is_not_found(fake_hub):
    with pytest.raises(ModelNotFound, match="no such repository") as caught:
        hub.resolve("hf.co/org/nonesuch")
    assert "HF_TOKEN" in caught.value.hint  # it may be a private one


@pytest.mark.parametrize(("status", "error"), [(403, AccessDenied), (500, DownloadFailed)])
def test_a_hub_that_refuses_is_told_by_its_status(ggufs, monkeypatch, status, error):
    ggufs.statuses["/api/models/org/tiny-GGUF"] = status
    with pytest.raises(error, match=str(status)):
        hub.resolve(NAME)


def test_without_a_network_the_cause_is_named():
    with pytest.raises(DownloadFailed, match="ConnectError") as caught:
        hub.resolve(NAME)
    assert "HTTPS_PROXY" in caught.value.hint


def test_offline_what_is_cached_is_used_and_the_rest_is_refused_at_once(ggufs, monkeypatch):
    from huggingface_hub import constants

    path = hub.resolve(f"{NAME}:Q8_0")
    ggufs.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.resolve(f"{NAME}:Q8_0") == path
    with pytest.raises(DownloadFailed, match="HF_HUB_OFFLINE is set"):
        hub.resolve(f"{NAME}:Q4_K_M")
    assert ggufs.requests == []


def test_a_repository_without_weights_that_are_read_is_unsupported(fake_hub):
    fake_hub.repositories["org/old"] = Repository({"config.json": b"{}", "pytorch_model.bin": Q4})
    with pytest.raises(UnsupportedModel, match=r"found files of bin, json"):
        hub.resolve("hf.co/org/old")


def test_names_that_lead_out_of_the_cache_are_left_out(fake_hub, tmp_path):
    fake_hub.repositories["org/evil"] = Repository({"../../../x-Q8_0.gguf": Q8, "/y-Q8_0.gguf": Q8})
    with pytest.raises(UnsupportedModel, match="found no files"):
        hub.resolve("hf.co/org/evil")


# Removing -----------------------------------------------------------------------------------------


def test_removing_one_type_leaves_the_other(ggufs, hub_cache):
    hub.resolve(f"{NAME}:Q8_0")
    hub.resolve(f"{NAME}:Q4_K_M")
    assert hub.remove(f"{NAME}:q8_0") == len(Q8)
    assert in_cache(hub_cache) == {"tiny-Q4_K_M.gguf"}
    assert len(list(hub_cache.glob("models--*/blobs/*"))) == 1
    assert hub.remove(f"{NAME}:Q4_K_M") == len(Q4)
    assert list(hub_cache.glob("models--*")) == []


def test_removing_a_directory_removes_its_shards(shards, hub_cache):
    hub.resolve("hf.co/org/tiny")
    assert hub.remove("hf.co/org/tiny") >= len(Q4) + len(Q8)
    assert list(hub_cache.glob("models--*")) == []


def test_removing_what_was_fetched_in_part_frees_it(ggufs, hub_cache):
    hub.resolve(f"{NAME}:Q4_K_M")
    ggufs.cuts["tiny-Q8_0.gguf"] = [1000] + [0] * 9
    with pytest.raises(DownloadFailed):
        hub.resolve(f"{NAME}:Q8_0")
    [partial] = hub_cache.glob("models--*/blobs/*.partial")
    kept = partial.stat().st_size
    assert kept > 0 and hub.remove(f"{NAME}:Q8_0") == kept
    assert not partial.exists() and hub.find(f"{NAME}:Q4_K_M") is not None
    with pytest.raises(ModelNotFound, match="not on this disk"):
        hub.remove(f"{NAME}:Q8_0")


def test_a_blob_that_an_older_version_shows_stays(ggufs, hub_cache):
    old = hub.resolve(f"{NAME}:Q8_0")
    ggufs.repositories["org/tiny-GGUF"].version = 2
    assert hub.pull(f"{NAME}:Q8_0") != old
    assert hub.remove(f"{NAME}:Q8_0") == 0
    assert old.read_bytes() == Q8


def test_removing_what_is_not_there_is_not_found(ggufs):
    with pytest.raises(ModelNotFound, match="not on this disk"):
        hub.remove(f"{NAME}:Q8_0")


# Windows ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_where_links_are_not_allowed_a_file_is_kept_once(ggufs, hub_cache, monkeypatch):
    """Developers may make them on Windows, others not: the library then copies."""

    def refuse(*names, **options):
        raise OSError(errno.EINVAL, "A required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", refuse)
    path = hub.resolve(f"{NAME}:Q8_0")
    assert path.read_bytes() == Q8 and not path.is_symlink()
    assert [*hub_cache.glob("models--*/blobs/*")] == []
    ggufs.requests.clear()
    assert hub.resolve(f"{NAME}:Q8_0") == path
    assert ggufs.requests == []
    assert hub.remove(f"{NAME}:Q8_0") == len(Q8) and not path.exists()


@pytest.mark.parametrize("name", ["nul.gguf", "c:x-Q8_0.gguf", "x-Q8_0.gguf:y.gguf", "..\\x.gguf"])
def test_what_windows_takes_for_no_file_is_not_fetched(fake_hub, hub_cache, monkeypatch, name):
    fake_hub.repositories["org/tiny-GGUF"] = Repository({name: Q8, "tiny-Q4_0.gguf": Q4})
    monkeypatch.setattr("inferno.file_name.sys.platform", "win32")
    listing = repositories._listing(Reference("org/tiny-GGUF"))
    assert set(listing.files) == {"tiny-Q4_0.gguf"}
