"""A plan as a report: what the summary says of it, beside what launchers run, eager PyTorch's bytes, and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fusegen.explain import model, wording
from fusegen.explain.choices import Question, choices, device_of, mode_of, size_of, why_not_in_epilogue
from fusegen.explain.chunks import chunks
from fusegen.explain.invariance import invariance
from fusegen.explain.times import of_bytes
from fusegen.explain.totals import operators_and_totals
from fusegen.ir.rewrites import REWRITES
from fusegen.plan.launches.devices import Device
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.epilogue import EPILOGUE
from fusegen.plan.programs.model import Kernel, Mode, Program, Tensor, Variant
from fusegen.plan.sizes.bytes import (
    FIXED_WIDTH,
    is_read,
    moved_by,
    read_of,
    shape,
    shape_of_input,
    tensor_bytes,
    typical_symbols,
    windows_of,
)
from fusegen.plan.sizes.chain_sizes import Sizes, typical
from fusegen.plan.summary import summary
from fusegen.runtime.choice import Choice

IN_EPILOGUE = "the operators of the chain, in the product's epilogue"


def build(
    plan: Plan, question: Question | None = None, cache: Path | None = None, target: str | None = None
) -> model.Report:
    """The report of a plan: at the typical sizes, or at those of a question, for which launchers then choose.

    cache: a directory for compiled kernels, if they are to be used again. target: the one of the spec's targets on
    whose GPU launchers choose and times are expected; None: the fastest one. Raises SpecError for a dtype, a size or a
    target that the spec cannot have, EmulationBuildError where launchers have to choose and there is no g++.
    """
    device = device_of(plan, target)
    if question is None:
        return _Build(plan, device, plan.modes[0], typical(plan), None).report()
    mode, size = mode_of(plan, question.dtype), size_of(plan, question)
    found = list(choices(plan, device, mode, size, cache))
    made = {program.name: choice for program, choice, _ in found}
    tiles = {program.name: choice for program, _, choice in found if choice is not None}
    return _Build(plan, device, mode, size, made, tiles).report()


class _Build:
    """device: the GPU on which times are expected. choices: of each program, by its name; None where no launcher
    chose. contiguous: those for contiguous tensors behind a convolution, of programs that take them."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        mode: Mode,
        size: Sizes,
        choices: dict[str, Choice] | None,
        contiguous: Mapping[str, Choice] = MappingProxyType({}),
    ) -> None:
        self.contiguous = contiguous
        self.plan, self.device, self.mode, self.size, self.choices = plan, device, mode, size, choices
        self.sizes = size.symbols

    def report(self) -> model.Report:
        plan = self.plan
        data = summary(plan, self.mode, self.sizes)
        found = data["contraction"]
        contraction = None
        if found:
            ends = {key: str(found[key]) for key in ("name", "in_features", "out_features", "by")}
            contraction = model.Contraction(**ends, bias=wording.bias(plan, found))
        convolution = None
        if "convolution" in data:
            found = {key: str(each) if key.endswith("_channels") else each for key, each in data["convolution"].items()}
            convolution = model.Convolution(**found | {"bias": wording.KERNELS_ADD if found["bias"] else None})
        return model.Report(
            name=plan.spec.name,
            about=plan.spec.about,
            targets=plan.spec.targets,
            device=wording.device(self.device),
            sizes={name: self.sizes[name] for name in typical_symbols(plan.spec)},
            shape=str(self.size),
            dtype=self.mode.name,
            chosen=self.choices is not None,
            chain=tuple(map(wording.step, plan.spec.chain)),
            contraction=contraction,
            convolution=convolution,
            remarks=self._remarks(),
            rewrites=tuple(name for name in REWRITES if any(name in each.rewrites for each in plan.programs)),
            without=plan.spec.without_rewrites,
            variants=tuple(map(self._variant, plan.variants, data["variants"])),
            dtypes=wording.dtypes(plan),
            tuning=tuple(wording.tuning(plan, each) for each in plan.tuning),
            estimates=wording.estimates(plan, self.device, chosen=self.choices is not None),
        )

    def _remarks(self) -> dict[str, tuple[str, ...]]:
        found = {
            "chunk": chunks(self.plan, self.device, self.mode, self.size),
            "invariant": invariance(self.plan, self.mode, self.size),
        }
        return {name: lines for name, lines in found.items() if lines}

    def _variant(self, variant: Variant, data: dict[str, Any]) -> model.Variant:
        forward, backward = map(self._program, (variant.forward, variant.backward), data["programs"])
        programs = forward, backward
        operators, totals = operators_and_totals(self.plan, self.device, self.mode, self.size, variant, programs)
        return model.Variant(
            name=data["name"],
            saved=tuple(self._saved(variant, data)),
            programs=programs,
            operators=operators,
            totals=totals,
        )

    def _saved(self, variant: Variant, data: dict[str, Any]) -> list[model.Saved]:
        tensors = {tensor.name: tensor for tensor in (*variant.saved, *variant.forward.given)}
        found = []
        for name in data["saved"]:
            if name in variant.results:
                found.append(model.Saved(name=name, is_input=False, bytes=0, reason=wording.WHY_RESULT_SAVED))
                continue
            why = wording.why_saved(variant, tensors[name])
            found.append(model.Saved(name=name, is_input=False, bytes=self._bytes(tensors[name]), reason=why))
        for name in data["inputs_saved"]:
            why = wording.why_input_saved(variant, name)
            found.append(model.Saved(name=name, is_input=True, bytes=0, reason=why))
        return found

    def _program(self, program: Program, data: dict[str, Any]) -> model.Program:
        forward = any(program is variant.forward for variant in self.plan.variants)
        schedules, taken = self._schedules(program, data)
        launches = self.choices[program.name].launches if self.choices else ()
        tiles = self.contiguous[program.name].launches if program.name in self.contiguous else ()
        inputs = {tensor.name: tensor for tensor in program.inputs}
        return model.Program(
            name=program.name,
            direction="forward" if forward else "backward",
            floor_bytes=data["floor_bytes"],
            floor_microseconds=round(data["floor_bytes"] / self.device.bandwidth * 1e-3, 6),
            reads=tuple(wording.read(self.plan, inputs[name]) for name in data["reads"]),
            writes=tuple(data["writes"]),
            notes=tuple(data["reasons"]),
            schedules=tuple(schedules),
            taken=taken,
            launches=tuple(model.Launch(**vars(each)) for each in launches),
            contiguous=tuple(model.Launch(**vars(each)) for each in tiles),
        )

    def _schedules(self, program: Program, data: dict[str, Any]) -> tuple[Sequence[model.Schedule], str]:
        """In the order in which launchers consider them, those that they pass over at the end; and which one counts."""
        kernels = {kernel.name: kernel for kernel in program.kernels}
        operations = {each.kind: each.operations for each in program.schedules}
        floor = data["floor_bytes"]
        found: dict[str, model.Schedule] = {}
        for each in data["schedules"]:
            parts = tuple(self._kernel(kernels[kernel["name"]]) for kernel in each["kernels"])
            found[each["kind"]] = model.Schedule(
                kind=each["kind"],
                reason=each["reason"],
                bytes=each["bytes"],
                times_floor=round(each["bytes"] / floor, 6) if floor else 1.0,
                operations=operations[each["kind"]],
                microseconds=round(sum(part.microseconds for part in parts), 3),
                kernels=parts,
            )
        if self._may_run_in_epilogue(program):
            found = {EPILOGUE: self._epilogue(program, next(iter(found.values())), floor), **found}
        if self.choices is None:
            return list(found.values()), next(iter(found))
        choice = self.choices[program.name]
        ordered = []
        for considered in choice.considered:
            what = {"runs": considered.chosen, "decision": considered.reason, "estimate": considered.estimate}
            known = found.pop(considered.schedule, None)
            if known is not None:
                ordered.append(known.model_copy(update=what))
            else:  # an epilogue that the program cannot run in
                ordered.append(_impossible(considered.schedule, considered.reason))
        ordered += [each.model_copy(update={"runs": False}) for each in found.values()]
        return ordered, choice.schedule or ordered[0].kind

    def _may_run_in_epilogue(self, program: Program) -> bool:
        if self.mode.roles["activation"] != "float32" or not self.plan.in_epilogue(program):
            return False
        variant = next(each for each in self.plan.variants if each.forward is program)
        return why_not_in_epilogue(self.device, variant, self.size) is None

    def _epilogue(self, program: Program, after: model.Schedule, floor: int) -> model.Schedule:
        """It reads all but the product. What the product's kernel moves besides, and its time, are the product's."""
        product = self.plan.chain.source.name
        read = [tensor for tensor in read_of(self.plan, program) if tensor.name != product]
        kernel = self._moves_of(f"{program.name}_product", "product", IN_EPILOGUE, read, program.outputs)
        return model.Schedule(
            kind=EPILOGUE,
            reason="the product is in registers: it is not read",
            bytes=kernel.bytes,
            times_floor=round(kernel.bytes / floor, 6),
            operations=after.operations,
            microseconds=kernel.microseconds,
            kernels=(kernel,),
        )

    def _kernel(self, kernel: Kernel) -> model.Kernel:
        return self._moves_of(kernel.name, kernel.kind, kernel.purpose, *moved_by(self.mode, kernel))

    def _moves_of(
        self, name: str, kind: str, purpose: str, read: Iterable[Tensor], written: Iterable[Tensor]
    ) -> model.Kernel:
        reads = tuple(self._moved(tensor) for tensor in read if is_read(self.mode, tensor))
        writes = tuple(map(self._moved, written))
        moved = sum(each.bytes for each in (*reads, *writes))
        time = round(of_bytes(self.device, moved), 3) if moved else 0.0
        return model.Kernel(
            name=name, kind=kind, purpose=purpose, reads=reads, writes=writes, bytes=moved, microseconds=time
        )

    def _moved(self, tensor: Tensor) -> model.Moved:
        fixed = {1: "bool", 4: "float32", 8: "int64"}.get(FIXED_WIDTH.get(tensor.role, 0))
        fixed = "uint8" if tensor.role == "tap" else fixed
        rows, channels = shape(self.plan, tensor.axes, self.sizes)
        if tensor.pool:
            rows = windows_of(self.plan, self.sizes)
        elif tensor.compact or tensor.samples:
            rows = math.prod(shape_of_input(self.plan, tensor.samples or tensor.name, self.sizes)) // channels
        return model.Moved(
            name=tensor.name,
            shape=(rows, channels),
            dtype=fixed or self.mode.roles[tensor.role],
            bytes=self._bytes(tensor),
        )

    def _bytes(self, tensor: Tensor) -> int:
        return tensor_bytes(self.plan, self.mode, self.sizes, tensor)


def _impossible(kind: str, why: str) -> model.Schedule:
    """What the launchers refuse and the plan has no kernels for."""
    return model.Schedule(
        kind=kind, reason=why, bytes=0, times_floor=0.0, operations=0.0, microseconds=0.0, kernels=(), runs=False,
        decision=why,
    )  # fmt: skip
