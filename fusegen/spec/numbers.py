"""The numbers that a spec gives its arguments, in place of their names in the steps.

A number that a step may not have may not be the default of an argument that the step names, nor what planning assumes
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from fusegen.errors import Diagnostic
from fusegen.spec.annotations import field_type, fields, literals
from fusegen.spec.document import Document, DocumentPath

GIVEN = ("default", "typical")
"""The keys of an argument that are such numbers."""


class Numbers:
    """Of one of these keys. steps: the models of steps, by their ops. document: the given one, with the numbers in
    place of the names; they are where the arguments have them."""

    def __init__(self, document: Document, steps: Mapping[str, type[BaseModel]], key: str) -> None:
        self._written, self._values = document, dict(_given(document, key))
        self._names: dict[DocumentPath, str] = {}
        chain = document.data.get("chain")
        if self._values and isinstance(chain, list):
            chain = [self._step(index, step, steps) for index, step in enumerate(chain)]
        places = {path: document.location(("arguments", name, key)) for path, name in self._names.items()}
        data = {**document.data, "chain": chain} if places else document.data
        self.document = replace(document, data=data, values={**document.values, **places}, problems=())

    @property
    def names(self) -> frozenset[str]:
        """The arguments that steps name and that have a number."""
        return frozenset(self._names.values())

    def in_step(self, step: BaseModel) -> BaseModel:
        """The step with the numbers."""
        taken = {}
        for name, info in type(step).model_fields.items():
            before, annotation = getattr(step, name), field_type(info)
            after = self._filled(before, literals(annotation)) if takes_number(annotation) else before
            if after is not before:
                taken[name] = after
        return step.model_copy(update=taken) if taken else step

    def among(self, diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
        """Those of the document that are about a number, each with the step that takes it."""
        places = {self.document.location(path): path for path in reversed(self._names)}
        for each in diagnostics:
            path = places.get(each.location) if each.location else None
            if path is not None:
                line = self._written.location(path).line
                yield replace(each, hint=f"line {line} takes '{self._names[path]}' as '{path[2]}'")

    def _step(self, index: int, step: Any, steps: Mapping[str, type[BaseModel]]) -> Any:
        op = step.get("op") if isinstance(step, dict) else None
        if not isinstance(op, str) or op not in steps:
            return step
        made = dict(step)
        for key, info in fields(steps[op]).items():
            if key in made and takes_number(field_type(info)):
                made[key] = self._filled(made[key], literals(field_type(info)), ("chain", index, key))
        return made

    def _filled(self, value: Any, words: list[str], path: DocumentPath | None = None) -> Any:
        """A key's value with numbers. words: what means something else there. path: where it is, to be noted."""
        if isinstance(value, list | tuple):
            below = [None if path is None else (*path, index) for index in range(len(value))]
            made = [self._filled(each, words, where) for each, where in zip(value, below, strict=True)]
            return type(value)(made) if any(a is not b for a, b in zip(made, value, strict=True)) else value
        if not isinstance(value, str) or value in words or value not in self._values:
            return value
        if path is not None:
            self._names[path] = value
        return self._values[value]


def takes_number(annotation: Any) -> bool:
    """Whether a value of the type, or an element of one, may be a number."""
    if get_origin(annotation) is Annotated:
        return takes_number(annotation.__origin__)
    if annotation in (int, float):
        return True
    return not isinstance(annotation, type) and any(takes_number(each) for each in get_args(annotation))


def _given(document: Document, key: str) -> Iterator[tuple[str, int | float]]:
    arguments = document.data.get("arguments")
    for name, argument in arguments.items() if isinstance(arguments, dict) else ():
        kind = argument.get("type") if isinstance(argument, dict) else None
        value = argument.get(key) if kind in ("int", "float") else None
        if isinstance(value, int if kind == "int" else int | float) and not isinstance(value, bool):
            yield name, value
