"""What a verification finds out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fusegen.verify.judgement.policy import Comparison


@dataclass(frozen=True)
class Finding:
    """A comparison with where it was made. check: "numerics", "training", "gradcheck" or a kind of behaviour."""

    check: str
    shape: str
    dtypes: str
    mode: str
    item: Comparison


@dataclass
class Report:
    """What was found about one package. skipped: checks that could not be made, with the reason. sizes: checks at a
    size that libraries do not take, or for which the device has not the memory, with the size in its place, if there is
    one."""

    name: str
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.item.ok]

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return bool(self.findings) and not self.failed


def nearness(item: Comparison) -> float:
    """How much of its bound the worse of the two measures of an error uses up."""
    pairs = ((item.fused.largest, item.bound.largest), (item.fused.norm, item.bound.norm))
    return max(error / limit if limit else (math.inf if error else 0.0) for error, limit in pairs)
