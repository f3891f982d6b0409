"""A valid spec arrives whole; every code that is raised is in the table."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from spec_steps import BatchNorm, Linear, Silu, Spec

import fusegen.errors
from fusegen.errors import CODES, Diagnostic, InternalError, Location, SpecError
from fusegen.spec.annotations import describe
from fusegen.spec.arguments import DimArgument, FloatArgument, ShapeArgument
from fusegen.spec.base import Given, Listing, Plain, PositiveInt
from fusegen.spec.model import spec_model
from fusegen.spec.validate import validate
from fusegen.spec.yaml import parse_yaml

TEXT = """\
fusegen: 1
name: linear_bn_swish
about: Linear, batch norm, swish
dims: {batch: 1024, features: 8192, out_features: 4096}
arguments:
  features: {type: dim}
  out_features: {type: dim}
  bn_eps: {type: float, default: 1}
  bias_shape: {type: shape, is: [1, out_features], default: [1, 4096]}
inputs:
  x: [batch, features]
  y: [batch, 4]
chain:
  - {op: linear, name: gemm, out_features: out_features, bias: false}
  - {op: batch_norm, name: bn, eps: bn_eps, momentum: null}
  - {op: swish}
"""


def test_a_valid_spec() -> None:
    spec = validate(Spec, parse_yaml(TEXT, "f.yaml"))
    assert spec.class_name == "LinearBnSwish"
    assert spec.running_input == "x"
    assert spec.inputs == {"x": ("batch", "features"), "y": ("batch", 4)}
    assert list(spec.arguments) == ["features", "out_features", "bn_eps", "bias_shape"]
    assert isinstance(spec.arguments["features"], DimArgument)
    assert isinstance(spec.arguments["bn_eps"], FloatArgument)
    assert isinstance(spec.arguments["bn_eps"].default, float)
    shape = spec.arguments["bias_shape"]
    assert isinstance(shape, ShapeArgument)
    assert (shape.is_, shape.default) == ((1, "out_features"), (1, 4096))
    assert (spec.dtypes, spec.targets) == (("float32", "bfloat16", "float16"), ("sm_90",))
    linear, norm, silu = spec.chain
    assert isinstance(linear, Linear) and linear.bias is False
    assert isinstance(norm, BatchNorm) and norm.momentum is None
    assert isinstance(silu, Silu) and silu.op == "swish"


def test_a_symbol_may_be_used_in_the_chain_only() -> None:
    text = TEXT.replace("8192, out", "8192, groups: 4, out").replace("bn_eps, m", "groups, m")
    assert validate(Spec, parse_yaml(text, "f")).dims["groups"] == 4


def test_how_types_are_described() -> None:
    assert describe(PositiveInt) == "a positive whole number"
    assert describe(Annotated[PositiveInt, Plain("a count")]) == "a count"
    assert describe(Given[int]) == "a whole number"
    assert describe(int | None) == "a whole number or null"
    assert describe(Listing[int] | bool | float) == "a list, true or false or a number"


def test_class_may_be_given() -> None:
    assert validate(Spec, parse_yaml("class: Model\n" + TEXT, "f")).class_name == "Model"


def test_a_catalogue_of_one_op() -> None:
    model = spec_model((Silu,))
    text = re.sub(r"(?s)chain:.*", "chain: [{op: silu}]", TEXT)
    assert validate(model, parse_yaml(text, "f")).chain == (Silu(op="silu"),)
    with pytest.raises(SpecError, match=r"FG205.*'op' must be 'silu' or 'swish', found the text 'silo'"):
        validate(model, parse_yaml(text.replace("silu", "silo"), "f"))


def test_problems_of_reading_come_with_those_of_validation() -> None:
    document = parse_yaml(TEXT.replace("inputs:", "name: again\nwhatever:"), "f", lenient=True)
    with pytest.raises(SpecError) as caught:
        validate(Spec, document)
    assert [d.code for d in caught.value.diagnostics] == ["FG202", "FG105", "FG201"]


def test_thousands_of_mistakes_do_not_take_long() -> None:
    many = "".join(f"  - {{op: swsh{number}, x: [a{number}]}}\n" for number in range(5000))
    with pytest.raises(SpecError) as caught:
        validate(Spec, parse_yaml(TEXT + many, "f"))
    assert str(caught.value).count("error[") == fusegen.errors.MAX_SHOWN_ERRORS
    assert str(caught.value).splitlines()[-1].endswith("more errors")


def test_diagnostics_are_sorted_and_distinct() -> None:
    late, early = (Diagnostic("FG205", "m", Location("f", line, 1)) for line in (10, 9))
    nowhere = Diagnostic("FG205", "m")
    assert SpecError([late, early, late, nowhere]).diagnostics == (nowhere, early, late)
    with pytest.raises(InternalError):
        SpecError([])


def test_a_long_line_is_cut_around_the_caret() -> None:
    source = "x" * 5000 + "HERE" + "y" * 5000
    _, shown, caret = Diagnostic("FG205", "m", Location("f", 1, 5001), None, source).render().splitlines()
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("HERE")


def test_every_code_in_the_sources_is_in_the_table() -> None:
    root = Path(fusegen.errors.__file__).parent
    used = {code for path in root.rglob("*.py") for code in re.findall(r'"(FG\d{3})"', path.read_text("utf-8"))}
    assert used <= set(CODES)
