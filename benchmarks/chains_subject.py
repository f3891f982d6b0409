"""One chain of tests/chains/*.yaml on a GPU: opened, verified at small sizes, its calls at full size."""

from __future__ import annotations

import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.bench.clock import Clock
from fusegen.bench.names import TYPICAL
from fusegen.bench.peers import make_peer
from fusegen.bench.rounds import Spread
from fusegen.bench.shapes import sizes_of
from fusegen.bench.work import Call
from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import LARGE, SMALL
from fusegen.verify.runs.concat_outputs import separate_outputs
from fusegen.verify.runs.dropout_replay import Replayed
from fusegen.verify.subjects.packages import open_subject
from fusegen.verify.subjects.subject import Subject
from fusegen.verify.suite import Suite

FORWARD, STEP = "forward", "step"
FUSED = "fused"
# Peers that are compiled in processes beside each other. max-autotune is not: it measures when it compiles.
CACHED = ("eager", "compile")
# Sizes at which there is a result in double precision.
SHAPES = (*SMALL[:4], *LARGE[:2])
# Of the norm of a result at full size, by the bytes of an element: how far the fused module may be from what IEEE
# float32 gives, where eager is nearer. Products round to TF32 or bfloat16; a wrong formula is much farther.
ROOM = {4: 5e-3, 2: 5e-2}
# Both round: one may be so many times as far as the other by chance.
_BY_CHANCE = 1.5
_WARM_UP = 3
_SETTLING, _LEAST_ROUNDS, _MOST_ROUNDS = 2, 5, 15
_BUDGET_MS = 400.0
# The GPU rests after a call, in proportion to it: products that follow each other lower its clocks.
_REST, _LONGEST_REST_S = 2.0, 0.1


def opened(name: str, work: Path) -> Subject:
    """The package of a chain, built below `work`."""
    plan = planned_file(work / "specs" / f"{name}.yaml")
    return open_subject(plan, work / "generated", device="cuda", cache=work)


def modes_of(plan: ModulePlan) -> list[Mode]:
    """The dtype configurations outside of autocast."""
    return [mode for mode in plan.modes if mode.plain and mode.roles["activation"] != "float64"]


def verified(subject: Subject) -> tuple[Counter[str], Counter[str], list[str]]:
    """Comparisons with double precision by dtype, those that failed, and what these were."""
    suite = Suite(subject)
    made, failed, notes = Counter[str](), Counter[str](), list[str]()
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        for mode in suite.modes():
            dtype = mode.roles["activation"]
            for finding in suite.numerics(mode, SHAPES):
                made[dtype] += 1
                if not finding.item.ok:
                    failed[dtype] += 1
                    notes.append(f"{finding.shape} {finding.dtypes} {finding.mode} {finding.item.name}")
    return made, failed, notes


@dataclass(frozen=True)
class Pair:
    """Both modules of a chain at full size with the same state, and what a call takes."""

    fused: nn.Module
    eager: nn.Module
    inputs: list[Tensor]
    grads: list[Tensor]

    def call(self, module: nn.Module, what: str) -> Call:
        """A forward pass in evaluation, or a training step's forward and backward pass."""
        wanted = [t for t in (*self.inputs, *module.parameters()) if t.requires_grad]

        def forward() -> Any:
            with torch.no_grad():
                return module(*self.inputs)

        def step() -> Any:
            return torch.autograd.grad(results(module(*self.inputs)), wanted, self.grads, allow_unused=True)

        module.train(what == STEP)
        return step if what == STEP else forward

    def differences(self) -> list[str]:
        """Where the fused module is farther than eager, and far, from what PyTorch gives in IEEE float32 at full size:
        results in evaluation, and gradients of the inputs and of weights in training, unless something is dropped."""
        wrong = []
        exact = self._in_float32()
        whats = [FORWARD] if getattr(type(self.fused), "_fusegen_dropouts", None) else [FORWARD, STEP]
        for what in whats:
            found = [results(self.call(module, what)()) for module in (self.fused, self.eager)]
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                found.append(results(exact.call(exact.eager, what)()))
            name = "result" if what == FORWARD else "gradient"
            for index, (mine, theirs, true) in enumerate(zip(*found, strict=True)):
                if mine is None or theirs is None or (what == STEP and theirs.dim() < 2):
                    continue
                far, other = _distance(mine, true), _distance(theirs, true)
                if not far <= max(ROOM[theirs.element_size()], _BY_CHANCE * other):
                    wrong.append(f"{name} {index} at full size: {far:.1e} from IEEE float32, eager {other:.1e}")
        return wrong

    def _in_float32(self) -> Pair:
        """The same values in float32."""
        module = copy.deepcopy(self.eager).float()
        inputs = [
            x.detach().float().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in self.inputs
        ]
        return Pair(module, module, inputs, [each.float() for each in self.grads])


def _distance(found: Tensor, true: Tensor) -> float:
    """Of the norm of what is true."""
    far, size = (float(torch.linalg.vector_norm(each.float())) for each in (found - true, true))
    return far / size if size else far


def results(found: Any) -> tuple[Tensor, ...]:
    """Of a module with one result or several."""
    return found if isinstance(found, tuple) else (found,)


def pair(subject: Subject, mode: Mode, size: str = TYPICAL) -> Pair:
    """As users have them, at full size or at `size`, as sizes_of() has it: with results apart from each other, and
    dropouts that draw for themselves."""
    fused, eager, inputs = subject.pair(sizes_of(subject.plan, size), mode, 0)
    fused, eager = separate_outputs(fused), separate_outputs(eager)
    subject.fix_targets((fused, eager), inputs)
    for each in eager.modules():
        if isinstance(each, Replayed):
            each.factors = False
    fused.fusegen_strict = True
    with torch.no_grad():
        grads = [torch.randn_like(each) for each in results(eager.eval()(*inputs))]
    return Pair(fused, eager, inputs, grads)


def subjects_of(
    found: Pair, problems: list[str], peers: Sequence[str], backend: str | None = None
) -> dict[str, nn.Module]:
    """The fused module and its peers. Those that cannot be made are told. backend: as make_peer() has it."""
    made = {FUSED: found.fused}
    for name in peers:
        try:
            made[name] = make_peer(name, found.eager, backend)
            for what in (FORWARD, STEP):
                found.call(made[name], what)()
        except Exception as problem:  # whatever a compiler may raise
            made.pop(name, None)
            problems.append(f"{name}: {type(problem).__name__}: {problem}"[:200])
    return made


def times(clock: Clock, calls: Mapping[str, Call], rest: Callable[[float], None] = time.sleep) -> dict[str, Spread]:
    """Milliseconds of each call: one of every subject in a round, in another order each time."""
    delays = {}
    for name, call in calls.items():
        for _ in range(_WARM_UP):
            delays[name] = 2 * clock.issue_us(call)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, rounds, done = list(calls), _SETTLING + _LEAST_ROUNDS, 0
    shuffled = random.Random(0)
    while done < rounds:
        for name in order:
            taken = clock.enqueue(calls[name], delays[name])
            clock.synchronise()
            samples[name].append(taken())
            rest(min(_REST * samples[name][-1] * 1e-3, _LONGEST_REST_S))
        done += 1
        if done == _SETTLING:
            slowest = max(values[-1] for values in samples.values())
            rounds = _SETTLING + int(min(max(_BUDGET_MS / slowest, _LEAST_ROUNDS), _MOST_ROUNDS))
        shuffled.shuffle(order)
    return {name: Spread.of(values[_SETTLING:]) for name, values in samples.items()}


def ratio(found: Mapping[str, float]) -> float | None:
    """The fused module's time over that of the fastest peer."""
    peers = [value for name, value in found.items() if name != FUSED]
    return found[FUSED] / min(peers) if peers and FUSED in found else None
