"""The chains that people write, as data: kernelbench.yaml, training.yaml and today.yaml beside this file.

A document has the keys of a spec, at full size, and besides

kind: what it is an example of.
refused: a diagnostic's code and words of its text, for a chain that cannot be built; without it the chain builds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DTYPES = ("float32", "bfloat16")
_FILES = ("kernelbench", "training", "today")
_OWN = ("kind", "refused")


@dataclass(frozen=True)
class Entry:
    """A chain. file: the one that it is in. refused: code and words, empty for a chain that builds."""

    name: str
    file: str
    kind: str
    spec: dict[str, Any]
    refused: tuple[str, ...] = ()

    def text(self, dtypes: Sequence[str] = DTYPES) -> str:
        """The spec file's text."""
        found = io.StringIO()
        writer = YAML(typ="safe", pure=True)
        writer.sort_base_mapping_type_on_output = False
        writer.dump({"fusegen": 1, **self.spec, "dtypes": list(dtypes)}, found)
        return found.getvalue()


def _entries() -> Iterator[Entry]:
    for file in _FILES:
        text = (Path(__file__).parent / f"{file}.yaml").read_text(encoding="utf-8")
        for document in YAML(typ="safe", pure=True).load_all(text):
            spec = {key: value for key, value in document.items() if key not in _OWN}
            refused = tuple(document.get("refused", ()))
            yield Entry(document["name"], file, document["kind"], spec, refused)


ENTRIES: dict[str, Entry] = {entry.name: entry for entry in _entries()}
BUILT = {name: entry for name, entry in ENTRIES.items() if not entry.refused}
REFUSED = {name: entry for name, entry in ENTRIES.items() if entry.refused}
