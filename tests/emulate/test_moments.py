"""Statistics of data that is hard on them, through all schedules, by the policy of verification; and seen to fail."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.verify.emulated import EmulatedTail  # noqa: E402
from fusegen.verify.policy import Comparison, compare, table  # noqa: E402
from fusegen.verify.reference import reference  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, write  # noqa: E402
from tests.emulate.mutants.mutant import Mutant  # noqa: E402
from tests.emulate.mutants.scenario import add_mutants, choose  # noqa: E402
from tests.emulate.other_chains import BN, GN, LN, Other  # noqa: E402

pytestmark = pytest.mark.torch

CHAINS = {"batch": Other((BN,), linear=False), "group": Other((GN,), linear=False), "layer": Other((LN,), linear=False)}
NORMS = {"batch": "bn", "group": "gn", "layer": "ln"}
SCHEDULES = {
    "batch": ("persistent", "clusters of 4", "l2", "two_pass"),
    "group": ("persistent", "two_pass", "two_pass, segments in 4 blocks"),
    "layer": ("persistent", "two_pass", "two_pass, segments in 4 blocks"),
}
GROUPS = 4
FAR = 1e4  # deviations
EPS = 1e-5


@dataclass(frozen=True)
class Case:
    """Data [values, sets]: each column is one set of values that has a mean and a variance.

    A thread's first values are those that it has a shift of: the first 32 of the column kernel's, in this shape, and
    the first 8 of each 24 of the pointwise kernels'.
    """

    kind: str
    values: int = 70
    sets: int = 132

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.values}x{self.sets}"

    @property
    def data(self) -> torch.Tensor:
        torch.manual_seed(self.values)
        x = torch.randn(self.values, self.sets)
        index = torch.arange(self.values)
        if self.kind == "far":
            x += FAR
        elif self.kind == "far, each its own":
            x += FAR * torch.linspace(-1, 1, self.sets)
        elif self.kind == "first value an outlier":
            x[0] += FAR
        elif self.kind == "first of each thread an outlier":
            x[(index < 32) | (index % 24 < 8)] += FAR
        elif self.kind == "first of each thread of a block an outlier":
            x[index % 24 < 8] -= FAR
        elif self.kind == "all but the first far away":
            x[1:] += FAR
        elif self.kind == "constant":
            x = (10 ** torch.linspace(-3, 4, self.sets)).expand(self.values, -1) * 1.1
        elif self.kind in LARGE:
            x *= LARGE[self.kind]
        elif self.kind in SPECIAL:
            x[0, ::3] = SPECIAL[self.kind]
            x[-1, 1::12] = SPECIAL[self.kind]
        else:
            assert self.kind == "plain"
        return x.contiguous()


# Where squares of distances, or sums of them, leave the range of float32: 1 / deviation is zero then.
LARGE = {"1e18": 1e18, "1e19": 1e19, "1e20": 1e20, "1e30": 1e30}
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
CASES = [
    *(
        Case(kind)
        for kind in (
            "far",
            "far, each its own",
            "first value an outlier",
            "first of each thread an outlier",
            "first of each thread of a block an outlier",
            "all but the first far away",
            "constant",
            *LARGE,
            *SPECIAL,
        )
    ),
    # One value, fewer of them than threads, one more than a turn; columns in vectors and without.
    *(Case("plain", values, sets) for values in (1, 2, 3, 5, 33, 257) for sets in (12, 7)),
    *(Case(kind, values, 12) for kind in ("far", "constant", "inf") for values in (2, 5, 257)),
]


def fits(schedule: str, case: Case) -> bool:
    """L2-resident tiles want rows that begin at multiples of a vector."""
    return schedule != "l2" or case.sets % 4 == 0


_OUTLIERS = [case for case in CASES if "first" in case.kind]
_FAR = [case for case in CASES if case.kind.startswith("far")]
_CONSTANT = [case for case in CASES if case.kind == "constant"]
_SPECIAL = [case for case in CASES if case.kind in SPECIAL]
_LARGE = [case for case in CASES if case.kind in ("1e20", "1e30")]
_FEW = [case for case in CASES if case.kind == "plain" and case.values in (1, 2, 3, 5)]
_HIDDEN = "if (count == Acc(0)) return {Acc(0), Acc(0)};"
_SQUARE, _OF_SEGMENT = "square(distances[v])", "moments_over_segment(shared, total, count, length);"

# Where kernels are broken: the file, the function, what stands there and what then does.
MUTANTS = {
    name: Mutant(name, "", *rest, caught="")
    for name, *rest in (
        ("no shift", "reductions.cuh", None, "if (first) sum.shift = term;", ""),
        ("a mean that is a little off", "moments.cuh", "moments_of", "sums.shift + distance",
         "sums.shift * Acc(1.0001) + distance"),
        ("a shift that is not subtracted from the squares", "moments.cuh", "moments_of", "sums.sum * distance",
         "Acc(0)"),
        ("infinity less infinity", "moments.cuh", "without", "squares < Acc(INFINITY)", "true"),
        ("sums that are not finite count as none", "moments.cuh", "moments_of", _HIDDEN,
         _HIDDEN.replace(")) r", ") || !(sums.squares <= Acc(1e30))) r")),
        ("a thread of a tile without rows counts", "kernels/column.cuh", "run",
         "own > 0 ? Acc((own + blockDim.y - 1) / blockDim.y) : Acc(0)", "Acc(1)"),
        ("a thread of a slice without rows counts", "kernels/l2_sums.cuh", "leave_l2_sums",
         "own > 0 ? Acc((own + kRowsPerIteration - 1) / kRowsPerIteration) : Acc(0)", "Acc(1)"),
        ("a thread of a block without rows counts", "kernels/pointwise.cuh", None,
         "own > 0 ? Acc(mine - lacks(begin + threadIdx.y + (mine - 1) * blockDim.y, v)) : Acc(0)", "Acc(1)"),
        ("a difference of squares", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE,
         "value[i][v] * value[i][v] - moments.mean * moments.mean"),
        ("half of a row's squares", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE, f"{_SQUARE} / 2"),
        ("a row's mean that is a little off", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE,
         "square(value[i][v] - moments.mean * Acc(1.0001))"),
        ("the rest of the distances stays", "kernels/row_totals.cuh", "moments_in_registers",
         "correct(moments, rest, counts.inverse_part);", ""),
        ("half of a segment's squares", "kernels/row_reduction.cuh", "sums_over_segment", _OF_SEGMENT,
         f"{_OF_SEGMENT} total.m2 /= 2;"),
        ("a variance that is not finite is none", "moments.cuh", "correct", "m2 < Acc(0) ? Acc(0) : m2",
         "m2 >= Acc(0) && m2 < Acc(1e30) ? m2 : Acc(0)"),
    )
}  # fmt: skip
_WITHOUT_ROWS = {"persistent": "tile", "clusters of 4": "tile", "l2": "slice", "two_pass": "block"}

# The chain and the schedule that are broken, how, and the cases that have to see it.
BROKEN = [
    *(
        ("batch", schedule, name, cases)
        for schedule, part in _WITHOUT_ROWS.items()
        for name, cases in (
            # The threads of a cluster have so few values each that sums of equal ones are exact.
            ("no shift", [c for c in (*_FAR, *(_CONSTANT if schedule != "clusters of 4" else ())) if c.values > 5]),
            ("a mean that is a little off", [c for c in (*_FAR, *_CONSTANT) if c.values <= 5]),
            ("a shift that is not subtracted from the squares", _OUTLIERS),
            ("infinity less infinity", _LARGE),
            ("sums that are not finite count as none", _SPECIAL),
            (f"a thread of a {part} without rows counts", _FEW),
        )
    ),
    *(
        (chain, schedule, name, cases)
        for chain in ("group", "layer")
        for schedule, name, cases in (
            ("persistent", "a difference of squares", _FAR),
            ("persistent", "half of a row's squares", [*_OUTLIERS, *_FEW[2:]]),
            ("persistent", "a row's mean that is a little off", _CONSTANT),
            # Of 257 values warps have 128, 128 and one: their means are exact.
            ("persistent", "the rest of the distances stays", [c for c in _CONSTANT if 3 < c.values < 257]),
            ("two_pass", "half of a segment's squares", [*_OUTLIERS, *_FEW[2:]]),
            ("persistent", "a variance that is not finite is none", _SPECIAL),
            ("two_pass", "a variance that is not finite is none", _SPECIAL),
        )
    ),
]


@dataclass
class Built:
    plan: object
    library: object
    module_class: type


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("moments")


@functools.cache
def built(chain: str, root: Path) -> Built:
    """The chain's package, with all mutants of the chain in its kernels."""
    name = f"moments_of_{chain}"
    directory = root / name
    directory.mkdir()
    plan = write(name, CHAINS[chain].spec(name), directory)
    add_mutants(directory / name, list(enumerate(MUTANTS.values(), start=1)))
    library = kernels_of(directory / name, plan.modes[0], root / "cache")
    return Built(plan, library, fusegen.load(name, directory))


def comparisons(chain: str, case: Case, schedule: str, root: Path) -> list[Comparison]:
    """Everything that the kernels give, beside what eager PyTorch makes of it."""
    package = built(chain, root)
    x = by_rows(chain, case)
    module = package.module_class(
        **{name: {"features": x.shape[1], "groups_of_gn": GROUPS}[name] for name in package.plan.spec.arguments}
    )
    torch.manual_seed(1)
    for parameter in module.parameters():
        parameter.data.uniform_(0.5, 1.5)
    grad = torch.randn(x.shape)
    sets = sets_of(chain, x)
    alone = chain == "batch" and case.values == 1  # which a module refuses
    exact = None if alone else reference(module.train(), [x.requires_grad_()], grad)
    tail = EmulatedTail(package.plan, package.plan.variants[0], package.library, module)
    given = {"x": x.detach(), "grad_y": grad}
    values = tail.run(given, package.plan.modes[0], shapes=forced_shapes(schedule)).values
    norm = attrgetter(NORMS[chain])(module)
    eager = Eager(sets, sets_of(chain, grad), *(spread(chain, p.detach(), x) for p in (norm.weight, norm.bias)))
    saved = [values[f"{NORMS[chain]}_{name}"].reshape(-1) for name in ("mean", "rstd")]
    double = sets.double()
    exact_mean, exact_rstd = double.mean(0), (double.var(0, correction=0) + EPS).rsqrt()
    known = torch.isfinite(exact_rstd)
    # A float32 mean is rounded by its own size. In deviations, the units of all results, that may be much.
    size = (exact_mean.abs() / double.std(0, correction=0))[known]
    size = max([1.0, *size[size.isfinite()].tolist()])
    judge = functools.partial(
        compare, dtype=torch.float32, reduction_length=case.values, scale=max(1.0, size / math.sqrt(case.values))
    )
    results = [
        Comparison.statement("statistics that are not finite", not any(s[~known].isfinite().any() for s in saved)),
        judge("mean", saved[0][known], eager.mean[known], exact_mean[known]),
        judge("rstd", saved[1][known], eager.rstd[known], exact_rstd[known]),
    ]
    if case.kind == "constant":
        results += [
            Comparison.statement("exact mean", torch.equal(saved[0], sets[0])),
            Comparison.statement("exact rstd", torch.equal(saved[1], eager.rstd)),
        ]
    y, dx = sets_of(chain, values["y"]), sets_of(chain, values["grad_x"])
    if exact is None:
        return [*results, judge("y", y, eager.y, eager.bias.double().expand_as(y))]
    run = exact.run
    results.append(judge("y", y, eager.y, sets_of(chain, run.output)))
    # Of few values, hardly anything is left of the terms.
    terms = (eager.grad * eager.weight * eager.rstd).abs().nan_to_num(0.0, 0.0, 0.0)
    results.append(judge("grad x", dx, eager.dx, sets_of(chain, run.gradients["input"]), terms=terms))
    for name, terms in (("weight", eager.grad * eager.hat), ("bias", eager.grad)):
        found = values[f"grad_{NORMS[chain]}_{name}"].reshape(-1)
        summed = unset(chain, terms, x).sum(0)
        given = f"{NORMS[chain]}.{name}"
        results.append(judge(f"grad {name}", found, summed, run.gradients[given], terms=exact.terms.get(given)))
    if chain == "batch":
        factor, bessel = 0.1, case.values / (case.values - 1)
        for name, value in (("mean", eager.mean), ("var", eager.variance * bessel)):
            kept = (1 - factor) * attrgetter(f"running_{name}")(norm)
            found = values[f"bn_running_{name}"].reshape(-1)
            results.append(
                judge(
                    f"running {name}",
                    found[known],
                    (kept + factor * value)[known],
                    run.buffers[f"bn.running_{name}"][known],
                )
            )
    return results


class Eager:
    """A normalisation as PyTorch's kernels for GPUs have it, in float32: each of 16 threads updates its mean value by
    value (Welford), and what they have is merged (Chan). Those for CPUs take their statistics in double."""

    def __init__(self, x, grad, weight, bias):
        self.x, self.grad, self.weight, self.bias = x.detach(), grad, weight, bias
        parts = [self._update(part) for part in self.x.split(-(-len(x) // 16))]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self._merge(*pair) for pair in pairs] + parts[len(parts) // 2 * 2 :]
        _, self.mean, m2 = parts[0]
        self.variance = m2 / len(x)
        self.rstd = (self.variance + EPS).rsqrt()
        self.hat = (self.x - self.mean) * self.rstd
        self.y = self.hat * weight + bias
        scaled = grad * weight
        self.dx = (scaled - scaled.mean(0) - self.hat * (scaled * self.hat).mean(0)) * self.rstd

    @staticmethod
    def _update(x):
        mean, m2 = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        for count, value in enumerate(x, start=1):
            delta = value - mean
            mean = mean + delta / count
            m2 = m2 + delta * (value - mean)
        return len(x), mean, m2

    @staticmethod
    def _merge(a, b):
        count, delta = a[0] + b[0], b[1] - a[1]
        share = b[0] / count
        return count, a[1] + delta * share, a[2] + b[2] + delta * delta * (a[0] * share)


def by_rows(chain: str, case: Case) -> torch.Tensor:
    """The tensor [rows, channels] that has these sets of values as its columns, its groups or its rows."""
    data = case.data
    if chain == "group":
        return data[:, : case.sets // GROUPS * GROUPS].T.reshape(-1, GROUPS * case.values)
    return data if chain == "batch" else data.T.contiguous()


def sets_of(chain: str, x: torch.Tensor) -> torch.Tensor:
    """[values, sets] again."""
    if chain == "group":
        return x.reshape(-1, x.shape[1] // GROUPS).T
    return x if chain == "batch" else x.T


def unset(chain: str, sets: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return sets if chain == "batch" else sets.T.reshape(x.shape)


def spread(chain: str, parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value of the channel's parameter for each of the sets' values."""
    return sets_of(chain, parameter.expand(x.shape))


def cases():
    for chain in CHAINS:
        for case in CASES:
            # A group is at least a column wide; with one value each, eager refuses a single row.
            if chain == "group" and case.sets // GROUPS == 1 and case.values == 1:
                continue
            for schedule in SCHEDULES[chain]:
                if fits(schedule, case):
                    name = f"{chain}-{case.id}-{schedule}"
                    yield pytest.param(chain, case, schedule, id=name.replace(" ", "_"))


@pytest.mark.parametrize(("chain", "case", "schedule"), list(cases()))
def test_statistics_are_as_accurate_as_eagers(chain, case, schedule, root):
    found = comparisons(chain, case, schedule, root)
    assert all(each.ok for each in found), f"\n{table(found, failures_only=True)}"


@pytest.mark.parametrize(
    ("chain", "schedule", "name", "case"),
    [
        pytest.param(chain, schedule, name, case, id=f"{chain}-{schedule}-{name}-{case.id}".replace(" ", "_"))
        for chain, schedule, name, cases in BROKEN
        for case in cases
        if fits(schedule, case)
    ],
)
def test_broken_kernels_are_seen(chain, schedule, name, case, root):
    library = built(chain, root).library
    choose(library, list(MUTANTS).index(name) + 1)
    try:
        found = comparisons(chain, case, schedule, root)
    finally:
        choose(library, 0)
    assert not all(each.ok for each in found)
