"""Every program is run beside its graph when it is planned: a plan that computes anything else is an internal error.

Faults are planted in plans that are right, and each must be found.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from fusegen.errors import InternalError
from fusegen.ir import rewrites
from fusegen.ir.affine import Form
from fusegen.ir.axes import CHANNEL, ROW, Axes
from fusegen.plan.load import plan_document
from fusegen.plan.modules import plan
from fusegen.plan.programs.model import Program, Tensor
from fusegen.plan.programs.passes import Passes
from fusegen.plan.programs.phases import PhaseAnalysis
from fusegen.plan.proofs.proof import prove, prove_saved
from fusegen.plan.schedules.folding import Folding
from fusegen.spec.yaml import parse_yaml
from tests.plan.planning import LINEAR, ROOT, planned

CHAINS = {
    "rows": ("op: layer_norm, name: ln", "op: softmax, dim: 1"),
    "columns": (LINEAR, "op: batch_norm, name: bn", "op: mish"),
    "columns_then_rows": ("op: batch_norm, name: bn", "op: gelu", "op: rms_norm, name: norm"),
    "rows_then_columns": ("op: layer_norm, name: ln", "op: silu", "op: batch_norm, name: bn"),
    "groups": (
        LINEAR,
        "op: group_norm, name: gn, num_groups: 2",
        "op: mish",
        "op: add, parameter: p, shape: [1], init: randn",
    ),
    "one_group": (LINEAR, "op: group_norm, name: gn, num_groups: 1", "op: silu"),
    "groups_then_rows": ("op: tanh", "op: group_norm, name: gn, num_groups: 4", "op: mish", "op: softmax, dim: 1"),
    "symbolic_groups": ("op: layer_norm, name: ln, width: 4", "op: silu"),
    "largest": (
        *("op: tanh, save: v", "op: max, dim: 1, keepdim: true", "op: add, value: v"),
        "op: amax, dim: 1, keepdim: true",
    ),
    "values": ("op: tanh, save: v", "op: std, keepdim: true", "op: mul, value: v", "op: amin, dim: 1, keepdim: true"),
    "dropout": ("op: dropout, name: drop, p: 0.25", "op: drop_path, name: path, p: 0.5", "op: layer_norm, name: ln"),
}
IMAGES = {
    "groups_of_samples": (
        *("op: group_norm, name: gn, num_groups: 2", "op: mul, input: gate", "op: silu"),
        *("op: batch_norm, name: bn", "op: layer_norm, name: ln, dim: 1", "op: mean, dim: [2, 3], keepdim: false"),
    ),
    # Of one row the norms are zero, so that all channels are the largest, and none is positive.
    "equal_elements": (
        *("op: layer_norm, name: ln, dim: 1", "op: instance_norm, name: norm", "op: relu, save: v", "op: tanh"),
        *("op: batch_norm, name: bn, affine: false, track_running_stats: false", "op: relu", "op: add, value: v"),
        "op: amax, dim: 1, keepdim: true",
    ),
}
IMAGE = """\
fusegen: 1
name: demo
dims: {batch: 4, c: 8, h: 6, w: 5}
arguments: {c: {type: dim}}
inputs: {x: [batch, c, h, w]%s}
chain:
"""


def programs(directory, name: str) -> list[Program]:
    if name in CHAINS:
        return planned(directory, *CHAINS[name]).programs
    steps = "".join(f"  - {{{step}}}\n" for step in IMAGES[name])
    text = IMAGE % (", gate: [batch, c, 1, 1]" if "gate" in steps else "")
    return plan_document(parse_yaml(text + steps, "demo.yaml")).programs


def wrong(program: Program, outputs: tuple[Tensor, ...] | None = None) -> str:
    """What the check says of a program that does not compute `outputs`; empty if it says nothing."""
    try:
        prove(program, outputs or program.outputs)
    except InternalError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=[*CHAINS, *IMAGES])
def chain(request, tmp_path_factory) -> list[Program]:
    return programs(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def all_programs(tmp_path_factory) -> list[Program]:
    return [program for name in (*CHAINS, *IMAGES) for program in programs(tmp_path_factory.mktemp(name), name)]


def test_plans_are_right(chain: list[Program]) -> None:
    assert not any(wrong(program) for program in chain)


def test_values_kept_behind_sums_of_what_is_not_read_again(tmp_path) -> None:
    """The backward pass keeps a slope, and its elements need sums of r, which the first pass alone reads."""
    norms = [f"op: group_norm, name: {name}, num_groups: 1, affine: false" for name in ("one", "two")]
    steps = ("op: silu", *norms, "op: abs", "op: amax, dim: 1, keepdim: true", "op: mul, input: r")
    for program in planned(tmp_path, *steps, inputs=", r: [batch, width]").programs:
        assert not wrong(program)


def test_two_passes_swapped(chain: list[Program]) -> None:
    """Of which the second takes what the first makes known."""
    for program in chain:
        for index, (one, other) in enumerate(pairwise(program.phases)):
            phases = [*program.phases]
            phases[index : index + 2] = [other, one]
            assert wrong(replace(program, phases=tuple(phases)))


def test_a_sum_over_the_wrong_unit(chain: list[Program]) -> None:
    for program in chain:
        for index, phase in enumerate(program.phases):
            for axes in (ROW, CHANNEL, Axes.of("N", C=2), Axes.of("N", C=4)):
                if axes != phase.axes and axes.blocks("C") in (None, program.groups):
                    phases = [*program.phases]
                    phases[index] = replace(phase, axes=axes)
                    assert wrong(replace(program, phases=tuple(phases)))


def test_a_stored_value_of_something_else(chain: list[Program]) -> None:
    """One output has the value of another one, or of what that is made of."""
    swapped = 0
    for program in chain:
        for tensor in program.outputs:
            for other in program.outputs:
                if (
                    other.node is not tensor.node
                    and other.axes == tensor.axes
                    and "count" not in (tensor.role, other.role)
                ):
                    outputs = tuple(replace(t, node=other.node) if t is tensor else t for t in program.outputs)
                    assert "before the graph was rewritten" in wrong(replace(program, outputs=outputs), program.outputs)
                    swapped += 1
    assert swapped or len({t.axes for p in chain for t in p.outputs}) > 1


def mutated(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable) -> None:
    """Passes whose attribute `name` is what `change` makes of it."""
    get = getattr(Passes, name).func
    monkeypatch.setattr(Passes, name, property(lambda self: change(self, get(self))))


def test_a_value_derived_one_pass_early(all_programs, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Passes.place
    found = 0
    for program in all_programs:
        passes = Passes(program)
        for node in passes.followed:
            if not node.is_reduction and passes.place(node) > 0:
                with monkeypatch.context() as patch:
                    patch.setattr(Passes, "place", lambda self, each, n=node: place(self, each) - (each is n))
                    assert wrong(program), node
                found += 1
    assert found > 10


@pytest.mark.parametrize("attribute", ["followed", "finished", "stored", "scratch"])
def test_what_no_pass_computes_or_stores(attribute: str, all_programs, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for program in all_programs:
        values = getattr(Passes(program), attribute)
        if any(values):
            empty = type(values)() if attribute == "followed" else [[] for _ in values]
            with monkeypatch.context() as patch:
                mutated(patch, attribute, lambda _, __, e=empty: e)
                assert wrong(program), attribute
            found += 1
    assert found > 5


def test_values_cached_before_they_are_known(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel keeps all values of its last pass from its first one on."""
    (program, *_) = programs(tmp_path, "rows")
    every = set(Passes(program).passes[-1].values)
    mutated(monkeypatch, "cached", lambda _, found: {stays: [every for _ in each] for stays, each in found.items()})
    assert wrong(program)


def test_an_output_that_nothing_computes(chain: list[Program]) -> None:
    for program in chain:
        kept = tuple(tensor for tensor in program.outputs[1:])
        if program.outputs[0].role != "count":
            assert "nothing computes" in wrong(replace(program, outputs=kept), program.outputs)


@pytest.mark.parametrize("name", ["columns", "rows", "groups_then_rows"])
def test_saved_values_swapped(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that the forward program stores, each right, under each other's name."""
    swapped: list[str] = []

    def folding(graph, direction: str, inputs, outputs, *rest, **more) -> Folding:
        if direction.endswith("forward") and not swapped:
            saved = [t for t in outputs if t.role == "accumulator"]
            pair = next(pair for pair in combinations(saved, 2) if pair[0].axes == pair[1].axes)
            other = dict(zip(pair, pair[::-1], strict=True))
            outputs = [replace(t, name=other.get(t, t).name) for t in outputs]
            swapped.extend(t.name for t in pair)
        return Folding(graph, direction, inputs, outputs, *rest, **more)

    monkeypatch.setattr(plan, "Folding", folding)
    with pytest.raises(InternalError, match="what (train_)?forward stores as (\\w+) is not the \\2 of") as raised:
        planned(tmp_path, *CHAINS[name])
    assert any(f"stores as {each} is" in str(raised.value) for each in swapped)


def test_a_saved_value_that_nothing_stores(chain: list[Program]) -> None:
    forward, backward, *_ = chain
    for tensor in backward.inputs:
        if not tensor.node.is_leaf:
            kept = tuple(each for each in forward.outputs if each.name != tensor.name)
            with pytest.raises(InternalError, match=f"does not store {tensor.name}, which"):
                prove_saved(replace(forward, outputs=kept), backward)


def test_a_rewrite_that_changes_a_value(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that leave out a factor, and moments that forget what was added."""
    steps = (LINEAR, "op: mul, constant: 3.0", "op: rms_norm, name: norm", "op: batch_norm, name: bn")
    planned(tmp_path, *steps)

    def without_scales(rule):
        return lambda s, node: Form(rule(s, node).base) if rule(s, node).is_bare else Form(s.graph.literal(2.0))

    for name in ("affine", "norms"):
        broken = {op: without_scales(rule) for op, rule in rewrites.REWRITES[name].items()}
        with monkeypatch.context() as patch:
            patch.setitem(rewrites.REWRITES, name, broken)
            with pytest.raises((InternalError, AssertionError)):
                planned(tmp_path, *steps)


# Of the statistics of each group, which follow from its own reduction and from that of the row.
WAITING = {
    "the row comes first": ("op: tanh, save: v", "op: std, keepdim: true", "op: add, value: v", "{norm}"),
    "the row waits for another": (
        *("op: tanh, save: v", "op: softmax, dim: 1", "op: max, dim: 1, keepdim: true", "op: add, value: v"),
        "{norm}",
    ),
    "the row waits for the groups": (
        *("op: tanh, save: v", "op: group_norm, name: first, num_groups: 2, affine: false"),
        *("op: mean, dim: 1, keepdim: true", "op: add, value: v", "{norm}"),
    ),
    "a group is scaled by its row": (LINEAR, "{norm}, save: v", "op: std, keepdim: true", "op: mul, value: v"),
}


def waiting(name: str) -> list[str]:
    return [step.format(norm="op: group_norm, name: gn, num_groups: 2") for step in WAITING[name]]


@pytest.mark.parametrize("name", WAITING)
def test_groups_that_wait_for_their_row(name: str, tmp_path) -> None:
    """Something of a group follows from the row's pass, and is computed where a pass has one value for each group."""
    for program in planned(tmp_path, *waiting(name)).programs:
        assert not wrong(program)


def test_groups_that_nothing_moves(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these values stay where they are, the plan is refused."""
    monkeypatch.setattr(PhaseAnalysis, "misplaced", frozenset())
    with pytest.raises(InternalError, match=r"one value for each element of \[N\], and derives gn_mean"):
        planned(tmp_path, *waiting("the row waits for another"))


def test_nothing_is_written_of_a_wrong_plan(tmp_path) -> None:
    """Exit code 3, with the pass and the value."""
    planned(tmp_path, *waiting("the row waits for another"))
    (tmp_path / "spec.yaml").rename(tmp_path / "demo.yaml")
    script = (
        "import fusegen.plan.programs.phases\n"
        "from fusegen.cli import main\n"
        "fusegen.plan.programs.phases.PhaseAnalysis.misplaced = frozenset()\n"
        "main()\n"
    )
    arguments = ["build", "--no-compile", "--output", str(tmp_path / "out"), str(tmp_path / "demo.yaml")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 3 and "derives gn_mean[N, 2]" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
