"""Ops of one operand on the GPU, whose exponentials and divisions the emulator lacks, as `fusegen verify` does it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import planned_files  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.tune.device import current_target  # noqa: E402
from fusegen.verify.command import verify_specs  # noqa: E402
from tests.emulate.test_ops import CHAINS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 256, features: 96}}
arguments: {{features: {{type: dim}}}}
inputs: {{x: [batch, features]}}
targets: [{target}]
chain:
{chain}"""


@pytest.mark.parametrize("name", ["kinks_and_tails", "powers"])
def test_sums_and_compositions(name: str, tmp_path: Path) -> None:
    steps = CHAINS[name].replace("num_parameters: 12", "num_parameters: features").split(";")
    if "num_parameters: 12" not in CHAINS[name]:
        steps.append("op: mul, parameter: scale, shape: [features], init: ones")  # what the argument is for
    chain = "".join(f"  - {{{step.strip()}}}\n" for step in steps)
    path = tmp_path / f"{name}.yaml"
    path.write_text(SPEC.format(name=name, target=current_target(), chain=chain), encoding="utf-8")
    plans = planned_files([path])
    write_files(render_all(plans), tmp_path / "generated")
    build_extensions([Request(tmp_path / "generated" / name, plans[0].spec.targets)])
    assert verify_specs([path], tmp_path / "generated", emulate=False, seed=0, as_json=False)
