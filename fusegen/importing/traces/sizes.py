"""What a trace takes for granted of the sizes of inputs: nothing, or it is refused.

torch.export writes one graph for all sizes that meet the conditions which it came across. A chain has no conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram

from fusegen.importing.traces.source_locations import SourceLine, is_theirs, refusal

# torch.export takes sizes of 0 and 1 for numbers: all others are at least this.
_LEAST = 2
# Sizes at which a condition of PyTorch's own has to hold, for each symbol, beside the numbers that it has itself.
_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 32, 33, 63, 64, 100, 1023, 4096)
_MOST_CASES = 400
_ROWS = "a chain is the same for any number of rows"


def check_conditions(exported: ExportedProgram, inputs: Mapping[str, Sequence[Any]], spatial: int = 0) -> bool:
    """Whether PyTorch's operators take any number of rows. inputs: the sizes of each, by its name. spatial: dimensions
    of positions that there are behind the channels.

    Raises SpecError where the module itself makes a difference between sizes.
    """
    for name, sizes in inputs.items():
        symbols = [str(size) for size in sizes if isinstance(size, torch.SymInt) and not str(size).isdecimal()]
        if len(set(symbols)) < len(symbols):
            hint = "give an example of which all sizes are different"
            raise refusal("FG701", f"two dimensions of the input '{name}' have to be of one size", None, hint)
    environment = _environment(inputs)
    if environment is None:
        return True
    channels = str(next(iter(inputs.values()))[1 if spatial else -1])
    # Of positions, PyTorch's convolution takes what it takes in the spec's module too.
    positions = {str(size) for sizes in inputs.values() for size in sizes[2:]} if spatial else set()
    assumed: list[Any] = []
    wanted: list[Any] = []
    for guard in environment.guards:
        condition = _replaced(guard.expr, environment.replacements)
        place = _place(guard.sloc)
        if condition.free_symbols and place is not None:
            raise refusal("FG702", "control flow that depends on the sizes of inputs", place, _ROWS)
        if {str(each) for each in condition.free_symbols} & positions:
            continue
        of_channels = {str(each) for each in condition.free_symbols} <= {channels}
        (assumed if of_channels else wanted).append(condition)
    for symbol, bounds in exported.range_constraints.items():
        if str(symbol) in positions:
            continue
        if bounds.lower > _LEAST or bounds.upper < 2**31:
            raise refusal("FG702", f"the module works for sizes in {bounds} alone", None, _ROWS)
    return all(_holds(condition, assumed) for condition in wanted)


def _environment(inputs: Mapping[str, Sequence[Any]]) -> Any:
    """Of the symbols; None where all sizes are numbers."""
    symbols = (size for sizes in inputs.values() for size in sizes if isinstance(size, torch.SymInt))
    return next((size.node.shape_env for size in symbols if not str(size).isdecimal()), None)


def _replaced(condition: Any, known: Mapping[Any, Any]) -> Any:
    """With what the trace learnt of symbols: that they are other ones, or numbers."""
    for _ in range(len(known) + 1):
        condition = condition.xreplace(dict(known))
    return sympy.sympify(condition)


def _holds(condition: Any, assumed: Sequence[Any]) -> bool:
    """Whether a condition of PyTorch's operators holds at many sizes.

    assumed: those of channels alone, such as that groups divide them, which the spec's module has too. That a size is
    not some is none: they look for what is done at once, and do the same otherwise.
    """
    if isinstance(condition, sympy.Ne):
        return True
    for case in itertools.islice(_cases(condition), _MOST_CASES):
        if condition.xreplace(case) == sympy.false and all(each.xreplace(case) != sympy.false for each in assumed):
            return False
    return True


def _cases(condition: Any) -> Iterator[dict[Any, Any]]:
    symbols = sorted(condition.free_symbols, key=str)
    numbers = {int(each) for each in condition.atoms(sympy.Integer)}
    near = sorted({each for number in numbers for each in (number, number + 1) if _LEAST <= each < 2**20})
    sizes = [*near[:8], *_SIZES] if len(symbols) < 3 else [*near[:3], *_SIZES[:5]]
    for case in itertools.product(sizes, repeat=len(symbols)):
        yield dict(zip(symbols, map(sympy.Integer, case), strict=True))


def _place(where: Any) -> SourceLine | None:
    """The user's line that a condition comes from, if it does."""
    for frame in (getattr(where, "maybe_user_loc", None), getattr(where, "framework_loc", None)):
        file, line = getattr(frame, "filename", None), getattr(frame, "lineno", None)
        if isinstance(file, str) and is_theirs(file):
            return SourceLine(file, line or 1)
    return None
