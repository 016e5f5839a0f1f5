r"""How byte-level vocabularies cut text before merging: one rule per name of `tokenizer.ggml.pre`.

A GGUF file names its rule and does not carry it. The rules are those of the models' own
tokenizer.json files; a name is listed only where that file is known, so that a wrong guess never
changes ids silently. Knows nothing of vocabularies.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from inferno.errors import UnsupportedModel

# GPT-2's rule is built into the library's byte-level step and needs no pattern here.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Words end where capitals begin: `fooBar` is two.
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*",
)
_BESIDE_WORDS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = "|".join(_WORDS) + r"|\p{N}" + _BESIDE_WORDS
_GPT4O = "".join(f"{word}{_CONTRACTIONS}?|" for word in _WORDS) + r"\p{N}{1,3}" + _BESIDE_WORDS
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)


class Rule(NamedTuple):
    """One way to cut text: each pattern in turn isolates its matches, then bytes are mapped.

    `adds_bos` and `ignore_merges` are what files of this rule mean when they do not say.
    """

    patterns: tuple[str, ...] = ()
    gpt2: bool = False  # after the patterns, cut as GPT-2 does
    ignore_merges: bool = False  # a whole word in the vocabulary is one token, whatever the merges
    adds_bos: bool = False
    normalizes: bool = False  # to NFC, before anything else


_RULES: dict[Rule, tuple[str, ...]] = {
    Rule(gpt2=True): ("gpt-2", "phi-2", "mpt", "olmo"),
    Rule((r"\p{N}",), gpt2=True): ("smollm", "starcoder", "refact", "codeshell", "command-r"),
    Rule((_LLAMA3,), ignore_merges=True, adds_bos=True): (
        "llama-bpe",
        "llama3",
        "llama-v3",
        "falcon3",
        "lfm2",
    ),
    Rule((_LLAMA3,)): ("dbrx", "smaug-bpe"),
    Rule((_QWEN2,), normalizes=True): ("qwen2",),
    Rule((_QWEN2,)): ("deepseek-r1-qwen", "stablelm2"),
    Rule((_TEKKEN,), ignore_merges=True, adds_bos=True): ("tekken",),
    Rule((_GPT4O,)): ("gpt-4o",),  # gpt-oss and Phi-4-mini
    Rule(_DEEPSEEK_CODER): ("deepseek-coder",),
    # What llama.cpp does for files that name no rule, or this one.
    Rule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")): ("default",),
    Rule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")): ("falcon",),
}
RULES: dict[str, Rule] = {name: rule for rule, names in _RULES.items() for name in names}


def rule_for(name: str) -> Rule:
    """Return the rule called `name` in GGUF files.

    Raises:
        UnsupportedModel: no rule of that name is known.
    """
    rule = RULES.get(name)
    if rule is None:
        raise UnsupportedModel(
            f"Pre-tokenizer `{name[:64]}` is not supported (supported: {', '.join(sorted(RULES))})",
            hint="the same model as a directory with tokenizer.json needs no such name",
        )
    return rule


def pre_tokenizer(rule: Rule) -> pre_tokenizers.PreTokenizer:
    """Build the library's pre-tokenizer for `rule`, ending in the byte-level alphabet."""
    splits = [
        pre_tokenizers.Digits(individual_digits=True)
        if pattern == r"\p{N}"
        else pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        for pattern in rule.patterns
    ]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.gpt2)
    return pre_tokenizers.Sequence([*splits, byte_level])
