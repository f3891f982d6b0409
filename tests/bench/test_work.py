"""What is timed does what its name says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fusegen.bench.names import EVAL, STEP, TRAIN
from fusegen.bench.peers import compiling, is_compiled, make_peer, uses_graphs
from fusegen.bench.work import contraction_work, copy_work, module_work
from fusegen.plan.sizes.chain_sizes import typical
from fusegen.verify.subjects.subject import Subject
from tests.bench.standins import GROUPS, stand_in


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return stand_in(tmp_path_factory.mktemp("linear"), "bench_work")


def test_modes_of_a_module(linear: Subject) -> None:
    fused, _, inputs = linear.pair(typical(linear.plan.single), linear.plan.modes[0], seed=1)
    grad = torch.randn(64, 48)
    output = module_work(fused, inputs, grad, EVAL).call()
    assert not output.requires_grad and not fused.training
    output = module_work(fused, inputs, grad, TRAIN).call()
    assert output.requires_grad and fused.training
    gradients = module_work(fused, inputs, grad, STEP).call()
    assert [g.shape for g in gradients] == [t.shape for t in (*inputs, *fused.parameters())]
    fused(*inputs).backward(grad)
    for mine, leaf in zip(gradients, (*inputs, *fused.parameters()), strict=True):
        torch.testing.assert_close(mine, leaf.grad)


def test_an_input_without_a_gradient(tmp_path: Path) -> None:
    subject = stand_in(tmp_path, "bench_detached", GROUPS)
    fused, _, inputs = subject.pair(typical(subject.plan.single), subject.plan.modes[0], seed=1)
    found = module_work(fused, inputs, torch.randn(64, 48), STEP).call()
    assert found[0] is not None and found[1] is None


def test_graphs_mark_each_step(linear: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(None))
    fused, _, inputs = linear.pair(typical(linear.plan.single), linear.plan.modes[0], seed=1)
    for graphs in (False, True):
        work = module_work(fused, inputs, torch.randn(64, 48), STEP, graphs=graphs)
        assert work.graphs is graphs
        for _ in range(3):
            work.call()
    assert len(marks) == 3


@pytest.mark.parametrize(("index", "with_bias"), [(0, False), (1, True)])
def test_the_contraction_is_what_the_fused_module_calls(linear: Subject, index: int, with_bias: bool) -> None:
    plan, mode = linear.plan, linear.plan.modes[index]
    _, original, inputs = linear.pair(typical(plan.single), mode, seed=1)
    grad = torch.randn(64, 48).to(inputs[0].dtype)
    product = contraction_work(plan.single, mode, original, inputs, grad, TRAIN).call()
    x, weight = inputs[0].detach(), original.fc.weight.detach()
    bias = original.fc.bias.detach() if with_bias else None
    torch.testing.assert_close(product, torch.nn.functional.linear(x, weight, bias))
    found = contraction_work(plan.single, mode, original, inputs, grad, STEP).call()
    original.fc(inputs[0]).backward(grad)
    assert len(found) == 3 and not any(tensor.requires_grad for tensor in found)
    torch.testing.assert_close(found[1], inputs[0].grad)
    torch.testing.assert_close(found[2], original.fc.weight.grad)


def test_a_chain_without_a_contraction(tmp_path: Path) -> None:
    subject = stand_in(tmp_path, "bench_groups", GROUPS)
    _, original, inputs = subject.pair(typical(subject.plan.single), subject.plan.modes[0], seed=1)
    assert contraction_work(subject.plan.single, subject.plan.modes[0], original, inputs, inputs[0], STEP) is None


def test_a_copy_moves_as_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    plain = torch.Tensor.copy_

    def copy(self, other):
        moved.append(self.nbytes + other.nbytes)
        return plain(self, other)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    work = copy_work([1000, 64], "cpu")
    moved.clear()
    work.call()
    assert moved == [1000, 64]


def test_peers(linear: Subject) -> None:
    _, original, inputs = linear.pair(typical(linear.plan.single), linear.plan.modes[0], seed=1)
    assert make_peer("eager", original) is original and not is_compiled("eager")
    limit = torch._dynamo.config.recompile_limit
    with compiling(["eager", "compile"]):
        peer = make_peer("compile", original, backend="eager")
        assert torch._dynamo.config.recompile_limit > limit
        torch.testing.assert_close(peer.eval()(*inputs), original.eval()(*inputs))
    assert torch._dynamo.config.recompile_limit == limit
    own = {parameter.data_ptr() for parameter in peer.parameters()}
    assert not own & {parameter.data_ptr() for parameter in original.parameters()}
    assert is_compiled("max-autotune") and uses_graphs("reduce-overhead") and not uses_graphs("max-autotune")
