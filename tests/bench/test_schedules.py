"""What a measured module ran, by the launchers of its extension."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

import pytest
import torch
from torch import nn

from fusegen.bench.names import EVAL, STEP, TRAIN
from fusegen.bench.schedules import Ran, ran
from fusegen.plan.sizes.chain_sizes import Sizes, sizes
from fusegen.verify.subjects.subject import Subject
from tests.bench.standins import CHAIN, GROUPS, stand_in


class Use(NamedTuple):
    """As a generated module says it."""

    used: bool
    reason: str
    precision: str = ""

    def __bool__(self) -> bool:
        return self.used


class Told(nn.Module):
    """A module that runs its kernels."""

    def fusegen_kernels(self, x: torch.Tensor) -> Use:
        return Use(True, "")


class Extension:
    """Launchers that say which schedule runs, by the direction, and note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []

    def explain(self, *call) -> str:
        self.asked.append(call)
        backward = call[0].endswith("backward")
        considered = [
            {"considered": "row", "chosen": backward, "reason": "it fits"},
            {"considered": "two_pass", "chosen": not backward, "reason": "nothing else fits"},
        ]
        launch = {"kernel": "row", "passes": [0, 0], "grid": [call[2], 1, 1], "block": [32, 8, 1], "shared_bytes": 0}
        return "\n".join(map(json.dumps, [*considered, launch]))


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    root = tmp_path_factory.mktemp("schedules")
    return {name: stand_in(root, f"ran_{name}", text) for name, text in (("batch", CHAIN), ("groups", GROUPS))}


@pytest.fixture
def extension(subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> Extension:
    made = Extension()
    for subject in subjects.values():
        monkeypatch.setitem(sys.modules, f"{subject.package.__name__}._C", made)
    return made


def what_ran(subject: Subject, what: str, size: Sizes, module: nn.Module | None = None) -> Ran:
    return ran(subject, subject.plan.modes[-2], size, what, module or Told(), [torch.zeros(1)])


@pytest.mark.parametrize(("what", "program"), [(EVAL, "eval_forward"), (TRAIN, "train_forward")])
def test_a_forward_pass_is_asked_for_alone(subjects, extension, what: str, program: str) -> None:
    subject = subjects["batch"]
    found = what_ran(subject, what, sizes(subject.plan.single, 9, 5, 7, 1))
    assert found == Ran("two_pass", "row 9 of 32x8")
    assert extension.asked == [(f"fusegen_ran_batch_{program}", subject.plan.modes[-2].index, 9, 7, 1, 0, 0)]


def test_both_directions_with_the_groups_of_the_chain(subjects, extension) -> None:
    subject = subjects["groups"]
    found = what_ran(subject, STEP, sizes(subject.plan.single, 5, 0, 48, 1))
    assert found == Ran("two_pass / row", "row 5 of 32x8 / row 5 of 32x8")
    assert [call[0].rpartition("_")[2] for call in extension.asked] == ["forward", "backward"]
    assert {call[2:] for call in extension.asked} == {(5, 48, 6, 0, 0)}


@pytest.mark.parametrize(("precision", "takes", "expected"), [
    ("fp32_split", True, "epilogue / row"), ("fp32_split", False, "two_pass / row"), ("ieee", True, "two_pass / row"),
])  # fmt: skip
def test_the_epilogue_of_a_product(tmp_path, monkeypatch, precision: str, takes: bool, expected: str) -> None:
    """It is asked for first, of the forward direction, where operands are split; it may not take the program."""

    class Products(Extension):
        def explain(self, *call) -> str:
            if not call[0].endswith("_product"):
                return super().explain(*call)
            assert "forward" in call[0]
            return json.dumps({"considered": "epilogue", "chosen": takes, "reason": "of a test"})

    class Split(Told):
        def fusegen_kernels(self, x: torch.Tensor) -> Use:
            return Use(True, "", precision)

    text = CHAIN.replace("out_features: features}", "out_features: features, precision: fp32_split}")
    text = "".join(line for line in text.splitlines(True) if "batch_norm" not in line)
    subject = stand_in(tmp_path, "ran_split", text)
    monkeypatch.setitem(sys.modules, f"{subject.package.__name__}._C", Products())
    assert what_ran(subject, STEP, sizes(subject.plan.single, 9, 5, 7, 1), Split()).schedule == expected


def test_the_reason_why_no_kernels_run(subjects, extension) -> None:
    class Hooked(nn.Module):
        def fusegen_kernels(self, x: torch.Tensor) -> Use:
            return Use(self.training, "" if self.training else "there is a hook")

    subject = subjects["batch"]
    found = what_ran(subject, EVAL, sizes(subject.plan.single, 9, 5, 7, 1), Hooked())
    assert found == Ran("none", "PyTorch's operators: there is a hook") and not extension.asked
    assert found.told == "none (PyTorch's operators: there is a hook)"
    assert what_ran(subject, TRAIN, sizes(subject.plan.single, 9, 5, 7, 1), Hooked()).schedule == "two_pass"


def test_an_extension_that_is_not_there(subjects) -> None:
    subject = subjects["batch"]
    found = what_ran(subject, TRAIN, sizes(subject.plan.single, 9, 5, 7, 1))
    assert found.schedule == "unknown" and found.launches.startswith("the launchers cannot tell: ")
