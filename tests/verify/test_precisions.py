"""Verification of the precisions: what is right passes, and each of several wrong products is found."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.programs.epilogue import SPLIT  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL, sizes  # noqa: E402
from fusegen.verify.checks import memory, precisions  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.verify.chains import emulated  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def subject(tmp_path_factory, emulation_cache):
    return emulated(tmp_path_factory.mktemp("subject"), emulation_cache, "verified")


def rounded(subject) -> set[str]:
    """What falls short among the precisions that round their operands."""
    pair = subject.pair(sizes(subject.plan.single, *SMALL[0]), subject.plan.modes[0], seed=3)
    return {item.name for item in precisions.rounded_operands(*pair) if not item.ok}


def test_every_precision_is_verified_in_training_and_evaluation(subject) -> None:
    found = list(Suite(subject, full=False).other_precisions())
    assert all(finding.item.ok for finding in found)
    seen = {(finding.check, finding.mode) for finding in found}
    assert seen >= {
        ("numerics", "train, fp32_split"),
        ("numerics", "eval, fp32_split"),
        ("training", "3 steps, fp32_split"),
        ("bitwise", "fp32_split"),
        ("frozen parameters", "fp32_split"),
        ("torch.compile", "fp32_split"),
        ("rounded operands", ""),
    }
    assert {finding.dtypes for finding in found} == {"float32"}
    names = {finding.item.name for finding in found if finding.check == "rounded operands"}
    assert names >= {f"{precision}, train: grad fc.weight" for precision in ("bf16", "fp16")}


@pytest.mark.parametrize("claims, does", [("bf16", "ieee"), ("fp16", "ieee"), ("bf16", "fp16"), ("fp16", "bf16")])
def test_another_rounding_is_found(subject, monkeypatch, claims, does) -> None:
    monkeypatch.setattr(precisions, "ROUNDED", {does: precisions.ROUNDED[claims]})
    wrong = rounded(subject)
    for mode in ("train", "eval"):
        for name in ("output", "grad input", "grad fc.weight"):
            assert f"{does}, {mode}: {name}" in wrong


@pytest.mark.parametrize("operand", ["grad input", "grad fc.weight"])
def test_a_gradient_of_another_rounding_is_found(subject, monkeypatch, operand) -> None:
    """dz and the other operand are rounded: the gradient alone is not."""
    index = ["grad input", "grad fc.weight"].index(operand)
    backward = precisions._RoundedProduct.backward

    def without_rounding(ctx, *gradients):
        found = list(backward(ctx, *gradients))
        x, weight = ctx.saved_tensors
        found[index] = [gradients[0] @ weight, gradients[0].T @ x][index]
        return tuple(found)

    monkeypatch.setattr(precisions._RoundedProduct, "backward", staticmethod(without_rounding))
    assert rounded(subject) == {f"{each}, {mode}: {operand}" for each in ("bf16", "fp16") for mode in ("train", "eval")}


@pytest.mark.parametrize("wrong", ["low pieces", "exponents"])
def test_wrong_pieces_are_found(subject, monkeypatch, wrong) -> None:
    def pieces(values, split):
        rows, columns = values.shape
        found = split(values)
        plane = rows * ((columns + 7) // 8 * 8)
        if wrong == "low pieces":
            found[plane : 2 * plane] = 0
        else:
            found[2 * plane :].view(torch.int32)[rows - 1] += 1
        return found

    for operator in vars(sys.modules[subject.package.__name__]).values():
        if type(operator).__name__ == "Operator":
            split = operator.split
            monkeypatch.setattr(operator, "split", lambda values, split=split: pieces(values, split))
    found = list(Suite(subject, full=False).other_precisions())
    failed = {finding.check for finding in found if not finding.item.ok}
    assert failed >= {"numerics", "training"} and "rounded operands" not in failed


def test_pieces_are_allowed_for_and_nothing_beyond_them(subject) -> None:
    size = sizes(subject.plan.single, 64, 128, 96, 1)
    fused, original, inputs = subject.pair(size, subject.plan.modes[0], seed=3)
    whole = memory.saved_bytes(fused, inputs)
    precisions.with_precision(fused, SPLIT)
    assert memory.saved_bytes(fused, inputs) >= whole + 4 * 128 * (64 + 96)
    [found] = memory.footprint(fused, original, inputs)
    assert found.ok

    class Hoarder(type(fused)):
        def forward(self, *arguments):
            y = super().forward(*arguments)
            for _ in range(4):
                y = y.exp().log()
            return y

    fused.__class__ = Hoarder
    [found] = memory.footprint(fused, original, inputs)
    assert not found.ok
