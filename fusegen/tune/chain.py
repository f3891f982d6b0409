"""A spec in one dtype mode, and its programs at any of the sizes that it allows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from types import ModuleType

import torch

from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.tune.launchers import Launchers
from fusegen.tune.tail import Tail, TailProgram
from fusegen.verify.subjects.subject import Subject, spread_out


@dataclass(frozen=True)
class Chain:
    """package: with the generated class; it need not be built. device: where the launchers expect their tensors."""

    plan: Plan
    mode: Mode
    package: ModuleType
    launchers: Launchers
    device: str

    def module(self, size: Sizes) -> torch.nn.Module:
        """An instance of the generated class in the mode's precision, away from its initial values."""
        subject = Subject(module_of(self.plan), self.package, self.device)
        with torch.device(self.device):
            module = subject.made(subject.fused_class, size, 1)
            spread_out(module)
        with torch.no_grad():
            for parameter in module.parameters():
                # A factor near zero in front of a norm has a gradient that is the rest of terms much larger than it:
                # of the order of the sum, in which candidates differ.
                parameter.copy_(torch.where(parameter < 0, -1.0, 1.0) * parameter.abs().clamp_min(0.25))
        return module.to(getattr(torch, self.mode.roles["parameter"]))

    def programs(self, size: Sizes) -> Generator[TailProgram, None, None]:
        """Every program, one at a time: each is to be let go of before the next is asked for."""
        tail = Tail(self.plan, self.mode, size, self.launchers, self.module(size), self.device)
        for variant in self.plan.variants:
            if variant.chain.training and self.plan.chain.batch_norms and size.rows == 1:
                continue  # the module refuses it, as PyTorch does
            yield from tail.programs(variant)
