"""Which names may reach generated source."""

from __future__ import annotations

import keyword

import pytest
from pydantic import BaseModel, ValidationError

from fusegen.spec.names import AttributeName, Identifier, SpecName, camel_case
from fusegen.spec.reserved import MODULE_ATTRIBUTES, PYTHON_KEYWORDS


class Names(BaseModel):
    plain: Identifier = "a"
    attribute: AttributeName = "a"
    spec: SpecName = "a"


def codes(**names: str) -> list[str]:
    try:
        Names(**names)
    except ValidationError as error:
        return [item["type"] for item in error.errors()]
    return []


@pytest.mark.parametrize("name", ["a", "X", "bn_eps", "multiply_weight", "x2", "a" * 64, "match", "min", "lambda_"])
def test_accepted(name: str) -> None:
    assert codes(plain=name, attribute=name, spec=name) == []


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a\n", "a" * 65]
    # Not identifiers, one of them spelt with a Cyrillic letter.
    + ["2x", "a-b", "a.b", "a;b", 'a"', "\u00e4", "\u0430", "x\u0301", "_a", "__a", "a__b"]
    + ["lambda", "None", "template", "xor_eq", "threadIdx", "float4", "NULL", "linux", "self", "torch"],
)
def test_refused(name: str) -> None:
    assert codes(plain=name, attribute=name, spec=name) == ["FG206"] * 3


@pytest.mark.parametrize("name", ["train", "forward", "state_dict", "training"])
def test_module_attributes_are_refused_as_attributes_only(name: str) -> None:
    assert codes(attribute=name) == ["FG207"]
    assert codes(plain=name) == []


def test_a_spec_may_not_take_the_place_of_the_support_headers() -> None:
    assert codes(spec="support") == ["FG206"]
    assert codes(plain="support") == []


def test_every_keyword_of_this_python_is_known() -> None:
    assert set(keyword.kwlist) <= PYTHON_KEYWORDS


def test_every_attribute_of_this_torch_is_known() -> None:
    torch = pytest.importorskip("torch", reason="compares the static list with the torch at hand")
    public = {name for name in dir(torch.nn.Module()) if not name.startswith("_")}
    assert public <= MODULE_ATTRIBUTES


def test_camel_case() -> None:
    assert camel_case("matmul_bn_bias_div_swish") == "MatmulBnBiasDivSwish"
    assert camel_case("kb97") == "Kb97"
