"""What is written of a spec is read as the same spec."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fusegen.errors import SpecError
from fusegen.spec.scalars import MAX_INTEGER
from fusegen.spec.text import flow, spec_text
from fusegen.spec.yaml import parse_yaml

# What means something to YAML or is written another way than others, and what only seems to.
_HARD = (
    *(
        "",
        " ",
        "#",
        "a # b",
        "a: b",
        ":",
        "- a",
        "-",
        "?",
        "{",
        "}",
        "[a]",
        ",",
        "a, b",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@",
    ),
    *(
        "'",
        '"',
        "it's",
        '"a" \\',
        "a\nb",
        "a\r\nb",
        "\t",
        "a ",
        " a",
        "---",
        "...",
        "<<",
        "=",
        "~",
        "null",
        "Null",
        "true",
    ),
    *(
        "FALSE",
        "no",
        "1",
        "-1",
        "+1.5",
        "1e-5",
        "1e400",
        ".5",
        "0x1f",
        "0o17",
        "1_000",
        "9007199254740993",
        ".inf",
        "-.INF",
    ),
    *(
        ".nan",
        "inf",
        "nan",
        "2 * hidden",
        "2 * 3",
        "mlp.0.weight",
        "0.weight",
        "a.",
        "2020-01-01",
        "12:30",
        "\x7f",
        "\x85",
    ),
    *("\u2028", "\xa0", "\ufeff", "größe", "宽度", "\U0001f600", "e\u0301", "\x00", "\x1b"),
)
_TEXT = st.one_of(st.sampled_from(_HARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
_NUMBER = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-MAX_INTEGER, MAX_INTEGER))
_SCALAR = st.one_of(_TEXT, _NUMBER, st.booleans(), st.none())
_VALUE = st.recursive(
    _SCALAR, lambda each: st.lists(each, max_size=4) | st.dictionaries(_TEXT, each, max_size=4), max_leaves=12
)
_STEPS = st.lists(st.dictionaries(_TEXT, _VALUE, min_size=1, max_size=8), min_size=1, max_size=4)
_REMARKS = st.lists(_TEXT | st.text(min_size=50, max_size=200), max_size=5)


def read(text: str) -> object:
    return parse_yaml(text, "spec.yaml").data


@given(_STEPS, st.dictionaries(_TEXT, _VALUE, max_size=4), _REMARKS, _REMARKS)
@example([{"op": "x", "text": "y" * width} for width in range(80, 120)], {}, [], ["12: z"] * 40)
def test_a_chain_that_is_written_and_read_is_the_same(steps, others, head, remarks) -> None:
    data = {**others, "chain": steps}
    text = spec_text(data, head, remarks)
    assert repr(read(text)) == repr(data)  # which tells 1, 1.0 and True, and 0.0 and -0.0, apart
    document = parse_yaml(text, "spec.yaml")
    lines = [document.location(("chain", index)).line for index in range(len(steps))]
    assert lines == list(range(lines[0], lines[0] + len(steps)))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_no_spec_may_have_is_refused_as_one(value: float) -> None:
    with pytest.raises(SpecError, match="a number must be finite"):
        read(spec_text({"chain": [{"op": "clamp", "max": value}]}))


def test_what_is_read_by_people_has_no_quotes() -> None:
    step = {
        "op": "linear",
        "out_features": "2 * hidden",
        "path": "mlp.0.up",
        "eps": 1e-05,
        "shape": ("hidden", 1),
        "bias": False,
    }
    assert flow(step) == (
        "{op: linear, out_features: 2 * hidden, path: mlp.0.up, eps: 1e-05, shape: [hidden, 1], bias: false}"
    )


def test_remarks_are_aligned_and_cut() -> None:
    steps = [{"op": "relu"}, {"op": "gelu", "approximate": "tanh"}, {"op": "x" * 90}, {"op": "relu"}]
    text = spec_text({"chain": steps}, (), ["3: x = relu(x)", "4: " + "y" * 100, "5: " + "z" * 100, ""])
    _, *lines = text.splitlines()
    assert [line.find("#") for line in lines[:2]] == [62, 62] and lines[3] == "  - {op: relu}"
    assert lines[0].endswith("# 3: x = relu(x)")
    assert [line[-3:] for line in lines[1:3]] == ["...", "..."] and len(lines[1]) == 120
    assert "  # 5: z" in lines[2]
