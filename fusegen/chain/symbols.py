"""What the names in a spec stand for: sizes, constructor arguments, and the shapes of inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fusegen.chain.diagnostics import Diagnostics, Field
from fusegen.chain.references import References
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors, of_product
from fusegen.spec.names import is_spoilt
from fusegen.spec.partial import AnySpec
from fusegen.spec.wording import alternatives, nearest

NO_SIZE = "the constructor needs the size '{}', but no argument gives it"
SIZE_HINT = "add it to 'arguments' as {type: dim}"


def shape_of(spec: Any, given: tuple[Dim, ...] | str | None) -> tuple[Dim, ...] | None:
    """A shape as a step gives it, a list or a shape argument's name; None without one, or where nobody can tell.

    spec: a SpecModel or PartialSpec.
    """
    if not isinstance(given, str):
        return given
    argument = spec.arguments.get(given)
    return argument.is_ if argument is not None and argument.type == "shape" else None


class Symbols:
    """Looks names up for the steps of a chain. None, as a size or an argument, is one that nobody could read."""

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        self.spec = spec
        self.diagnostics = diagnostics
        self.references = References(diagnostics.document, spec.unreadable)
        self._reported: set[str] = set()
        for name, argument in spec.arguments.items():
            if argument is not None and argument.type == "dim" and name not in spec.dims:
                # Meant for another symbol; that this one has no argument is the same error.
                self._reported.add(nearest(name, list(spec.dims)) or "")
                self.references.missing("symbol", name, spec.dims)
        for name, argument in spec.arguments.items():
            for index, dim in enumerate(argument.is_ if argument is not None and argument.type == "shape" else ()):
                self._declared(dim)
                for symbol in self._unconstructible([dim]):
                    diagnostics.add("FG301", NO_SIZE.format(symbol), ("arguments", name, "is", index), SIZE_HINT)

    # Sizes

    def _declared(self, dim: Dim) -> Dim | None:
        """The size, if it has one; the spec's own checks report a symbol outside the chain that has none."""
        _, name = factors(dim)
        if name is None:
            return dim
        if name in self.spec.dims:
            self.references.use("symbol", name)
            return dim
        self.references.missing("symbol", name, self.spec.dims)
        return None

    def size(self, value: Dim, field: Field) -> Dim | None:
        """A size that a step asks for."""
        known = self._declared(value)
        name = str(factors(value)[1])
        if known is None and not self.is_unread("dims", name):
            hint = self.references.missing("symbol", name, self.spec.dims)
            self.diagnostics.refuse("FG209", f"'{name}' is not a symbol of dims", field, hint)
        return known

    def of_input(self, name: str, form: Sequence[str] | None = ("rows", "channels")) -> tuple[Dim | None, ...]:
        """The shape of an input. form: the first one's dimensions, which it has in any case; None if nobody can tell
        how many."""
        written = self.spec.inputs[name]
        shape = tuple(self._declared(dim) for dim in written or ())
        if name == next(iter(self.spec.inputs)):
            if form is None:
                return (*shape, None, None)[:2]
            if len(shape) != len(form) and not (len(form) == 2 and len(shape) > 2):
                if written is not None:
                    or_more = ", or more dimensions in front" if len(form) == 2 else ""
                    message = f"the first input must have the shape [{', '.join(form)}]{or_more}"
                    self.diagnostics.add("FG303", message, ("inputs", name))
                return (None,) * len(form)
        return shape

    def typical(self, dim: Dim | None) -> int | None:
        """The size that planning assumes for a size or an integer argument."""
        if dim is None or isinstance(dim, int):
            return dim
        several = of_product(dim)
        if len(several) > 1:
            sizes = [self.typical(each) for each in several]
            return None if None in sizes else math.prod(sizes)  # type: ignore[arg-type]
        number, name = factors(dim)
        if name is not None and name in self.spec.dims:
            size = self.spec.dims[name]
            return None if size is None else number * size
        argument = self.spec.arguments.get(dim)
        return argument.typical if argument is not None and argument.type == "int" else None

    def constructed(self, dims: Iterable[Dim | None], field: Field) -> None:
        """Refuses sizes that the constructor needs and does not get."""
        for symbol in self._unconstructible(dims):
            maker = self.spec.made_by.get(symbol)
            if maker is None:
                self.diagnostics.refuse("FG301", NO_SIZE.format(symbol), field, SIZE_HINT)
            else:
                message = f"the constructor needs the channels that {maker.op} makes, but no argument gives them"
                hint = f"give {maker.op} the key '{maker.width_key}'" if maker.width_key else None
                self.diagnostics.refuse("FG301", message, field, hint)

    def _unconstructible(self, dims: Iterable[Dim | None]) -> list[str]:
        if ("arguments",) in self.spec.unreadable:
            return []
        names = [factors(dim)[1] for dim in dims if dim is not None]
        found = [name for name in names if name is not None and name in self.spec.dims]
        found = [dim for dim in found if dim not in self.spec.arguments and dim not in self._reported]
        self._reported.update(found)
        return found

    def is_unread(self, section: str, name: str) -> bool:
        """Whether a name may be missing from a section only because nobody can read it there."""
        return (section,) in self.spec.unreadable or is_spoilt(name, list(getattr(self.spec, section)))

    # Arguments

    def argument(self, name: str, field: Field, types: Sequence[str], words: Iterable[str] = ()) -> Any:
        """The constructor argument, if it has one of the types. words: what else may stand there."""
        arguments = self.spec.arguments
        if name not in arguments:
            if not self.is_unread("arguments", name):
                fitting = [other for other, each in arguments.items() if each is None or each.type in types]
                known = fitting if nearest(name, [*words, *fitting]) else arguments
                hint = self.references.missing("argument", name, known, words)
                self.diagnostics.refuse("FG301", f"no argument named '{name}'", field, hint)
            return None
        self.references.use("argument", name)
        argument = arguments[name]
        if argument is not None and argument.type not in types:
            message = f"the argument '{name}' is of type {argument.type}, but {alternatives(types)} is needed here"
            self.diagnostics.refuse("FG302", message, field)
            return None
        return argument

    # What nothing refers to

    def report_unused(self, saved: dict[str, int]) -> None:
        """Notes every name that nothing refers to. saved: the step that saves each value."""
        arguments, references, add = self.spec.arguments, self.references, self.diagnostics.add
        dims = {name for name, argument in arguments.items() if argument is not None and argument.type == "dim"}
        for name in references.unused("symbol", [name for name in self.spec.dims if name not in arguments]):
            add("FG210", f"nothing uses the symbol '{name}'", ("dims", name), key=True, last=True)
        others = [name for name, argument in arguments.items() if argument is not None and name not in dims]
        unused = [*references.unused("symbol", dims), *references.unused("argument", others)]
        for name in unused:
            add("FG306", f"nothing uses the argument '{name}'", ("arguments", name), key=True, last=True)
        for name in references.unused("input", list(self.spec.inputs)[1:]):
            add("FG306", f"nothing uses the input '{name}'", ("inputs", name), key=True, last=True)
        for name in references.unused("value", saved):
            add("FG306", f"nothing uses the value '{name}'", ("chain", saved[name], "save"), last=True)
