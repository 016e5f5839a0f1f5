"""Which files of a repository are the model that was asked for.

Works on names alone; knows nothing of networks, caches or what is inside a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from inferno.errors import ModelNotFound, UnsupportedModel

PREFERRED = "Q4_K_M"  # of several GGUF files, when none is asked for; what people expect by now
SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"

# Beside the weights, what a checkpoint directory is read from.
DIRECTORY_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})", re.DOTALL)
# Q4_K_M, IQ4_XS, UD-Q4_K_XL, TQ1_0, MXFP4, F16, BF16, FP16 at the end of a part of a name.
_TYPE = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q|TQ)[0-9](?:_[A-Z0-9]+)*|MXFP4(?:_MOE)?|B?F16|FP16|F32|FP32)"
    r"(?=$|[-./])",
    re.IGNORECASE,
)
_BESIDE = ("mmproj", "imatrix")  # GGUF files that are no language model


class Choice(NamedTuple):
    """The files of one model: `entry` is the one to open, or "" for the directory itself."""

    entry: str
    files: tuple[str, ...]


def choose(repository: str, files: Collection[str], wanted: str) -> Choice:
    """Return the files of `repository` that `wanted` means: a file's name, a type, or "".

    Of a directory of safetensors the shards are left out, which only its index knows.

    Raises:
        ModelNotFound: no file, or more than one, is meant; the error lists what there is.
        UnsupportedModel: the repository holds weights in no format that is read.
    """
    ggufs = _models(files)
    if wanted:
        return _named(repository, ggufs, files, wanted)
    if len(ggufs) == 1:
        return next(iter(ggufs.values()))
    if ggufs:
        preferred = [choice for name, choice in ggufs.items() if label_of(name) == PREFERRED]
        if len(preferred) == 1:
            return preferred[0]
        raise ModelNotFound(
            f"Model `hf.co/{repository}`: expected one GGUF file or one of type {PREFERRED}, "
            f"found {len(ggufs)} of {_listed(ggufs)}",
            hint=f"name one, e.g. `hf.co/{repository}:{label_of(next(iter(ggufs)))}`",
        )
    weights = next((name for name in (SAFETENSORS, INDEX) if name in files), None)
    if weights is not None and "config.json" in files:
        return Choice("", (*(name for name in DIRECTORY_FILES if name in files), weights))
    others = sorted({name.rpartition(".")[2] for name in files if "." in name})
    raise UnsupportedModel(
        f"Model `hf.co/{repository}`: expected a GGUF file, or config.json with {SAFETENSORS}, "
        f"found {'files of ' + ', '.join(others[:8]) if others else 'no files'}",
        hint="look for a GGUF version of the model",
    )


def shards_of(weight_map: Mapping[str, object]) -> list[str]:
    """Return the files that an index names, without those that lead out of the directory."""
    names = {name for name in weight_map.values() if isinstance(name, str)}
    return sorted(name for name in names if name and not set(name) & set("/\\\0"))


def label_of(file: str) -> str:
    """Return what a GGUF file of a repository goes by: its type, or its name if it has none."""
    found: list[str] = _TYPE.findall(_stem(file))
    return found[-1].upper() if found else file


def _models(files: Iterable[str]) -> dict[str, Choice]:
    """Return the GGUF models by the name of their first file; a split set is one of them."""
    there = sorted(name for name in files if name.lower().endswith(".gguf"))
    known, models = set(there), {}
    for name in there:
        if name.rpartition("/")[2].lower().startswith(_BESIDE):
            continue
        shard = _SHARD.fullmatch(name[: -len(".gguf")])
        if shard is None:
            models[name] = Choice(name, (name,))
        elif int(shard["number"]) == 1:
            extension = name[-len(".gguf") :]
            count = int(shard["count"])
            if count > len(known):  # a claimed number that the listing cannot hold
                continue
            names = tuple(
                f"{shard['stem']}-{number:05d}-of-{shard['count']}{extension}"
                for number in range(1, count + 1)
            )
            if known.issuperset(names):
                models[name] = Choice(name, names)
    return models


def _named(
    repository: str, ggufs: Mapping[str, Choice], files: Collection[str], wanted: str
) -> Choice:
    if wanted.lower().endswith(".gguf"):
        if wanted in ggufs:
            return ggufs[wanted]
        if wanted in files:  # one that is usually left out, but was named in full
            return Choice(wanted, (wanted,))
        meant = [name for name in ggufs if name.lower() == wanted.lower()]
    else:
        # `Q4_K_M` beside `UD-Q4_K_M` is the first; alone, the second goes by it too.
        meant = [name for name in ggufs if label_of(name) == wanted.upper()]
        meant = meant or [name for name in ggufs if _is_of_type(name, wanted)]
    if len(meant) == 1:
        return ggufs[meant[0]]
    if meant:
        raise ModelNotFound(
            f"Model `hf.co/{repository}:{wanted}`: expected one file, found {_listed(meant)}",
            hint=f"name the file: `hf.co/{repository}:{meant[0]}`",
        )
    found = _listed(ggufs) if ggufs else "no GGUF file"
    raise ModelNotFound(
        f"Model `hf.co/{repository}:{wanted}`: no such file or type in the repository, "
        f"found {found}",
        hint=_suggestion(repository, ggufs, files, wanted),
    )


def _suggestion(
    repository: str, ggufs: Collection[str], files: Collection[str], wanted: str
) -> str | None:
    names = {name.lower(): name for file in ggufs for name in (label_of(file), file)}
    close = difflib.get_close_matches(wanted.lower(), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean `hf.co/{repository}:{names[close[0]]}`?"
    if not ggufs and "config.json" in files:
        return f'load `hf.co/{repository}` with weights="q4_0": it is quantized while loading'
    return None


def _is_of_type(file: str, wanted: str) -> bool:
    pattern = rf"(?:^|[-./]){re.escape(wanted)}(?=$|[-./])"
    return re.search(pattern, _stem(file), re.IGNORECASE) is not None


def _stem(file: str) -> str:
    stem = file.removesuffix(".gguf").removesuffix(".GGUF")
    shard = _SHARD.fullmatch(stem)
    return shard["stem"] if shard else stem


def _listed(files: Collection[str], most: int = 24) -> str:
    labels = list(dict.fromkeys(map(label_of, files)))
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
