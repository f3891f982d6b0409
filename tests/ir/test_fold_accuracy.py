"""Folded programs in float32 are as close to double precision as the ones that follow the spec step by step.

Columns far from zero, biases that cancel, weights of zero and tiny ones: what a careless fold loses its digits on.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.ir import fold_arithmetic, fold_norms, fold_reductions, rewriter  # noqa: E402
from fusegen.ir.affine import written  # noqa: E402
from fusegen.plan.modules.plan import Plan  # noqa: E402
from fusegen.plan.schedules.folding import Folding  # noqa: E402
from tests.ir.evaluate import Values  # noqa: E402
from tests.plan.planning import LINEAR, planned  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, CHANNELS, GROUPS = 96, 24, 4
FEATURES = 64
SEEDS = 4
EPS = torch.finfo(torch.float32).eps
BN = "op: batch_norm, name: bn"
SILU = "op: silu"
CHAINS = {
    "bias and division": (
        LINEAR,
        BN,
        "op: add, parameter: b, shape: [hidden], init: randn",
        "op: div, constant: d",
        SILU,
    ),
    "scaled before": (LINEAR, "op: mul, parameter: s, shape: [hidden], init: randn", BN, SILU),
    "biases before": (LINEAR, "op: sub, parameter: b, shape: [hidden], init: randn", BN),
    "swapped": (LINEAR, "op: sub, parameter: b, shape: [hidden], init: randn, swap: true", BN, "op: mul, constant: d"),
    "two batch norms": (LINEAR, BN, "op: batch_norm, name: bn2", SILU),
    "no product": ("op: add, parameter: b, shape: [width], init: randn", BN, SILU),
    "groups": (LINEAR, "op: mul, constant: d", f"op: group_norm, name: gn, num_groups: {GROUPS}", SILU),
    "rms": (LINEAR, "op: mul, constant: d", "op: rms_norm, name: rms", SILU),
}
SPREADS = {
    "ordinary": {},
    "columns far from zero": {"mean": 1e4},
    "columns far from zero whose means are exact": {"mean": 1e4, "step": 0.125},
    "large biases": {"bias": 1e4},
    "large shifts": {"shift": 1e4},
    "biases that cancel the mean": {"mean": 1e4, "bias": -1e4},
    "tiny weights": {"weight": 1e-20},
    "weights of zero": {"weight": 0.0},
    "scales of zero": {"s": 0.0},
    "tiny scales": {"s": 1e-6},
    "division by much": {"d": 3e7},
}

LIMITS = {
    # The gradient of a scale before a batch norm is what eps leaves of a sum that cancels. With the mean taken of x,
    # not of x + b, it cancels to an ulp of that mean; a bias that cancels a mean 10^4 times the deviation shows it.
    ("scaled before", "biases that cancel the mean"): {"grad_s"},
}


def draw(spread: dict[str, float], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """In double; what it means is by the name of the tensor.

    step: values are multiples of it, and those of a column lie evenly about its mean: the step-by-step way subtracts
    the mean without any error. size: of x beside 1.
    """
    noise = torch.randn(shape, dtype=torch.float64)
    step = spread.get("step", 0.0)
    if name in ("x", "gemm_product"):
        noise = noise * spread.get("size", 1.0)
        if step:
            noise[1::2] = -noise[::2]
        return _to_step(noise, step) + spread.get("mean", 0.0)
    if name.endswith("running_mean"):
        return _to_step(noise, step) + spread.get("mean", 0.0)
    if name.endswith("_weight"):
        return noise * spread.get("weight", 1.0)
    if name.endswith("var"):
        return noise.square() + 0.1
    if name in ("b", "gemm_bias"):
        return _to_step(noise, step) + spread.get("bias", 0.0)
    if name.endswith("_bias"):
        return noise + spread.get("shift", 0.0)
    return noise * spread["s"] if name == "s" and "s" in spread else noise


def _to_step(values: torch.Tensor, step: float) -> torch.Tensor:
    return (values / step).round() * step if step else values


def product(mean: float, size: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """What a linear layer's product is in float32, and in double: the former has the errors of its additions."""
    x, weight = torch.randn(ROWS, FEATURES), torch.randn(FEATURES, CHANNELS) / FEATURES**0.5
    x[:, 0], weight[0] = 1.0, mean
    weight *= size
    return x @ weight, x.double() @ weight.double()


def constants(plan, spread: dict[str, float]) -> dict[str, torch.Tensor]:
    values = {"d": spread.get("d", 1.7)}
    names = plan.chain.constants
    return {n: torch.tensor(values.get(n, 0.1 if n.endswith("momentum") else 1e-5), dtype=torch.float64) for n in names}


def outputs(variant, leaves: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Everything that the variant's programs write."""
    found: dict[str, torch.Tensor] = {}
    for program in (variant.forward, variant.backward):
        values = Values({"N": ROWS, "C": CHANNELS}, dtype, {**leaves, **found})
        known = {t.node: t.name for t in program.inputs}
        found |= values.of({t.name: t.node for t in program.outputs}, known)
    return found


@functools.cache
def step_by_step(chain: str, directory: Path) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folding, "program", Folding.unfolded)
        return plan_of(chain, directory)


def plan_of(chain: str, directory: Path) -> Plan:
    arguments = ", d: {type: float, default: 1.7}" if any("constant: d" in step for step in CHAINS[chain]) else ""
    return planned(directory, *CHAINS[chain], arguments=arguments)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("specs")


folded = functools.cache(plan_of)


def check(
    folded: Plan, plain: Plan, spread: dict[str, float], but: Collection[str] = (), at_the_ends: bool = False
) -> None:
    """At most twice the error of the step-by-step way, and a few ulps, for all that the programs write.

    Errors are in units of `unit_of`. Their norm over several draws counts: what is largest among
    few is a matter of chance. at_the_ends: sums may come out finite that are not in the step-by-step way.
    """
    for variant, other in zip(folded.variants, plain.variants, strict=True):
        error: Counter[str] = Counter()
        limit: Counter[str] = Counter()
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            leaves, single = draw_leaves(other, constants(plain, spread), spread)
            exact = outputs(other, leaves, torch.float64)
            eager = outputs(other, single, torch.float32)
            found = outputs(variant, single, torch.float32)
            assert found.keys() == exact.keys()
            for name, value in exact.items():
                finite, expected = found[name].isfinite(), eager[name].isfinite()
                assert torch.equal(finite, expected) or at_the_ends and bool((finite | ~expected).all()), name
                unit = unit_of(name, exact, leaves)
                error[name] += float(relative(found[name], value, unit).square().mean())
                limit[name] += float(relative(eager[name], value, unit).square().mean())
        for name in error.keys() - set(but):
            # The mean of x + b is that of x, and b: it has the rounding error of a mean of x.
            terms = abs(spread.get("mean", 0.0)) if name.endswith("_mean") else 0.0
            allowed = 2 * (limit[name] / SEEDS) ** 0.5 + EPS * (8 + 2 * terms)
            assert (error[name] / SEEDS) ** 0.5 <= allowed, (variant.name, name, error[name], limit[name])


def unit_of(name: str, exact: dict[str, torch.Tensor], leaves: dict[str, torch.Tensor]) -> torch.Tensor:
    """The largest value of each column; of a vector, its largest value, or that of the terms that cancel in it."""
    value = exact[name]
    if name == "grad_s":
        scaled = leaves["gemm_product"] + leaves.get("gemm_bias", 0)
        value = (exact["grad_gemm_product"] / leaves["s"] * scaled).nan_to_num()
        value = value.abs().sum(0)
    full = value.dim() == 2 and value.shape[0] > 1
    largest = value.abs().amax(0) if full else value.abs().amax()
    return torch.where(largest == 0, 1, largest)


def relative(found: torch.Tensor, exact: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    found = found.double().expand(exact.shape)
    return torch.where(exact.isfinite() & found.isfinite(), found - exact, 0) / unit


def draw_leaves(variant, leaves: dict[str, torch.Tensor], spread: dict[str, float]):
    """Everything that the variant reads but its saved statistics, for double precision and for float32."""
    saved = {tensor.name for tensor in variant.saved}
    for tensor in {t.name: t for p in (variant.forward, variant.backward) for t in p.inputs}.values():
        if tensor.name not in saved:
            shape = (tensor.axes.count("N", ROWS), tensor.axes.count("C", CHANNELS))
            leaves[tensor.name] = draw(spread, tensor.name, shape)
    leaves = {name: value.float().double() for name, value in leaves.items()}
    single = dict(leaves)
    if "gemm_product" in leaves and "step" not in spread:
        single["gemm_product"], leaves["gemm_product"] = product(spread.get("mean", 0.0), spread.get("size", 1.0))
    return leaves, single


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("chain", CHAINS)
def test_not_less_accurate_than_step_by_step(directory, chain: str, spread: str) -> None:
    check(folded(chain, directory), step_by_step(chain, directory), SPREADS[spread], LIMITS.get((chain, spread), ()))


TIMES_S = "op: mul, parameter: s, shape: [hidden], init: randn"
TINY = "op: div, constant: 5.0e-37"
AT_THE_ENDS = {
    # 1 / deviation of equal rows is 316: by 2e36 it is infinite, and infinity times nothing is NaN.
    "a tiny divisor": ((BN, TINY), {"size": 0.0}),
    "a tiny divisor behind a row's norm": (("op: layer_norm, name: ln", TINY), {"size": 0.0}),
    "a tiny divisor behind a root mean square": (("op: rms_norm, name: n", TINY), {"size": 0.0}),
    "a large divisor": ((BN, "op: div, constant: 1.0e+30"), {"size": 1e15}),
    "behind one another": (("op: mul, constant: 1.0e-30", "op: mul, constant: 1.0e-20"), {"size": 1e35}),
    "sums before a factor": (
        ("op: sub, parameter: b, shape: [hidden], init: randn", "op: mul, constant: 1.0e+37"),
        {"bias": 1e4, "mean": 1e4},
    ),
    "a scale that brings a variance back": (("op: mul, constant: 1.0e-10", BN), {"size": 1e22}),
    "a parameter that brings a variance back": ((TIMES_S, BN), {"size": 1e24, "s": 1e-18}),
    "one that makes a variance": ((TIMES_S, BN), {"size": 1e-24, "s": 1e24}),
    "a group's": (("op: mul, constant: 1.0e-10", "op: group_norm, name: gn, num_groups: 4"), {"size": 1e22}),
    "a gradient's factor": ((BN, "op: mul, constant: 1.0e+35", "op: mul, constant: 1.0e-35"), {"size": 1e-20}),
    "constants of the module": ((BN, "op: div, constant: d"), {"size": 0.0, "d": 2.0**-40}),
    "large constants of the module": ((BN, "op: div, constant: d"), {"size": 1e18, "d": 2.0**40}),
}


@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_folding_does_not_change_the_range(directory, monkeypatch, name: str) -> None:
    """Finite where PyTorch's order of operations is, to the same digits."""
    steps, spread = AT_THE_ENDS[name]
    monkeypatch.setitem(CHAINS, name, (f"{LINEAR}, bias: false", *steps))
    check(folded(name, directory), step_by_step(name, directory), spread, at_the_ends=True)


def cancelling(graph, form, name, temporary):
    """x * scale + (shift - center * scale): the same in exact arithmetic."""
    if form.center is None or not form.scales:
        return written(graph, form, name, temporary)
    moved = form.center
    for scale in form.scales:
        moved = ("mul", moved, scale)
    shift = ("negate", moved) if form.shift is None else ("sub", form.shift, moved)
    return written(graph, type(form)(form.base, None, form.scales, shift, form.owner), name, temporary)


@pytest.mark.parametrize("chain", ["bias and division", "biases before"])
def test_the_cancelling_way_is_seen(directory, monkeypatch, chain: str) -> None:
    for module in (rewriter, fold_arithmetic, fold_norms, fold_reductions):
        monkeypatch.setattr(module, "written", cancelling)
    broken, plain = plan_of(chain, directory), step_by_step(chain, directory)
    check(broken, plain, SPREADS["ordinary"])
    with pytest.raises(AssertionError, match="train"):
        check(broken, plain, SPREADS["columns far from zero whose means are exact"])


def test_folding_across_an_exact_input_is_seen(directory, monkeypatch) -> None:
    """x + b is exact where b cancels x, x - (mean - b) is not: an input of the module is not a rounded product."""
    monkeypatch.setattr(rewriter.Rewriter, "settled", lambda self, node: self.forms[node])
    broken, plain = plan_of("no product", directory), step_by_step("no product", directory)
    with pytest.raises(AssertionError):
        check(broken, plain, SPREADS["biases that cancel the mean"])
