"""What each operator of eager PyTorch moves and takes, what of it fused kernels save, and both sides in all."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.explain import model, wording
from fusegen.explain.eager import Tensor, Traffic, operators
from fusegen.explain.times import of_bytes, of_products
from fusegen.plan.launches.devices import Device
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.epilogue import EPILOGUE
from fusegen.plan.programs.gradient_aliases import is_written
from fusegen.plan.programs.model import Mode, Program, Variant
from fusegen.plan.sizes.bytes import bytes_of, is_read, read_of
from fusegen.plan.sizes.chain_sizes import Sizes


def operators_and_totals(
    plan: Plan, device: Device, mode: Mode, size: Sizes, variant: Variant, programs: Sequence[model.Program]
) -> tuple[tuple[model.Operator, ...], tuple[model.Total, ...]]:
    """device: on which times are expected. programs: forward and backward, with the schedules that count."""
    traffic = operators(plan, variant)
    planned = (variant.forward, variant.backward)
    shared = [
        _Shared(plan, device, mode, size, program, in_epilogue=each.taken == EPILOGUE)
        for program, each in zip(planned, programs, strict=True)
    ]
    columns = [[shared[side].moves(each[side]) for each in traffic] for side in (0, 1)]
    multiplies = plan.chain.contraction is not None
    found = tuple(
        model.Operator(
            step=wording.step(step), is_product=multiplies and step.anchor, forward=forward, backward=backward
        )
        for step, forward, backward in zip(plan.spec.chain, *columns, strict=True)
    )
    products = None
    if plan.chain.contraction is not None:
        products = of_products(plan, device, mode, size, training=variant.name != "eval")
    totals = []
    for index, (program, moves) in enumerate(zip(programs, columns, strict=True)):
        shared_bytes = sum(each.bytes - each.saved_bytes for each in moves)
        eager, fused = (each.microseconds[index] for each in products) if products else (None, None)
        makers = [each.made_by[index] for each in products] if products else [None, None]
        totals.append(
            model.Total(
                direction=program.direction,
                eager_bytes=sum(each.bytes for each in moves),
                eager_microseconds=round(sum(each.microseconds for each in moves), 3),
                fused_bytes=program.schedule.bytes,
                fused_microseconds=program.schedule.microseconds,
                besides_bytes=program.schedule.bytes - shared_bytes,
                eager_product=eager and round(eager, 3),
                fused_product=fused and round(fused, 3),
                eager_made_by=makers[0],
                fused_made_by=makers[1],
            )
        )
    return found, tuple(totals)


class _Shared:
    """Counts what fused kernels move too: each tensor once for its reads and once for its writes. in_epilogue: they
    have the product in registers."""

    def __init__(
        self, plan: Plan, device: Device, mode: Mode, size: Sizes, program: Program, *, in_epilogue: bool
    ) -> None:
        self.plan, self.device, self.mode, self.size = plan, device, mode, size
        self.reads = {tensor.name for tensor in read_of(plan, program) if is_read(mode, tensor)}
        if in_epilogue:
            self.reads.discard(plan.chain.source.name)
        self.writes = {tensor.name for tensor in program.outputs if is_written(mode, tensor)}

    def moves(self, traffic: Traffic) -> model.Moves:
        moved, saved = 0, 0
        for tensors, left in ((traffic.reads, self.reads), (traffic.writes, self.writes)):
            for tensor in tensors:
                count = self._bytes(tensor)
                moved += count
                if tensor.name in left:
                    left.remove(tensor.name)
                else:
                    saved += count
        microseconds = round(of_bytes(self.device, moved), 3)
        return model.Moves(bytes=moved, microseconds=microseconds, saved_bytes=saved)

    def _bytes(self, tensor: Tensor) -> int:
        of_input = tensor.name if tensor.name in self.plan.chain.broadcast_inputs else ""
        return bytes_of(self.plan, self.mode, self.size.symbols, tensor.axes, tensor.role, of_input, tensor.pooled)
