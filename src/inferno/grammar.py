"""Grammars: Lark, and llama.cpp's GBNF as Lark; and how long their expressions get.

Knows the two notations; nothing of tokens, models, or of who enforces them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from inferno import json_schema
from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.expression import Part, atoms, highest, written_out

if TYPE_CHECKING:
    from llguidance.gbnf_to_lark import ASTNode, RuleRefNode

# Rules and brackets of a grammar. The library recurses into both: some 4,000 rules that each refer
# to the next, or 800 with a dozen brackets each, overflow a stack of 8 MB.
MAX_RULES = 2_000

_LARK_START = re.compile(r"^\s*(\?|!)?start\s*(\[[^\]]*\])?\s*:", re.MULTILINE)
_GBNF_ROOT = re.compile(r"^\s*root\s*::=", re.MULTILINE)
_RULES = re.compile(r":(?!:)|[(\[]")
# Strings, expressions and comments: what is in them is no syntax.
_LARK_OPAQUE = re.compile(
    r'"((?:\\.|[^"\\\n])*)"|/(?!/)((?:\\.|[^/\\\n])+)/[a-z]*|//[^\n]*', re.DOTALL
)
_LARK_HEAD = re.compile(
    r'^[ \t]*[?!]*([^\W\d]\w*)(?:\.\d+)?[ \t]*(?:\[(?:"(?:\\.|[^"\\\n])*"|[^\]"])*\])?[^\n:"/]*:',
    re.MULTILINE,
)
_LARK_PART = re.compile(
    rf"{_LARK_OPAQUE.pattern}|([^\W\d]\w*)|([(\[])|([)\]])|\{{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}}",
    re.DOTALL,
)
_LARK_CHARACTER = re.compile(r"\\x[0-9A-Fa-f]{2}|\\.|.", re.DOTALL)
_LARK_SCHEMA = re.compile(rf"(?:{_LARK_OPAQUE.pattern})|(?P<json>%json\b\s*)", re.DOTALL)
_LARK_REFUSED = (
    (re.compile(r"\btemperature\s*="), "temperature", "pass it as an option of its own"),
)
# Literals, classes, comments, and the character that stands for all.
_GBNF_OPAQUE = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\.', re.DOTALL)
_GBNF_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)|\t")


def as_lark(text: str) -> str:
    """Return a grammar as Lark, whichever of the two it is written in.

    Raises:
        InvalidOption: neither, too large, or with what would be ignored.
    """
    if _LARK_START.search(text):
        text, syntax = _with_checked_schemas(text)
        _check_rules(syntax)
        for pattern, name, hint in _LARK_REFUSED:
            if pattern.search(syntax):
                raise InvalidOption(f"`grammar`: `{name}` is not supported in it", hint=hint)
        return text
    if not _GBNF_ROOT.search(text):
        raise InvalidOption(
            f"`grammar`: expected Lark, with a rule `start:`, or GBNF, with a rule `root ::=`; "
            f"found {shown(text)}"
        )
    return _converted(text)


def _with_checked_schemas(text: str) -> tuple[str, str]:
    """Return a grammar with its `%json` schemas as they are enforced; and its syntax alone.

    Raises:
        InvalidOption: a schema cannot be enforced.
    """
    grammar: list[str] = []
    syntax: list[str] = []
    end = 0
    while found := _LARK_SCHEMA.search(text, end):
        between = text[end : found.start()]
        end = found.end()
        if found["json"] is None:
            grammar += [between, found[0]]
            syntax += [between, '""']
            continue
        try:
            schema, end = json.JSONDecoder().raw_decode(text, end)
            checked = json_schema.checked(schema)
        except InvalidOption as error:
            message = error.message.removeprefix("`json_schema`: ")
            raise InvalidOption(f"`grammar`: %json: {message}", hint=error.hint) from None
        except (ValueError, RecursionError):
            raise InvalidOption(
                f"`grammar`: expected a JSON schema after %json, found {shown(text[end:])}"
            ) from None
        enforced = json.loads(json_schema.wrapped(json.loads(checked)))
        enforced["x-guidance"] = json_schema.SPELLING
        grammar += [between, "%json ", json.dumps(enforced)]
        syntax += [between, "%json {}"]
    return "".join([*grammar, text[end:]]), "".join([*syntax, text[end:]])


def _check_rules(syntax: str) -> None:
    count = len(_RULES.findall(syntax))
    if count > MAX_RULES:
        raise InvalidOption(
            f"`grammar`: expected at most {MAX_RULES:,} rules and brackets, found {count:,}"
        )


# ---- how long expressions get --------------------------------------------------------------------


def lark_atoms(lark: str) -> int:
    """Return how many characters and classes the expressions of a Lark grammar have, written out.

    A terminal, whose name is in capitals, has a copy of each terminal in it; a rule has none.
    """
    bodies: dict[str, str] = {}
    heads = list(_LARK_HEAD.finditer(lark))
    for head, following in itertools.zip_longest(heads, heads[1:]):
        body = lark[head.end() : following.start() if following else len(lark)]
        bodies[head[1]] = bodies.get(head[1], "") + body
    references = {
        name: [part[3] for part in _LARK_PART.finditer(body) if part[3] in bodies]
        for name, body in bodies.items()
        if name.isupper()
    }
    sizes: dict[str, int] = {}
    try:
        for name in TopologicalSorter(references).static_order():
            sizes[name] = written_out(_lark_parts(bodies[name], sizes))
    except CycleError:  # no expression contains itself; the compiler will say so
        pass
    rules = [body for name, body in bodies.items() if name not in references]
    loose = sum(n for body in rules for kind, n in _lark_parts(body, {}) if kind == "atoms")
    return sum(sizes.values()) + loose


def _lark_parts(body: str, sizes: Mapping[str, int]) -> Iterator[Part]:
    for match in _LARK_PART.finditer(body):
        text, expression, name, opens, closes, low, high = match.groups()
        if text is not None:
            yield "atoms", len(text)
        elif expression is not None:
            yield "atoms", atoms(expression)
        elif name is not None:
            yield "atoms", sizes.get(name, 0)
        elif opens or closes:
            yield "(" if opens else ")", 0
        elif low is not None:
            yield "times", highest(low, high)


# ---- GBNF ----------------------------------------------------------------------------------------


def _converted(gbnf: str) -> str:
    """Return GBNF as Lark that derives the same texts.

    Lark has expressions, each of which matches as much as it can: `[a-z]* "x"` as two of them would
    match nothing. So a grammar without recursion becomes one expression, and of others every
    character is one by itself.
    """
    from llguidance.gbnf_to_lark import GrammarParser

    syntax = _GBNF_OPAQUE.sub(" ", gbnf)
    _check_rules(syntax)
    try:
        rules = GrammarParser().parse(_GBNF_OPAQUE.sub(_plain, gbnf))
    except InvalidOption:
        raise
    except Exception as error:  # the library raises bare Exception
        raise InvalidOption(
            f"`grammar`: expected GBNF, found that it cannot be read ({shown(str(error))})"
        ) from None
    if len(rules) < syntax.count("::="):
        raise InvalidOption("`grammar`: expected one definition of each rule, found several")
    references = {name: list(_references(rule.alternatives)) for name, rule in rules.items()}
    for node in itertools.chain.from_iterable(references.values()):
        if node.name not in rules:
            raise InvalidOption(f"`grammar`: expected a rule {shown(node.name)}, found none")
        node.target = rules[node.name]
    recurs = _is_circular(
        {name: [node.name for node in nodes] for name, nodes in references.items()}
    )
    for number, rule in enumerate(rules.values()):
        # Capitals make it an expression.
        rule.name = f"rule{number}" if recurs else f"RULE{number}"
        rule.comment, rule.alternatives = "", rule.alternatives.simplify()
    lark = "\n".join([f"start: {rules['root'].name}", *map(str, rules.values())])
    return _LARK_OPAQUE.sub(_in_characters, lark) if recurs else lark


def _references(node: ASTNode) -> Iterator[RuleRefNode]:
    from llguidance.gbnf_to_lark import RuleRefNode

    if isinstance(node, RuleRefNode):
        yield node
    for child in node.children():
        yield from _references(child)


def _is_circular(references: Mapping[str, Sequence[str]]) -> bool:
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return True
    return False


def _in_characters(part: re.Match[str]) -> str:
    characters = _LARK_CHARACTER.findall(part[1] or "")
    return part[0] if len(characters) < 2 else "({})".format(" ".join(f'"{c}"' for c in characters))


def _plain(part: re.Match[str]) -> str:
    """Return a part of GBNF in the spelling that the library gets right."""
    text = part[0]
    if text == ".":  # also the end of a line, which an expression's dot leaves out
        return "[\\x00-\U0010ffff]"
    return text if text[0] == "#" else _GBNF_ESCAPE.sub(_plain_escape, text)


def _plain_escape(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    if escape[0] == "\t":
        return "\\t"
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    if code < 0x80:
        return f"\\x{code:02x}"
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise InvalidOption(f"`grammar`: expected a character, found {shown(escape[0])}")
    return chr(code)
