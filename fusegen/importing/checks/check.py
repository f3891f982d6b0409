"""Whether an imported spec is its module: compared in double precision, at other sizes, values and dtypes.

What is different is an error. Of some arguments the module makes more than the spec has: they are to be numbers there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import SpecError
from fusegen.importing.checks.cases import Case, alike, constructed, has_rows, with_leading
from fusegen.importing.checks.pairs import Pair
from fusegen.importing.checks.spec_module import reference_class
from fusegen.importing.checks.state import check_state
from fusegen.importing.checks.variants import check_variants
from fusegen.importing.checks.variations import NotMade, Variations
from fusegen.importing.drafts.spec_draft import SpecDraft
from fusegen.importing.traces.arguments import Arguments
from fusegen.plan.modules.module import ModulePlan
from fusegen.progress import tell

# Rows of a comparison: the chain is the same for all.
_ROWS = 16
_FEW = 3
# Norms whose eps is made to show, from the least on.
_MOST_EPS = 4
_LESS = 1e-3
# Parameters from which a comparison at the example's sizes takes gigabytes: some 40 bytes for each.
_HUGE = 2**27
FIXED_ROWS = "It works for {} rows alone: a view, a parameter or a len() of the module has that number."
SAME_SIZES = "It was compared at one {} alone, as the example has it: the original takes no other."
OTHER_SIZES = "It was compared at other sizes alone: at the example's, the comparison takes gigabytes."
UNKNOWN_VALUES = "How its parameters begin is not known without the constructor's arguments: load a state_dict."
OTHER_VALUES = "Its parameters begin with other values than the original's: load that one's state_dict."


class NotFollowed(Exception):
    """names: of arguments and attributes that the module makes more of than the spec: they are to be fixed numbers."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


def compare(plan: ModulePlan, spec_draft: SpecDraft, arguments: Arguments) -> list[str]:
    """Remarks for those who read the spec. Raises SpecError for a difference, and NotFollowed."""
    rows = next(iter(spec_draft.inputs.values()))[0]
    remarks = [FIXED_ROWS.format(rows)] if isinstance(rows, int) else []
    with reference_class(plan) as cls, _few_threads(arguments.module):
        example = Case(spec_draft.dims, _few(arguments.inputs, spec_draft), arguments.module)
        values = constructed(spec_draft, arguments, spec_draft.dims)
        check_state(arguments.module, example.inputs)
        tell("modes and dtypes")
        with torch.device("meta"):
            without_data = cls(**values)
        remarks += check_variants(arguments.module, without_data, example.inputs)
        varied, scales = Variations(cls, plan, spec_draft, arguments, example), _scales(spec_draft, values)
        is_huge = sum(parameter.numel() for parameter in arguments.module.parameters()) >= _HUGE
        cases = varied.sizes() if is_huge else []
        if cases:
            remarks.append(OTHER_SIZES)
        else:
            tell("the example")
            Pair(arguments.module, cls(**values), example.inputs).check(scales=scales)
            scales = []
        _check_followed(varied.decided())
        cases = cases or varied.sizes()
        small = cases[0] if cases else example
        for index, case in enumerate(cases, 1):
            tell(f"other sizes, {index} of {len(cases)}")
            try:
                Pair(case.original, varied.fused(case), case.inputs).check(scales=scales, again=not scales)
            except (SpecError, NotMade) as error:
                if isinstance(error, SpecError) and error.diagnostics[0].code != "FG708":
                    raise
                raise NotFollowed(varied.unlike_sizes()) from None
        tell("other values of arguments")
        _check_followed(varied.unlike(small))
        tell("other rows")
        remarks += varied.check_rows(small)
        small_values = constructed(spec_draft, arguments, small.dims)
        if arguments.constructor is None:
            drawn = any(draft.data.get("init") in ("rand", "randn") for draft in spec_draft.chain)
            return [*remarks, *([UNKNOWN_VALUES] if drawn else [])]
        same = [name for name in varied.free if all(case.dims[name] == spec_draft.dims[name] for case in cases)]
        remarks += [SAME_SIZES.format(" and one ".join(same))] if same else []
        original = small.original if cases else arguments.constructor.instance()
        return remarks + _beginnings(original, cls, small_values)


@contextmanager
def _few_threads(module: nn.Module) -> Iterator[None]:
    """One for a small module: it would spend its time on having more."""
    before = torch.get_num_threads()
    if sum(parameter.numel() for parameter in module.parameters()) < 2**20:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_followed(names: set[str]) -> None:
    if names:
        raise NotFollowed(names)


def _scales(spec_draft: SpecDraft, values: dict[str, Any]) -> list[float]:
    """The sizes of numbers at which each eps of a norm shows."""
    found = [(draft.data["op"], draft.data["eps"]) for draft in spec_draft.chain if draft.data.get("eps") is not None]
    numbers = [(op, float(values.get(each, each))) for op, each in found]
    # That of normalize is no part of a square, and shows where the norm of all channels is less.
    scales = {each * _LESS if op == "normalize" else each**0.5 for op, each in numbers if each > 0}
    return sorted(scales)[:_MOST_EPS]


def _beginnings(original: nn.Module, cls: type[nn.Module], values: dict[str, Any]) -> list[str]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fused = cls(**values)
    return [] if alike(original, fused) == original.state_dict().keys() else [OTHER_VALUES]


def _few(inputs: Sequence[Tensor], spec_draft: SpecDraft) -> list[Tensor]:
    """The inputs with few rows, where the number of rows is free."""
    rows = spec_draft.rows[0]
    given = list(zip(inputs, spec_draft.inputs.values(), strict=True))
    if spec_draft.spread:
        few = {str(size): _FEW for size in spec_draft.rows}
        return [with_leading(x, shape, few) for x, shape in given]
    if (
        isinstance(rows, int)
        or rows in spec_draft.arguments
        or len(spec_draft.inputs[next(iter(spec_draft.inputs))]) > 2
    ):
        return list(inputs)
    return [x[:_ROWS] if has_rows(shape, spec_draft) else x for x, shape in given]
