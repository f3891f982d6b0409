"""The keys of a model, and values as a spec has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from fusegen.spec.annotations import describe, field_type, fields


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


def flow(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = value.replace("_", "").isalnum() and value.lower() not in ("true", "false", "null")
        return value if plain and not value[0].isdigit() else json.dumps(value)
    return json.dumps(value)
