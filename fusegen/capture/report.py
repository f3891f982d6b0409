"""What became of a model's graphs, for those who compiled it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusegen.errors import printable

# Places that share a kind or a reason are counted from here on.
_SHOWN = 2


@dataclass(frozen=True)
class Taken:
    """A region that runs as a package's ops. place: the line of the user's source that its first operator is from.
    measured: what it takes, where that was asked for. at_place: the text of the spec with the sizes of the place; None
    where these change from call to call."""

    spec: str
    ops: tuple[str, ...]
    place: str
    measured: str | None = None
    at_place: str | None = None


@dataclass(frozen=True)
class Left:
    """A region that PyTorch's compiler has as it was, and why."""

    reason: str
    ops: tuple[str, ...]
    place: str


@dataclass(repr=False)
class Report:
    """The regions of all graphs so far that became ops, and those that did not: text by print(), a table in a notebook.

    specs: the directory of the specs. kept: of operators outside of all regions, how often there is each for each
    reason.
    """

    specs: Path
    graphs: int = 0
    taken: list[Taken] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [self._heading()]
        for spec, ops, *others in self._chains():
            lines += [f"  {spec}: {ops}", *(f"      {each}" for each in others)]
        for reason, ops, places in self._others():
            lines += [f"  left: {ops}: {reason}", f"      {places}"]
        lines += [f"  kept: {names}: {reason}" for reason, names in self._outside()]
        expected = self.expected()
        lines += [f"  {expected}"] if expected else []
        return "\n".join(map(printable, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from fusegen.explain.picture import environment  # late, as in expected()

        return (
            environment()
            .get_template("found.html.j2")
            .render(
                heading=self._heading(),
                expected=self.expected(),
                chains=self._chains(),
                others=self._others(),
                outside=self._outside(),
            )
        )

    def expected(self) -> str | None:
        """What all places together are expected to take beside eager PyTorch, in a line; None without any."""
        from fusegen.capture.expected import expected  # late: it plans the chains, which not every report is asked for

        return expected([each.at_place for each in self.taken])

    def _heading(self) -> str:
        counts = (self.graphs, "graph"), (len(self.taken), "place"), (len(self.left), "region")
        graphs, places, regions = (f"{count} {name}{'s' * (count != 1)}" for count, name in counts)
        return f"{graphs}: kernels of fusegen in {places}{f', {regions} left' if self.left else ''}"

    def _chains(self) -> list[tuple[str, ...]]:
        """Of each spec its path, its ops, its places, and what was measured."""
        return [
            (
                f"{self.specs / spec}.yaml",
                ", ".join(group[0].ops),
                _places([each.place for each in group]),
                *(text for text in dict.fromkeys(each.measured for each in group) if text),
            )
            for spec, group in _grouped((each.spec, each) for each in self.taken).items()
        ]

    def _others(self) -> list[tuple[str, str, str]]:
        """Of the regions that are left the reason, the ops, and the places."""
        groups = _grouped(((each.reason, each.ops), each.place) for each in self.left)
        return [(reason, ", ".join(ops), _places(places)) for (reason, ops), places in groups.items()]

    def _outside(self) -> list[tuple[str, str]]:
        """Of the operators outside of all regions the reason, and their names."""
        groups = _grouped((reason, (name, count)) for (reason, name), count in self.kept.items())
        return [(reason, _counted(dict(found))) for reason, found in groups.items()]


def _grouped(pairs: Iterable[tuple[Hashable, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name}{f' ({count} times)' if count > 1 else ''}" for name, count in found.items())


def _places(places: Sequence[str]) -> str:
    counted = [_counted({place: count}) for place, count in Counter(places).items()]
    if len(counted) <= _SHOWN:
        return ", ".join(counted)
    return f"{', '.join(counted[:_SHOWN])} and {len(counted) - _SHOWN} more"
