"""A program as a struct in kernels.cu: its tensors, and each of its formulas once."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.plan.model import Program, Tensor, draw_of
from fusegen.plan.passes import BEFORE
from fusegen.plan.units import Unit, unit_of
from fusegen.render.expressions import inverse_length
from fusegen.render.launchers_header import struct
from fusegen.render.names import record, unit_name
from fusegen.render.passes import PassRenderer
from fusegen.render.program_text import Field, InMemory, Member, PassText, StructText
from fusegen.render.sizes import size_text
from fusegen.render.spelling import spell, type_name, value
from fusegen.render.types import address, element_type, field_type, pointer
from fusegen.render.values import Values
from fusegen.render.work import work

_ORDER = ("Channel", "Row", "Group", "Scalars")


class StructRenderer:
    """Prints one program. product: the tensor that the epilogue of a product has, if one takes the program."""

    def __init__(self, program: Program, product: str | None = None) -> None:
        self.program, self.values, self.product = program, Values(program), product
        self.passes, self.names = self.values.passes, self.values.names
        self.fields, self.cached = self.values.fields, self.values.cached

    def text(self) -> StructText:
        passes = self.passes
        records: dict[str, list[str]] = {name: [] for name in ("Scalars", "Channel", "Row", "Group", "Drawn")}
        for node, name in self.fields.items():
            records[record(node.axes)].append(value(name))
        records["Scalars"] += self._inverse_lengths()
        total = bool(self.program.scalar_sums)
        printed = PassRenderer(self.values)
        texts = printed.texts()
        return StructText(
            name=type_name(self.program.name),
            reads=[Field(value(t.name), field_type(t)) for t in passes.reads],
            writes=[Field(value(t.name), field_type(t)) for t in self.program.full_outputs],
            has_parts=any(t.part is not None for t in (*passes.reads, *self.program.full_outputs)),
            optional_writes=sum(1 << i for i, t in enumerate(self.program.full_outputs) if t.optional),
            outer_reads=self._outer(passes.reads),
            outer_writes=self._outer(self.program.full_outputs),
            product=next((i for i, t in enumerate(passes.reads) if t.name == self.product), None),
            arguments=struct(self.program),
            sums=self._sums(texts),
            read_arguments=[address(t, "from") for t in passes.reads],
            write_arguments=[address(t, "to") for t in self.program.full_outputs],
            members=self._members(),
            constants=self._constants(),
            dropouts=self._dropouts(),
            drawn=[value(node.name) for node in self.program.draws if node.is_full],
            scratch=self._scratch(),
            scalars=self._scalars(),
            records=records,
            in_memory=self._in_memory(),
            derived={name: self._derived(name) for name in ("Channel", "Row", "Group")},
            cached=[Field(value(node.name)) for node in self.cached],
            passes=texts,
            channels_pass=printed.channels() if total else None,
            schedules=[f"{type_name(each.kind)}Schedule" for each in self.program.schedules],
            work=work(self.program, passes),
        )

    def _outer(self, fields: Sequence[Tensor]) -> int:
        """Those of some fields that may be [batch, channels, positions], as bits."""
        return sum(1 << i for i, t in enumerate(fields) if t.name in self.program.outer)

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
        return self.values.small([node for node in self.passes.derived if record(node.axes) == name], [])

    def _members(self) -> list[Member]:
        """Pointers to what is not of full size, as the program is given them."""
        written = {t.name: t for t in self.program.outputs}
        tensors = {t.name: t for t in (*self.program.inputs, *self.program.outputs) if not t.is_full}
        tensors = {name: tensor for name, tensor in tensors.items() if tensor.role != "seed"}
        found = []
        for tensor in sorted(tensors.values(), key=lambda t: _ORDER.index(record(t.axes))):
            const = "" if tensor.name in written else "const "
            optional = tensor.optional or tensor.in_product or written.get(tensor.name, tensor).optional
            declaration = f"{const}{element_type(tensor)}* {pointer(tensor)}"
            note = "may be null" if optional else ""
            argument = address(tensor, "to" if tensor.name in written else "from")
            name = record(tensor.axes)
            found.append(Member(declaration, argument, size_text(tensor), note, _ORDER.index(name)))
        return found

    def _constants(self) -> list[Member]:
        drawn = {draw_of(node).p for node in self.program.draws}
        names = [name for name in self.program.constants if name not in drawn]
        return [Member(value(name), f"Acc(a.{spell(name, 'arg')})", "") for name in names]

    def _dropouts(self) -> list[Member]:
        """What its dropouts draw."""
        seed = next((spell(t.name, "arg") for t in self.program.inputs if t.role == "seed"), "")
        found = []
        for node in self.program.draws:
            draw = draw_of(node)
            given = f"a.{seed}, {draw.stream}, a.{spell(draw.p, 'arg')}"
            sample = "" if node.is_full else ", a.sample_rows"
            note = "for each element" if node.is_full else "for each sample"
            declaration = f"Dropout<Acc> {spell(node.name, 'draw')}"
            found.append(Member(declaration, f"dropout_of<Acc>({given}{sample})", "", note))
        return found

    def _scratch(self) -> list[tuple[Member, int, str, bool]]:
        found = []
        for index, tensors in enumerate(self.passes.scratch):
            for t in tensors:
                member = Member(f"Acc* {pointer(t)} = nullptr", "", size_text(t))
                found.append((member, index, unit_name(t.unit), self.values.is_total(t, index)))
        return found

    def _in_memory(self) -> dict[str, list[InMemory]]:
        found: dict[str, list[InMemory]] = {"Channel": [], "Row": [], "Group": []}
        count = len(self.passes.passes) + bool(self.program.scalar_sums)
        for tensor, made in self.passes.in_memory:
            if tensor.unit is Unit.SCALAR:
                continue
            uses = f"0b{self.passes.uses(tensor, made):0{count}b}"
            each = InMemory(pointer(tensor), self.values.present(tensor), value(self.fields[tensor.node]), made, uses)
            found[record(tensor.axes)].append(each)
        return found

    def _scalars(self) -> list[str]:
        """Statements that make the record of scalars."""
        lines = []
        for tensor, made in self.passes.in_memory:
            if tensor.unit is Unit.SCALAR and made == BEFORE:
                loaded = f"read({pointer(tensor)})"
                present = self.values.present(tensor)
                text = f"Acc(widen({loaded}))" if present == "true" else f"{present} ? Acc(widen({loaded})) : Acc(0)"
                lines.append(f"k.{value(self.fields[tensor.node])} = {text};")
        lines += [f"k.{name} = Acc(1) / Acc({size});" for name, size in self._inverse_lengths().items()]
        return lines + self.values.small([n for n in self.passes.derived if unit_of(n.axes) is Unit.SCALAR], [])

    def _inverse_lengths(self) -> dict[str, str]:
        """Of rows and groups that moments are taken of."""
        found = {}
        for phase in self.program.phases:
            if "N" in phase.axes and any(node.op == "moments" for node in phase.sums):
                found[inverse_length(phase.axes)] = self.names.count(phase.axes)
        return found
