"""Ops from outside: what installed packages add under the entry point group `fusegen.ops`.

A plugin's functions bring their C++ with them. It is written into the packages that use it, which need no plugin then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.ir.functions import catalogue
from fusegen.ir.functions.function import Function
from fusegen.ops.step import Step

GROUP = "fusegen.ops"


@dataclass(frozen=True)
class Plugin:
    """What an entry point of the group names.

    steps: the ops, as those of the catalogue are. functions: what their graphs and gradients are made of and fusegen
    lacks, each with its `definition` in C++.
    """

    steps: tuple[type[Step], ...]
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """The steps of all plugins, and why others are left out."""

    steps: tuple[type[Step], ...]
    problems: tuple[Diagnostic, ...]

    def check(self) -> None:
        """Raises SpecError where a plugin is left out: a chain with its ops would be refused for another reason."""
        if self.problems:
            raise SpecError(list(self.problems))


def load(known: Iterable[type[Step]], entries: Iterable[Any] | None = None) -> Loaded:
    """The plugins that are installed, whose functions the graph knows from then on. known: fusegen's own steps.

    entries: entry points in their place. A plugin with any problem is left out as a whole.
    """
    found = metadata.entry_points(group=GROUP) if entries is None else entries
    ops = {op for step in known for op in step.ops()}
    steps: list[type[Step]] = []
    problems: list[Diagnostic] = []
    for entry in sorted(found, key=lambda each: each.name):
        why = None
        try:
            plugin = entry.load()
        except Exception as error:  # whatever a module of others raises
            why = f"cannot be loaded: {type(error).__name__}: {error}"
        else:
            why = _problem(plugin, ops)
        if why is not None:
            message = f"the plugin {quote(entry.name)} of {entry.value} {why}"
            problems.append(Diagnostic("FG511", message, hint=f"the group {GROUP} of installed packages has it"))
            continue
        steps += plugin.steps
        ops |= {op for step in plugin.steps for op in step.ops()}
        catalogue.FUNCTIONS.update({function.name: function for function in plugin.functions})
    return Loaded(tuple(steps), tuple(problems))


def _problem(plugin: Any, ops: set[str]) -> str | None:
    """Why it cannot be taken."""
    if not isinstance(plugin, Plugin):
        return f"is no Plugin, but of type {type(plugin).__name__}"
    seen: set[str] = set()
    for step in plugin.steps:
        if not (isinstance(step, type) and issubclass(step, Step)):
            return f"has a step that is no class of Step: {step!r}"
        for op in step.ops():
            if op in ops or op in seen:
                return f"has an op {quote(op)}, which there is already"
            seen.add(op)
    for function in plugin.functions:
        if function.name in catalogue.FUNCTIONS:
            return f"has a function {quote(function.name)}, which there is already"
        if function.is_call and not function.definition:
            return f"has a function {quote(function.name)} without a definition in C++"
    return None
