"""The step that divides the channels, as imports find it: from the parts that the module takes."""

from __future__ import annotations

import re
from typing import Any

from fusegen.importing.reading.values import Value
from fusegen.importing.traces.source_locations import SourceLine

_ASSIGNED = re.compile(r"\s*\(?([A-Za-z]\w*(?:\s*,\s*[A-Za-z]\w*)+)\)?\s*=[^=]")


class Chunk:
    """A chunk of a value. data: the step of the spec, which is filled in as parts are found."""

    def __init__(self, value: Value, names: list[str]) -> None:
        self.value, self.names = value, names
        self.data: dict[str, Any] = {"op": "chunk", "parts": names}
        self._taken: list[Value] = []

    @staticmethod
    def assigned(place: SourceLine | None, count: int) -> list[str]:
        """The variables that the user's source assigns the parts to, if these are so many."""
        match = _ASSIGNED.match(place.source) if place else None
        found = re.split(r"\s*,\s*", match[1]) if match else []
        return found if len(found) == count else [f"part{index + 1}" for index in range(count)]

    def has(self, part: Value) -> bool:
        """Whether it is one of these parts."""
        return part.values[0] is self.value and part.keys["count"] == len(self.names)

    def take(self, part: Value) -> None:
        self._taken.append(part)

    def name_of(self, part: Value) -> str:
        return self.names[part.keys["index"]]

    def first_of(self, value: Value) -> Value | None:
        """The part that a step goes on from, the first one behind the chunk; None where it takes none."""
        part = next((each for each in value.values if any(each is other for other in self._taken)), None)
        if part is not None and part.keys["index"]:
            self.data["running"] = self.name_of(part)
        return part
