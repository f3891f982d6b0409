"""The same specs with other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OWN = {"randn", "rand", "ones", "zeros"}


def names_of(data: dict[str, Any]) -> list[str]:
    """Every name that a spec gives, but for its own."""
    found = [*data["dims"], *data.get("arguments", {}), *data["inputs"]]
    found += [step[key] for step in data["chain"] for key in ("name", "parameter", "save") if key in step]
    found += [name for step in data["chain"] for name in step.get("parts", ())]
    return list(dict.fromkeys(name for name in found if name not in _OWN))


def renamed(data: dict[str, Any], change: Callable[[str], str], name: str) -> dict[str, Any]:
    """The spec as `name`, with all its other names changed."""
    names = set(names_of(data))

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return change(value) if value in names and key not in ("op", "type") else value
        if isinstance(value, list):
            return [walk(each, key) for each in value]
        if isinstance(value, dict):
            keys = {each: change(each) if key in ("dims", "arguments", "inputs") else each for each in value}
            return {keys[each]: walk(below, each) for each, below in value.items()}
        return value

    return {key: walk(value, key) for key, value in data.items() if key != "about"} | {"name": name, "about": name}
