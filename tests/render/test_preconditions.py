"""No kernel runs where PyTorch refuses a constant: what constants were made of, whatever they were changed to since."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import pytest

torch = pytest.importorskip("torch")

from fusegen.ops.catalogue import STEPS  # noqa: E402
from fusegen.ops.masks import MaskedFill  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402

SPEC = """\
fusegen: 1
name: constants
about: Every op that has constants
dims: {batch: 32, features: 12}
arguments:
  features: {type: dim}
  groups: {type: int, typical: 3}
  low: {type: float, default: -2.0}
  high: {type: float, default: 2.0}
  slope: {type: float, default: 0.1}
  beta: {type: float, default: 1.0}
  threshold: {type: float, default: 20.0}
  lower: {type: float, default: -1.0}
  upper: {type: float, default: 1.0}
  least: {type: float, default: -0.5}
  less: {type: float, default: 0.5}
  elu_alpha: {type: float, default: 1.5}
  celu_alpha: {type: float, default: 2.0}
  factor: {type: float, default: 3.0}
  divisor: {type: float, default: 2.0}
  level: {type: float, default: -0.25}
  replaced: {type: float, default: -0.5}
  hard: {type: float, default: 0.01}
  soft: {type: float, default: 0.02}
  smallest: {type: float, default: 0.001}
inputs:
  x: [batch, features]
dtypes: [float32, float16]
chain:
  - {op: batch_norm, name: bn}
  - {op: mul, constant: factor}
  - {op: div, constant: divisor}
  - {op: hardtanh, min_val: low, max_val: high}
  - {op: leaky_relu, negative_slope: slope}
  - {op: softplus, beta: beta, threshold: threshold}
  - {op: clamp, min: lower, max: upper}
  - {op: maximum, constant: least}
  - {op: sub, constant: less}
  - {op: elu, alpha: elu_alpha}
  - {op: celu, alpha: celu_alpha}
  - {op: threshold, threshold: level, value: replaced}
  - {op: hardshrink, lambd: hard}
  - {op: softshrink, lambd: soft}
  - {op: normalize, eps: smallest}
  - {op: layer_norm, name: ln}
  - {op: group_norm, name: gn, num_groups: groups}
"""
NUMBERED = """\
fusegen: 1
name: numbered
about: A reduction whose gradient goes to one channel
dims: {rows: 4, width: 12}
inputs:
  x: [rows, width]
dtypes: [float32]
chain:
  - {op: max, keepdim: true}
  - {op: sub, input: x}
"""
NAMES = ("low", "high", "slope", "beta", "threshold", "lower", "upper", "least", "less", "factor", "divisor")
MORE = ("elu_alpha", "celu_alpha", "level", "replaced", "hard", "soft", "smallest")
VALUES = (
    *(0, 0.0, 1e-39, -1.0, -3.0, 3.0, 1e5, -1e5, 1e39, -1e39),
    *(math.inf, -math.inf, math.nan, 10**30, True, None, 1j, "1"),
)


@pytest.fixture(scope="module")
def cls(tmp_path_factory):
    root: Path = tmp_path_factory.mktemp("constants")
    return module_class(write("constants", SPEC, root), root)


@pytest.fixture
def module(cls):
    return cls(12, 3)


def raised(module, x) -> type[Exception] | None:
    try:
        module.fusegen_reference(x)
    except Exception as error:  # whatever PyTorch has
        return type(error)
    return None


def kernels_run(module, x) -> bool:
    return module._fusegen_call(x, _count=False, _device="cpu")[0] is not None


def _is_constant(key: str, annotation: str) -> bool:
    """Whether a field takes a number or the name of an argument. Those of norms, dropouts, pooling and upsampling are
    of submodules."""
    of_others = ("init", "bias_init", "eps", "momentum", "p", "norm_type", "scale_factor")
    return key not in of_others and "float" in annotation and "check_identifier" in annotation


def test_every_op_with_constants_is_here() -> None:
    fields = {cls: {key: str(field.annotation) for key, field in cls.model_fields.items()} for cls in STEPS}
    wanted = {cls for cls, found in fields.items() if any(_is_constant(*each) for each in found.items())}
    here = {cls for cls in STEPS for op in get_args(cls.model_fields["op"].annotation) if f"op: {op}," in SPEC}
    assert len(wanted) >= 7 and wanted - here == {MaskedFill}


def test_what_masked_fill_puts_in(tmp_path: Path) -> None:
    text = "fusegen: 1\nname: fills\ndims: {batch: 8}\narguments: {with_: {type: float, default: -3.0}}\n"
    text += "inputs: {x: [batch, 12], mask: [12]}\ndtypes: [float16]\n"
    text += "chain: [{op: masked_fill, mask: mask, constant: with_}]\n"
    module = module_class(write("fills", text, tmp_path), tmp_path)()
    x, mask = torch.randn(3, 12).half(), torch.arange(12) % 2 == 0
    for value, is_fine in ((-3.0, True), (7e4, False), (math.inf, True), (None, False), (torch.ones(2), False)):
        module.with_ = value
        assert (module._fusegen_call(x, mask, _count=False, _device="cpu")[0] is not None) == is_fine
        if not is_fine:
            with pytest.raises((RuntimeError, TypeError)):
                module.fusegen_reference(x, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*NAMES, *MORE, "bn.eps", "bn.momentum", "ln.eps", "gn.eps", "gn.num_groups"])
def test_no_kernel_runs_where_pytorch_raises(module, name: str, dtype) -> None:
    module, x = module.to(dtype), torch.randn(8, 12, dtype=dtype)
    owner, _, attribute = name.rpartition(".")
    owner = module.get_submodule(owner)
    usual = getattr(owner, attribute)
    assert kernels_run(module, x) and raised(module, x) is None
    for training in (True, False):
        module.train(training)
        for value in VALUES:
            setattr(owner, attribute, value)
            error = raised(module, x)
            assert error is None or not kernels_run(module, x), f"{name} = {value!r}: {error}"
            if error is not None:
                with pytest.raises(error):
                    module(x)
        setattr(owner, attribute, usual)
    assert kernels_run(module, x)


@pytest.mark.parametrize(
    ("name", "value"),
    [("low", 3.0), ("high", -3.0), ("bn.eps", 0.0), ("lower", 1e39), ("beta", 1e39), ("least", 1e39), ("less", True)]
    + [("soft", -1.0), ("soft", math.inf), ("hard", 1e39)],
)
def test_what_pytorch_refuses(module, name: str, value: object) -> None:
    """As of torch 2.13; the test above asks the torch at hand."""
    x = torch.randn(8, 12)
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, value)
    assert not kernels_run(module, x)


@pytest.mark.parametrize("value", [torch.tensor(0.5), None, 1j, True, 10**30])
def test_what_is_no_number_is_not_for_the_kernels(module, value: object) -> None:
    module.factor = value
    assert not kernels_run(module, torch.randn(8, 12))


@pytest.mark.parametrize(
    ("factor", "divisor", "folds"),
    [
        (1e12, 1.0, True),
        (1e-12, 1.0, True),
        (0.0, 1.0, True),
        (-1e6, 1e-6, True),
        (1e7, 1e-6, False),
        (1.0, 1e-37, False),
        (1.0, 1e-320, False),
        (1.0, 0.0, False),
        (1e13, 1.0, False),
        (1e-13, 1.0, False),
        (math.nan, 1.0, False),
        (math.inf, 1.0, False),
    ],
)
def test_constants_are_folded_as_far_as_their_products_are_numbers(module, factor, divisor, folds) -> None:
    module.factor, module.divisor = factor, divisor
    assert kernels_run(module, torch.randn(8, 12)) == folds


def test_channels_are_numbered_as_far_as_float32_has_integers(tmp_path: Path) -> None:
    module = module_class(write("numbered", NUMBERED, tmp_path), tmp_path)()
    for channels, numbered in ((2**24, True), (2**24 + 1, False)):
        x = torch.zeros(1, 1).expand(1, channels)
        assert kernels_run(module, x) == numbered


def test_constants_that_nothing_is_multiplied_with_may_be_any(module) -> None:
    module.less, module.slope, module.upper = 1e38, 1e30, math.inf
    assert kernels_run(module, torch.randn(8, 12))
