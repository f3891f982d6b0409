"""What must agree between the parts of a spec, as far as that can be said without knowing any op.

These look at the document's raw data and step over whatever has the wrong type, which is reported
elsewhere: a misspelt key then does not hide an undeclared symbol. What the chain says of symbols and
arguments is checked where the steps are built, in fusegen.chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pydantic_core import PydanticCustomError

from fusegen.errors import Diagnostic, quote
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.names import camel_case, check_class, check_spec_name, is_spoilt, passes, symbol_of
from fusegen.spec.state_paths import check_state_paths
from fusegen.spec.wording import suggest

_ARGUMENT_KEYS = {"type", "is", "typical", "keyword"}
_SECTIONS = {"dims": dict, "arguments": dict, "inputs": dict, "chain": list}


def cross_check(document: Document, keys: Collection[str]) -> Iterator[Diagnostic]:
    """Every disagreement between dims, arguments and inputs. keys: those that a spec may have."""
    if "dims" not in unreadable_sections(document, keys):
        yield from _symbols_declared(document)
    yield from _one_name_one_thing(document)
    yield from _defaults_last(document)
    yield from _defaults_fit(document)
    yield from _class_of_name(document)
    yield from check_state_paths(document)


def unreadable_sections(document: Document, keys: Collection[str]) -> frozenset[str]:
    """The sections that nothing can be said of: of the wrong type, or missing where some key is misspelt."""
    misspelt = any(key not in keys for key in document.data)
    return frozenset(
        section
        for section, type_ in _SECTIONS.items()
        if (misspelt if section not in document.data else not isinstance(document.data[section], type_))
    )


def _mapping(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _arguments(document: Document, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, argument in _mapping(document.data, "arguments").items():
        if isinstance(argument, dict) and argument.get("type") == kind:
            yield name, argument


def _shapes(document: Document) -> Iterator[tuple[DocumentPath, list[Any]]]:
    """The lists that hold symbols, whatever the ops are."""
    inputs = _mapping(document.data, "inputs")
    for name in inputs:
        yield ("inputs", name), _list(inputs, name)
    for name, argument in _arguments(document, "shape"):
        yield ("arguments", name, "is"), _list(argument, "is")


def _symbols_declared(document: Document) -> Iterator[Diagnostic]:
    dims = _mapping(document.data, "dims")
    for path, shape in _shapes(document):
        for index, written in enumerate(shape):
            symbol = symbol_of(written)
            if isinstance(symbol, str) and symbol not in dims and not is_spoilt(symbol, list(dims)):
                message = f"the symbol {quote(symbol)} is not declared in 'dims'"
                hint = suggest(symbol, list(dims), among="declared")
                yield document.diagnostic("FG209", message, (*path, index), hint=hint)
    for name, _ in _arguments(document, "dim"):
        if name not in dims and not is_spoilt(name, list(dims)):
            message = f"the argument {quote(name)} is a dim, but 'dims' declares no such symbol"
            hint = suggest(name, list(dims), among="declared")
            yield document.diagnostic("FG209", message, ("arguments", name), key=True, hint=hint)


def _one_name_one_thing(document: Document) -> Iterator[Diagnostic]:
    dims = _mapping(document.data, "dims")
    arguments = _mapping(document.data, "arguments")
    for name, argument in arguments.items():
        kind = argument.get("type") if isinstance(argument, dict) else None
        if name in dims and kind in ("int", "float", "shape"):
            message = f"{quote(name)} is both a symbol and an argument of another type"
            hint = "make it `{type: dim}` or rename one"
            yield document.diagnostic("FG208", message, ("arguments", name), key=True, hint=hint)
    for name in _mapping(document.data, "inputs"):
        other = "a symbol" if name in dims else "an argument" if name in arguments else None
        if other:
            message = f"{quote(name)} is both an input and {other}"
            yield document.diagnostic("FG208", message, ("inputs", name), key=True)


def _defaults_last(document: Document) -> Iterator[Diagnostic]:
    """As for any Python function, or the constructor could not be written; those taken by name may stand anywhere."""
    with_default: str | None = None
    for name, argument in _mapping(document.data, "arguments").items():
        if not isinstance(argument, dict) or argument.get("keyword") is True:
            continue
        if "default" in argument:
            with_default = with_default or name
        elif with_default and argument.keys() <= _ARGUMENT_KEYS:  # or it is there, but misspelt
            message = f"the argument {quote(name)} has no default, but {quote(with_default)} before it has"
            yield document.diagnostic("FG214", message, ("arguments", name), key=True)


def _defaults_fit(document: Document) -> Iterator[Diagnostic]:
    """A default shape that the constructor would refuse."""
    for name, argument in _arguments(document, "shape"):
        required, default = argument.get("is"), argument.get("default")
        if not isinstance(required, list) or not isinstance(default, list):
            continue
        path = ("arguments", name, "default")
        if len(required) != len(default):
            message = f"the default has {len(default)} dimensions, but 'is' has {len(required)}"
            yield document.diagnostic("FG214", message, path)
            continue
        for index, (want, have) in enumerate(zip(required, default, strict=True)):
            if isinstance(want, int) and isinstance(have, int) and want != have:
                message = f"the default has {have} here, but 'is' has {want}"
                yield document.diagnostic("FG214", message, (*path, index))


def _class_of_name(document: Document) -> Iterator[Diagnostic]:
    """A spec without `class` whose name gives a class that cannot be written."""
    name = document.data.get("name")
    if "class" in document.data or not isinstance(name, str) or not passes(check_spec_name, name):
        return
    try:
        check_class(camel_case(name))
    except PydanticCustomError as error:
        message = f"{quote(name)} cannot name a class: {error.message()}"
        yield document.diagnostic("FG206", message, ("name",), hint="give the class a name with 'class'")
