"""Validates a document against a model, and says what is wrong in the spec's terms, all at once."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.spec.annotations import Target, describe, fields, literals, resolve_location, tags
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.wording import found, nearest, suggest
from fusegen.spec.yaml import read_yaml

Model = TypeVar("Model", bound=BaseModel)

# Each finding costs a search for what was meant; a file with more is not a spec that someone wrote.
MAX_FINDINGS = 1000

_LIKE_A_NUMBER = re.compile(r"[-+]?\.?[0-9]")

# What pydantic's constraint errors say, with their context filled in.
_CONSTRAINTS = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "finite",
    "too_short": "at least {min_length} long",
    "too_long": "at most {max_length} long",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
}


def load(model: type[Model], path: str | os.PathLike[str]) -> tuple[Model, Document]:
    """Read and validate a file. Raises one SpecError with every mistake that either finds."""
    document = read_yaml(path, lenient=True)
    return validate(model, document), document


def validate(model: type[Model], document: Document) -> Model:
    """The document as the model, or SpecError.

    A model may have a classmethod `cross_check(document) -> Iterable[Diagnostic]`. It sees the raw data,
    valid or not, so that its findings come together with those about single values.
    """
    diagnostics = list(document.problems)
    result: Model | None = None
    try:
        result = model.model_validate(document.data)
    except ValidationError as error:
        diagnostics = merge(diagnostics, _translate(model, document, error))
        unknown_format = [diagnostic for diagnostic in diagnostics if diagnostic.code == "FG213"]
        if unknown_format:
            raise SpecError(unknown_format) from None  # whatever else there is may be right in that format
    cross_check = getattr(model, "cross_check", None)
    if cross_check is not None:
        diagnostics = merge(diagnostics, itertools.islice(cross_check(document), MAX_FINDINGS))
    if diagnostics or result is None:
        raise SpecError(diagnostics)
    return result


def mistakes(model: type[BaseModel], document: Document) -> list[Diagnostic]:
    """What the model says of the document's values, each by itself."""
    try:
        model.model_validate(document.data)
    except ValidationError as error:
        return _translate(model, document, error)
    return []


def merge(earlier: Sequence[Diagnostic], later: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Both, without what is said of a place that has a complaint already: that is only its echo."""
    taken = {diagnostic.location for diagnostic in earlier}
    return [*earlier, *(diagnostic for diagnostic in later if diagnostic.location not in taken)]


@dataclass(frozen=True)
class _Finding:
    """One error of pydantic's, and where in the document it is."""

    target: Target
    kind: str
    value: Any
    context: Mapping[str, Any]

    @property
    def is_mismatch(self) -> bool:
        """The value is of a type that this member of a union has not; another member may take it."""
        return self.kind == "literal_error" or self.kind.endswith(("_type", "_parsing", "_from_float"))

    @property
    def is_text_for_a_number(self) -> bool:
        """A number would do, and the text is more like one than like a name."""
        return self.kind == "FG206" and self.target.in_union and bool(_LIKE_A_NUMBER.match(self.value))


def _translate(model: type[BaseModel], document: Document, error: ValidationError) -> list[Diagnostic]:
    findings = [
        _Finding(
            resolve_location(model, item["loc"], document.data),
            item["type"],
            item["input"],
            item.get("ctx", {}),
        )
        for item in error.errors(include_url=False)
    ]
    by_place: dict[tuple[DocumentPath, bool], list[_Finding]] = {}
    for finding in findings:
        by_place.setdefault((finding.target.path, finding.target.at_key), []).append(finding)
    corrected = {(*finding.target.path[:-1], meant) for finding in findings if (meant := _meant_key(document, finding))}
    parents = {path[:end] for path, _ in by_place for end in range(len(path))}
    result = []
    for (path, _), group in itertools.islice(by_place.items(), MAX_FINDINGS):
        if path in corrected and group[0].kind == "missing":
            continue  # it is there, but misspelt
        # Of the members of a union, the one that the value got furthest into has the useful complaint.
        below = path in parents
        # Pydantic counts only the valid elements of a list; the invalid ones are reported themselves.
        definite = [f for f in group if not f.is_mismatch and not (f.kind == "too_short" and below)]
        if definite and definite[0].is_text_for_a_number:
            result.append(_mismatch(document, group, "numbers are written as 1000 or 2.5e-3, and without quotes"))
        elif definite:
            result.append(_explain(model, document, definite[0]))
        elif not below:
            result.append(_mismatch(document, group))
    return result


def _explain(model: type[BaseModel], document: Document, finding: _Finding) -> Diagnostic:
    """The diagnostic of an error that is not a plain mismatch of types."""
    target, context = finding.target, finding.context
    if finding.kind == "extra_forbidden":
        return _unknown_key(document, target)
    if finding.kind == "missing":
        message = f"missing key {quote(str(target.path[-1]))}{_owner(target)}"
        return document.diagnostic("FG202", message, target.path[:-1])
    if finding.kind in ("union_tag_invalid", "union_tag_not_found"):
        return _bad_tag(model, document, finding)
    code, hint = "FG205", None
    if finding.kind in ("value_error", "assertion_error"):
        message = str(context.get("error", "the value is not allowed here"))
    elif finding.kind.startswith("FG"):
        code, message, hint = finding.kind, context["message"], context.get("hint")
    elif finding.kind in _CONSTRAINTS:
        limit = _CONSTRAINTS[finding.kind].format(**context)
        shown = "" if isinstance(finding.value, list | dict | tuple) else f", found {found(finding.value)}"
        message = f"{_subject(target.path)} must be {limit}{shown}"
    else:
        message = f"{_subject(target.path)} is not allowed to be {found(finding.value)}"
    return document.diagnostic(code, message, target.path, key=target.at_key, hint=hint)


def _mismatch(document: Document, group: list[_Finding], advice: str | None = None) -> Diagnostic:
    """No type that the place accepts fits the value."""
    target, value = group[0].target, group[0].value
    known = literals(target.annotation)
    is_choice = bool(known) and isinstance(value, str)
    message = f"{_subject(target.path)} must be {describe(target.annotation)}, found {found(value)}"
    hint = suggest(value, known) if is_choice else None
    # A list of all the choices is in the message already.
    hint = hint if hint and hint.startswith("did you mean") else advice
    code = "FG205" if is_choice and not advice else "FG204"
    return document.diagnostic(code, message, target.path, key=target.at_key, hint=hint)


def _unknown_key(document: Document, target: Target) -> Diagnostic:
    message = f"unknown key {quote(str(target.path[-1]))}{_owner(target)}"
    hint = suggest(str(target.path[-1]), _absent_keys(document, target), among="it may still have")
    return document.diagnostic("FG201", message, target.path, key=True, hint=hint)


def _absent_keys(document: Document, target: Target) -> list[str]:
    """What an unknown key may have been meant to be: a key that the mapping can have and has not."""
    written: Any = document.data
    for step in target.path[:-1]:
        written = written[step]
    return [name for name in (fields(target.model) if target.model else ()) if name not in written]


def _meant_key(document: Document, finding: _Finding) -> str | None:
    """The key of which an unknown one is a misspelling."""
    if finding.kind != "extra_forbidden":
        return None
    return nearest(str(finding.target.path[-1]), _absent_keys(document, finding.target))


def _bad_tag(model: type[BaseModel], document: Document, finding: _Finding) -> Diagnostic:
    """The key that says what kind of thing a mapping is: missing, or not one of the kinds."""
    target, name = finding.target, finding.target.discriminator or "op"
    if name not in finding.value:
        return document.diagnostic("FG202", f"missing key {quote(name)}", target.path)
    tag = finding.value[name]
    path = (*target.path, name)
    if not isinstance(tag, str):
        return document.diagnostic("FG204", f"'{name}' must be text, found {found(tag)}", path)
    known = tags(target.annotation, name)
    unknown_op = getattr(model, "unknown_op", None)
    if name == "op" and unknown_op is not None:
        message, hint = unknown_op(tag, known)
    else:
        message, hint = f"unknown {name} {quote(tag)}", suggest(tag, known)
    return document.diagnostic("FG203" if name == "op" else "FG205", message, path, hint=hint)


def _owner(target: Target) -> str:
    """Whose key it is, where the spec has a word for it."""
    return f" of {quote(target.tag)}" if target.tag else ""


def _subject(path: DocumentPath) -> str:
    """What a message calls the value at a path: `'eps'`, `element 2 of 'shape'`."""
    if not path:
        return "the spec"
    last = path[-1]
    return f"element {last + 1} of {_subject(path[:-1])}" if isinstance(last, int) else quote(last)
