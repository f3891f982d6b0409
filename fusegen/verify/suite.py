"""Every check of one package, in order, from the cheapest to the slowest."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from fusegen.ops.norms import GroupNorm
from fusegen.ops.reductions import OverChannels
from fusegen.plan.modules.dimensions import fixed_dimensions, has_free_rows
from fusegen.plan.programs.epilogue import SPLIT
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import L2, LARGE, SMALL, Shape, Sizes
from fusegen.plan.sizes.module_sizes import module_sizes, module_typical, several
from fusegen.verify.checks import (
    batches,
    behaviour,
    execution,
    formats,
    gradients,
    invariance,
    leading,
    memory,
    nonfinite,
    operators,
    precisions,
    tails,
)
from fusegen.verify.checks.compared import compare_module
from fusegen.verify.checks.training import compare_steps
from fusegen.verify.judgement.findings import Finding, Report
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.run import drawn_like
from fusegen.verify.runs.targets import loss_chain, rows_of_mean
from fusegen.verify.subjects.capacity import Bytes, capacity, comparison_bytes, fitting, training_bytes, why_too_large
from fusegen.verify.subjects.subject import Subject

# rows, channels of the input, channels, groups
GRADCHECK_SIZE = (5, 7, 12, 3)
BEHAVIOUR_SIZE = (96, 256, 512, 16)
MEMORY_SIZE = (512, 1024, 2048, 32)
STEPS = 3

Check = Callable[[nn.Module, nn.Module, list[Tensor]], list[Comparison]]

_BEHAVIOUR: dict[str, Check] = {
    "bitwise": behaviour.repeated,
    "inputs untouched": behaviour.inputs_untouched,
    "strides": behaviour.strides,
    "frozen parameters": behaviour.frozen,
    "NaN and infinity": nonfinite.nonfinite,
    "constant inputs": nonfinite.constant_inputs,
    "other stream": execution.other_stream,
    "CUDA graph": execution.cuda_graph,
    "opcheck": operators.opcheck,
    "memory": memory.footprint,
    "torch.compile": execution.compiled,
}
_WITH_L2 = ("bitwise", "other stream", "CUDA graph")
# Of a module that multiplies by pieces, besides its numerics and its training. Its pieces take memory.
_OF_SPLIT = (
    *("bitwise", "strides", "frozen parameters", "NaN and infinity"),
    *("other stream", "CUDA graph", "opcheck", "torch.compile"),
)


@dataclass
class Suite:
    """The checks of one subject.

    seed: of all random data; each check draws its own from it. full: the spec's own sizes and others beyond what a
    block holds, which need a GPU. strict: whether a module in which no kernel runs is wrong. capacity: bytes that
    tensors may take together; None for what the device has. invariance: whether rows are compared with rows alone where
    the spec does not promise that they are alike, too. sizes: as Report has them.
    """

    subject: Subject
    seed: int = 0
    full: bool = True
    strict: bool = True
    capacity: int | None = None
    invariance: bool = False
    sizes: dict[str, str] = field(default_factory=dict)

    def report(self) -> Report:
        """All findings, and what could not be checked here."""
        began = time.perf_counter()
        report = Report(self.subject.plan.spec.name)
        report.findings.extend(self.run())
        report.sizes = self.sizes
        made = {finding.check for finding in report.findings}
        if self.subject.device != "cuda":
            report.skipped |= {check: "needs a GPU" for check in _BEHAVIOUR if check not in made}
        for check in _BEHAVIOUR.keys() - self._behaviours().keys():
            report.skipped[check] = "how far it spreads in a convolution is a matter of the algorithm"
        if "tails" not in made:
            alone = self._is_of_one_value()
            report.skipped["tails"] = "needs a GPU" if alone else "the chain is no function of its input's values alone"
        if "gradcheck" not in made:
            report.skipped["gradcheck"] = "no float64 kernels; `fusegen build --verification` has them"
        self._skip_autocast(report)
        report.seconds = time.perf_counter() - began
        return report

    def _skip_autocast(self, report: Report) -> None:
        if self._without_autocast():
            report.skipped["autocast"] = "rms_norm runs in float32 there from torch 2.12 on, as in the kernels"

    def run(self) -> Iterator[Finding]:
        """One finding after another; an exception in a check becomes a finding that failed.

        cuDNN multiplies in full precision, and in a fixed order: what is compared are the kernels.
        """
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            yield from self._checks()

    def _checks(self) -> Iterator[Finding]:
        yield from self._one("construction", self._size(), None, "", self.subject.same_initial_values, self._size())
        for mode in self.modes():
            yield from self.numerics(mode)
        for mode in self._representatives():
            for name, check in self._behaviours().items():
                for size in self._fitting(name, self._behaviour_sizes(name), mode):
                    yield from self._one(name, size, mode, "", self._behaviour, check, size, mode)
        yield from self.row_invariance()
        yield from self.other_precisions()
        yield from self.leading()
        yield from self.tails()
        yield from self.training(self._size())
        yield from self.gradcheck()

    def _behaviours(self) -> dict[str, Check]:
        """How far a NaN spreads in a convolution is a matter of its algorithm, which differs by memory format."""
        spreads = any(step.spatial for step in self.subject.plan.spec.chain)
        return {name: check for name, check in _BEHAVIOUR.items() if not (spreads and name == "NaN and infinity")}

    def numerics(self, mode: Mode, shapes: Sequence[Shape] | None = None) -> Iterator[Finding]:
        """Output, gradients and buffers against double precision at every size, in train and eval.

        shapes: other ones than all of plan/sizes/chain_sizes.py and the typical one.
        """
        chosen = several(self.subject.plan, shapes or self._shapes())
        if self.full and shapes is None:
            chosen.append(module_typical(self.subject.plan))
        for autocast in sorted({not mode.plain, mode.autocast}):
            if autocast and self._without_autocast():
                continue
            for each in self._fitting("numerics", chosen, mode):
                for train in (True, False):
                    yield from self._numerics_at(each, mode, autocast, train, precisions.IEEE)

    def _shapes(self) -> Sequence[Shape]:
        """Of several regions fewer: these are subjects, too."""
        if self.subject.plan.single:
            return (*SMALL, *LARGE) if self.full else SMALL
        return (*SMALL, *LARGE[:6]) if self.full else SMALL[:4]

    def _without_autocast(self) -> bool:
        """Whether the modules run PyTorch's operators under autocast."""
        named = {step.op for step in self.subject.plan.spec.chain}
        return "rms_norm" in named and TorchVersion(torch.__version__) < "2.12"

    def row_invariance(self) -> Iterator[Finding]:
        """The bits of rows in the batch and alone."""
        plan = self.subject.plan
        if not (self.invariance or plan.spec.invariant):
            return
        chosen = several(plan, (BEHAVIOUR_SIZE, *invariance.SIZES) if self.full else (SMALL[0], SMALL[3]))
        for mode in self._representatives():
            for size in self._fitting("rows alone", chosen, mode):
                yield from self._one("rows alone", size, mode, "", self._rows_alone, size, mode)
            if mode.plain and mode.roles["activation"] == "float32" and plan.has_precisions:
                for size in self._fitting(f"rows alone {SPLIT}", chosen[:2], mode):
                    yield from self._one("rows alone", size, mode, SPLIT, self._rows_alone, size, mode, SPLIT)

    def other_precisions(self) -> Iterator[Finding]:
        """Products of float32 that are not PyTorch's own. fp32_split is judged as float32: it loses no more."""
        plan = self.subject.plan
        mode = next((mode for mode in self.modes() if mode.plain and mode.roles["activation"] == "float32"), None)
        if mode is None or not plan.has_precisions:
            return
        chosen = [*several(plan, self._shapes()), module_typical(plan)] if self.full else several(plan, SMALL[:2])
        for each in self._fitting(f"numerics {SPLIT}", chosen, mode):
            for train in (True, False):
                yield from self._numerics_at(each, mode, False, train, SPLIT)
        for name, check in _BEHAVIOUR.items():
            for size in self._fitting(name, [self._size()], mode) if name in _OF_SPLIT else []:
                yield from self._one(name, size, mode, SPLIT, self._behaviour, check, size, mode, SPLIT)
        for each in self._fitting(f"training {SPLIT}", [self._size()], mode, training_bytes):
            yield from self._one("training", each, mode, f"{STEPS} steps, {SPLIT}", self._steps, each, mode, SPLIT)
        if not plan.single:
            return  # a second product rounds what is rounded otherwise already
        for each in self._fitting("rounded operands", [self._size()], mode):
            work = precisions.rounded_operands
            yield from self._one("rounded operands", each, mode, "", self._behaviour, work, each, mode)

    def _numerics_at(self, size: Sizes, mode: Mode, autocast: bool, train: bool, precision: str) -> Iterator[Finding]:
        place = ("train" if train else "eval") + (f", {precision}" if precision != precisions.IEEE else "")
        work = functools.partial(self._numerics, size, mode, autocast, train, precision)
        yield from self._one("numerics", size, mode, place, work)

    def leading(self) -> Iterator[Finding]:
        """Inputs with more dimensions than two, and with one; of images, in other memory formats."""
        plan = self.subject.plan
        if not (plan.spatial or self._takes_other_dimensions()):
            return  # the spec says how many there are
        check = "memory formats" if plan.spatial else "leading dimensions"
        kept = not plan.single and any(isinstance(step, OverChannels | GroupNorm) for step in plan.spec.chain)
        for mode in self._representatives():
            for size in self._fitting(check, [self._size()], mode):
                if plan.spatial:
                    work = formats.memory_formats_kept if kept else formats.memory_formats
                    yield from self._one(check, size, mode, "", self._behaviour, work, size, mode)
                elif plan.plans[0].chain.batched:
                    yield from self._one(check, size, mode, "", self._behaviour, batches.batches, size, mode)
                else:
                    yield from self._one(check, size, mode, "", self._leading, size, mode)

    def _takes_other_dimensions(self) -> bool:
        """Whether inputs may have other numbers of dimensions than the spec gives them."""
        plan = self.subject.plan
        if not plan.single:
            return len(next(iter(plan.spec.inputs.values()))) == 2
        chain = plan.plans[0].chain
        return not (
            chain.leading or (chain.trailing and chain.broadcast_inputs) or (chain.batched and fixed_dimensions(chain))
        )

    def tails(self) -> Iterator[Finding]:
        """All arguments of a chain that is a function of one value, on a GPU: emulated exponentials are the host's."""
        if self.subject.device != "cuda" or not self._is_of_one_value():
            return
        for mode in self.modes():
            if mode.plain:
                yield from self._one("tails", self._size(), mode, "", self._tails, mode)

    def _is_of_one_value(self) -> bool:
        plan = self.subject.plan.single
        return plan is not None and tails.applies(plan)

    def training(self, size: Sizes) -> Iterator[Finding]:
        """A few optimiser steps of both modules."""
        for mode in self._representatives():
            for each in self._fitting("training", [size], mode, training_bytes):
                yield from self._one("training", each, mode, f"{STEPS} steps", self._steps, each, mode)

    def gradcheck(self) -> Iterator[Finding]:
        """Finite differences in float64, where the extension has those kernels."""
        if not self.subject.has_double:
            return
        size, mode = module_sizes(self.subject.plan, *GRADCHECK_SIZE), self.subject.plan.modes[-1]
        yield from self._one("gradcheck", size, mode, "", self._gradcheck, size, mode)

    def _fitting(
        self, check: str, chosen: Sequence[Sizes], mode: Mode, bytes_: Bytes = comparison_bytes
    ) -> list[Sizes]:
        """The sizes, each once, with others in the place of those that libraries do not take or for which the device
        has not the memory; `self.sizes` says so. A size of one region may take another's place where the launchers run
        the same kernels."""
        plan, found = self.subject.plan, []
        for size in chosen:
            available = self._capacity()

            def fits(each: Sizes, most: int = available) -> bool:
                return not why_too_large(plan, mode, each, bytes_, most)

            def alike(each: Sizes, wanted: Sizes = size) -> bool:
                return self._kernels(each, mode) == self._kernels(wanted, mode)

            if plan.single:
                fitted, lacks = fitting(plan.plans[0], size, fits, alike), ", as no smaller size runs the same kernels"
            else:
                fitted, lacks = size if fits(size) else None, ""
            if fitted is None or fitted != size:
                place = f"{fitted} in its place" if fitted else f"left out{lacks}"
                reason = why_too_large(plan, mode, size, bytes_, available)
                self.sizes[f"{check} {size} {mode.name}"] = f"{reason}: {place}"
            found += [fitted] if fitted and fitted not in found else []
        return found

    def _capacity(self) -> int:
        return capacity(self.subject.device) if self.capacity is None else self.capacity

    def _kernels(self, size: Sizes, mode: Mode) -> list[object]:
        """What launchers run at a size: schedules and kernels, with the blocks of their clusters."""
        chosen = [
            self.subject.choice(program, mode, size) for plan in self.subject.plan.plans for program in plan.programs
        ]
        return [(c.schedule, [(each.kernel, each.passes, each.grid[2]) for each in c.launches]) for c in chosen]

    def _one(
        self, check: str, size: Sizes, mode: Mode | None, place: str, work: Callable, *args: Any
    ) -> Iterator[Finding]:
        dtypes = mode.name if mode else ""
        try:
            found = work(*args)
        except Exception as problem:  # whatever a module under test may raise
            found = [Comparison.statement("raises nothing", False, f"{type(problem).__name__}: {problem}"[:300])]
        for item in found:
            yield Finding(check, str(size), dtypes, place, item)
        if self.subject.device == "cuda":
            torch.cuda.empty_cache()

    def _numerics(
        self, size: Sizes, mode: Mode, autocast: bool, train: bool, precision: str = precisions.IEEE
    ) -> list[Comparison]:
        fused, original, inputs = self._pair("numerics", size, mode, precision)
        # Else PyTorch's operators could take the place of the kernels, and would be compared with themselves.
        fused.fusegen_strict = self.strict  # type: ignore[assignment]
        behaviour.poison(*inputs)
        return compare_module(
            fused,
            original,
            inputs,
            autocast_dtype=self._autocast(mode) if autocast else None,
            dtype=getattr(torch, mode.roles["activation"]),
            train=train,
            seed=self.seed,
        )

    def _behaviour(self, check: Check, size: Sizes, mode: Mode, precision: str = precisions.IEEE) -> list[Comparison]:
        with self._as_called(mode):
            return check(*self._pair(check.__name__, size, mode, precision))

    def _rows_alone(self, size: Sizes, mode: Mode, precision: str = precisions.IEEE) -> list[Comparison]:
        fused, _, inputs = self._pair("rows alone", size, mode)
        if precision != precisions.IEEE:  # not as other checks have it: whether to split is part of the question
            fused.fusegen_precision = precision  # type: ignore[assignment]
        with self._as_called(mode):
            return invariance.rows_alone(fused, inputs, rows_of_mean(self.subject.plan, fused))

    def _leading(self, size: Sizes, mode: Mode) -> list[Comparison]:
        plan = self.subject.plan
        chain = plan.plans[0].chain
        free = has_free_rows(chain) if plan.single else plan.dimensions.most is None
        free = free and not loss_chain(plan).targets  # which the checks make for [rows, channels]
        pair, trailing = self._pair("leading", size, mode), (len(chain.trailing) or 1) if plan.single else 1
        with self._as_called(mode):
            return leading.leading_dimensions(*pair, free_rows=free, trailing=trailing)

    def _tails(self, mode: Mode) -> list[Comparison]:
        dtype, size = getattr(torch, mode.roles["activation"]), self._size()
        fused, original, _ = self._pair("tails", size, mode)
        found = tails.sweep(fused, original, dtype, self.subject.device, size.channels, self.subject.plan.spatial)
        return tails.comparisons(found, dtype)

    def _steps(self, size: Sizes, mode: Mode, precision: str = precisions.IEEE) -> list[Comparison]:
        fused, original, inputs = self._pair("training", size, mode, precision)
        batches = [[drawn_like(x) for x in inputs] for _ in range(STEPS)]
        if not list(fused.parameters()):
            return []
        with self._as_called(mode):
            return compare_steps(fused, original, batches, seed=self.seed)

    def _gradcheck(self, size: Sizes, mode: Mode) -> list[Comparison]:
        fused, original, inputs = self._pair("gradcheck", size, mode)
        detaches = any(getattr(step, "detach", False) for step in self.subject.plan.spec.chain)
        return gradients.gradcheck(self.subject.packages, fused, inputs, original if detaches else None)

    def _pair(
        self, check: str, size: Sizes, mode: Mode, precision: str = precisions.IEEE
    ) -> tuple[nn.Module, nn.Module, list[Tensor]]:
        text = f"{self.seed} {check} {size} {mode.name}"
        fused, original, inputs = self.subject.pair(
            size, mode, int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        )
        return precisions.with_precision(fused, precision), original, inputs

    def _size(self, shape: tuple[int, int, int, int] = BEHAVIOUR_SIZE) -> Sizes:
        return module_sizes(self.subject.plan, *(shape if self.full else SMALL[0]))

    def _behaviour_sizes(self, check: str) -> list[Sizes]:
        found = [self._size(MEMORY_SIZE if check == "memory" else BEHAVIOUR_SIZE)]
        with_l2 = self.full and check in _WITH_L2 and self.subject.plan.single
        return [*found, self._size(L2)] if with_l2 else found

    def modes(self) -> list[Mode]:
        """All but float64, which only gradcheck uses."""
        return [mode for mode in self.subject.plan.modes if mode.roles["activation"] != "float64"]

    def _as_called(self, mode: Mode) -> torch.autocast:
        """Autocast, as it is in the mode's calls: off where they may be without it."""
        return torch.autocast(self.subject.device, self._autocast(mode), enabled=not mode.plain)

    def _representatives(self) -> list[Mode]:
        """The first mode of each width, float32 and one of 16 bits: a plain one, unless the spec has none."""
        plain = [mode for mode in self.modes() if mode.plain] or self.modes()
        return list({getattr(torch, mode.roles["activation"]).itemsize: mode for mode in reversed(plain)}.values())[
            ::-1
        ]

    @staticmethod
    def _autocast(mode: Mode) -> torch.dtype:
        dtype = getattr(torch, mode.roles["activation"])
        return dtype if dtype.itemsize == 2 else torch.bfloat16
