"""A tiny checkpoint directory whose tokenizer.json is of Llama's kind. Knows nothing of inferno."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoints


def spm_directory(path: Path, order: str) -> Path:
    """Make one; `order` says which cut of a piece is the first of its merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    pieces = [piece for piece, _, _ in checkpoints.spm_tokens()]
    pieces[-34:-32] = ["aa", "aaa"]  # which can be cut in two ways
    ranked = [piece for piece in pieces[259:] if len(piece) > 1]
    known = set(pieces[259:])
    merges = []
    for piece in ranked:
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        cuts = [(a, b) for a, b in cuts if a in known and b in known]
        # Scores join at the rightmost cut first, as transformers' converter does.
        merges += cuts if order == "rightmost" else cuts[::-1]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: id for id, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in pieces[:3]]
    )
    config = checkpoints.tiny_config("llama")
    checkpoints.save_checkpoint(path, config, checkpoints.random_tensors(config))
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings |= {"add_bos_token": True, "chat_template": checkpoints.ZEPHYR}
    (path / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return path
