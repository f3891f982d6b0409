"""Modules of several regions: what is imported, and that checkpoints fit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing.checks.dropout_pattern import DropsByPattern
from fusegen.importing.checks.spec_module import reference_class
from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.importing import blocks

pytestmark = pytest.mark.torch


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def bools(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape) % 5 == 2


# The arguments, the inputs, the steps, and further keys of the spec.
BLOCKS = {
    blocks.Mlp: (
        [16, 40],
        [randn(2, 3, 16)],
        """
        {op: layer_norm, name: norm}
        {op: linear, name: up, out_features: h}
        {op: gelu}
        {op: dropout, name: drop, p: p}
        {op: linear, name: down, out_features: d}
        {op: dropout, name: drop_2, p: p}
        {op: add, input: x}
        """,
        {},
    ),
    blocks.SwiGLU: (
        [16, 40],
        [randn(6, 16)],
        """
        {op: linear, name: gate, out_features: h, bias: false}
        {op: silu, save: v}
        {op: linear, from: x, name: up, out_features: h, bias: false}
        {op: mul, value: v}
        {op: linear, name: down, out_features: d, bias: false}
        """,
        {},
    ),
    blocks.GeGLU: (
        [16, 40],
        [randn(6, 16)],
        """
        {op: linear, name: proj, out_features: "2 * h"}
        {op: chunk, parts: [a, gate], running: gate}
        {op: gelu}
        {op: mul, value: a}
        {op: linear, name: out, out_features: d}
        """,
        {},
    ),
    blocks.AddNorm: (
        [16],
        [randn(6, 16), randn(6, 16)],
        """
        {op: add, input: residual, save: total}
        {op: layer_norm, name: norm}
        """,
        {"outputs": ["result", "total"]},
    ),
    blocks.Head: (
        [16, 40, 12],
        [randn(6, 16)],
        """
        {op: linear, name: net_0, out_features: h, bias: false}
        {op: batch_norm, name: net_1}
        {op: relu}
        {op: linear, name: net_3, out_features: o}
        {op: mul, parameter: scale_gamma, shape: [o], init: randn}
        {op: normalize}
        """,
        {"state_dict": {"net_0": "net.0", "net_1": "net.1", "net_3": "net.3", "scale_gamma": "_scale.gamma"}},
    ),
    blocks.LoRA: (
        [16, 24, 4],
        [randn(6, 16)],
        """
        {op: linear, name: base, out_features: o, save: v}
        {op: linear, from: x, name: a, out_features: r, bias: false}
        {op: linear, name: b, out_features: o, bias: false}
        {op: mul, constant: scale}
        {op: add, value: v}
        """,
        {},
    ),
    blocks.Film: (
        [16],
        [randn(2, 5, 16), randn(2, 16), randn(5, 16)],
        """
        {op: layer_norm, name: norm, affine: false}
        {op: mul, input: scale, plus: 1}
        {op: add, input: place}
        """,
        {"inputs": {"x": ["batch", "positions", "d"], "scale": ["batch", "d"], "place": ["positions", "d"]}},
    ),
    blocks.AdaLN: (
        [16],
        [randn(6, 16), randn(6, 16)],
        """
        {op: silu, from: c}
        {op: linear, name: mod, out_features: "6 * d"}
        {op: chunk, parts: [s1, b1, g1, s2, b2, g2]}
        {op: layer_norm, from: x, name: norm, affine: false}
        {op: mul, value: s1, plus: 1}
        {op: add, value: b1}
        {op: mul, value: g1}
        {op: add, input: x, save: v}
        {op: layer_norm, name: norm_2, affine: false}
        {op: mul, value: s2, plus: 1}
        {op: add, value: b2}
        {op: linear, name: fc, out_features: d}
        {op: mul, value: g2}
        {op: add, value: v}
        """,
        {},
    ),
    blocks.Residual: (
        [16],
        [randn(6, 16), randn(6, 16)],
        """
        {op: linear, name: fc, out_features: d}
        {op: dropout, p: 0.3}
        {op: drop_path, p: 0.25}
        {op: add, input: r}
        """,
        {},
    ),
    blocks.Loss: (
        [16, 30],
        [randn(6, 16), torch.tensor([0, 3, 29, 1, 2, 3])],
        """
        {op: linear, name: fc, out_features: c}
        {op: cross_entropy, target: target, ignore_index: 3, label_smoothing: 0.1}
        """,
        {"inputs": {"x": ["batch", "d"], "target": ["batch"]}},
    ),
    blocks.Masked: (
        [16, 30],
        [randn(6, 16), bools(6, 30), bools(6, 1)],
        """
        {op: linear, name: fc, out_features: e}
        {op: masked_fill, mask: hidden, constant: "-inf"}
        {op: softmax}
        {op: mul, mask: keep}
        """,
        {"inputs": {"x": ["batch", "d"], "hidden": ["batch", "e"], "keep": ["batch", 1]}},
    ),
    blocks.Scores: (
        [],
        [randn(3, 5, 8), randn(3, 7, 8), randn(5, 7), bools(3, 1, 7)],
        """
        {op: bmm, input: k, transposed: true}
        {op: mul, constant: 0.3535533905932738}
        {op: add, input: bias}
        {op: masked_fill, mask: hidden, constant: "-inf"}
        {op: softmax}
        """,
        {
            "inputs": {
                "q": ["batch", "positions", "channels"],
                "k": ["batch", "keys", "channels"],
                "bias": ["positions", "keys"],
                "hidden": ["batch", 1, "keys"],
            }
        },
    ),
    blocks.Products: (
        [16, 40],
        [randn(6, 16)],
        """
        {op: mul, parameter: scale, shape: [d], init: ones}
        {op: matmul, parameter: w1, shape: [d, h], init: randn}
        {op: relu}
        {op: matmul, parameter: w2, shape: [h, d], init: randn}
        {op: mul, parameter: scale}
        """,
        {},
    ),
}


@pytest.fixture(scope="module")
def texts() -> dict[type, str]:
    return {}


def text_of(kind: type[nn.Module], texts: dict[type, str]) -> str:
    if kind not in texts:
        arguments, inputs = BLOCKS[kind][:2]
        torch.manual_seed(0)
        texts[kind] = from_module(kind(*arguments), inputs, arguments=arguments)
    return texts[kind]


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_blocks(kind: type[nn.Module], texts: dict[type, str]) -> None:
    data = parse_yaml(text_of(kind, texts), "spec.yaml").data
    steps = "\n".join(f"- {line.strip()}" for line in BLOCKS[kind][2].strip().splitlines())
    wanted = parse_yaml(f"chain:\n{steps}\n", "wanted.yaml").data["chain"]
    assert data["chain"] == wanted
    for key in ("outputs", "state_dict"):
        assert data.get(key) == BLOCKS[kind][3].get(key)
    assert data["inputs"] == BLOCKS[kind][3].get("inputs", data["inputs"])


def test_checkpoints_of_the_original_fit_and_the_other_way_round(texts: dict[type, str]) -> None:
    with reference_class(planned_document(parse_yaml(text_of(blocks.Head, texts), "spec.yaml"))) as cls:
        original = nn.ModuleDict({"head": blocks.Head(16, 40, 12)})
        made = nn.ModuleDict({"head": cls(16, 40, 12)})
        made.load_state_dict(original.state_dict())
        x = randn(6, 16)
        original["head"].train()(x), made["head"].train()(x)
        torch.testing.assert_close(made["head"].eval()(x), original["head"].eval()(x))
        assert made.state_dict().keys() == original.state_dict().keys()
        assert made.state_dict()._metadata.keys() >= {"head.net.1"}
        again = blocks.Head(16, 40, 12)
        again.load_state_dict(copy.deepcopy(made)["head"].state_dict())
        torch.testing.assert_close(again.net[1].running_mean, original["head"].net[1].running_mean)
        names = dict(made["head"].named_parameters())
        assert "net_0.weight" in names
        made["head"].load_state_dict({**names, **dict(made["head"].named_buffers())})  # its own names are read, too


def test_a_missing_dropout_is_seen() -> None:
    """The comparison drops by a pattern: a module that drops elsewhere, or another share, is another one."""
    x = randn(8, 16)
    with DropsByPattern():
        found = [torch.nn.functional.dropout(x, p) for p in (0.1, 0.5, 0.1)]
        assert not torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        assert 0 < int((found[1] == 0).sum()) < x.numel()


class Shared(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        return self.fc(torch.relu(self.fc(x)))


class Always(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        return torch.nn.functional.dropout(self.fc(x), 0.5)


class Normed(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(d, d))

    def forward(self, x):
        return torch.relu(self.fc(x))


class Twofold(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        y = self.fc(x)
        return y, y


REFUSED = [
    (Shared(16), [randn(6, 16)], "FG305", "two steps would own the attribute 'fc'"),
    (Always(16), [randn(6, 16)], "FG709", "dropout in evaluation"),
    (Normed(16), [randn(6, 16)], "FG706", "parametrization"),
    (Twofold(16), [randn(6, 16)], "FG705", "two results are the same value"),
]


@pytest.mark.parametrize("module, inputs, code, words", REFUSED, ids=lambda x: type(x).__name__)
def test_refusals(module: nn.Module, inputs: list, code: str, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        from_module(module, inputs)
    (found,) = raised.value.diagnostics
    assert found.code == code and words in f"{found.message} {found.hint}"
    assert found.location is not None and found.location.file.endswith("test_blocks.py")
