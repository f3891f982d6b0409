"""How kernels see the axes of a value: which are next to each other in memory, and what there is one value each of."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR, Axes
from fusegen.plan.programs.units import Collapsed, Unit, collapse, unit_of

NCHW, CHANNELS_LAST = ("N", "C", "S"), ("N", "S", "C")
GROUP = Axes.of("N", C="groups")


@pytest.mark.parametrize(
    ("name", "order", "axes", "expected"),
    [
        ("layer norm", ("N", "C"), ROW, Collapsed(batch=("N",), inner=("C",))),
        ("group norm", ("N", "C"), GROUP, Collapsed(batch=("N", "C"), inner=("C",))),
        ("batch norm", ("N", "C"), CHANNEL, Collapsed(outer=("N",), parallel=("C",))),
        ("elements", ("N", "C"), MATRIX, Collapsed(batch=("N", "C"))),
        ("everything", ("N", "C"), SCALAR, Collapsed(inner=("N", "C"))),
        ("layer norm NCHW", NCHW, ROW, Collapsed(batch=("N",), inner=("C", "S"))),
        ("instance norm NCHW", NCHW, MATRIX, Collapsed(batch=("N", "C"), inner=("S",))),
        ("group norm NCHW", NCHW, GROUP, Collapsed(batch=("N", "C"), inner=("C", "S"))),
        ("batch norm NCHW", NCHW, CHANNEL, Collapsed((), ("N",), ("C",), ("S",))),
        ("batch norm channels last", CHANNELS_LAST, CHANNEL, Collapsed(outer=("N", "S"), parallel=("C",))),
        ("softmax over C NCHW", NCHW, Axes.of("N", "S"), Collapsed(("N",), ("C",), ("S",))),
        ("instance norm channels last", CHANNELS_LAST, MATRIX, Collapsed(("N",), ("S",), ("C",))),
        ("group norm channels last", CHANNELS_LAST, GROUP, Collapsed(("N",), ("S",), ("C",), ("C",))),
        ("two reductions apart", ("N", "C", "S", "T"), Axes.of("C", "T"), None),
        ("reduced, parallel, reduced, parallel", ("A", "N", "C", "S"), Axes.of("N", "S"), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_axes_next_to_each_other_are_taken_together(
    name: str, order: tuple[str, ...], axes: Axes, expected: Collapsed | None
) -> None:
    assert collapse(axes, order) == expected


@pytest.mark.parametrize(
    ("axes", "unit"),
    [
        (MATRIX, Unit.ELEMENT),
        (CHANNEL, Unit.CHANNEL),
        (ROW, Unit.ROW),
        (Axes.of("N", C=1), Unit.ROW),
        (Axes.of("N", C=4), Unit.GROUP),
        (GROUP, Unit.GROUP),
        (SCALAR, Unit.SCALAR),
    ],
    ids=str,
)
def test_the_unit_of_axes(axes: Axes, unit: Unit) -> None:
    assert unit_of(axes) is unit


def test_axes_without_a_kernel_are_no_unit() -> None:
    with pytest.raises(InternalError, match=r"one value for each element of \[4\]"):
        unit_of(Axes.of(C=4))
