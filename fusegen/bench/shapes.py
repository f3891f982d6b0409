"""A shape of the command line as the sizes of one spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusegen.bench.names import TYPICAL
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.sizes.chain_sizes import Sizes, of_input, sizes, typical
from fusegen.plan.sizes.module_sizes import module_sizes_at


@dataclass(frozen=True)
class SizesOfDims(Sizes):
    """The sizes of a module of several regions. dims: the symbols whose values, with x between them, name the sizes."""

    dims: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "x".join(str(self.symbols[name]) for name in self.dims)


def sizes_of(planned: ModulePlan, shape: str) -> Sizes:
    """`shape` is "typical", or extents with x between them: rows, the linear layer's input features, channels; where
    the spec gives the first input more dimensions than two, as in front of a convolution, those of this input; of
    several regions the values of the spec's `dims`, in their order.

    The number of groups stays the typical one where it divides the channels. Raises ValueError where the spec does not
    allow that shape.
    """
    if not planned.single:
        return _of_regions(planned, shape)
    (plan,) = planned.plans
    usual = typical(plan)
    if shape == TYPICAL:
        return usual
    extents = [int(extent) for extent in shape.split("x")]
    if usual.given:
        return _of_input(plan, usual, shape, extents)
    expected = 2 if usual.source is None else 3
    if len(extents) != expected:
        form = "rows x channels" if expected == 2 else "rows x input features x channels"
        raise ValueError(f"{shape} has {len(extents)} extents, it takes {form}")
    found = sizes(plan, extents[0], extents[1], extents[-1], usual.free_groups(plan))
    if str(found) != shape:
        raise ValueError(f"the spec does not allow {shape}; the nearest is {found}")
    return found


def _of_regions(planned: ModulePlan, shape: str) -> Sizes:
    spec = planned.spec
    symbols = dict(spec.dims)
    if shape != TYPICAL:
        extents = [int(extent) for extent in shape.split("x")]
        if len(extents) != len(symbols):
            raise ValueError(f"{shape} has {len(extents)} extents, it takes those of {' x '.join(symbols)}")
        symbols = dict(zip(symbols, extents, strict=True))
    symbols |= {name: each.typical for name, each in spec.arguments.items() if each.type == "int"}
    found = module_sizes_at(planned, symbols)
    _check_groups(planned.plans, shape, found)
    return SizesOfDims(**vars(found), dims=tuple(spec.dims))


def _check_groups(plans: Iterable[Plan], shape: str, found: Sizes) -> None:
    for plan in plans:
        channels = found.number(plan.chain.channels)
        for count in plan.chain.group_counts:
            if channels % found.number(count):
                raise ValueError(f"the spec does not allow {shape}: {count} groups do not divide {channels} channels")


def _of_input(plan: Plan, usual: Sizes, shape: str, extents: list[int]) -> Sizes:
    """`extents` are those of the first input; the channels of the result are the typical ones."""
    if len(extents) != len(usual.given):
        raise ValueError(f"{shape} has {len(extents)} extents, it takes those of the input, {len(usual.given)}")
    found = of_input(plan, extents)
    if min(found.made) < 1 or found.given != tuple(extents):
        raise ValueError(f"the spec does not allow {shape}")
    _check_groups([plan], shape, found)
    return found
