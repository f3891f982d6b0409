"""Specs that lie in a directory already, and names for those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fusegen.capture.specs import read_spec
from fusegen.files import write, writing
from fusegen.spec.names import MAX_NAME_LENGTH, free_name, is_spec_name
from fusegen.spec.text import flow
from fusegen.spec.yaml import parse_yaml

# What may be changed in a spec by hand, and it still is that of the same modules.
_FREE = ("name", "about", "targets", "dtypes")


class Specs:
    """Of one directory. texts: of those that are to be written, by name. known: the chain of each.

    Raises SpecError for a file that is no spec.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.texts: dict[str, str] = {}
        self.known = {path.stem: chain_of(read_spec(path)) for path in sorted(directory.glob("*.yaml"))}
        self.used: set[str] = set()

    def place(self, text: str, wanted: str) -> str:
        """The name of the spec that is this one but for its name; a new one, which begins as `wanted`, if none is."""
        chain = chain_of(parse_yaml(text, wanted).data)
        name = next((name for name, known in self.known.items() if known == chain), None)
        if name is None:
            wanted = next(each for each in (wanted, f"{wanted}_chain", "chain") if _is_usable(each))
            name = free_name(wanted, {known.lower() for known in self.known})
            self.known[name] = chain
            self.texts[name] = "\n".join(
                f"name: {flow(name)}" if line.startswith("name: ") else line for line in text.split("\n")
            )
        self.used.add(name)
        return name

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    @property
    def unused(self) -> list[str]:
        return sorted(self.known.keys() - self.used)

    def write(self) -> None:
        """Writes the new ones; no other file is touched."""
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            with writing(self.path(name)):
                write(self.path(name), text)


def _is_usable(name: str) -> bool:
    """Whether a spec may be called that. A number may come behind it."""
    return is_spec_name(name) and len(name) < MAX_NAME_LENGTH - 8


def chain_of(data: dict[str, Any]) -> dict[str, Any]:
    """What a spec computes: not the sizes that planning assumes, nor the precision, which is the user's choice."""
    found = {key: value for key, value in data.items() if key not in _FREE}
    found["dims"] = sorted(data.get("dims", {}))
    found["arguments"] = data.get("arguments", {})
    found["chain"] = [
        {key: value for key, value in step.items() if key not in ("precision", "init") or step["op"] == "prelu"}
        for step in data["chain"]
    ]
    return found
