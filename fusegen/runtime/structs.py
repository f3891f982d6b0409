"""A C struct with the values of its members, for functions that take it by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any


class Struct:
    """layout: its type. members: a value for each by name: a number, None for a null pointer, an address, an array or
    struct for its address, or whatever else has a `pointer`, such as the emulator's buffers.

    Raises KeyError for a member without a value, or for a value without a member: a call must say all.
    """

    def __init__(self, layout: type[ctypes.Structure], members: Mapping[str, Any]) -> None:
        names = [name for name, *_ in layout._fields_]
        if odd := set(names) ^ members.keys():
            raise KeyError(f"{layout.__name__}: {', '.join(sorted(odd))}")
        self.layout = layout
        self.members = {name: members[name] for name in names}

    def made(self) -> ctypes.Structure:
        """The struct in memory. It keeps alive what it points to."""
        inner = {name: value.made() if isinstance(value, Struct) else value for name, value in self.members.items()}
        made = self.layout(**{name: _converted(value) for name, value in inner.items()})
        made.kept = inner
        return made


def _converted(value: Any) -> int | float | None:
    if isinstance(value, ctypes.Array | ctypes.Structure):
        return ctypes.addressof(value)
    return getattr(value, "pointer", value)
