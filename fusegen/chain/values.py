"""The values that steps of a chain save or are from, and those that its module returns."""

from __future__ import annotations

from collections.abc import Iterable

from fusegen.chain.diagnostics import Diagnostics, Field
from fusegen.chain.operands import KEEP, OperandBuilder
from fusegen.ir.graph import Node
from fusegen.spec.document import DocumentPath
from fusegen.spec.model import RESULT, TWICE
from fusegen.spec.partial import AnySpec


class ValuesBuilder(OperandBuilder):
    """What a step uses to save a value, and to go on from one."""

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self._saved_by: dict[str, int] = {}
        self._source: Node | None = None
        self.parts: dict[str, tuple[Node, ...]] = {}

    # What steps save

    def remember(self, name: str | None, value: Node | None) -> None:
        """Keeps the result of a step under the name that it is saved by."""
        if name is not None:
            self._keep(name, value, "save")

    def remember_part(self, name: str, value: Node, field: Field) -> None:
        """The same of a part. It need not be used."""
        self._keep(name, value, field)
        self.symbols.references.use("value", name)

    def _keep(self, name: str, value: Node | None, field: Field) -> None:
        if name in self._saved:
            self.refuse("FG208", f"a value named '{name}' exists already", field)
        elif name in self.spec.inputs:
            self.refuse("FG208", f"'{name}' is an input: a value needs another name", field)
        self._saved.setdefault(name, value or self.graph.tensor(name, self.graph.view))
        self._saved_by.setdefault(name, self.step)
        if self.dropped_channels:
            self._without_channels.add(name)

    def assume(self, names: Iterable[object], running: Node | None) -> None:
        """Takes the names for those of values and parameters: nobody can read what they are."""
        for name in names:
            if isinstance(name, str):
                self._saved.setdefault(name, running or self.graph.tensor("x", self.graph.view))
                self.stand_in(name)

    # Branches

    def branch(self, name: str) -> Node:
        """The running value of a step that says where it is from: a saved value, or an input."""
        self.dropped_channels = name in self._without_channels
        if self._source is not None and name == self._source.name and name in self.spec.inputs:
            return self._source
        return self.input(name) if name in self.spec.inputs else self.value(name, "from")

    # What the module returns

    def further_results(self, result: Node) -> dict[str, Node]:
        """What the module returns besides the value at the end."""
        found = {}
        lasts: list[str] = []
        for index, name in enumerate(self.spec.outputs or ()):
            last = self.last_saved == name or (name == RESULT and name not in self._saved)
            node = result if last else self.output(name, index)
            if last:
                self.symbols.references.use("value", name)
                lasts.append(name)
                if len(lasts) > 1:
                    self.diagnostics.add("FG208", TWICE.format(*lasts), ("outputs", index))
            elif node is not None:
                found[name] = node
        if self.spec.outputs and len(found) == len(self.spec.outputs) and self.spec.chain:
            place = ("chain", len(self.spec.chain) - 1)
            hint = f"add {RESULT} to 'outputs'"
            self.diagnostics.add("FG306", "nothing uses the value of the last step", place, hint, last=True)
        return found

    def output(self, name: str, index: int) -> Node | None:
        """A saved value that the module returns."""
        place = ("outputs", index)
        if name not in self._saved:
            hint = self.symbols.references.missing("value", name, self._saved)
            self.diagnostics.add("FG301", f"no step saves '{name}'", place, hint)
            return None
        self.symbols.references.use("value", name)
        node, source = self._saved[name], self._source.name if self._source else ""
        known = node in (self._source, *self.parts.get(source, ()))
        if not self._refuse_rows(name, node, name in self._without_channels, place) and node.is_leaf and not known:
            self.diagnostics.add("FG401", f"'{name}' is an input as it is, and no result", place)
        return node

    def _refuse_rows(self, name: str, node: Node, dropped: bool, place: DocumentPath) -> bool:
        """Whether a result is [rows], which is returned as the value at the end alone."""
        if dropped:
            message = "one of several outputs has the dimension of the channels unless it is the last value"
            message = f"{message}: '{name}' is [rows]"
            if place not in self.diagnostics.document.values:  # of a region, whose outputs others take
                message = f"what other regions and 'outputs' take has the channels, and '{name}' is [rows]"
                place = ("chain", self._saved_by.get(name, len(self.spec.chain) - 1))
            self.diagnostics.add("FG309", message, place, KEEP)
        return dropped

    @property
    def last_saved(self) -> str | None:
        """The name of the value at the end."""
        last = self.spec.chain[-1] if self.spec.chain else None
        return last.running_name if last is not None else None
