"""Which packages can multiply in several precisions, and what the others are spared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.render.files import support
from fusegen.render.files.support import library_digests
from fusegen.render.package import render_all, render_package

SPEC = """\
fusegen: 1
name: small
dims: {{batch: 64, features: 32}}
arguments: {{features: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [{dtypes}]
chain:
{chain}  - {{op: relu}}
"""
LINEAR = "  - {{op: linear, name: fc, out_features: features, bias: false, precision: {precision}}}\n"


def planned(root: Path, dtypes: str = "float32, bfloat16", chain: str = "", precision: str = "ieee") -> Plan:
    path = root / "small.yaml"
    path.write_text(SPEC.format(dtypes=dtypes, chain=chain.format(precision=precision)), encoding="utf-8")
    return plan_file(path)


@pytest.mark.parametrize("precision", ["ieee", "fp32_split", "bf16", "fp16"])
def test_the_spec_has_the_default_of_the_constructor(tmp_path: Path, precision: str) -> None:
    module = render_package(module_of(planned(tmp_path, chain=LINEAR, precision=precision)))["small/__init__.py"]
    assert (
        f'        dtype: torch.dtype | None = None,\n        precision: str = "{precision}",\n    ) -> None:' in module
    )


@pytest.mark.parametrize("options", [{}, {"dtypes": "bfloat16, float16", "chain": LINEAR}], ids=["relu", "16 bits"])
def test_without_a_product_of_float32_nothing_is_there(tmp_path: Path, options: dict[str, str], monkeypatch) -> None:
    plan = planned(tmp_path, **options)
    files = render_all([module_of(plan)])
    for path in ("small/__init__.py", "small/bindings.cpp"):
        assert not re.search(r"precision|pieces|split", files[path]), path
    assert plan.op_names == ["small_forward", "small_backward"]
    change_contraction(monkeypatch)
    assert library_digests(render_all([module_of(plan)])) == library_digests(files)


def test_a_package_counts_the_contraction_among_its_sources(tmp_path: Path, monkeypatch) -> None:
    plan = planned(tmp_path, chain=LINEAR)
    assert "small_split" in plan.op_names
    before = library_digests(render_all([module_of(plan)]))
    change_contraction(monkeypatch)
    after = library_digests(render_all([module_of(plan)]))
    assert before.keys() == after.keys() == {"small"} and before != after


def change_contraction(monkeypatch) -> None:
    """As if its source had another line."""
    path = "support/contraction/contraction.cu"
    files = support.support_files()
    monkeypatch.setattr(support, "support_files", lambda: {**files, path: files[path] + "int more;\n"})
