"""Which schedule a measured module runs, as the launchers in its own extension say."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fusegen.bench.names import EVAL, STEP
from fusegen.plan.model import Mode
from fusegen.runtime.choice import choice
from fusegen.runtime.launchers import Launcher
from fusegen.verify.sizes import Sizes
from fusegen.verify.subject import Subject

NO_KERNELS, UNKNOWN = "none", "unknown"
# Between the forward and the backward direction.
_THEN = " / "


@dataclass(frozen=True)
class Ran:
    """schedule: the name of the forward direction's, and the backward direction's where there is one; NO_KERNELS where
    PyTorch's operators run, UNKNOWN where the launchers cannot be asked. launches: the kernels of each direction with
    their launch configurations, or why there are none to name."""

    @property
    def told(self) -> str:
        """For a line of progress."""
        return f"{self.schedule} ({self.launches})" if self.schedule in (NO_KERNELS, UNKNOWN) else self.schedule

    schedule: str
    launches: str


def ran(subject: Subject, mode: Mode, sizes: Sizes, what: str, module: nn.Module, inputs: Sequence[Tensor]) -> Ran:
    """What `module`, of the generated class, runs for these inputs in `what`, a mode of bench/names.py."""
    plan = subject.plan
    module.train(what != EVAL)
    use = module.fusegen_kernels(*inputs)
    if not use:
        return Ran(NO_KERNELS, f"PyTorch's operators: {use.reason}")
    try:
        extension = importlib.import_module(f"{subject.package.__name__}._C")
    except ImportError as problem:  # another copy of the package has registered the ops
        return Ran(UNKNOWN, f"the launchers cannot be asked: {problem}")
    variant = plan.variants[-1 if what == EVAL else 0]
    found = []
    for program in (variant.forward, *([variant.backward] if what == STEP else [])):
        count = program.groups
        groups = 1 if count is None else count if isinstance(count, int) else sizes.symbols[count]
        symbol = Launcher(plan, program).symbol
        found.append(choice(extension.explain(symbol, mode.index, sizes.rows, sizes.channels, groups)))
    return Ran(_THEN.join(each.schedule for each in found), _THEN.join(each.launched for each in found))
