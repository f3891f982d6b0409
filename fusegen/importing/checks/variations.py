"""An imported spec beside its module at other sizes, numbers of rows and dimensions, and values of its arguments."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing.checks.branch_tracer import BranchTracer, TracedSizes, decided
from fusegen.importing.checks.cases import Case, alike, constructed, others, resized
from fusegen.importing.checks.pairs import Differs, Pair
from fusegen.importing.checks.rows import check_rows
from fusegen.importing.checks.variants import differ_by
from fusegen.importing.drafts.spec_draft import SpecDraft
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.positions import NoResult
from fusegen.importing.traces.trace import constant_momentum
from fusegen.plan.modules.module import ModulePlan

# Of sizes that are arguments: in turn, and the divisor of how large they are at first.
_SIZES: tuple[tuple[Callable[[int], int], ...], ...] = (
    (lambda size: size * 2, lambda size: size // 2),
    (lambda size: size + 1,),
    (lambda size: size // 2,),
    (lambda size: size * 3, lambda size: size * 2),
    (lambda size: size * 2,),
    (lambda size: size * 3,),
)
# Sizes are first made smaller than that.
_SMALL = 512
_SMALL_CHANNELS = 64  # of a convolution, which multiplies each pair of them at each position
# Other sizes, and other values of an argument, that have to be compared.
_ENOUGH = 2
# And of an argument that are enough.
_MANY = 4


class NotMade(Exception):
    """The spec's module cannot be made of sizes that the original takes."""


class Variations:
    """cls: the spec's module. example: the case that was imported."""

    def __init__(
        self, cls: type[nn.Module], plan: ModulePlan, spec_draft: SpecDraft, arguments: Arguments, example: Case
    ) -> None:
        self.cls, self.plan, self.spec_draft, self.arguments, self.example = cls, plan, spec_draft, arguments, example
        self.constructor = arguments.constructor
        self._begun: tuple[Case, set[str]] | None = None

    @property
    def free(self) -> list[str]:
        """Sizes that are arguments."""
        return [name for name, each in self.spec_draft.arguments.items() if each["type"] == "dim"]

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers of the module that are arguments or attributes of the spec's."""
        given = self.constructor.values if self.constructor else {}
        kinds = {name: each for name, each in self.spec_draft.arguments.items() if each["type"] in ("int", "float")}
        found = {name: given[name] if name in given else each["default"] for name, each in kinds.items()}
        named = [draft.data for draft in self.spec_draft.chain if "constant" in draft.data and "name" in draft.data]
        return found | {data["name"]: data["constant"] for data in named}

    # Decisions

    def decided(self) -> set[str]:
        """Arguments and attributes by which the module decides what it computes."""
        numbers = self.numbers | {name: self.spec_draft.dims[name] for name in self.free}
        if not numbers:
            return set()
        return decided(lambda tracer: self._attempt(tracer, numbers), set(numbers))

    def _attempt(self, tracer: BranchTracer, numbers: dict[str, float]) -> None:
        dims = {name: self.spec_draft.dims[name] for name in self.free}
        sizes = {size: frozenset(name for name in dims if dims[name] == size) for size in dims.values()}
        watched = {name: tracer.number(name, value) for name, value in numbers.items()}
        for training in (True, False):
            module = self._without_data(watched).train(training)
            device = self.constructor.device if self.constructor else "meta"
            inputs = [torch.zeros(x.shape, dtype=x.dtype, device=device) for x in self.example.inputs]
            with constant_momentum(module), TracedSizes(tracer, sizes):
                module(*inputs)

    def _without_data(self, numbers: dict[str, Any]) -> nn.Module:
        """The original with these numbers, on PyTorch's device `meta` if it can be made there."""
        if self.constructor is None:
            original = self.arguments.module
            memo: dict[int, Any] = {id(x): x.detach().to("meta") for x in original.buffers()}
            memo |= {id(x): nn.Parameter(x.detach().to("meta"), x.requires_grad) for x in original.parameters()}
            module = copy.deepcopy(original, memo)
        else:
            own = {name: value for name, value in numbers.items() if name in self.constructor.values}
            module = self.constructor.instance(own, self.constructor.device)
            numbers = {name: value for name, value in numbers.items() if name not in own}
        vars(module).update(numbers)
        return module

    # Sizes

    def sizes(self) -> list[Case]:
        """Cases of other sizes that the original takes."""
        found: list[Case] = []
        if self.constructor is None or not self.free:
            return found
        most = max(self.spec_draft.dims[name] for name in self.free)
        small = _SMALL_CHANNELS if self.arguments.positions else _SMALL
        shrunk = 1 << max(0, (most // small).bit_length() - 1)
        # All together, and where one of them is that of positions too, each by itself.
        for names, divisor, change in itertools.product(
            (self.free, *([name] for name in self.free)), dict.fromkeys((shrunk, 1)), _SIZES
        ):
            changes = zip(names, itertools.cycle(change), strict=False)
            dims = {name: max(1, each(max(1, self.spec_draft.dims[name] // divisor))) for name, each in changes}
            case = self._case(self.spec_draft.dims | dims)
            if case is not None and all(case.dims != other.dims for other in found):
                found.append(case)
            if len(found) == _ENOUGH:
                break
        return found

    def _case(self, dims: dict[str, int]) -> Case | None:
        values = constructed(self.spec_draft, self.arguments, dims)
        own = {name: value for name, value in values.items() if name in self.constructor.values}  # type: ignore[union-attr]
        examples = zip(self.spec_draft.inputs.values(), self.example.inputs, strict=True)
        inputs = [resized(example, shape, dims, self.spec_draft) for shape, example in examples]
        try:
            original = self.constructor.instance(own)  # type: ignore[union-attr]
            copy.deepcopy(original).eval()(*inputs)
        except Exception:  # theirs to refuse: groups that do not divide, say
            return None
        return Case(dims, inputs, original)

    def unlike_sizes(self) -> set[str]:
        """Sizes from which other numbers of the module follow: all, if it takes no single one of them otherwise."""
        found = set()
        for name in self.free:
            changes = (change(self.spec_draft.dims[name]) for each in _SIZES for change in each)
            cases = (self._case(self.spec_draft.dims | {name: size}) for size in changes if size)
            case = next((each for each in cases if each is not None), None)
            try:
                if case is not None:
                    Pair(case.original, self.fused(case), case.inputs).check(again=True)
            except (SpecError, NotMade):
                found.add(name)
        return found or set(self.free)

    # Rows

    def check_rows(self, case: Case) -> list[str]:
        """Compares the modules of `case` at other numbers of rows; see `check_rows` of rows.py."""
        rows = next(iter(self.spec_draft.inputs.values()))[0]
        if isinstance(rows, int) or rows in self.spec_draft.arguments:
            return []
        pair = Pair(case.original, self.fused(case), case.inputs)
        return check_rows(pair, case, self.plan, self.spec_draft, self.arguments.positions)

    # Values of arguments

    def unlike(self, case: Case) -> set[str]:
        """Numbers of which the spec has not all that the module has."""
        return {name for name, value in self.numbers.items() if not self._follows(case, name, value)}

    def _follows(self, case: Case, name: str, value: float) -> bool:
        compared = 0
        usual: Pair | None = None
        whole = self.spec_draft.arguments.get(name, {}).get("type") == "int"
        options = [each for draft in self.spec_draft.chain for each in draft.options.items()]
        of_options = [key for key, entries in options if name in entries]
        # Of output_padding, PyTorch takes what is less than the stride.
        enough = 1 if "output_padding" in of_options else _ENOUGH
        least = (0 if all("padding" in key for key in of_options) else 1) if of_options else None
        for index, other in enumerate(others(value, whole, least)):
            try:
                pair = self._at(case, name, other)
                if pair is not None:
                    usual = usual or Pair(self._original(case), self.fused(case), case.inputs)
                    if not differ_by(usual, pair, (value, other)):
                        return False
                    seen = pair.differs([(pair.drawn, index % 2 == 0)], refusing=True)
                    compared += any(each.startswith("output") for each in seen)
            except Differs:
                return False
            if compared == _MANY:
                break
        return compared >= enough

    def _at(self, case: Case, name: str, value: float) -> Pair | None:
        """Both modules with another number; None where one refuses it. Raises Differs if a parameter does not begin
        with it."""
        try:
            original = self._original(case, name, value)
            fused = self.fused(case, **({name: value} if name in self.spec_draft.arguments else {}))
        except Exception:
            return None
        if name not in self.spec_draft.arguments:
            setattr(fused, name, value)
        if self.constructor is not None and name in self.constructor.values:
            other = sorted(self._alike(case) - alike(original, fused))
            if other:
                raise Differs(f"'{other[0]}' begins with other values")
        positions = self.arguments.positions
        try:
            inputs = positions.fitted(original, case.inputs) if positions else case.inputs
        except NoResult:
            return None
        return Pair(original, fused, inputs)

    def _alike(self, case: Case) -> set[str]:
        """The tensors that begin with the same values in both modules."""
        if self._begun is None or self._begun[0] is not case:
            self._begun = case, alike(self._original(case), self.fused(case))
        return self._begun[1]

    def _original(self, case: Case, name: str = "", value: float = 0.0) -> nn.Module:
        if self.constructor is not None and (not name or name in self.constructor.values):
            values = constructed(self.spec_draft, self.arguments, case.dims) | ({name: value} if name else {})
            return self.constructor.instance({each: v for each, v in values.items() if each in self.constructor.values})
        original = copy.deepcopy(case.original)
        setattr(original, name, value)
        return original

    def fused(self, case: Case, **values: float) -> nn.Module:
        """The spec's module at the sizes of a case. values: of its arguments that are other ones. Raises NotMade."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                return self.cls(**{**constructed(self.spec_draft, self.arguments, case.dims), **values})
            except Exception as error:  # PyTorch's, of many kinds: a number of groups that divides no more
                raise NotMade from error
