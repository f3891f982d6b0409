"""`invariant: rows`: a row's results and gradients have the same bits alone, in other company and at another place."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.explain.choices import choices, device_of  # noqa: E402
from fusegen.plan.load import plan_document, planned_document  # noqa: E402
from fusegen.plan.sizes.chain_sizes import sizes  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: {name}
about: rows whose bits no other row changes
invariant: rows
dims: {{batch: 64, {dims}}}
arguments: {arguments}
inputs: {inputs}
dtypes: [float32, bfloat16]
chain:
{chain}
"""
LINEAR = "  - {op: linear, name: fc, out_features: features}\n"
CHAINS = {
    "normed": (
        "{x: [batch, width], scale: [batch, 1]}",
        f"{LINEAR}  - {{op: mul, input: scale}}\n  - {{op: layer_norm, name: norm}}\n  - {{op: silu}}",
    ),
    "grouped": (
        "{x: [batch, width]}",
        f"{LINEAR}  - {{op: group_norm, name: norm, num_groups: 3}}\n"
        "  - {op: add, parameter: shift, shape: [features], init: randn}\n  - {op: softmax}",
    ),
    "judged": (
        "{x: [batch, width], target: [batch]}",
        f"{LINEAR}  - {{op: cross_entropy, target: target, label_smoothing: 0.1, reduction: none}}",
    ),
    "summed": (
        "{x: [batch, width], target: [batch]}",
        f"{LINEAR}  - {{op: cross_entropy, target: target, reduction: sum}}",
    ),
    "gated": (
        "{x: [batch, width]}",
        "  - {op: linear, name: gate, out_features: features}\n  - {op: silu, save: g}\n"
        "  - {op: linear, name: up, from: x, out_features: features}\n  - {op: mul, value: g}\n"
        "  - {op: linear, name: down, out_features: features}\n  - {op: rms_norm, name: norm}",
    ),
    "plain": ("{x: [batch, width]}", f"{LINEAR}  - {{op: silu}}"),
    "alone": ("{x: [batch, features]}", "  - {op: rms_norm, name: norm}\n  - {op: logsumexp, dim: -1, keepdim: false}"),
}
ROWS, WIDTH = 23, 10
SELECTIONS = {
    "the first": [0],
    "seven": [*range(7)],
    "half": [*range(ROWS // 2)],
    "all but the first": [*range(1, ROWS)],
    "in another order": [*range(ROWS - 1, -1, -1)],
    "one, many times": [5] * 40,
}


def text_of(name: str) -> str:
    """The spec of a chain."""
    sizes = {"features": 24} if name == "alone" else {"width": 16, "features": 24}
    arguments = ", ".join(f"{each}: {{type: dim}}" for each in sizes)
    dims = ", ".join(f"{each}: {size}" for each, size in sizes.items())
    inputs, chain = CHAINS[name]
    return SPEC.format(name=f"{name}_rows", dims=dims, arguments=f"{{{arguments}}}", inputs=inputs, chain=chain)


@pytest.fixture(scope="module")
def module_of(tmp_path_factory, emulation_cache):
    root, classes = tmp_path_factory.mktemp("invariant"), {}

    def module_of(name: str, features: int, dtype, precision: str = "ieee", width: int = WIDTH):
        if name not in classes:
            text = text_of(name)
            planned = planned_document(parse_yaml(text, f"{name}_rows.yaml", lenient=True))
            write_files(render_all(planned.modules), root)
            package = emulate_package(root / planned.spec.name, cache=emulation_cache)
            classes[name] = getattr(package, planned.spec.class_name)
        of = {"features": features} if name == "alone" else {"width": width, "features": features}
        torch.manual_seed(3)
        module = classes[name](**of, **({} if precision == "ieee" else {"precision": precision})).to(dtype)
        module.fusegen_strict = True
        return module

    return module_of


def run(module, inputs, grad):
    """The result, if it has rows, and the gradients of floating inputs."""
    given = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    result = module(*given)
    gradients = torch.autograd.grad(result, [x for x in given if x.requires_grad], grad)
    return [*([result.detach()] if result.dim() else []), *gradients]


def differing(module, name: str, features: int, dtype) -> list[str]:
    """The selections of rows whose results or gradients have other bits than in the whole batch."""
    torch.manual_seed(features)
    inputs = [torch.randn(ROWS, features if name == "alone" else WIDTH, dtype=dtype)]
    inputs += [torch.rand(ROWS, 1, dtype=dtype)] if name == "normed" else []
    inputs += [torch.randint(0, features, (ROWS,))] if name in ("judged", "summed") else []
    shape = {"judged": (ROWS,), "alone": (ROWS,), "summed": ()}.get(name, (ROWS, features))
    grad = torch.randn(shape, dtype=dtype)
    whole, found = run(module, [x.clone() for x in inputs], grad), []
    selections = {**SELECTIONS, "a view": slice(1, None)}  # that one lies in the memory of the whole
    for label, rows in selections.items():
        part = run(module, [x[rows].detach() for x in inputs], grad[rows] if shape else grad)
        if not all(torch.equal(mine, all_[rows]) for mine, all_ in zip(part, whole, strict=True)):
            found.append(label)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("features", [24, 33])
@pytest.mark.parametrize("name", CHAINS)
def test_rows_have_the_same_bits_in_any_batch(module_of, name: str, features: int, dtype) -> None:
    assert differing(module_of(name, features, dtype), name, features, dtype) == []


@pytest.mark.parametrize("precision", ["fp32_split", "bf16"])
@pytest.mark.parametrize("name", ["normed", "summed", "gated"])
def test_in_other_precisions(module_of, name: str, precision: str) -> None:
    assert differing(module_of(name, 33, torch.float32, precision), name, 33, torch.float32) == []


def shared_by(text: str, channels: int, cache) -> set[object]:
    """The kernels that launchers run for few rows and for many, with what shares a row in those that reduce rows."""
    plan = plan_document(parse_yaml(text, "launched.yaml", lenient=True))
    found = set()
    for rows in (1, 7, 100, 2048, 100_000):
        size = sizes(plan, rows, channels, channels, 1)
        made = choices(plan, device_of(plan, None), plan.modes[0], size, cache)
        launches = [each for _, choice, _ in made for each in choice.launches]
        shared = [(each.block, each.grid[2], each.shared_bytes) if "row" in each.kernel else () for each in launches]
        found.add((*(each.kernel for each in launches), *shared))
    return found


def test_what_pieces_do_not_hold(module_of) -> None:
    """Elements that are computed again, many of them in a tile: of fp32_split, where some of a row are far below its
    largest and meet a weight of zero there."""
    module = module_of("plain", 33, torch.float32, "fp32_split", width=200)
    torch.manual_seed(1)
    x = torch.randn(ROWS, 200) * 1e-4
    x[:, 0] = 1e6
    with torch.no_grad():
        module.fc.weight[:, 0] = 0
        whole = module(x)
        for rows in SELECTIONS.values():
            assert torch.equal(module(x[rows]), whole[rows])
        others = torch.cat([x[:1], torch.randn(ROWS - 1, 200)])
        assert torch.equal(module(others)[0], whole[0])


@pytest.mark.parametrize("name", ["plain", "gated"])
def test_the_precision_does_not_follow_from_the_rows(module_of, name: str, monkeypatch) -> None:
    """Elsewhere few rows take IEEE's product, on a GPU."""
    module = module_of(name, 24, torch.float32, "fp32_split")
    support = sys.modules[f"{type(module).__mro__[1].__module__.rpartition('.')[0]}.precisions"]
    monkeypatch.setattr(support, "is_worth_splitting", lambda *_, **__: False)
    asked = SimpleNamespace(device=torch.device("cuda"), shape=(1, WIDTH), numel=lambda: WIDTH)
    weight = torch.empty(24, WIDTH)
    assert support.choose_precision(module, asked, weight, torch.float32) == support.FP32_SPLIT


@pytest.mark.parametrize("channels", [64, 513, 4096, 20_000, 131_072])
@pytest.mark.parametrize("name", ["softmax", "norm"])
def test_launches_do_not_follow_from_the_rows(name: str, channels: int, emulation_cache) -> None:
    """Which kernels run, and how many threads of how many blocks share a row."""
    step = "softmax" if name == "softmax" else "layer_norm, name: norm"
    text = SPEC.format(
        name=f"{name}_launched",
        dims="features: 24",
        arguments="{features: {type: dim}}",
        inputs="{x: [batch, features]}",
        chain=f"  - {{op: {step}}}\n  - {{op: mul, parameter: scale, shape: [features], init: ones}}",
    )
    found = {text: shared_by(text, channels, emulation_cache) for text in (text, text.replace("invariant: rows", ""))}
    alike, by_rows = found.values()
    assert len(alike) == 1
    if channels == 131_072:
        assert len(by_rows) > 1  # else nothing is shown
