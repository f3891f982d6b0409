"""Which schedule a measured module runs, as the launchers in its own extension say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fusegen.bench.bytes import tail_programs
from fusegen.bench.names import EVAL
from fusegen.bench.regions import portions
from fusegen.plan.programs.epilogue import SPLIT
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.verify.subjects.subject import Subject

NO_KERNELS, UNKNOWN = "none", "unknown"
# Between the forward and the backward direction.
_THEN = " / "
# Between regions.
_AND = ", "


@dataclass(frozen=True)
class Ran:
    """schedule: the name of the forward direction's, and the backward direction's where there is one; NO_KERNELS where
    PyTorch's operators run, UNKNOWN where the launchers cannot tell. launches: the kernels of each direction with
    their launch configurations, or why there are none to name."""

    schedule: str
    launches: str

    @property
    def told(self) -> str:
        """For a line of progress."""
        return f"{self.schedule} ({self.launches})" if self.schedule in (NO_KERNELS, UNKNOWN) else self.schedule


def ran(subject: Subject, mode: Mode, sizes: Sizes, what: str, module: Any, inputs: Sequence[Tensor]) -> Ran:
    """What `module`, of the generated class, runs for these inputs in `what`, a mode of bench/names.py."""
    module.train(what != EVAL)
    use = module.fusegen_kernels(*inputs)
    if not use:
        return Ran(NO_KERNELS, f"PyTorch's operators: {use.reason}")
    split = SPLIT in use.precision.split(", ")
    try:
        found = [
            [subject.of_region(plan).choice(program, own, size, split) for program in tail_programs(plan, what)]
            for plan, own, size in portions(subject.plan, mode, sizes)
        ]
    except ImportError as problem:  # another copy of the package has registered the ops
        return Ran(UNKNOWN, f"the launchers cannot tell: {problem}")
    # By direction: what the regions ran, in their order.
    directions = list(zip(*found, strict=True))
    return Ran(
        _THEN.join(_AND.join(each.schedule for each in choices) for choices in directions),
        _THEN.join(_AND.join(each.launched for each in choices) for choices in directions),
    )
