"""A program as a struct in kernels.cu: its tensors, and each of its formulas once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusegen.plan.launches.kinds import Stays
from fusegen.plan.programs.model import Program, Tensor, draw_of
from fusegen.plan.programs.passes import BEFORE
from fusegen.plan.programs.units import Unit, unit_of
from fusegen.render.programs.expressions import inverse_length
from fusegen.render.programs.launchers_header import struct
from fusegen.render.programs.names import record, unit_name
from fusegen.render.programs.passes import PassRenderer
from fusegen.render.programs.program_text import InMemory, Member, PassText, StructText, macro, mask
from fusegen.render.programs.sizes import size_text
from fusegen.render.programs.types import address, element_type, field_type, pointer, pooling
from fusegen.render.programs.values import Values
from fusegen.render.programs.work import work
from fusegen.render.text.identifiers import identifier, type_name, value

_IN_MEMORY = ("Channel", "Row", "Group", "Sample")
_ORDER = (*_IN_MEMORY, "Scalars")
_PARTIAL = [unit_name(unit) for unit in Unit if unit.leaves_partials]
"""The units of passes that leave partial results."""


class StructRenderer:
    """Prints one program. product: the tensor that the epilogue of a product has, if one takes the program."""

    def __init__(self, program: Program, product: str | None = None) -> None:
        self.program, self.values, self.product = program, Values(program), product
        self.passes, self.names = self.values.passes, self.values.names
        self.fields, self.cached = self.values.fields, self.values.cached

    def text(self) -> StructText:
        reads, writes = self.passes.reads, self.program.full_outputs
        found = work(self.program, self.passes)
        records: dict[str, list[str]] = {name: [] for name in ("Scalars", *_IN_MEMORY, "Drawn")}
        for node, name in self.fields.items():
            records[record(node.axes)].append(value(name))
        records["Scalars"] += self._inverse_lengths()
        total = bool(self.program.scalar_sums)
        printed = PassRenderer(self.values)
        texts = printed.texts()
        return StructText(
            name=type_name(self.program.name),
            reads=macro("FUSEGEN_READS(", list(map(_read, reads))) or ["FUSEGEN_READS()"],
            writes=macro("FUSEGEN_WRITES(", [_tensor(t, "to") for t in writes]) or ["FUSEGEN_WRITES()"],
            pooling=next((pooling(t.pool) for t in writes if t.pool), ""),
            has_parts=any(t.part is not None for t in (*reads, *writes)),
            has_partials=any(each.sums and each.unit in _PARTIAL for each in texts),
            of_samples=self.program.of_samples,
            optional_writes=_mask("Write", writes, {t.name for t in writes if t.optional}),
            outer_reads=_mask("Read", reads, self.program.contiguous_layout),
            outer_writes=_mask("Write", writes, self.program.contiguous_layout),
            tile_reads=_mask("Read", reads, found.tile_reads),
            product=next((value(t.name) for t in reads if t.name == self.product), ""),
            arguments=struct(self.program),
            sums=self._sums(texts),
            members=self._members(),
            constants=self._constants(),
            dropouts=self._dropouts(),
            drawn=[value(node.name) for node in self.program.draws if node.is_full],
            scratch=self._scratch(),
            scalars=self._scalars(),
            records=records,
            in_memory=self._in_memory(),
            derived={name: self._derived(name) for name in _IN_MEMORY},
            cached=macro("FUSEGEN_CACHED(", [f"({value(node.name)}, Acc)" for node in self.cached]),
            cached_in_registers=_by_pass(texts, Stays.REGISTERS),
            cached_in_shared=_by_pass(texts, Stays.SHARED),
            passes=texts,
            channels_pass=printed.channels() if total else None,
            schedules=[f"{type_name(each.kind)}Schedule" for each in self.program.schedules],
            work=found,
        )

    def _sums(self, texts: Sequence[PassText]) -> str:
        """C++: the records of sums of the passes, up to the last that has one."""
        has = [*(bool(each.sums) for each in texts), bool(self.program.scalar_sums)]
        names = [f"Sums{index}<Of>" if each else "Nothing" for index, each in enumerate(has)]
        while names and names[-1] == "Nothing":
            names.pop()
        return ", ".join(names)

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
            initial = address(tensor, "to" if tensor.name in written else "from")
            declaration = f"{const}{element_type(tensor)}* {pointer(tensor)} = {initial}"
            note = "may be null" if optional else ""
            found.append(Member(declaration, size_text(tensor), note, _ORDER.index(record(tensor.axes))))
        return found

    def _constants(self) -> list[Member]:
        drawn = {draw_of(node).p for node in self.program.draws}
        names = [name for name in self.program.constants if name not in drawn]
        return [Member(f"Acc {value(name)} = Acc(a->{identifier(name, 'arg')})") for name in names]

    def _dropouts(self) -> list[Member]:
        """What its dropouts draw."""
        seed = next((identifier(t.name, "arg") for t in self.program.inputs if t.role == "seed"), "")
        found = []
        for node in self.program.draws:
            draw = draw_of(node)
            given = f"a->{seed}, {draw.stream}, a->{identifier(draw.p, 'arg')}"
            sample = "" if node.is_full else ", a->sample_rows"
            note = "for each element" if node.is_full else "for each sample"
            declaration = f"Dropout<Acc> {identifier(node.name, 'draw')} = dropout_of<Acc>({given}{sample})"
            found.append(Member(declaration, note=note))
        return found

    def _scratch(self) -> list[tuple[Member, int, str, bool]]:
        found = []
        for index, tensors in enumerate(self.passes.scratch):
            for t in tensors:
                member = Member(f"Acc* {pointer(t)} = nullptr", size_text(t))
                found.append((member, index, unit_name(t.unit), self.values.is_total(t, index)))
        return found

    def _in_memory(self) -> dict[str, list[InMemory]]:
        found: dict[str, list[InMemory]] = {name: [] for name in _IN_MEMORY}
        for tensor, made in self.passes.in_memory:
            if tensor.unit is Unit.SCALAR:
                continue
            bits = self.passes.uses(tensor, made)
            uses = f"InPasses<{', '.join(str(i) for i in range(bits.bit_length()) if bits >> i & 1)}>"
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
        """Of rows, groups and samples that moments are taken of."""
        sums = [*(node for phase in self.program.phases for node in phase.sums), *self.program.terminal]
        axes = (node.axes for node in sums if node.op == "moments" and "N" in node.axes)
        return {inverse_length(each): self.names.count(each) for each in axes}


def _tensor(tensor: Tensor, kind: str) -> str:
    """A tensor of full size as a field: see kernels/fields.cuh. kind: "from" or "to"."""
    return f"({value(tensor.name)}, {address(tensor, kind)}, {field_type(tensor)})"


def _read(tensor: Tensor) -> str:
    """A tensor that is read of all elements: what comes back through windows is that of each position."""
    if tensor.pool is None:
        return _tensor(tensor, "from")
    taps = f"a->{identifier(tensor.taps.name, 'arg')}" if tensor.taps else "nullptr"
    source = f"pooled_from(a->{identifier(tensor.name, 'arg')}, {taps}, *this)"
    return f"({value(tensor.name)}, {source}, Pooled<{element_type(tensor)}, {pooling(tensor.pool)}>)"


def _mask(numbers: str, tensors: Sequence[Tensor], some: Collection[str]) -> str:
    """C++: the mask of those tensors whose names are among `some`; empty without any."""
    found = [value(tensor.name) for tensor in tensors if tensor.name in some]
    return mask(numbers, [value(tensor.name) for tensor in tensors], found) if found else ""


def _by_pass(texts: Sequence[PassText], stays: Stays) -> list[str]:
    """The masks of what is cached when each pass begins; none where nothing is."""
    found = [each.cached.get(stays, "0") for each in texts]
    return found if any(each != "0" for each in found) else []
