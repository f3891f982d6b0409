"""A chain takes [..., channels] where PyTorch's own operators do the same there as on the view [rows, channels]."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.dimensions import dimensions  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.reference.ops import example, known_ops  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH = 6, 16
SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: {rows}, hidden: {width}}}
arguments: {{{batch}hidden: {{type: dim}}, divisor: {{type: float, default: 2.0}}}}
inputs: {{x: [batch, hidden]{inputs}}}
dtypes: [float32]
chain:
  - {{op: div, constant: divisor}}
  - {{op: relu, save: first}}
  - {{op: add, parameter: uses_hidden, shape: [hidden], init: randn}}
  - {chain}
  - {{op: mul, parameter: uses_hidden}}
"""
# Steps in front of an op that is not defined for all positive numbers.
IN_FRONT = {
    **dict.fromkeys(("asin", "acos", "atanh"), "{op: tanh}\n  - "),
    "acosh": "{op: add, constant: 1}\n  - ",
}
# A drop path acts on samples, which the kernels number. A loss takes rows as they are.
ROW_WISE = [
    op
    for op, step in known_ops().items()
    if not (step.anchor or not step.has_kernels or step.ends_chain) and op != "drop_path"
]
CHAINS = {op: IN_FRONT.get(op, "") + example(op) for op in ROW_WISE} | {
    "one_weight": "{op: prelu, name: act}",
    "parameter_of_one": "{op: mul, parameter: scale, shape: [1], init: randn}",
    "scalar_parameter": "{op: mul, parameter: scale, shape: [], init: 2.0}",
    "parameter_as_a_row": "{op: mul, parameter: scale, shape: [1, hidden], init: randn}",
    "parameter_with_rows": "{op: mul, parameter: scale, shape: [batch, hidden], init: randn}",
    "not_affine": "{op: group_norm, name: gn, num_groups: 2, affine: false}",
    "softmax_of_dimension_1": "{op: softmax, dim: 1}",
    "sum_of_dimension_1": "{op: sum, keepdim: true, dim: 1}",
    "softmax_of_the_last": "{op: softmax, dim: -1}",
    "sum_of_the_last": "{op: sum, keepdim: true}",
    "constant": "{op: minimum, constant: 0.5}",
    "value": "{op: mul, value: first}",
    "residual": "{op: add, input: r}",
}
DIVIDING = [CHAINS[op] for op, step in known_ops().items() if step.divides]


def built(name: str, chain: str, directory: Path):
    """The plan, and the module in PyTorch's operators."""
    path = directory / f"dims_{name}.yaml"
    batch, inputs = "batch: {type: dim}, " * ("batch" in chain), ", r: [batch, hidden]" * ("input" in chain)
    inputs += ", padding: [batch, hidden]" * ("mask" in chain)
    text = SPEC.format(name=path.stem, rows=ROWS, width=WIDTH, chain=chain, batch=batch, inputs=inputs)
    if chain in DIVIDING:
        text = text.replace("x: [batch, hidden]", "x: [batch, 2 * hidden]")
    if chain in DIVIDING or "op: linear" in chain:
        text = text.replace(f"  - {chain}\n", "").replace("chain:\n", f"chain:\n  - {chain}\n")
    if "value: first" not in chain:
        text = text.replace(", save: first", "")
    path.write_text(text, encoding="utf-8")
    plan = plan_file(path)
    write_files(render_all([module_of(plan)]), directory / "generated")
    torch.manual_seed(5)
    sizes = {"batch": ROWS, "hidden": WIDTH}
    arguments = [sizes[name] for name in plan.spec.arguments if name in sizes]
    module = fusegen.load(plan.spec.name, directory / "generated")(*arguments)
    for parameter in module.parameters():
        parameter.data.uniform_(0.5, 1.5)  # no logarithm of what is negative, no two alike
    return plan, module.double()


def acts_on_rows(module, plan, sizes: tuple[int, ...]) -> bool:
    """Whether PyTorch gives the same for these leading dimensions as for their product."""
    width = plan.chain.number_of_parts * WIDTH
    given = [torch.randn(*sizes, width if each is plan.chain.inputs[0] else WIDTH) for each in plan.chain.inputs]
    given = [x.double().exp() for x in given]
    given = [x > 1 if each.name in plan.chain.masks else x for each, x in zip(plan.chain.inputs, given, strict=True)]
    try:
        torch.manual_seed(1)  # both draw alike
        expected = module.fusegen_reference(*(x.reshape(-1, x.shape[-1]) for x in given))
        torch.manual_seed(1)
        result = module.fusegen_reference(*given)
    except (ValueError, RuntimeError, IndexError):
        return False
    same_shape = result.shape == (*sizes, WIDTH)
    return same_shape and torch.allclose(result.reshape(-1, WIDTH), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*CHAINS, "linear"])
def test_as_pytorch_has_it(name: str, tmp_path: Path) -> None:
    chain = CHAINS.get(name, "{op: linear, name: fc, out_features: hidden}")
    plan, module = built(name, chain, tmp_path)
    allowed = dimensions(plan)
    # The second: the rows that a parameter may have. The third: dimension 1 is as long as the channels.
    three = [acts_on_rows(module, plan, sizes) for sizes in ((2, 3), (2, ROWS), (2, WIDTH), (2, 3, 2))]
    assert all(three) == (allowed.most is None)
    assert acts_on_rows(module, plan, ()) == (allowed.least == 1)
    assert bool(allowed.reason) == (not all(three) or allowed.least > 1)
    assert module._fusegen_dimensions[:3] == (allowed.least, allowed.most, allowed.reason)


@pytest.mark.parametrize("shape", ["[6, 16]", "[hidden, hidden]"])
def test_rows_that_are_no_size_of_their_own(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "tied.yaml"
    dims = "dims: {hidden: 16}\n" if "hidden" in shape else ""
    path.write_text(f"fusegen: 1\nname: tied\n{dims}inputs: {{x: {shape}}}\nchain: [{{op: relu}}]\n")
    assert dimensions(plan_file(path)).most == 2
