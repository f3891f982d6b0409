"""Names for values of a spec: the user's own variables where these are free."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusegen.importing.traces.source_locations import SourceLine
from fusegen.spec.names import check_identifier, free_name, passes

_ASSIGNED = re.compile(r"\s*([A-Za-z]\w*)\s*=[^=]")


class NewNames:
    """Names that nothing else has. taken: those that something has."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def of(self, place: SourceLine | None) -> str:
        """The variable that a line of the user's source assigns to, if it is one."""
        assigned = _ASSIGNED.match(place.source if place else "")
        return self.new(assigned[1] if assigned and assigned[1] not in self.taken else "v")

    def new(self, wanted: str) -> str:
        """The name, or one like it."""
        wanted = wanted if passes(check_identifier, wanted) else "v"
        name = free_name(wanted, self.taken)
        self.taken.add(name)
        return name
