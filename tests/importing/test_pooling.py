"""Imports of modules with pooling: layers and functions, their options, and means over positions."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.spec.yaml import parse_yaml
from tests.importing.convolved import Convolved

pytestmark = pytest.mark.torch
CONV = "self.conv = nn.Conv2d(c, c, 3)\n"
SHAPE = (2, 4, 16, 15)


def steps(made: str, result: str, arguments: str = "c", values: tuple = (4,), shape=SHAPE) -> list[dict]:
    text = Convolved(arguments, CONV + made, f"return torch.tanh({result})").imported(values, shape)
    return [dict(step) for step in parse_yaml(text, "spec.yaml").data["chain"]]


@pytest.mark.parametrize(
    ("made", "result", "wanted"),
    [
        (
            "self.p = nn.MaxPool2d(3, 2, 1)",
            "self.p(self.conv(x).relu())",
            {"kernel_size": 3, "stride": 2, "padding": 1},
        ),
        ("", "F.max_pool2d(self.conv(x).relu(), (3, 2))", {"kernel_size": [3, 2]}),
        ("", "F.max_pool2d(self.conv(x).relu(), 2, dilation=2)", {"kernel_size": 2, "dilation": 2}),
    ],
)
def test_max_pooling(made, result, wanted) -> None:
    *_, pool, last = steps(made, result)
    name = pool.pop("name")
    assert pool == {"op": "max_pool2d", **wanted} and last == {"op": "tanh"}
    assert name == ("p" if made else "pool")


def test_average_pooling_and_what_an_option_is() -> None:
    made = "self.p = nn.AvgPool2d(k, count_include_pad=False, ceil_mode=True)"
    *_, pool, _ = steps(made, "self.p(self.conv(x).relu())", "c, k", (4, 3))
    assert pool == {
        **{"op": "avg_pool2d", "name": "p", "kernel_size": "k"},
        **{"ceil_mode": True, "count_include_pad": False},
    }


def test_pooling_to_one_position() -> None:
    *_, pool, _ = steps("", "F.adaptive_avg_pool2d(self.conv(x).relu(), 1)")
    assert pool == {"op": "adaptive_avg_pool2d", "name": "pool", "output_size": 1}


def test_squeeze_and_excite() -> None:
    source = Convolved(
        "c, m",
        "self.down, self.up = nn.Conv2d(c, m, 1), nn.Conv2d(m, c, 1)",
        "g = self.up(torch.relu(self.down(F.adaptive_avg_pool2d(x, 1))))\nreturn x * torch.sigmoid(g)",
    )
    data = parse_yaml(source.imported((6, 3), (2, 6, 7, 8)), "spec.yaml").data
    assert [step["op"] for step in data["chain"]] == [
        *("adaptive_avg_pool2d", "conv2d", "relu", "conv2d", "sigmoid", "mul")
    ]


def test_indices_are_refused() -> None:
    with pytest.raises(SpecError, match="indices"):
        steps("", "F.max_pool2d(self.conv(x).relu(), 2, return_indices=True)[1].float()")
