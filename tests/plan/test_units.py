"""How kernels see the axes of a value: which are next to each other in memory, and what there is one value each of."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR, Axes
from fusegen.plan.units import Runs, Unit, collapse, unit_of

NCHW, CHANNELS_LAST = ("N", "C", "S"), ("N", "S", "C")
GROUP = Axes.of("N", C="groups")


@pytest.mark.parametrize(
    ("name", "order", "axes", "expected"),
    [
        ("layer norm", ("N", "C"), ROW, Runs(batch=("N",), inner=("C",))),
        ("group norm", ("N", "C"), GROUP, Runs(batch=("N", "C"), inner=("C",))),
        ("batch norm", ("N", "C"), CHANNEL, Runs(outer=("N",), kept=("C",))),
        ("elements", ("N", "C"), MATRIX, Runs(batch=("N", "C"))),
        ("everything", ("N", "C"), SCALAR, Runs(inner=("N", "C"))),
        ("layer norm NCHW", NCHW, ROW, Runs(batch=("N",), inner=("C", "S"))),
        ("instance norm NCHW", NCHW, MATRIX, Runs(batch=("N", "C"), inner=("S",))),
        ("group norm NCHW", NCHW, GROUP, Runs(batch=("N", "C"), inner=("C", "S"))),
        ("batch norm NCHW", NCHW, CHANNEL, Runs((), ("N",), ("C",), ("S",))),
        ("batch norm channels last", CHANNELS_LAST, CHANNEL, Runs(outer=("N", "S"), kept=("C",))),
        ("softmax over C NCHW", NCHW, Axes.of("N", "S"), Runs(("N",), ("C",), ("S",))),
        ("instance norm channels last", CHANNELS_LAST, MATRIX, Runs(("N",), ("S",), ("C",))),
        ("group norm channels last", CHANNELS_LAST, GROUP, Runs(("N",), ("S",), ("C",), ("C",))),
        ("two reductions apart", ("N", "C", "S", "T"), Axes.of("C", "T"), None),
        ("reduced, kept, reduced, kept", ("A", "N", "C", "S"), Axes.of("N", "S"), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_axes_next_to_each_other_are_taken_together(
    name: str, order: tuple[str, ...], axes: Axes, expected: Runs | None
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
