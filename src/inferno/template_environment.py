"""Jinja2 for chat templates, as transformers sets it up, with bounds on work and memory.

Templates come with model files and are hostile until proved otherwise: Jinja's sandbox keeps them
from Python's internals, and the bounds here keep them from running or growing without end. Knows
nothing of messages or tokens.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 400_000  # loop rounds, calls and filters; a thousand messages take some 10,000
MAX_CHARACTERS = 1 << 24  # in one string; eight times the text of a 500,000-token prompt
MAX_TOTAL_CHARACTERS = 1 << 28  # in all that operators, calls and filters go through or make
ITEM = 64  # an item of a list, or anything else that is no string, costs as many characters
MAX_WIDTH = 10_000  # padding, indentation and other numbers that become lengths

WIDTH_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
WIDTH_FILTERS = frozenset({"batch", "center", "indent", "round", "slice", "tojson", "wordwrap"})
# Filters that write one of their arguments again and again.
REPEATING_FILTERS = frozenset({"indent", "tojson", "urlize", "wordwrap"})
# Filters that do not go through what is inside a value's items; what `map` and `select` apply to
# each item is a filter or a test itself.
SHALLOW_FILTERS = frozenset(
    {"attr", "count", "d", "default", "first", "items", "last", "length", "list", "random"}
    | {"map", "reject", "rejectattr", "reverse", "select", "selectattr"}
)
# Tests that do; the others ask for a type.
DEEP_TESTS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "eq", "equalto", "ne", "lt", "lessthan", "le", "gt"}
    | {"greaterthan", "ge", "in", "lower", "upper", "odd", "even", "divisibleby"}
)
COMPARING_METHODS = frozenset({"count", "index", "remove", "sort"})  # of lists and tuples
# The views of a dictionary have no names; the abstract ones are slow to ask.
COLLECTIONS: tuple[Any, ...] = (
    *(dict, list, tuple, set, frozenset, range),
    *map(type, ({}.keys(), {}.values(), {}.items())),
)
# A width of five digits, or one that is an argument itself, in `%` and in `format` syntax.
LONG_WIDTH = re.compile(r"%(?:\([^)]*\))?[-#0 +.\d]*(?:\d{5}|\*)|\{[^{}]*(?:\d{5}|\{)")


class TooMuchWork(jinja2.TemplateError):
    """The template exceeded one of the bounds of this module."""


class _Budget:
    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.characters = MAX_TOTAL_CHARACTERS

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TooMuchWork(f"the template takes more than {MAX_STEPS:,} steps")

    def grow(self, length: int) -> None:
        """Account for a text of `length` characters about to be made, or just made."""
        self.characters -= length
        if length > MAX_CHARACTERS or self.characters < 0:
            raise TooMuchWork(f"the template works on text of over {MAX_CHARACTERS:,} characters")

    def read(self, value: Any) -> int:
        """Account for something about to go through all of `value`; return how long that is.

        Parts that are shared count as often as they are met: a list that holds another twice, and
        so on forty times, is small in memory and has no end for whoever prints it.
        """
        length = 0
        pending = [value]
        while pending and length <= MAX_CHARACTERS:
            item = pending.pop()
            if isinstance(item, (str, bytes)):
                length += len(item)
                continue
            length += ITEM
            if isinstance(item, Namespace):  # it hides its attributes from ordinary access
                item = object.__getattribute__(item, "_Namespace__attrs")
            if isinstance(item, COLLECTIONS):
                pending.extend(item)
            if isinstance(item, dict):
                pending.extend(item.values())
        self.grow(length)
        return length


_current: ContextVar[_Budget] = ContextVar("budget of the rendering in progress")


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Give what compiles or renders inside a fresh budget."""
    token = _current.set(_Budget())
    try:
        yield
    finally:
        _current.reset(token)


def _read(value: Any) -> Any:
    """Pay for `value` and pass it on; an iterator is paid for item by item."""
    if isinstance(value, Iterator):
        return map(_read, value)
    _current.get().read(value)
    return value


def _size(value: Any) -> int:
    return len(value) * (1 if isinstance(value, (str, bytes)) else ITEM)


def _checked(result: Any) -> Any:
    if isinstance(result, (str, bytes, list, tuple)):
        _current.get().grow(_size(result))
    return result


def _check_widths(values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and abs(value) > MAX_WIDTH for value in values):
        raise TooMuchWork(f"the template asks for a width over {MAX_WIDTH:,}")


def _check_growth(operation: str, text: Any, args: tuple[Any, ...]) -> None:
    """Refuse operations that multiply lengths before they allocate."""
    grow = _current.get().grow
    if operation == "replace" and len(args) >= 2:
        text, old, new = str(text), str(args[0]), str(args[1])
        grow((text.count(old) if old else len(text) + 1) * len(new))
    elif operation == "join" and args and hasattr(args[0], "__len__"):
        grow(len(text) * len(args[0]))
    elif operation == "translate" and args and isinstance(args[0], dict):
        grow(len(text) * max((len(str(new)) for new in args[0].values()), default=0))
    elif operation in ("format", "format_map", "%"):
        text = str(text)
        if LONG_WIDTH.search(text):
            raise TooMuchWork("the template formats with a long or computed width")
        fields = text.count("{") + text.count("%")
        values = [
            value
            for arg in args
            for value in (
                arg if isinstance(arg, tuple) else arg.values() if isinstance(arg, dict) else (arg,)
            )
        ]
        grow(fields * max((len(value) for value in values if isinstance(value, str)), default=0))


def _widest(values: Iterable[Any]) -> int:
    """Return the greatest number, or length of a text, in `values`."""
    return max(
        (
            _widest(value)
            if isinstance(value, (list, tuple))
            else len(value)
            if isinstance(value, str)
            else abs(value)
            if isinstance(value, int)
            else 0
            for value in values
        ),
        default=0,
    )


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    takes_context = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def bounded_filter(*args: Any, **kwargs: Any) -> Any:
        budget = _current.get()
        budget.step()
        value, rest = args[takes_context], args[takes_context + 1 :]
        options = (*rest, *kwargs.values())
        budget.read(options)
        if name in WIDTH_FILTERS:
            _check_widths(options)
        if name in REPEATING_FILTERS:
            budget.grow(budget.read(value) * _widest(options))
        if name == "join":  # the method's text and list, the other way round
            _check_growth(name, str(rest[0]) if rest else "", (value,))
        else:
            _check_growth(name, value, rest)
        if name not in SHALLOW_FILTERS:
            value = _read(value)
        return _checked(function(*args[:takes_context], value, *rest, **kwargs))

    return bounded_filter


def _bounded_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if name not in DEEP_TESTS:
        return function

    @functools.wraps(function)
    def bounded_test(value: Any, *args: Any) -> Any:
        _current.get().read((value, args))
        if name in ("odd", "even", "divisibleby"):  # `%`, which formats if `value` is a text
            _check_growth("%", value, args)
        return function(value, *args)

    return bounded_test


def _counted(iterable: Iterable[Any]) -> Iterator[Any]:
    budget = _current.get()
    for item in iterable:
        budget.step()
        yield item


def _concat(pieces: Iterable[str]) -> str:
    budget = _current.get()

    def counted() -> Iterator[str]:
        total = 0
        for piece in pieces:
            total += len(piece)
            if total > MAX_CHARACTERS:
                budget.grow(total)
            yield piece

    return str(_checked("".join(counted())))


class _Bounds(NodeTransformer):
    """Rewrite what Jinja compiles to plain Python, so that all of it spends the budget."""

    def _refuse(self, node: nodes.Node) -> NoReturn:
        # There are no other templates: said while compiling, as of any tag that is not known.
        tag = {"FromImport": "from"}.get(type(node).__name__, type(node).__name__.lower())
        raise jinja2.TemplateSyntaxError(f"Encountered unknown tag '{tag}'.", node.lineno)

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _refuse

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "join")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "_read")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_read")
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _filtered(node.key, "_read")  # hashing goes through tuples
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _filtered(node, "_checked")
        node.arg = _filtered(node.arg, "_read")
        return node


def _filtered(node: nodes.Node, name: str) -> nodes.Expr:
    if isinstance(node, nodes.Const):
        return node
    assert isinstance(node, nodes.Expr)
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it only parses."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_body")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict(...)` without the class behind it, which would be a way out of the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace(...)` that refuses names with a leading underscore, as transformers does."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # no `self`, so that it can be an attribute
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"a namespace cannot hold `{name}`: names with a leading underscore are refused"
        )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without the escapes for HTML that Jinja's own filter makes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _BoundedMixin(SandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})
    concat = staticmethod(_concat)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
            finalize=_read,  # what `{{ }}` prints
        )
        self.filters["tojson"] = _tojson
        self.filters = {
            name: _bounded_filter(name, function) for name, function in self.filters.items()
        } | {"_counted": _counted, "_read": _read, "_checked": _checked}
        tests: dict[str, Any] = self.tests
        self.tests = {name: _bounded_test(name, function) for name, function in tests.items()}
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _Dict(),
            "namespace": _Namespace,
        }
        del self.globals["lipsum"]  # makes text at random, as long as it is told to

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = _Bounds().visit(super()._parse(source, name, filename))
        template.set_environment(self)
        assert isinstance(template, nodes.Template)
        return template

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _current.get()
        budget.step()
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `format`
        name, owner = getattr(method, "__name__", ""), getattr(method, "__self__", None)
        options = (*args, *kwargs.values())
        if not isinstance(__obj, Macro):  # what a macro does with them is counted there
            budget.read(options)
        if isinstance(owner, str) or (
            isinstance(owner, (list, tuple)) and name in COMPARING_METHODS
        ):
            budget.read(owner)
        if isinstance(owner, str):
            if name in WIDTH_METHODS:
                _check_widths(options)
            _check_growth(name, owner, options)
        return _checked(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _current.get()
        if operator == "*":
            for size, times in ((left, right), (right, left)):
                if hasattr(size, "__len__") and isinstance(times, int):
                    budget.grow(_size(size) * max(times, 0))
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = (
                left.bit_length() * right
                if operator == "**"
                else (left.bit_length() + right.bit_length())
            )
            if bits > MAX_WIDTH:
                raise TooMuchWork("the template computes with numbers beyond reason")
        if operator in ("%", "-"):  # `-` is also that of a dictionary's keys
            budget.read((left, right))
        if operator == "%" and isinstance(left, str):
            _check_growth(operator, left, (right,))
        return _checked(super().call_binop(context, operator, left, right))


class BoundedEnvironment(_BoundedMixin, ImmutableSandboxedEnvironment):
    """The environment of transformers: lists and dicts of the messages cannot be changed."""


class MutableBoundedEnvironment(_BoundedMixin):
    """For templates that call `append` or `pop`, which the first environment refuses."""
