"""The pair that is checked: a generated module and the same chain in PyTorch's operators, with the same state."""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.chain.model import Chain
from fusegen.plan.modules.module import ModulePlan, module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode, Program
from fusegen.plan.sizes.bytes import samples_of
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.runtime.choice import Choice, choice
from fusegen.runtime.launchers import Launcher
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.reference import ANCHORS
from fusegen.verify.runs.concat_outputs import concat_outputs, eager_class, of_several_widths
from fusegen.verify.runs.dropout_replay import replay_all
from fusegen.verify.runs.run import drawn_like, mark_images, unequal, wanting
from fusegen.verify.runs.targets import Made, loss_inputs, make_loss_inputs, with_targets

_LOWER_BOUNDS = ("min", "min_val")


@dataclass(frozen=True)
class Subject:
    """A generated package with its plan.

    original: the class that the generated one replaces; None for the chain of the spec in PyTorch's operators.
    device: where the kernels run, "cuda", or "cpu" for an emulated package.
    """

    plan: ModulePlan
    package: ModuleType
    device: str
    original: Callable[..., nn.Module] | None = None

    @property
    def fused_class(self) -> type[nn.Module]:
        return self._with_targets(self._generated)

    @property
    def _generated(self) -> type[nn.Module]:
        made = getattr(self.package, self.plan.spec.class_name)
        return made if self.plan.spec.outputs is None else concat_outputs(made)

    @property
    def original_class(self) -> Callable[..., nn.Module]:
        """The original, or the generated module with its `fusegen_reference` as forward."""
        made = eager_class(self._generated) if self.original is None else self.original
        # Of several regions, where rows come behind the channels, and in front of windows, not all parameters meet
        # values of the result's shape.
        several = not self.plan.single or any(each.result.transposed or each.result.pool for each in self._chains())
        if several and isinstance(made, type):
            made = of_several_widths(made)
        return self._with_targets(made)

    def _with_targets(self, made: Made) -> Made:
        return with_targets(self.plan, made)

    @property
    def packages(self) -> list[ModuleType]:
        """Those that have kernels: the module's own, or one of each region."""
        return [self.package] if self.plan.single else [self._package_of(plan) for plan in self.plan.plans]

    def _package_of(self, plan: Plan) -> ModuleType:
        name = plan.spec.name.removeprefix(f"{self.plan.spec.name}_")
        return sys.modules[getattr(self.package, f"_region_{name}").__module__]

    @property
    def has_double(self) -> bool:
        """Whether the extensions were built with the float64 kernels."""
        return all(importlib.import_module(f"{each.__name__}._C").info()["float64"] for each in self.packages)

    def of_region(self, plan: Plan) -> Subject:
        """The region with this plan. Of a module of one region it is the whole."""
        return self if self.plan.single else Subject(module_of(plan), self._package_of(plan), self.device)

    def choice(self, program: Program, mode: Mode, sizes: Sizes, split: bool = False) -> Choice:
        """What the launcher of a program in this package's extension says that it runs for contiguous tensors. split:
        whether operands of the product are, so that its epilogue may take the program. Raises ImportError where there
        is no extension."""
        plan = self.plan.single
        assert plan is not None, "of_region() gives the one of a region"
        extension = importlib.import_module(f"{self.package.__name__}._C")
        symbol = Launcher(plan, program).symbol
        symbols = [symbol]
        if split and plan.in_epilogue(program):
            symbols.insert(0, f"{symbol}_product")
        call = [mode.index, sizes.rows, sizes.channels, sizes.groups(program)]
        positions = math.prod(sizes.made[2:]) if program.contiguous_layout else 0
        call += [positions, samples_of(plan, program, sizes.symbols)]
        found = (choice(extension.explain(each, *call)) for each in symbols)
        return next((each for each in found if each.schedule), Choice((), ()))

    def pair(self, sizes: Sizes, mode: Mode, seed: int) -> tuple[nn.Module, nn.Module, list[Tensor]]:
        """Fused and original with the same random state, and inputs that want their gradients."""
        torch.manual_seed(seed)
        parameter = getattr(torch, mode.roles["parameter"])
        with torch.device(self.device):
            original = self.made(self.original_class, sizes, seed)
            fused = self.made(self.fused_class, sizes, seed)
            spread_out(original)
            inputs = [drawn_like(torch.empty(shape, dtype=dtype)) for shape, dtype in self._inputs(sizes, mode)]
        original, fused = original.to(parameter), fused.to(parameter)
        fused.load_state_dict(original.state_dict())
        if any(chain.spatial for chain in self._chains()):
            mark_images(original, fused)
        if any(chain.result.in_chunks for chain in self._chains()):
            fused.fusegen_chunk = sizes.rows // 3 + 1  # type: ignore[assignment]
        replay_all(original, self._chains(), self.fused_class, self.device)
        return fused, original, [wanting(x) for x in inputs]

    def _chains(self) -> list[Chain]:
        """Each of which draws a seed in a call, if it has dropouts."""
        return [plan.chain for plan in self.plan.plans]

    def fix_targets(self, modules: Sequence[nn.Module], inputs: Sequence[Tensor]) -> None:
        """Makes the targets of modules of a pair once for all calls, which are then timed without that."""
        if loss_inputs(self.plan):
            made = make_loss_inputs(self.plan, modules[0], inputs[0])
            for module in modules:
                module.known_targets = made  # type: ignore[assignment]

    def same_initial_values(self, sizes: Sizes) -> list[Comparison]:
        """Whether both constructors draw the same values from the same seed."""
        states = []
        for cls in (self.original_class, self.fused_class):
            torch.manual_seed(3)
            with torch.device(self.device):
                states.append(self.made(cls, sizes, 3).state_dict())
        a, b = states
        wrong = [k for k in a | b if k not in a or k not in b or not torch.equal(a[k], b[k])]
        if not wrong and list(a) != list(b):
            wrong = ["order of the keys"]
        return [Comparison.statement("same initial values", not wrong, ", ".join(wrong))]

    def made(self, cls: Callable[..., nn.Module], sizes: Sizes, seed: int) -> nn.Module:
        """An instance of the generated class or the original one. seed: of the arguments."""
        values = self._arguments(sizes, random.Random(seed))
        named = {name for name, argument in self.plan.spec.arguments.items() if argument.keyword}
        positional = [value for name, value in values.items() if name not in named]
        return cls(*positional, **{name: value for name, value in values.items() if name in named})

    def _arguments(self, sizes: Sizes, numbers: random.Random) -> dict[str, Any]:
        """The constructor's arguments by name. A float is drawn beside its default, at which it might have no effect.

        Where there is no default, lower bounds are drawn around -1 and all else around 1.
        """
        lower = {getattr(step, field, None) for step in self.plan.spec.chain for field in _LOWER_BOUNDS}
        shares = {step.p for step in self.plan.spec.chain if step.draws}
        found: dict[str, Any] = {}
        for name, argument in self.plan.spec.arguments.items():
            if argument.type == "shape":
                found[name] = tuple(d if isinstance(d, int) else sizes.symbols.get(d, d) for d in argument.is_)
            elif argument.type == "float":
                usual = -1.0 if name in lower else 0.25 if name in shares else 1.0
                found[name] = (usual if argument.default is None else argument.default) * numbers.uniform(0.8, 1.25)
                found[name] = min(found[name], 1.0) if name in shares else found[name]
            else:
                found[name] = sizes.symbols[name]
        return found

    def _inputs(self, sizes: Sizes, mode: Mode) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of each input. What an anchor takes comes in the parameters' dtype: autocast is to
        cast it."""
        masks = {name for chain in self._chains() for name in chain.masks}
        of_loss = loss_inputs(self.plan)
        casts = not self.plan.single or self._chains()[0].anchor is not None
        found = []
        for index, (name, shape) in enumerate(self.plan.spec.inputs.items()):
            if name in of_loss:
                continue  # the modules make them
            role = mode.roles.get(f"input {name}")
            if name in masks:
                role = "bool"
            elif index == 0 or role is None:
                role = mode.roles["parameter" if casts else "activation"]
            found.append((tuple(map(sizes.number, shape)), getattr(torch, role)))
        return found


@torch.no_grad()
def spread_out(module: nn.Module) -> None:
    """Away from ones and zeros, at which a forgotten weight, bias, buffer or running statistic would not show."""
    for part in module.modules():
        if not isinstance(part, ANCHORS):
            for parameter in part.parameters(recurse=False):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        if not isinstance(part, nn.modules.batchnorm._NormBase):
            for buffer in part.buffers(recurse=False):
                if buffer.is_floating_point():
                    buffer.copy_(unequal(buffer if buffer.any() else torch.ones_like(buffer)))
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            assert part.running_var is not None and part.num_batches_tracked is not None
            part.running_mean.normal_(0.0, 0.2)
            part.running_var.uniform_(0.3, 1.5)
            part.num_batches_tracked.add_(5)
