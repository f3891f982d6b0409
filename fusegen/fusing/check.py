"""A replaced module beside its original: the tensors that its regions take, and the dtypes under autocast."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import Diagnostic, SpecError
from fusegen.fusing.search import Found
from fusegen.plan.composition import Composition, Planned
from fusegen.verify.cuda_autocast import CudaAutocast
from fusegen.verify.policy import error

# As the importer has it: what rounding in double precision may leave.
_LIMIT = 1e-7
_NARROW = (torch.bfloat16, torch.float16)


def compare(owner: nn.Module, found: Mapping[Any, Found]) -> None:
    """Runs each region's chain and the original side by side, in double precision. found: by the regions' spans.

    Raises SpecError for a difference. Where results under autocast differ in their
    dtype, the region will run the original there.
    """
    probe: Any = copy.deepcopy(owner).cpu().eval()
    for made, own in zip(probe._fusegen_regions, owner._fusegen_regions, strict=True):  # type: ignore[arg-type]
        each = found[made._fusegen_span]
        probe.double()
        ours, theirs = _results(made, [x.cpu().double() for x in each.inputs])
        off = error(ours, theirs)
        if ours.dtype != theirs.dtype or not max(off.largest, off.norm) <= _LIMIT:
            message = f"{each.path}: the chain computes something else, off by {off.largest:.1e}"
            raise SpecError([Diagnostic("FG708", message)])
        own.__dict__["_fusegen_autocast"] = all(_has_same_dtype(made, each, dtype) for dtype in _NARROW)


def _has_same_dtype(made: Any, found: Found, dtype: torch.dtype) -> bool:
    """Under CUDA's autocast, with inputs in float32, and in what an autocast product before it gives."""
    made._fusegen_owner.float()
    for given in (torch.float32, dtype):
        inputs = [x.cpu().to(given) for x in found.inputs]
        if _begins_with_product(found.chain.plan):
            inputs[0] = inputs[0].float()  # which is cast in any case
        with CudaAutocast(dtype):
            ours, theirs = _results(made, inputs)
        if ours.dtype != theirs.dtype:
            return False
    return True


def _begins_with_product(planned: Planned) -> bool:
    plan = planned.parts[0].plan if isinstance(planned, Composition) else planned
    return plan is None or plan.chain.contraction is not None or bool(plan.chain.convolution)


def _results(made: Any, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Of the generated module's chain, and of the original."""
    with torch.no_grad():
        made.fusegen_follow()
        return made._fusegen_generated.fusegen_reference(made, *inputs), made.fusegen_reference(*inputs)
