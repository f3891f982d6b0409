"""Reports that several tests look at."""

from __future__ import annotations

import functools

from fusegen.explain.build import build
from fusegen.explain.model import Report
from fusegen.plan.load import plan_document
from fusegen.spec.yaml import parse_yaml
from tests.plan.planning import committed

LONG = "a_name_that_is_as_long_as_a_sentence_and_wide"
HARD = "x" * 64  # nothing in it to break a line at
ABOUT = "1 < 2 & 'so' > on </title> {{ 7 * 7 }} \u6f22\u5b57"

_SPEC = f"""\
fusegen: 1
name: long_names
about: "{ABOUT}"
dims: {{batch: 64, width: 128, {LONG}: 256}}
arguments: {{width: {{type: dim}}, {LONG}: {{type: dim}}}}
inputs: {{x: [batch, width], {HARD}: [batch, {LONG}]}}
chain:
  - {{op: linear, name: {LONG}_linear_layer_12345, out_features: {LONG}}}
  - {{op: add, input: {HARD}}}
  - {{op: batch_norm, name: {LONG}_norm}}
  - {{op: add, parameter: {LONG}_parameter, shape: [{LONG}], init: randn}}
  - {{op: group_norm, name: g, num_groups: 8}}
"""
NAMES = ("matmul_bn_bias_div_swish", "gemm_multiply_leakyrelu_split", "long_names")


@functools.cache
def report(name: str) -> Report:
    """Of a committed spec, or of one with names as long as names may be."""
    return build(plan_document(parse_yaml(_SPEC, "long_names.yaml")) if name == "long_names" else committed(name))
