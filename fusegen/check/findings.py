"""What a check finds: one difference between a file and what should be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "edited", "stale", "stale_plan", "version", "changed", "conflict", "line_endings", "missing", "orphaned",
    "manifest", "library",
]  # fmt: skip
# What `fusegen build` does about it: it writes the file, it compiles, it replaces an edit when told to overwrite, it
# removes a file when told to prune, or it leaves or refuses a file that may be somebody's work, so that it has to be
# removed by hand first.
Repair = Literal["build", "compile", "overwrite", "prune", "remove"]

TITLES: dict[Kind, str] = {
    "edited": "edited by hand",
    "stale": "stale",
    "stale_plan": "stale plan",
    "version": "rendered by another version",
    "changed": "changed",
    "conflict": "merge conflict",
    "line_endings": "line endings",
    "missing": "missing",
    "orphaned": "orphaned",
    "manifest": "manifest",
    "library": "stale library",
}


@dataclass(frozen=True)
class Finding:
    """One difference. `old` is what the file holds, `new` what it should hold; None where there is, or should be, none.

    Both are None for a compiled library, which has no text to compare. path: below the output directory, with `/`.
    meaning: one sentence.
    """

    path: str
    kind: Kind
    meaning: str
    old: bytes | None
    new: bytes | None
    repair: Repair

    @property
    def title(self) -> str:
        return TITLES[self.kind]
