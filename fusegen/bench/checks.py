"""Whether what is about to be timed computes the chain at all.

The fused module is held to the policy of `fusegen verify`. A peer is no module under test, but one that computes
something else would make the comparison worthless; it gets several times the room.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.bench.names import EVAL
from fusegen.verify.checks.compared import compare_module, compare_runs
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.reference import Reference, reference
from fusegen.verify.runs.concat_outputs import ConcatOutputs
from fusegen.verify.runs.run import Run, draw_gradient, run, runs_in_other_formats

PEER_FACTOR = 8.0
# A CUDA graph is recorded at the second call and replayed from the third on.
CALLS_OF_A_PEER = 3
_COMPILED_PREFIX, _BESIDE_PREFIX = "_orig_mod.", "apart."


class Checks:
    """One configuration's data, its eager results and its results in double precision, for as long as it is checked.

    modes: which are timed, of bench/names.py. dtype: what the computation rounds to.
    """

    def __init__(
        self, original: nn.Module, inputs: Sequence[Tensor], modes: Sequence[str], dtype: torch.dtype, seed: int
    ) -> None:
        self.original, self.inputs, self.dtype, self.seed = original, inputs, dtype, seed
        self.exact: dict[bool, tuple[Tensor, Reference]] = {}
        for train in dict.fromkeys(mode != EVAL for mode in modes):
            grad = draw_gradient(original, inputs, train=train, seed=seed)
            self.exact[train] = grad, reference(original, inputs, grad, train=train)

    def fused(self, module: nn.Module) -> list[str]:
        """What is wrong about the fused module: output, gradients and running statistics, as `fusegen verify` does."""
        wrong = []
        for train, (grad, exact) in self.exact.items():
            found = compare_module(
                module,
                self.original,
                self.inputs,
                grad_output=grad,
                dtype=self.dtype,
                train=train,
                seed=self.seed,
                exact=exact,
            )
            wrong += [_described(item, train) for item in found if not item.ok]
        return wrong

    def peer(self, module: nn.Module, *, graphs: bool) -> list[str]:
        """What is wrong about a peer. Evaluates without gradients, as it is timed: nothing else has to be compiled."""
        wrong = []
        if getattr(type(self.original), "is_joined", False):
            module = ConcatOutputs(module)
        for train, (grad, exact) in self.exact.items():
            with torch.set_grad_enabled(train):
                eager = run(self.original, self.inputs, grad, train=train)
                also = runs_in_other_formats(self.original, self.inputs, grad, train=train)
                for _ in range(CALLS_OF_A_PEER):
                    if graphs:
                        torch.compiler.cudagraph_mark_step_begin()
                    found = run(module, self.inputs, grad, train=train)
            for item in compare_runs(_kept(found), eager, exact, self.dtype, also):
                if not item.ok and not _roughly(item):
                    wrong.append(_described(item, train))
        return wrong


def _kept(found: Run) -> Run:
    """With the original's names, and in memory that no CUDA graph writes to again."""

    def plain(name: str) -> str:
        return name.removeprefix(_BESIDE_PREFIX).removeprefix(_COMPILED_PREFIX)

    gradients = {plain(name): None if grad is None else grad.clone() for name, grad in found.gradients.items()}
    buffers = {plain(name): value for name, value in found.buffers.items()}
    return Run(found.output.clone(), gradients, buffers)


def _roughly(item: Comparison) -> bool:
    if not item.bound.largest:
        return False  # a statement: shapes, dtypes, which gradients there are
    pairs = ((item.fused.largest, item.bound.largest), (item.fused.norm, item.bound.norm))
    return all(error <= PEER_FACTOR * limit for error, limit in pairs)


def _described(item: Comparison, train: bool) -> str:
    figures = f" {item.fused.largest:.1e} of at most {item.bound.largest:.1e}" if item.bound.largest else ""
    note = f" ({item.note})" if item.note else ""
    return f"{item.name}{figures}{note} in {'training' if train else 'evaluation'}"
