"""Rows with the same bits in any batch, on a GPU: of kernels and of the library's products."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.plan.modules.module import compiled  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.verify.subjects.packages import open_subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.test_row_invariance import CHAINS, text_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The chains with the promise, and one without, built."""
    root = tmp_path_factory.mktemp("rows")
    texts = {name: text_of(name) for name in CHAINS}
    texts["careless"] = text_of("normed").replace("invariant: rows", "").replace("normed_rows", "careless_rows")
    plans = {name: planned_document(parse_yaml(text, f"{name}_rows.yaml")) for name, text in texts.items()}
    write_files(render_all([each for plan in plans.values() for each in plan.modules]), root)
    modules = [each for plan in plans.values() for each in compiled([plan])]
    build_extensions([Request(root / each.spec.name, each.spec.targets) for each in modules])
    return {name: (plan, root) for name, plan in plans.items()}


def failed(planned, name: str, tmp_path, tf32: bool) -> list[str]:
    plan, root = planned[name]
    suite = Suite(open_subject(plan, root, device="cuda", cache=tmp_path), invariance=True)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        found = list(suite.row_invariance())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert len(found) >= 40
    return [f"{each.shape} {each.dtypes} {each.item.name}: {each.item.note}" for each in found if not each.item.ok]


@pytest.mark.parametrize("tf32", [False, True], ids=["ieee", "tf32"])
@pytest.mark.parametrize("name", CHAINS)
def test_rows_have_the_same_bits(planned, name: str, tf32: bool, tmp_path) -> None:
    assert failed(planned, name, tmp_path, tf32) == []


def test_products_of_few_features(planned, tmp_path) -> None:
    """Matrices of one row or column, whose strides may be anything."""
    plan, root = planned["plain"]
    suite = Suite(open_subject(plan, root, device="cuda", cache=tmp_path))
    shapes = [(5, 1, 24, 1), (7, 16, 1, 1), (3, 1, 1, 1), (1, 1, 64, 1), (130, 3, 5, 1), (1, 257, 515, 1)]
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        found = [each for mode in suite.modes() for each in suite.numerics(mode, shapes)]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert found
    assert [f"{each.shape} {each.dtypes} {each.item.name} {each.item.note}" for each in found if not each.item.ok] == []


def test_without_the_promise_they_have_not(planned, tmp_path) -> None:
    assert failed(planned, "careless", tmp_path, False)
