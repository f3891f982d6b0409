"""Specs of one command: every mistake in all of them, and packages and ops that would get in each other's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.errors import InternalError, SpecError
from fusegen.ops.activations import Relu
from fusegen.plan.load import plan_file, planned_files

TEXT = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 16, width: 32}}
arguments: {{width: {{type: dim}}}}
inputs: {{x: [batch, width]}}
chain:
  - {{{step}}}
"""
BATCH_NORM = "op: batch_norm, name: bn"


def written(directory: Path, **specs: str) -> list[Path]:
    """A file for each: the file's stem and the spec's name, and its one step."""
    paths = []
    for name, step in specs.items():
        paths.append(directory / f"{name}.yaml")
        paths[-1].write_text(TEXT.format(name=name, step=step), encoding="utf-8")
    return paths


def test_plans_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    paths = written(tmp_path, b=BATCH_NORM, a=BATCH_NORM)
    assert [plan.spec.name for plan in planned_files([*paths, paths[0]])] == ["b", "a"]


def test_every_mistake_of_every_file(tmp_path: Path) -> None:
    paths = written(tmp_path, a="op: relo", fine=BATCH_NORM, b="op: layer_norm, name: train, eps: [1]")
    with pytest.raises(SpecError) as caught:
        planned_files([*paths, tmp_path / "absent.yaml"])
    found = [(Path(each.location.file).name, each.code) for each in caught.value.diagnostics if each.location]
    assert found == [
        ("a.yaml", "FG203"),
        ("absent.yaml", "FG101"),
        ("b.yaml", "FG207"),
        ("b.yaml", "FG204"),
    ]


def test_packages_whose_names_differ_in_case_only(tmp_path: Path) -> None:
    paths = written(tmp_path, demo=BATCH_NORM, Demo=BATCH_NORM)
    with pytest.raises(SpecError, match=r"Demo.yaml:2:7: error\[FG208\]: 'Demo' would give the package a name that"):
        planned_files(paths)


def test_ops_of_two_packages_with_one_name(tmp_path: Path) -> None:
    """torch.ops.fusegen.demo_train_forward: of demo in training, or of demo_train."""
    paths = written(tmp_path, demo=BATCH_NORM, demo_train="op: layer_norm, name: ln")
    with pytest.raises(
        SpecError, match=r"demo_train.yaml:2:7: error\[FG208\]: 'demo_train' would give ops a name that"
    ):
        planned_files(paths)
    assert len(planned_files(written(tmp_path, demo=BATCH_NORM, demo_other="op: layer_norm, name: ln"))) == 2


def test_a_bug_is_no_mistake_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self, chain, x):
        raise InternalError("a bug")

    monkeypatch.setattr(Relu, "build", build)
    with pytest.raises(InternalError):
        plan_file(written(tmp_path, a="op: relu, save: [1]")[0])
