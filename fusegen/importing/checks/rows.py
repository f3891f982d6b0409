"""An imported spec beside its module at other numbers of rows and dimensions, batches and positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fusegen.errors import SpecError
from fusegen.importing.checks.cases import Case, has_rows, with_leading, with_rows
from fusegen.importing.checks.pairs import Differs, Pair
from fusegen.importing.drafts.spec_draft import SpecDraft
from fusegen.importing.traces.positions import NoResult, Positions, sized
from fusegen.importing.traces.source_locations import refusal
from fusegen.plan.modules.module import ModulePlan

_ROWS = (1, 2, 3, 17)
# The same of several dimensions of rows.
_LEADING = ((1, 2, 3), (3, 1, 2), (2, 5, 1))
# In front of a convolution, batches and what is added to positions.
_BATCHES = ((1, 1), (2, 0), (3, 4), (1, -2))
_BY_ROWS = "the module makes a difference between numbers of rows; no spec was written"
OTHER_DIMENSIONS = "It is for inputs of {} dimensions: the original computes something else for others that this takes."


def check_rows(
    pair: Pair, case: Case, plan: ModulePlan, spec_draft: SpecDraft, positions: Positions | None
) -> list[str]:
    """Remarks for those who read the spec. Raises SpecError where another number of rows is another chain."""
    if positions is not None:
        return _check_positions(pair, case, positions)
    if spec_draft.spread:
        for sizes in _LEADING:
            given = zip(pair.drawn, spec_draft.inputs.values(), strict=True)
            named = dict(zip(map(str, spec_draft.rows), sizes, strict=False))
            _check_inputs(pair, [with_leading(x, shape, named) for x, shape in given])
        several = any("normalized_shape" in draft.data for draft in spec_draft.chain)
        return _check_trailing(pair, case, plan, spec_draft) if several else []
    leading = case.inputs[0].shape[1:-1]
    for size in _ROWS[1:3] if pair.is_large else _ROWS:
        _check_shape(pair, spec_draft, (size, *leading))
    allowed = plan.dimensions
    shapes: list[tuple[int, ...]] = [(2, 3)] if allowed.most is None else []
    shapes += [()] if allowed.least == 1 else []
    try:
        for shape in shapes:
            _check_shape(pair, spec_draft, shape)
    except SpecError:
        return [OTHER_DIMENSIONS.format(case.inputs[0].dim())]
    return []


def _check_positions(pair: Pair, case: Case, positions: Positions) -> list[str]:
    sizes, rank = pair.drawn[0].shape[2:], pair.drawn[0].dim()
    for batch, more in _BATCHES[:2] if pair.is_large else _BATCHES:
        try:
            given = positions.resized(case.original, pair.drawn, batch, [size + more for size in sizes])
        except NoResult:  # also of a convolution of a further input, whose positions nobody knows
            given = [sized(x, (batch, *x.shape[1:])) if x.dim() == rank else x for x in pair.drawn]
        _check_inputs(pair, given)
    try:
        _check_inputs(pair, [x[0] if x.dim() == rank else x for x in pair.drawn])
    except SpecError:
        return [OTHER_DIMENSIONS.format(rank)]
    return []


def _check_trailing(pair: Pair, case: Case, plan: ModulePlan, spec_draft: SpecDraft) -> list[str]:
    """Other numbers of dimensions in place of the rows, where the spec's module takes these."""
    allowed, own = plan.dimensions, len(next(iter(spec_draft.inputs.values())))
    more = [(2, 3)] if allowed.most is None else []
    try:
        for leading in [*more, *([()] if allowed.least < own else [])]:
            given = zip(pair.drawn, spec_draft.inputs.values(), strict=True)
            _check_inputs(pair, [_led(x, shape, leading, spec_draft) for x, shape in given])
    except SpecError:
        return [OTHER_DIMENSIONS.format(case.inputs[0].dim())]
    return []


def _led(x: Tensor, shape: list[int | str], leading: tuple[int, ...], spec_draft: SpecDraft) -> Tensor:
    """An input with other dimensions of rows, if it has the rows."""
    if shape[:1] != spec_draft.rows[:1]:
        return x
    index = torch.arange(math.prod(leading)) % x.shape[0]
    return x[index].reshape(*leading, *x.shape[1:])


def _check_shape(pair: Pair, spec_draft: SpecDraft, leading: tuple[int, ...]) -> None:
    given = zip(pair.drawn, spec_draft.inputs.values(), strict=True)
    _check_inputs(pair, [with_rows(x, leading) if has_rows(shape, spec_draft) else x for x, shape in given])


def _check_inputs(pair: Pair, inputs: list[Tensor]) -> None:
    try:
        pair.differs([(inputs, True), (inputs, False)], refusing=True)
    except Differs as difference:
        message = f"the spec's {difference}, at inputs of shape {list(inputs[0].shape)}"
        raise refusal("FG708", message, None, _BY_ROWS) from None
