"""A program as a struct in kernels.cu: its tensors, and each of its formulas once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusegen.ir.graph import Node, ancestors
from fusegen.ir.reductions import REDUCTIONS
from fusegen.plan.model import Program, Tensor
from fusegen.plan.passes import BEFORE, Passes
from fusegen.plan.units import Unit, unit_of
from fusegen.render.expressions import Expressions, inverse_length
from fusegen.render.launchers_header import struct
from fusegen.render.names import Names, record, unit_name
from fusegen.render.program_text import Field, InMemory, Member, PassText, Stored, StructText
from fusegen.render.sizes import size_text
from fusegen.render.spelling import spell, type_name, value
from fusegen.render.types import element_type, pointer
from fusegen.render.work import work

# Temporaries of gradients have long names and say little: what becomes of a sum is one formula where it can be.
_LONGEST_SMALL = 200
_VANISHING = "// Times zero: NaN and infinity stay visible, as in a sum over the elements."


class StructRenderer:
    """Prints one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.passes = Passes(program)
        self.names = Names(self.passes)
        self.fields = self.names.fields
        self.expressions = Expressions(self.names.reference, self.names.count)
        self.cached = sorted(
            {n for by_pass in self.passes.cached.values() for nodes in by_pass for n in nodes}, key=lambda n: n.index
        )

    # Values

    def _assign(self, node: Node, text: str) -> str:
        """Sets a field, or declares a local value."""
        return f"{self.names.reference(node)} = {text};" if node in self.fields else _constant(node, text)

    def _small(self, nodes: Sequence[Node], sinks: Iterable[Node]) -> list[str]:
        pinned = [node for node in nodes if node in self.fields]
        lines = self.expressions.statements(nodes, sinks, self._assign, pinned, longest=_LONGEST_SMALL)
        return [each for line in lines for each in ([_VANISHING, line] if "* Acc(0)" in line else [line])]

    def _scalars(self) -> list[str]:
        """Statements that make the record of scalars."""
        lines = []
        for tensor, made in self.passes.in_memory:
            if tensor.unit is Unit.SCALAR and made == BEFORE:
                loaded = f"read({pointer(tensor)})"
                present = self._present(tensor)
                text = f"Acc(widen({loaded}))" if present == "true" else f"{present} ? Acc(widen({loaded})) : Acc(0)"
                lines.append(f"k.{value(self.fields[tensor.node])} = {text};")
        lines += [f"k.{name} = Acc(1) / Acc({size});" for name, size in self._inverse_lengths().items()]
        return lines + self._small([n for n in self.passes.derived if unit_of(n.axes) is Unit.SCALAR], [])

    def _inverse_lengths(self) -> dict[str, str]:
        """Of rows and groups that moments are taken of."""
        found = {}
        for phase in self.program.phases:
            if "N" in phase.axes and any(node.op == "moments" for node in phase.sums):
                found[inverse_length(phase.axes)] = self.names.count(phase.axes)
        return found

    def _present(self, tensor: Tensor) -> str:
        conditions = [f"{self._momentum(tensor)} < 0"] if tensor.role == "count" else []
        conditions += [f"{pointer(tensor)} != nullptr"] if tensor.optional else []
        conditions += ["kAddsBias<T>"] if tensor.in_product else []
        return " && ".join(conditions) or "true"

    def _momentum(self, count: Tensor) -> str:
        """The momentum of the running statistics that a count belongs to."""
        uses = (node.operands for node in self.passes.small if node.op == "average_factor")
        return next(value(momentum.name) for momentum, batches in uses if batches is count.node)

    # The struct

    def text(self) -> StructText:
        passes = self.passes
        # Each value of full size is printed once, whichever passes use it: what is used once may stand in its use.
        self._elements = self._element_lines()
        records = {name: [] for name in ("Scalars", "Channel", "Row", "Group")}
        for node, name in self.fields.items():
            records[record(node.axes)].append(value(name))
        records["Scalars"] += self._inverse_lengths()
        total = bool(self.program.scalar_sums)
        texts = [self._pass(index) for index in range(len(passes.passes))]
        return StructText(
            name=type_name(self.program.name),
            reads=[Field(value(t.name), element_type(t)) for t in passes.reads],
            writes=[Field(value(t.name), element_type(t)) for t in self.program.full_outputs],
            optional_writes=sum(1 << i for i, t in enumerate(self.program.full_outputs) if t.optional),
            arguments=struct(self.program),
            sums=self._sums(texts),
            read_arguments=[f"from(a.{spell(t.name, 'arg')})" for t in passes.reads],
            write_arguments=[f"to(a.{spell(t.name, 'arg')})" for t in self.program.full_outputs],
            members=self._members(),
            constants=[Member(value(name), f"Acc(a.{spell(name, 'arg')})", "") for name in self.program.constants],
            scratch=self._scratch(),
            scalars=self._scalars(),
            records=records,
            in_memory=self._in_memory(),
            derived={name: self._derived(name) for name in ("Channel", "Row", "Group")},
            cached=[Field(value(node.name)) for node in self.cached],
            passes=texts,
            channels_pass=self._channels_pass() if total else None,
            work=work(self.program, passes),
        )

    def _sums(self, texts: Sequence[PassText]) -> str:
        """C++: the record of sums of pass kPass."""
        channels = bool(self.program.scalar_sums)
        with_sums = [i for i, each in enumerate(texts) if each.sums] + [len(texts)] * channels
        found = "Nothing"
        for index in reversed(with_sums):
            found = f"std::conditional_t<kPass == {index}, Sums{index}<Of>, {found}>"
        return found

    def _derived(self, name: str) -> list[str]:
        """Statements that make what follows from tensors alone, of one record."""
        return self._small([node for node in self.passes.derived if record(node.axes) == name], [])

    def _members(self) -> list[Member]:
        """Pointers to what is not of full size, as the program is given them."""
        written = {t.name: t for t in self.program.outputs}
        tensors = {t.name: t for t in (*self.program.inputs, *self.program.outputs) if not t.is_full}
        found = []
        for tensor in sorted(tensors.values(), key=lambda t: _ORDER.index(record(t.axes))):
            const = "" if tensor.name in written else "const "
            optional = tensor.optional or tensor.in_product or written.get(tensor.name, tensor).optional
            declaration = f"{const}{element_type(tensor)}* {pointer(tensor)}"
            note = "may be null" if optional else ""
            argument = f"{'to' if tensor.name in written else 'from'}(a.{spell(tensor.name, 'arg')})"
            name = record(tensor.axes)
            found.append(Member(declaration, argument, size_text(tensor), note, _ORDER.index(name)))
        return found

    def _scratch(self) -> list[tuple[Member, int, str, bool]]:
        found = []
        for index, tensors in enumerate(self.passes.scratch):
            for t in tensors:
                member = Member(f"Acc* {pointer(t)} = nullptr", "", size_text(t))
                found.append((member, index, unit_name(t.unit), self._is_total(t, index)))
        return found

    def _in_memory(self) -> dict[str, list[InMemory]]:
        found: dict[str, list[InMemory]] = {"Channel": [], "Row": [], "Group": []}
        count = len(self.passes.passes) + bool(self.program.scalar_sums)
        for tensor, made in self.passes.in_memory:
            if tensor.unit is Unit.SCALAR:
                continue
            uses = f"0b{self.passes.uses(tensor, made):0{count}b}"
            each = InMemory(pointer(tensor), self._present(tensor), value(self.fields[tensor.node]), made, uses)
            found[record(tensor.axes)].append(each)
        return found

    # Passes

    def _element_lines(self) -> list[list[str]]:
        passes = self.passes
        values = sorted({n for each in passes.passes for n in each.values}, key=lambda n: n.index)
        sinks = [target for each in passes.passes for target in each.targets]
        bits = {node: i for i, node in enumerate(self.cached)}
        lines: list[list[str]] = [[] for _ in passes.passes]

        def declare(node: Node, text: str) -> list[str]:
            if node not in bits:
                return [_constant(node, text)]
            cached = f"cached.{value(node.name)}"
            either = f"has_bit(kCached, {bits[node]}) ? {cached} : {text}"
            return [_constant(node, either), f"{cached} = {value(node.name)};"]

        for node, text in self.expressions.each(values, sinks, bits):
            lines[passes.level[node]] += declare(node, text)
        return lines

    def _pass(self, index: int) -> PassText:
        passes, each = self.passes, self.passes.passes[index]
        operand = self.expressions.operand
        cached = {kind: self._bits(by_pass[index]) for kind, by_pass in passes.cached.items()}
        return PassText(
            unit=unit_name(each.unit),
            read_by=sum(1 << i for i, tensor in enumerate(passes.reads) if tensor in each.reads),
            **self._summed(each.sums),
            level=self._elements[index],
            results=[f"y.{value(t.name)} = {operand(t.node)};" for t in each.stores],
            **self._behind_sums(index),
            cached_in_registers=cached["row"],
            cached_in_shared=cached["column"],
        )

    def _summed(self, sums: Sequence[Node]) -> dict:
        """What is said of the sums of a pass."""
        names = {node: self.names.sum_name(node) for node in sums}
        return dict(
            sums=[Field(name, REDUCTIONS[node.op].cpp) for node, name in names.items()],
            components=sum(REDUCTIONS[node.op].components for node in sums),
            terms=[f"sum.{name} = {self.expressions.operand(node.operands[0])};" for node, name in names.items()],
        )

    def _bits(self, cached: set[Node]) -> int:
        """Cached values as bits."""
        return sum(1 << i for i, node in enumerate(self.cached) if node in cached)

    def _behind_sums(self, index: int) -> dict[str, list]:
        passes = self.passes
        followed = sorted((n for n in passes.followed if passes.place(n) == index), key=lambda n: n.index)
        finished = passes.finished[index] if index < len(passes.finished) else []
        stores = [t.node for t in passes.stored[index]]
        follow = [self._taken(node) for node in followed if node.is_reduction]
        sinks = [*stores, *(operand for node in finished for operand in node.operands)]
        follow += self._small([node for node in followed if not node.is_reduction], sinks)
        finish = self._small(finished, stores)
        stored, taken, taken_early = [], [], []
        for tensor in passes.stored[index]:
            field = value(self.fields[tensor.node])
            if tensor.node not in (*finished, *passes.followed, *passes.derived, *passes.given):
                early = any(tensor.node in node.operands for node in followed)
                (taken_early if early else taken).append(self._taken(tensor.node))
            stored.append(Stored(pointer(tensor), f"&{record(tensor.axes)}::{field}"))
        scratch = []
        for t in passes.scratch[index]:
            where = stored if self._is_total(t, index) else scratch
            where.append(Stored(pointer(t), f"&{record(t.axes)}::{value(self.fields[t.node])}"))
        return dict(
            follow=[*dict.fromkeys(taken_early), *follow],
            finish=[*dict.fromkeys(taken), *finish],
            stored=stored,
            scratch=scratch,
            counts=self._counts(index),
        )

    def _is_total(self, tensor: Tensor, made: int) -> bool:
        """Whether the channels' own pass reads it, whatever kernels ran before."""
        return bool(self.passes.uses(tensor, made) >> len(self.passes.passes))

    def _taken(self, node: Node) -> str:
        """Sets the field of what is a sum as it is."""
        return f"k.{value(self.fields[node])} = {self.names.total(node)};"

    def _counts(self, index: int) -> list[Stored]:
        """The counts of batches behind running statistics that a pass moves; the field is their momentum."""
        passes = self.passes
        found = []
        for tensor in self.program.outputs:
            moved = [t for t in passes.stored[index] if t.role == "parameter" and not t.gradient_of]
            if tensor.role == "count" and moved and self._belongs(tensor, moved):
                found.append(Stored(pointer(tensor), self._momentum(tensor)))
        return found

    def _belongs(self, count: Tensor, moved: Sequence[Tensor]) -> bool:
        return count.node in ancestors(t.node for t in moved)

    def _channels_pass(self) -> PassText:
        return PassText(
            unit=unit_name(Unit.SCALAR),
            read_by=0,
            **self._summed(self.program.scalar_sums),
            level=[],
            results=[],
            **self._behind_sums(len(self.passes.passes)),
            cached_in_registers=0,
            cached_in_shared=0,
        )


_ORDER = ("Channel", "Row", "Group", "Scalars")


def _constant(node: Node, text: str) -> str:
    return f"const Acc {value(node.name)} = {text};"
