"""What `fusegen build` says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.commands.account import account, closing
from fusegen.paths import DEFAULT_OUTPUT
from fusegen.plan.load import planned_files

ROOT = Path(__file__).resolve().parents[2]
SPECS = [ROOT / "specs" / "gemm_add_relu.yaml", ROOT / "specs" / "gemm_scale_bn.yaml"]


def test_a_line_for_each_package() -> None:
    paths = [".gitignore", ".gitattributes", "one/kernels.cu", "one/plan.json", "two/plan.json"]
    paths += ["support/launch.cuh", "support/kernels/row.cuh"]
    assert account("wrote", paths, Path("out")) == [
        "wrote out: 2 files",
        "wrote out/one: 2 files",
        "wrote out/two/plan.json",
        "wrote out/support: 2 files",
    ]
    assert account("removed", [], Path("out")) == []


@pytest.mark.parametrize(
    ("output", "use"),
    [
        (DEFAULT_OUTPUT, "from generated.gemm_add_relu import GemmAddRelu"),
        (Path("other/generated"), "from other.generated.gemm_add_relu import GemmAddRelu"),
        (Path("/srv/generated"), 'fusegen.load("gemm_add_relu", "/srv/generated")'),
        (Path("not-a-package"), 'fusegen.load("gemm_add_relu", "not-a-package")'),
    ],
)
def test_how_to_use_a_package(output: Path, use: str) -> None:
    lines = closing(planned_files(SPECS), [Path("specs")], output, [], compiled=True)
    given = "specs" if output == DEFAULT_OUTPUT else f"specs --output {output}"
    assert lines[:2] == [f"{output} has 2 packages, compiled. Next:", f"  {use}"]
    assert lines[2].startswith(f"  fusegen verify {given}  ") and lines[3].startswith(f"  fusegen check {given}  ")


def test_sources_alone_are_compiled_next() -> None:
    lines = closing(planned_files(SPECS), [Path("my specs")], DEFAULT_OUTPUT, ["sm_80", "sm_90"], compiled=False)
    assert lines == [
        "generated has the sources of 2 packages. Next:",
        "  fusegen build --target sm_80 --target sm_90 'my specs'  (compiles them)",
    ]
