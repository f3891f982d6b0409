"""What became of a model's graphs, for those who compiled it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.errors import printable

# Places that share a kind or a reason are counted from here on.
_SHOWN = 2


@dataclass(frozen=True)
class Taken:
    """A region that runs as a package's ops. place: the line of the user's source that its first operator is from.
    measured: what it takes, where that was asked for."""

    spec: str
    ops: tuple[str, ...]
    place: str
    measured: str | None = None


@dataclass(frozen=True)
class Left:
    """A region that PyTorch's compiler has as it was, and why."""

    reason: str
    ops: tuple[str, ...]
    place: str


@dataclass
class Report:
    """The regions of all graphs so far that became ops, and those that did not. specs: the directory of the specs.
    kept: of operators outside of all regions, how often there is each for each reason."""

    specs: Path
    graphs: int = 0
    taken: list[Taken] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        counts = (self.graphs, "graph"), (len(self.taken), "place"), (len(self.left), "region")
        graphs, places, regions = (f"{count} {name}{'s' * (count != 1)}" for count, name in counts)
        lines = [f"{graphs}: kernels of fusegen in {places}{f', {regions} left' if self.left else ''}"]
        kinds: dict[str, list[Taken]] = {}
        for each in self.taken:
            kinds.setdefault(each.spec, []).append(each)
        for spec, group in kinds.items():
            lines.append(f"  {self.specs / spec}.yaml: {', '.join(group[0].ops)}")
            lines.append(f"      {_places([each.place for each in group])}")
            lines += [f"      {text}" for text in dict.fromkeys(each.measured for each in group) if text]
        reasons: dict[tuple[str, tuple[str, ...]], list[Left]] = {}
        for left in self.left:
            reasons.setdefault((left.reason, left.ops), []).append(left)
        for (reason, ops), others in reasons.items():
            lines.append(f"  left: {', '.join(ops)}: {reason}")
            lines.append(f"      {_places([each.place for each in others])}")
        names: dict[str, dict[str, int]] = {}
        for (reason, name), count in self.kept.items():
            names.setdefault(reason, {})[name] = count
        lines += [f"  kept: {_counted(found)}: {reason}" for reason, found in names.items()]
        return "\n".join(map(printable, lines))


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name}{f' ({count} times)' if count > 1 else ''}" for name, count in found.items())


def _places(places: Sequence[str]) -> str:
    counted = [_counted({place: count}) for place, count in Counter(places).items()]
    if len(counted) <= _SHOWN:
        return ", ".join(counted)
    return f"{', '.join(counted[:_SHOWN])} and {len(counted) - _SHOWN} more"
