"""Arguments that a constructor takes by name alone: a spec's, its module's, and those that verification gives."""

from __future__ import annotations

import types
from typing import Any

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import plan_document
from fusegen.plan.modules.module import module_of
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.render.python.reference_module import signature
from fusegen.spec.yaml import parse_yaml
from fusegen.verify.subjects.subject import Subject

pytestmark = pytest.mark.torch
TEXT = """\
fusegen: 1
name: named
dims: {batch: 8, width: 16, hidden: 24}
arguments:
  width: {type: dim}
  factor: {type: float, default: 2.0}
  hidden: {type: dim, keyword: true}
  bias_shape: {type: shape, is: [hidden], keyword: true}
inputs:
  x: [batch, width]
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: mul, constant: factor}
  - {op: add, parameter: bias, shape: bias_shape, init: zeros}
"""


def test_they_stand_behind_all_others_in_the_constructor() -> None:
    plan = plan_document(parse_yaml(TEXT, "named.yaml"))
    found = [each.partition(":")[0] for each in signature(plan.spec, plan.has_precisions)]
    assert found[:5] == ["width", "factor", "*", "hidden", "bias_shape"]
    with pytest.raises(SpecError, match=r"FG214.*'hidden' has no default"):
        plan_document(parse_yaml(TEXT.replace("dim, keyword: true", "dim"), "named.yaml"))


def test_verification_gives_them_by_name() -> None:
    plan = plan_document(parse_yaml(TEXT, "named.yaml"))
    subject = Subject(module_of(plan), types.ModuleType("none"), "cpu")
    sizes = Sizes({"batch": 3, "width": 4, "hidden": 6}, rows=3, channels=6, source=4)

    def taken(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    (width, factor), named = subject.made(taken, sizes, 1)
    assert width == 4 and 1.6 <= factor <= 2.5
    assert named == {"hidden": 6, "bias_shape": (6,)}
