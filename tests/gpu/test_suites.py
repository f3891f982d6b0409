"""Every check of whole modules on a GPU: of several regions, with a CUDA graph of all, and of norms of images."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.modules.module import compiled  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.packages import open_subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.chains.collection import BUILT  # noqa: E402
from tests.emulate.test_regions import BLOCK  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

SPECS = {"region_block": BLOCK.replace("dtypes: [float32]", "dtypes: [float32, bfloat16]")}
NAMES = ("groupnorm_silu", "instancenorm_relu", "squeeze_excite", "token_loss_in_chunks")
SPECS |= {name: BUILT[name].text() for name in NAMES}


@pytest.mark.parametrize("name", SPECS)
def test_the_whole_beside_the_original(name: str, tmp_path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(SPECS[name], encoding="utf-8")
    plan = planned_file(path)
    write_files(render_all([plan]), tmp_path / "generated")
    build_extensions([Request(tmp_path / "generated" / each.spec.name, each.spec.targets) for each in compiled([plan])])
    suite = Suite(open_subject(plan, tmp_path / "generated", device="cuda", cache=tmp_path))
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        report = suite.report()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    wrong = [f"{each.check} {each.shape} {each.dtypes} {each.mode} {each.item.name}" for each in report.failed]
    assert not wrong
    assert {"CUDA graph", "other stream", "memory"} <= {finding.check for finding in report.findings}
