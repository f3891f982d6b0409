"""The check of leading dimensions passes what is right, and catches modules that are wrong there alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL, sizes  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.checks.leading import leading_dimensions  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 64, in_features: 32, features: 48}}
arguments: {{in_features: {{type: dim}}, features: {{type: dim}}}}
inputs: {{x: [batch, in_features], residual: [batch, features]}}
dtypes: [float32]
chain:
  - {{op: linear, name: fc, out_features: features}}
  - {{{norm}}}
  - {{op: add, input: residual}}
  - {{op: tanh}}
"""
LAYER_NORM = "op: layer_norm, name: norm"
REFUSED = {
    "batch norm": "op: batch_norm, name: norm",
    "group norm": "op: group_norm, name: norm, num_groups: 4",
    # Takes any tensor whose second dimension the groups divide.
    "group norm without weights": "op: group_norm, name: norm, num_groups: 1, affine: false",
}


def planned(root: Path, name: str, norm: str):
    path = root / f"{name}.yaml"
    path.write_text(SPEC.format(name=name, norm=norm), encoding="utf-8")
    plan = plan_file(path)
    write_files(render_all([module_of(plan)]), root / "generated")
    return plan


@pytest.fixture(scope="module")
def subject(tmp_path_factory, emulation_cache) -> Subject:
    root = tmp_path_factory.mktemp("leading")
    plan = planned(root, "leads", LAYER_NORM)
    return Subject(
        module_of(plan), emulate_package(root / "generated" / "leads", cache=emulation_cache, checked=False), "cpu"
    )


@pytest.fixture
def pair(subject):
    return subject.pair(sizes(subject.plan.single, *SMALL[0]), subject.plan.modes[0], seed=3)


@pytest.fixture
def operators(subject):
    """The support module of the package, whose helpers a test may replace."""
    return sys.modules[type(subject.package._fused).__module__]


def failed(subject) -> set[str]:
    found = [finding.item for finding in Suite(subject, full=False).leading()]
    assert found
    return {f"{item.name} {item.note}".strip() for item in found if not item.ok}


def test_a_right_module_passes(subject, pair, monkeypatch) -> None:
    assert [item.name for item in leading_dimensions(*pair)] == ["3 dimensions", "1 dimension"]
    assert not failed(subject)
    monkeypatch.setattr("fusegen.verify.suite._BEHAVIOUR", {})  # which comes before, and calls compilers
    assert any(finding.check == "leading dimensions" for finding in Suite(subject, full=False).run())


def test_rows_in_another_order_are_caught(subject, operators, monkeypatch) -> None:
    plain = operators.as_rows
    monkeypatch.setattr(operators, "as_rows", lambda x: plain(x.transpose(0, -2) if x.dim() > 2 else x))
    assert {"3 dimensions: output", "3 dimensions: grad input", "3 dimensions: grad fc.weight"} <= failed(subject)


def test_a_lost_gradient_is_caught(subject, operators, monkeypatch) -> None:
    plain = operators.as_rows
    monkeypatch.setattr(operators, "as_rows", lambda x: plain(x.detach()))
    found = failed(subject)
    for part in ("3 dimensions: dtypes and shapes", "1 dimension: dtypes and shapes"):
        (text,) = [text for text in found if text.startswith(part)]
        assert "grad input: None" in text and "grad input 2: None" in text


def test_a_result_of_another_shape_is_caught(subject, operators, monkeypatch) -> None:
    plain = operators.Operator._call_on_rows
    flat = lambda self, arguments: plain(self, arguments).reshape(-1, arguments[1].shape[0])  # noqa: E731
    monkeypatch.setattr(operators.Operator, "_call_on_rows", flat)
    assert failed(subject) == {
        "3 dimensions: shape [66, 96], eager [2, 33, 96]",
        "1 dimension: shape [1, 96], eager [96]",
    }


def test_kernels_that_do_not_run_there_are_caught(subject, pair, monkeypatch) -> None:
    plain, support = subject.fused_class._fusegen_choose, subject.package._support

    def choose(self, inputs, count):
        return (
            plain(self, inputs, count) if inputs[0].dim() == 2 else (None, support.Eager("dimensions", expected=True))
        )

    monkeypatch.setattr(subject.fused_class, "_fusegen_choose", choose)
    assert "1 dimension: kernels as on the view dimensions" in failed(subject)


@pytest.mark.parametrize("least", [2, 3])
def test_what_is_refused_without_need_is_caught(least, subject, monkeypatch) -> None:
    monkeypatch.setattr(subject.fused_class, "_fusegen_dimensions", subject.package._support.Dimensions(2, least))
    assert any("inputs must be" in text for text in failed(subject))


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_has_otherwise_has_to_be_refused(name, tmp_path, monkeypatch) -> None:
    """Without kernels: PyTorch's operators run where the module takes a call."""
    plan = planned(tmp_path, f"refuses_{name.replace(' ', '_')}", REFUSED[name])
    cls = fusegen.load(plan.spec.name, tmp_path / "generated")
    subject = Subject(module_of(plan), sys.modules[cls.__module__], "cpu")
    pair = subject.pair(sizes(plan, *SMALL[0]), plan.modes[0], seed=3)
    assert [(item.name, item.ok) for item in leading_dimensions(*pair)] == [
        ("3 dimensions refused", True),
        ("1 dimension refused", True),
    ]
    monkeypatch.setattr(cls, "_fusegen_dimensions", subject.package._support.Dimensions(1))
    assert not leading_dimensions(*pair)[0].ok


SAMPLES = """\
fusegen: 1
name: samples_of_sums
dims: {batch: 64, features: 32}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: sum, keepdim: true, dim: -1}
  - {op: drop_path, name: path, p: 0.5}
"""


def test_samples_of_one_dimension_are_refused(tmp_path) -> None:
    """Where a sum leaves one value in all, PyTorch happens to draw as for a row."""
    (tmp_path / "samples_of_sums.yaml").write_text(SAMPLES, encoding="utf-8")
    plan = plan_file(tmp_path / "samples_of_sums.yaml")
    write_files(render_all([module_of(plan)]), tmp_path / "generated")
    cls = fusegen.load(plan.spec.name, tmp_path / "generated")
    subject = Subject(module_of(plan), sys.modules[cls.__module__], "cpu")
    found = leading_dimensions(*subject.pair(sizes(plan, *SMALL[0]), plan.modes[0], seed=3))
    assert ("1 dimension refused", True) in [(item.name, item.ok) for item in found]
