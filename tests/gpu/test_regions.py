"""A module of several regions on a GPU: every check of the whole, and a CUDA graph of all regions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.modules.module import compiled  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.packages import open_subject  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.test_regions import BLOCK  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    root = tmp_path_factory.mktemp("regions")
    path = root / "region_block.yaml"
    path.write_text(BLOCK.replace("dtypes: [float32]", "dtypes: [float32, bfloat16]"))
    plan = planned_file(path)
    write_files(render_all([plan]), root / "generated")
    build_extensions([Request(root / "generated" / each.spec.name, each.spec.targets) for each in compiled([plan])])
    return open_subject(plan, root / "generated", device="cuda", cache=root)


def test_the_whole_beside_the_original(subject: Subject) -> None:
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        report = Suite(subject).report()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    wrong = [f"{each.check} {each.shape} {each.dtypes} {each.mode} {each.item.name}" for each in report.failed]
    assert not wrong
    assert {"CUDA graph", "other stream", "memory"} <= {finding.check for finding in report.findings}
