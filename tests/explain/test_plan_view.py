"""A plan in Python: what the command says, and what a notebook shows."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import fusegen
from fusegen.errors import SpecError
from fusegen.explain.module import expected, reported, written
from fusegen.explain.page import page
from fusegen.plan.load import planned_file

SPECS = Path(__file__).resolve().parents[2] / "specs"
NAMES = pytest.mark.parametrize("name", ["gemm_add_relu", "transformer_mlp_prenorm"])


@NAMES
def test_it_is_what_the_command_says(name: str) -> None:
    file = SPECS / f"{name}.yaml"
    view, planned = fusegen.plan_of(file), planned_file(file)
    assert f"{view}\n\n" == written(planned, None, None, full=False) and repr(view) == str(view)
    picture = view.picture()
    assert picture == picture._repr_svg_() == written(planned, None, None, "svg") and type(picture._repr_svg_()) is str


@NAMES
def test_a_notebook_shows_the_page_in_a_frame_without_scripts(name: str) -> None:
    file = SPECS / f"{name}.yaml"
    shown = fusegen.plan_of(file)._repr_html_()
    (inside,) = re.findall(r'(?s)^<iframe srcdoc="([^"<>]*)" sandbox style="[^"]*"></iframe>$', shown)
    assert html.unescape(inside) == page(reported(planned_file(file), None, None))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="FG212.*no target 'sm_80'"):
        fusegen.plan_of(SPECS / "gemm_add_relu.yaml", target="sm_80")
    with pytest.raises(SpecError):
        fusegen.plan_of(tmp_path / "none.yaml")


def test_a_line_says_what_the_plan_begins_with() -> None:
    """Of one region, of several that pay and of some that do not."""
    for name in ("gemm_scale_bn", "transformer_mlp_prenorm", "conv2d_batchnorm_scaling"):
        planned = planned_file(SPECS / f"{name}.yaml")
        head, step, forward = written(planned, None, None, full=False).splitlines()[1:4]
        parts = [head.strip().rstrip(":"), step.split(maxsplit=1)[1], forward.split(maxsplit=1)[1]]
        assert expected(planned) == f"{parts[0]}: step {parts[1]}; forward {parts[2]}"
    assert "not worth it here; forward" in expected(planned_file(SPECS / "transformer_mlp_prenorm.yaml"))
