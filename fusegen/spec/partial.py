"""What can be read of a spec that has mistakes, so that the mistakes in the rest of it are found as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from fusegen.spec.annotations import tags
from fusegen.spec.arguments import Argument, InputShape
from fusegen.spec.base import PositiveInt
from fusegen.spec.checks import unreadable_sections
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.model import DTYPES, MAX_NAMES, MAX_STEPS, SpecModel

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class PartialSpec:
    """Stands for a SpecModel where a chain is checked. An entry that is there but cannot be read is None.

    unreadable: the path of everything that was left out: a whole section, an entry of one, or a key of a step.
    """

    dims: Mapping[str, int | None]
    arguments: Mapping[str, Argument | None]
    inputs: Mapping[str, tuple[int | str, ...] | None]
    chain: tuple[Any, ...]
    outputs: tuple[str, ...] | None
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    unreadable: frozenset[DocumentPath]
    is_region: bool = False
    spatial_of_region: int = 0
    made_by: Mapping[str, Any] = field(default_factory=dict)


AnySpec = SpecModel | PartialSpec


def read_partly(step_types: Sequence[type[BaseModel]], document: Document) -> PartialSpec:
    """Every entry that is valid by itself. A step keeps the keys that are, if they are enough for its op."""
    sections = unreadable_sections(document, SpecModel.keys())
    reader = _Reader(document, {(section,) for section in sections})
    return PartialSpec(
        dims=reader.entries("dims", TypeAdapter(PositiveInt)),
        arguments=reader.entries("arguments", TypeAdapter(Argument)),
        inputs=reader.entries("inputs", TypeAdapter(InputShape)),
        chain=reader.chain({tag: model for model in step_types for tag in tags(model, "op")}),
        outputs=reader.texts("outputs") or None,
        dtypes=reader.texts("dtypes", DTYPES),
        targets=reader.texts("targets"),
        unreadable=frozenset(reader.unreadable),
    )


def words(value: Any) -> Iterator[str]:
    """Every word in the texts of a value, but for what names an op."""
    if isinstance(value, str):
        yield from _WORD.findall(value)
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from words(below if key != "op" else None)
    elif isinstance(value, list):
        for below in value:
            yield from words(below)


class _Reader:
    def __init__(self, document: Document, unreadable: set[DocumentPath]) -> None:
        self.document = document
        self.unreadable = unreadable
        places = {problem.location for problem in document.problems}
        # A refused number or alias was read as null, which some keys take.
        self.flawed = {path for path, place in document.values.items() if place in places}

    def entries(self, section: str, type_: TypeAdapter[Any]) -> dict[str, Any]:
        if (section,) in self.unreadable:
            return {}
        written = list(self.document.data.get(section, {}).items())
        if len(written) > MAX_NAMES:
            self.unreadable.add((section,))
        return {name: self._entry((section, name), type_, value) for name, value in written[:MAX_NAMES]}

    def _entry(self, path: DocumentPath, type_: TypeAdapter[Any], value: Any) -> Any:
        try:
            return type_.validate_python(value)
        except ValidationError:
            self.unreadable.add(path)
            return None

    def chain(self, models: Mapping[str, type[BaseModel]]) -> tuple[Any, ...]:
        if ("chain",) in self.unreadable:
            return ()
        written = self.document.data.get("chain", [])
        if len(written) > MAX_STEPS:
            self.unreadable.add(("chain",))
        return tuple(self._step(index, value, models) for index, value in enumerate(written[:MAX_STEPS]))

    def _step(self, index: int, value: Any, models: Mapping[str, type[BaseModel]]) -> BaseModel | None:
        op = value.get("op") if isinstance(value, dict) else None
        if isinstance(op, str) and op in models:
            kept = {key: below for key, below in value.items() if ("chain", index, key) not in self.flawed}
            while True:
                try:
                    step = models[op].model_validate(kept)
                except ValidationError as error:
                    wrong = {item["loc"][0] for item in error.errors() if item["loc"]} & kept.keys()
                    if not wrong:
                        break
                    kept = {key: below for key, below in kept.items() if key not in wrong}
                else:
                    self.unreadable |= {("chain", index, key) for key in value.keys() - kept.keys()}
                    return step
        self.unreadable.add(("chain", index))
        return None

    def texts(self, section: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts; what is none is an empty one there."""
        written = self.document.data.get(section)
        if not isinstance(written, list):
            return default
        return tuple(text if isinstance(text, str) else "" for text in written)
