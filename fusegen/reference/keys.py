"""The keys of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from fusegen.spec.annotations import describe, field_type, fields
from fusegen.spec.text import flow


@dataclass(frozen=True)
class Key:
    """value: what may stand there, in words. default: as in YAML; None where there is none."""

    name: str
    value: str
    required: bool
    default: str | None
    about: str
    example: str

    @property
    def presence(self) -> str:
        """Whether the key has to be there, and what holds without it."""
        return "required" if self.required else "optional" if self.default is None else f"default {self.default}"


def keys_of(model: type[BaseModel], without: Iterable[str] = ()) -> list[Key]:
    """In the model's order."""
    found = []
    for name, field in fields(model).items():
        if name in without:
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        absent = default is None and "null" not in describe(field_type(field))
        found.append(
            Key(
                name,
                describe(field_type(field)),
                field.is_required(),
                None if absent else flow(default),
                field.description or "",
                flow(field.examples[0]) if field.examples else "",
            )
        )
    return found
