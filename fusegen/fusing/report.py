"""What fuse() did, for those who called it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.errors import Diagnostic, printable
from fusegen.fusing.saving import Saving, amount

# Paths of modules that share a reason are counted from here on.
_SHOWN = 2


@dataclass(frozen=True)
class Replaced:
    """Modules that run as one chain. path: of the module, with the run of its children if it is an nn.Sequential.

    ops: of the chain, in order. saving: bytes that a training step moves less, in one call with the example inputs.
    """

    path: str
    kind: str
    spec: str
    ops: tuple[str, ...]
    saving: Saving

    @property
    def reason(self) -> str:
        """Why it pays."""
        return f"{self.saving.operators} operators of a training step become {self.saving.kernels} kernels"


@dataclass(frozen=True)
class Left:
    """A module that stays as it was, and why. diagnostic: of the import, with the line of its source."""

    path: str
    kind: str
    reason: str
    diagnostic: Diagnostic | None = None


@dataclass
class Report:
    """What fuse() has replaced in a model, or would replace; what it has left, and why.

    specs: the directory of the specs. written: those that were not there. unused: those that are there and that this
    model does not need.
    """

    specs: Path
    dry_run: bool
    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    @property
    def saving(self) -> Saving:
        return sum((each.saving for each in self.replaced), Saving(0, 0))

    def __str__(self) -> str:
        done = "would be replaced" if self.dry_run else "replaced"
        lines = [f"{done}: {len(self.replaced)}"]
        groups: dict[tuple[str, ...], list[Replaced]] = {}
        for each in self.replaced:
            groups.setdefault((each.spec, each.kind, str(each.saving)), []).append(each)
        for (spec, kind, saved), group in groups.items():
            lines.append(f"  {_paths([each.path for each in group])} ({kind}): {', '.join(group[0].ops)}")
            each_time = " in each" if len(group) > 1 else ""
            lines.append(f"      {group[0].reason}; saves {saved}{each_time}; {self.specs / spec}.yaml")
        if self.replaced:
            lines.append(
                f"  in all {amount(self.saving.bytes)} of the {amount(self.saving.eager)} that these operators move"
            )
        lines.append(f"left as they are: {len(self.left)}")
        reasons: dict[tuple[str, str], list[Left]] = {}
        for left in self.left:
            reasons.setdefault((left.kind, _reason(left)), []).append(left)
        for (kind, reason), others in reasons.items():
            lines.append(f"  {_paths([each.path for each in others])} ({kind}): {reason}")
        if self.unused:
            lines.append(f"specs that this model does not need: {', '.join(self.unused)}")
        return "\n".join(map(printable, lines))


def _reason(left: Left) -> str:
    if left.diagnostic is None:
        return left.reason
    place = f"{left.diagnostic.location}: " if left.diagnostic.location else ""
    hint = f" ({left.diagnostic.hint})" if left.diagnostic.hint else ""
    return f"{place}{left.reason}{hint}"


def _paths(paths: Sequence[str]) -> str:
    shown = [path or "the model" for path in paths]
    if len(shown) <= _SHOWN:
        return ", ".join(shown)
    return f"{shown[0]} and {len(shown) - 1} more"
