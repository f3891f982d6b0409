"""Which names may reach generated source."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

import fusegen
from fusegen.spec.names import ArgumentName, AttributeName, ClassName, Identifier, SpecName, camel_case, is_spoilt
from fusegen.spec.reserved import MODULE_ATTRIBUTES, MODULE_PREFIX, PYTHON_KEYWORDS, WINDOWS_DEVICES

ROOT = Path(__file__).resolve().parents[2]


class Names(BaseModel):
    plain: Identifier = "a"
    attribute: AttributeName = "a"
    argument: ArgumentName = "a"
    spec: SpecName = "a"
    class_: ClassName = "A"


def codes(**names: str) -> list[str]:
    try:
        Names(**names)
    except ValidationError as error:
        return [item["type"] for item in error.errors()]
    return []


# `match` is a keyword in its own statement only.
@pytest.mark.parametrize(
    "name",
    ["a", "X", "bn_eps", "multiply_weight", "x2", "a" * 64, "match", "min", "lambda_", "console", "com10"]
    # C++ and CUDA have them for something of their own, or our own code there does.
    + [
        "template",
        "xor_eq",
        "typename",
        "threadIdx",
        "float4",
        "NAN",
        "linux",
        "M_PI",
        "FUSEGEN_DEVICE",
        "std",
        "rows",
    ],
)
def test_accepted(name: str) -> None:
    assert codes(plain=name, attribute=name, spec=name) == []


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a\n", "a" * 65]
    # Not identifiers, one of them spelt with a Cyrillic letter.
    + ["2x", "a-b", "a.b", "a;b", 'a"', "\u00e4", "\u0430", "x\u0301", "_a", "__a", "a__b"]
    + ["lambda", "None", "True", "async", "int", "super", "F"]
    + ["self", "torch", "nn", "_Reserved", "__dunder__", "__init__", "__", "_", "a__", "x ", "\ttab", "x\0"],
)
def test_refused(name: str) -> None:
    assert codes(plain=name, attribute=name, spec=name, class_=name) in (
        ["FG206"] * 4,
        ["FG206", "FG207", *["FG206"] * 2],
    )


@pytest.mark.parametrize(
    "name",
    ["train", "forward", "state_dict", "training", "parameters", "to", "apply", "eval", "half", "fusegen_strict"],
)
def test_module_attributes_are_refused_as_attributes_only(name: str) -> None:
    assert codes(attribute=name) == ["FG207"]
    assert codes(plain=name) == []


@pytest.mark.parametrize("name", ["device", "dtype", "train", "fusegen_x"])
def test_arguments_of_every_constructor(name: str) -> None:
    assert codes(argument=name) == ["FG207"]
    assert codes(argument="devices") == codes(attribute="device") == []


def test_a_spec_may_not_take_the_place_of_the_support_headers() -> None:
    assert codes(spec="support") == ["FG206"]
    assert codes(plain="support") == []


@pytest.mark.parametrize("name", ["con", "nul", "AUX", "Com1", "lpt9", "Support"])
def test_a_package_must_be_a_directory_everywhere(name: str) -> None:
    assert codes(spec=name) == ["FG206"]
    assert codes(plain=name, attribute=name) == []


def test_devices_of_windows() -> None:
    assert len(WINDOWS_DEVICES) == 22 and all(name == name.lower() for name in WINDOWS_DEVICES)


@pytest.mark.parametrize("name", ["F", "Path", "Tensor", "any", "torch", "True"])
def test_a_class_may_not_hide_what_its_module_uses(name: str) -> None:
    assert codes(class_=name) == ["FG206"]


def test_a_name_that_is_missing_because_it_is_spoilt() -> None:
    assert is_spoilt("out_features", ["in", "out-features"])
    assert not is_spoilt("out_features", ["out_feature", "batch"]) and not is_spoilt("x", [])


def test_every_keyword_of_this_python_is_known() -> None:
    assert set(keyword.kwlist) <= PYTHON_KEYWORDS


def test_every_attribute_of_generated_modules_is_known() -> None:
    pytest.importorskip("torch", reason="compares the static list with the torch at hand")
    module = fusegen.load("matmul_bn_bias_div_swish", ROOT / "generated")
    public = {name for name in dir(module) if not name.startswith(("_", MODULE_PREFIX))}
    assert public <= MODULE_ATTRIBUTES


def test_camel_case() -> None:
    assert camel_case("matmul_bn_bias_div_swish") == "MatmulBnBiasDivSwish"
    assert camel_case("kb97") == "Kb97"
