"""`fusegen tune` of a chain of several regions, one of several results: on the emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.launches.shapes import Shapes  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.package import render_package  # noqa: E402
from fusegen.standalone.plan import standalone_plan  # noqa: E402
from fusegen.tune.command import tune_specs  # noqa: E402
from fusegen.tune.options import Options  # noqa: E402
from tests.tune.standins import Bench  # noqa: E402

pytestmark = pytest.mark.torch

# The last layer is PyTorch's: there is nothing to tune.
SPEC = """\
fusegen: 1
name: head
dims: {batch: 64, features: 24, classes: 8}
arguments: {features: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: layer_norm, name: norm, save: normed}
  - {op: silu}
  - {op: linear, name: fc, out_features: classes}
outputs: [result, normed]
"""
USUAL = 100_000.0
CHOSEN = Shapes("persistent", row_waves=2)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "head.yaml"
    path.write_text(SPEC)
    return path


def microseconds(name: str, rows: int, shapes: Shapes) -> float:
    return USUAL / 2 if name.endswith("backward") and shapes == CHOSEN else USUAL


def test_each_region_has_a_tuning(spec: Path, emulation_cache: Path, capsys) -> None:
    tune_specs([spec], Options(rows=(8,)), Bench(emulation_cache, microseconds).device())
    shown, progress = capsys.readouterr()
    path = spec.with_name("head_norm.tuning.json")
    assert "head_norm on NVIDIA Test (sm_90)" in shown and f"wrote {path}; next: fusegen build {spec}" in progress
    assert sorted(each.name for each in spec.parent.iterdir()) == [spec.name, path.name]
    planned = planned_file(spec)
    (plan,) = planned.plans
    (measured,) = plan.tuning[0].measurements
    assert (measured.program, measured.rows, measured.channels, measured.shapes) == ("backward", 8, 24, CHOSEN)
    kernels = render_package(planned)["head_norm/kernels.cu"]
    assert "constexpr Tuned kBackwardShapes[]" in kernels and "from specs/head_norm.tuning.json" in kernels
    # What is exported has it, whatever its dtypes and precision.
    for exported in (standalone_plan(spec), standalone_plan(spec, ["float32"], "fp32_split")):
        assert exported.plans[0].tuning == plan.tuning
    # With the tuning there, the default is fastest again: it goes.
    tune_specs([spec], Options(rows=(8,)), Bench(emulation_cache, lambda *what: USUAL).device())
    assert not path.exists() and "removed" in capsys.readouterr().err
    tune_specs([spec], Options(rows=(8,)), Bench(emulation_cache, lambda *what: USUAL).device())
    assert f"{spec}, head_norm: nothing to change" in capsys.readouterr().err


def test_mistakes_in_the_tuning_of_a_region(spec: Path) -> None:
    path = spec.with_name("head_norm.tuning.json")
    machine = {"gpu": "a GPU", "torch": "2.10.0", "cuda": "13.0", "programs": {"train_forward": []}}
    path.write_text(json.dumps({"fusegen_tuning": 1, "architectures": {"sm_90": machine}}))
    with pytest.raises(SpecError, match="head_norm.tuning.json.*the plan has no program 'train_forward'"):
        planned_file(spec)
