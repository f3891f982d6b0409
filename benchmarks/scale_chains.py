"""The chains of scale.py: a spec in one dtype, the sizes that it allows, and its programs at one of them."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from scale_sizes import Size, sizes
from tails import Launchers, Tail, TailProgram

from fusegen.plan.load import plan_file
from fusegen.plan.model import Mode
from fusegen.plan.plan import Plan
from fusegen.verify.sizes import Sizes
from fusegen.verify.sizes import sizes as allowed_sizes
from fusegen.verify.subject import Subject, spread_out

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Chain:
    """A spec in one dtype, and how its launchers are called."""

    plan: Plan
    mode: Mode
    dtype: str
    launchers: Launchers
    device: str

    def sizes(self, most_bytes: int, quick: bool) -> list[Sizes]:
        """Those that the spec allows, each once."""
        width = getattr(torch, self.mode.roles["activation"]).itemsize
        return self.allowed(sizes(width, bool(self.plan.chain.group_counts), most_bytes, quick))

    def allowed(self, wanted: Sequence[Size]) -> list[Sizes]:
        """As above, of given sizes."""
        found = [allowed_sizes(self.plan, size.rows, 1, size.channels, size.groups) for size in wanted]
        return list({tuple(sorted(each.symbols.items())): each for each in found}.values())

    def module(self, size: Sizes) -> torch.nn.Module:
        """An instance of the generated class in the dtype's precision, away from its initial values."""
        package = importlib.import_module(f"generated.{self.plan.spec.name}")
        subject = Subject(self.plan, package, self.device)
        with torch.device(self.device):
            module = subject.fused_class(*subject.arguments(size, random.Random(1)))
            spread_out(module)
        with torch.no_grad():
            for parameter in module.parameters():
                # A small factor in front of a norm has a gradient that is the rest of large terms: the order of their
                # sum, in which schedules differ, is all that shows there.
                parameter.copy_(torch.where(parameter < 0, -1.0, 1.0) * parameter.abs().clamp_min(0.25))
        return module.to(getattr(torch, self.mode.roles["parameter"]))

    def programs(self, size: Sizes) -> Iterator[TailProgram]:
        """Every program, one at a time: each is to be let go of before the next is asked for."""
        tail = Tail(self.plan, self.mode, size, self.launchers, self.module(size), self.device)
        for variant in self.plan.variants:
            if variant.chain.training and self.plan.chain.batch_norms and size.rows == 1:
                continue  # the module refuses it, as PyTorch does
            yield from tail.programs(variant)


def chains(names: Sequence[str], dtypes: Sequence[str], launchers: Mapping[str, Launchers], device: str) -> list[Chain]:
    """Each spec in each dtype."""
    found = []
    for name in names:
        plan = plan_file(Path("specs") / f"{name}.yaml")
        for dtype in dtypes:
            mode = next(mode for mode in plan.modes if mode.plain and mode.roles["activation"] == DTYPES[dtype])
            found.append(Chain(plan, mode, dtype, launchers[name], device))
    return found
