"""A module and the one of its imported spec, in double precision with one state: output, gradients, running statistics.

What is compared has to show something: each of these has to be finite once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fusegen.errors import SpecError
from fusegen.importing.checks.dropout_pattern import DropsByPattern, InDouble
from fusegen.importing.checks.state import unchanged
from fusegen.importing.traces.source_locations import of_error, refusal
from fusegen.importing.traces.trace import forward_of
from fusegen.verify.judgement.policy import error
from fusegen.verify.subjects.subject import spread_out

# What rounding may leave: PyTorch's hardswish has a sixth as a float, in double precision too. Another eps, factor or
# formula leaves far more.
_LIMIT = 1e-7
# A gradient that cancels to nothing is as accurate as the others are large.
_CANCELLED = 1e-3
# Parameters of a module that is compared once in each mode.
_LARGE = 2**22
_WRONG = "the import is wrong, or the module does what its trace does not show; no spec was written"
_NOTHING = "give an example, or parameters, with which the module has finite results and gradients"

Results = dict[str, Tensor]


class Differs(Exception):
    """What differs, in words."""


class Pair:
    """original: as it is; a copy is compared. fused: the spec's module, which is taken over. Raises SpecError where
    their states differ in names."""

    def __init__(self, original: nn.Module, fused: nn.Module, inputs: Sequence[Tensor]) -> None:
        ours, theirs = fused.state_dict(), original.state_dict()
        alone = ours.keys() ^ theirs.keys()
        if alone:
            raise refusal("FG708", f"the state_dict has {', '.join(sorted(alone))} on one side alone")
        other = sorted(name for name, tensor in theirs.items() if tensor.shape != ours[name].shape)
        if other:
            raise refusal("FG708", f"{', '.join(other)} of the state_dict has another shape")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.original = copy.deepcopy(original).cpu().double()
            spread_out(self.original)
            self.given = [_doubled(x.detach().cpu()) for x in inputs]
            self.drawn = [torch.randn_like(x) * 2 if x.is_floating_point() else x for x in self.given]
        self.fused = fused.double()
        self.fused.load_state_dict(self.original.state_dict())
        self.is_large = sum(parameter.numel() for parameter in original.parameters()) > _LARGE

    def check(self, scales: Iterable[float] = (), *, again: bool = False) -> None:
        """Raises SpecError for a difference. scales: of further comparisons with inputs and parameters of that size.
        again: that once in each mode is enough."""
        runs = [(self.given, True), (self.drawn, False), (self.drawn, True), (self.given, False)]
        try:
            seen = self.differs(runs[:2] if self.is_large or again else runs)
            for scale in () if self.is_large else scales:
                self._scale(scale)
                seen |= self.differs([(self.drawn, True), (self.drawn, False)])
            self._check_seen(seen)
        except Differs as difference:
            raise refusal("FG708", f"the spec's {difference}", forward_of(self.original), _WRONG) from None

    def _check_seen(self, seen: set[str]) -> None:
        """Once more where no output or gradient was finite: with positive numbers, which have logarithms and roots."""
        wanted = {f"gradient of {name}" for name, _ in self.original.named_parameters()}
        wanted |= {name for name in seen if name.startswith("output")} or {"output"}
        if wanted <= seen:
            return
        with torch.no_grad():
            for parameter in self.original.parameters():
                parameter.abs_()
        self.fused.load_state_dict(self.original.state_dict())
        seen = seen | self.differs([([x.abs() for x in self.drawn], training) for training in (True, False)])
        for name in sorted(wanted - seen):
            where = forward_of(self.original)
            raise refusal("FG708", f"the comparison shows nothing: the {name} is not finite", where, _NOTHING)

    def differs(self, runs: Iterable[tuple[Sequence[Tensor], bool]], *, refusing: bool = False) -> set[str]:
        """What was finite. runs: inputs, and whether in training. refusing: whether those are left out that the
        original refuses; otherwise it raises SpecError for them. Raises Differs."""
        seen: set[str] = set()
        for inputs, training in runs:
            try:
                theirs = self._theirs(inputs, training)
            except SpecError as refused:
                if not refusing or refused.diagnostics[0].code != "FG701":
                    raise
                self.fused.load_state_dict(self.original.state_dict())
                continue
            try:
                ours = run(self.fused, inputs, training)
            except Exception as error:
                raise Differs(f"module raises {type(error).__name__}: {error}"[:250]) from None
            _compare(theirs, ours, "training" if training else "evaluation")
            seen |= {name for name, value in theirs.items() if bool(torch.isfinite(value).all())}
        return seen

    def _theirs(self, inputs: Sequence[Tensor], training: bool) -> Results:
        self.original.train(training)
        try:
            with unchanged(self.original):
                return run(self.original, inputs, training)
        except SpecError:
            raise
        except Exception as error:
            message = f"the module raises {type(error).__name__} in double precision: {error}"
            raise refusal("FG701", message[:300], of_error(error)) from None

    def _scale(self, scale: float) -> None:
        """Small numbers show the eps of a norm."""
        with torch.no_grad():
            for module in (self.original, self.fused):
                for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                    if tensor.is_floating_point():
                        tensor.copy_(_sized(tensor, scale * scale if name.endswith("running_var") else scale))
        self.drawn = [_sized(x, scale) if x.is_floating_point() else x for x in self.drawn]


def _doubled(x: Tensor) -> Tensor:
    """In double precision, but for masks and numbers of channels."""
    return x.double() if x.is_floating_point() else x


def _sized(x: Tensor, scale: float) -> Tensor:
    largest = float(x.abs().max()) if x.numel() else 0.0
    return x * (scale / largest) if largest else x


def run(module: nn.Module, inputs: Sequence[Tensor], training: bool) -> Results:
    """What a call and its backward pass give, by name."""
    module.train(training).zero_grad(set_to_none=True)
    given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    with InDouble(), DropsByPattern():
        output = module(*given)
    several = isinstance(output, tuple | list)
    outputs = list(output) if several else [output]
    if not outputs or not all(isinstance(each, Tensor) for each in outputs):
        raise refusal("FG705", "forward returns something else than tensors")
    total: Tensor | float = 0.0
    for index, each in enumerate(outputs):
        weights = torch.linspace(-1, 1, each.numel(), dtype=each.dtype).view_as(each).sin() + 0.3 + index
        total = total + (each * weights).sum() if each.requires_grad else total
    if isinstance(total, Tensor):
        total.backward()
    found = {f"output {index}" if several else "output": each.detach() for index, each in enumerate(outputs)}
    paths = getattr(module, "_fusegen_paths", {})
    gradients = [*((f"input {index}", x) for index, x in enumerate(given)), *named(module.named_parameters(), paths)]
    for name, tensor in gradients:
        if tensor.is_floating_point():
            found[f"gradient of {name}"] = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return found | {name: buffer.clone() for name, buffer in named(module.named_buffers(), paths)}


def named(tensors: Iterable[tuple[str, Tensor]], paths: Mapping[str, str]) -> Iterator[tuple[str, Tensor]]:
    """Tensors with the names of the original. paths: what these are where they are others."""
    for name, tensor in tensors:
        own, dot, key = name.partition(".")
        yield f"{paths.get(own, own)}{dot}{key}", tensor


def _compare(theirs: Results, ours: Results, mode: str) -> None:
    gradients = [x for name, x in theirs.items() if name.startswith("gradient") and x.numel()]
    largest = max((float(x.abs().nan_to_num(posinf=0.0).max()) for x in gradients), default=0.0)
    for name, exact in theirs.items():
        terms = torch.tensor(largest * _CANCELLED) if name.startswith("gradient") else None
        found = error(ours[name], exact, terms)
        if not max(found.largest, found.norm) <= _LIMIT:
            raise Differs(f"{name} is another one in {mode}: off by {found.largest:.1e}")
        if not _same_infinities(ours[name], exact):
            raise Differs(f"{name} is another one in {mode}: it is not finite elsewhere, or with another sign")


def _same_infinities(ours: Tensor, theirs: Tensor) -> bool:
    finite = torch.isfinite(theirs)
    return bool(torch.equal(ours[~finite].nan_to_num(nan=0.0), theirs[~finite].nan_to_num(nan=0.0))) and bool(
        torch.equal(ours.isnan(), theirs.isnan())
    )
