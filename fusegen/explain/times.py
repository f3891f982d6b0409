"""Estimates of device time, in microseconds: bytes over bandwidth, operations of a product over a measured peak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from fusegen.errors import InternalError
from fusegen.ops.step import WIDTH
from fusegen.paths import SUPPORT, templates_directory
from fusegen.plan.launches.devices import Device
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.plan.summary import BY_ROWS, has_bias, made_by

LEAST = 2.5
"""Microseconds of a kernel with next to nothing to do; benchmarks/results/kernel_times_h200.csv has such."""


def product_route() -> ModuleType:
    """support/product_route.py, by which modules choose how to multiply: it has the speeds that were measured."""
    return support_module("product_route")


@cache
def support_module(name: str) -> ModuleType:
    """A module of generated packages that says how they choose, and imports nothing."""
    path = templates_directory() / SUPPORT / f"{name}.py"
    spec = spec_from_file_location(f"fusegen_{name}", path)
    if spec is None or spec.loader is None:
        raise InternalError(f"cannot read {path}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def capability(device: Device) -> tuple[int, int]:
    """The compute capability of a device as (major, minor): (9, 0) of sm_90."""
    digits = device.target.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1])


def of_bytes(device: Device, moved: float) -> float:
    """One kernel that moves so many bytes; one that moves none is not launched."""
    return max(LEAST, moved / device.bandwidth * 1e-3) if moved else 0.0


def product_sizes(size: Sizes, parts: int = 1) -> tuple[int, int, int]:
    """Rows, channels and input features of a product. parts: how many times the chain's channels it has."""
    return size.rows, parts * size.channels, size.source or 0


def is_worth_splitting(device: Device, sizes: tuple[int, int, int], *, gradients: bool) -> bool:
    """Whether a module in fp32_split splits the operands of its product, in each call both. gradients: whether the
    backward pass follows."""
    return product_route().is_worth_splitting(
        capability(device), device.multiprocessors, *sizes, weight_kept=False, gradients=gradients
    )


@dataclass(frozen=True)
class Products:
    """The products of a linear layer, each figure forward and backward: microseconds, None where no speed is known, and
    who makes them."""

    microseconds: tuple[float, float] | tuple[None, None]
    made_by: tuple[str, str]


def of_products(plan: Plan, device: Device, mode: Mode, size: Sizes, *, training: bool) -> tuple[Products, Products]:
    """The products of a chain with a linear layer, in eager PyTorch and in the fused module, in this order."""
    route, sizes = product_route(), product_sizes(size, plan.chain.number_of_parts)
    narrow = mode.roles["activation"] != "float32"
    library = "aten::addmm" if has_bias(plan) else "aten::mm", "aten::mm"
    forward = _precision(plan, device, mode, sizes, training=training, backward=False)
    backward = _precision(plan, device, mode, sizes, training=training, backward=True)
    makers = _maker(plan, mode, forward, backward=False), _maker(plan, mode, backward, backward=True)
    speed = route.SPEEDS.get(capability(device))
    if speed is None:
        return Products((None, None), library), Products((None, None), makers)
    rows, channels, features = sizes
    # Of each element that is rounded, 4 bytes are read and 2 written; the backward pass has one matrix more.
    operands = (rows + channels) * features
    rounding = [6 * elements / speed.memory for elements in (operands, operands + rows * channels)]
    eager = route.library_times(speed.tensor_cores if narrow else speed.float32, *sizes)
    ways = {
        "ieee": eager,
        "fp32_split": route.split_times(speed, device.multiprocessors, *sizes, weight_kept=False),
        "rounded": [sum(each) for each in zip(route.library_times(speed.tensor_cores, *sizes), rounding, strict=True)],
    }
    fused = ways.get(forward, ways["rounded"])[0], ways.get(backward, ways["rounded"])[1]
    eager, fused = (_least(each, device, mode.roles["activation"], sizes) for each in (eager, fused))
    return Products(eager, library), Products(fused, makers)


def of_library(device: Device, dtype: str, sizes: tuple[int, int, int]) -> tuple[float, float] | None:
    """Microseconds of a product of the vendor library, forward and backward; None where no speed is known. sizes: as of
    product_sizes()."""
    route = product_route()
    speed = route.SPEEDS.get(capability(device))
    if speed is None:
        return None
    return _least(
        route.library_times(speed.float32 if dtype == "float32" else speed.tensor_cores, *sizes), device, dtype, sizes
    )


def _least(taken: tuple[float, float], device: Device, dtype: str, sizes: tuple[int, int, int]) -> tuple[float, float]:
    """Of few rows, reading the weight takes longer than multiplying."""
    rows, channels, features = sizes
    moved = WIDTH[dtype] * (rows * features + channels * features + rows * channels)
    least = max(LEAST, moved / device.bandwidth * 1e-3)
    return max(taken[0], least), max(taken[1], 2 * least)


def _precision(
    plan: Plan, device: Device, mode: Mode, sizes: tuple[int, int, int], *, training: bool, backward: bool
) -> str:
    """The precision with which a module multiplies: in evaluation, the backward pass is that of a call with gradients,
    and the forward pass that of one without."""
    wanted = plan.spec.chain[0].precision if mode.roles["activation"] == "float32" else "ieee"
    if wanted != "fp32_split" or plan.spec.invariant:
        return wanted
    worth = is_worth_splitting(device, sizes, gradients=training or backward)
    return wanted if worth else "ieee"


def _maker(plan: Plan, mode: Mode, precision: str, *, backward: bool) -> str:
    """Who makes a product of a module. In float32 the kernels, not the library, add the bias."""
    if precision != "ieee":
        return made_by(plan, WIDTH[mode.roles["activation"]])
    if plan.spec.invariant:
        return BY_ROWS
    adds_bias = not backward and mode.roles["activation"] != "float32" and has_bias(plan)
    return "aten::addmm" if adds_bias else "aten::mm"
