"""The statistics that kernels find and all that follows from them, judged by the policy of verification."""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import torch

import fusegen
from fusegen.verify.judgement.policy import Comparison, compare
from fusegen.verify.references.reference import reference
from fusegen.verify.subjects.emulated import EmulatedTail
from tests.emulate.building import forced_shapes, kernels_of, write
from tests.emulate.moment_cases import GROUPS, Case, by_rows, sets_of, spread, unset
from tests.emulate.mutants.scenario import add_mutants
from tests.emulate.mutants.statistics import STATISTICS
from tests.emulate.other_chains import BN, GN, LN, Other

CHAINS = {"batch": Other((BN,), linear=False), "group": Other((GN,), linear=False), "layer": Other((LN,), linear=False)}
NORMS = {"batch": "bn", "group": "gn", "layer": "ln"}
EPS = 1e-5


@dataclass
class Built:
    plan: object
    library: object
    module_class: type


@functools.cache
def built(chain: str, cache: Path) -> Built:
    """The chain's package, with all mutants in its kernels; none of them acts until it is chosen."""
    name = f"moments_of_{chain}"
    directory = Path(tempfile.mkdtemp(prefix=name, dir=cache))
    plan = write(name, CHAINS[chain].spec(name), directory)
    add_mutants(directory / name, list(enumerate(STATISTICS.values(), start=1)))
    library = kernels_of(directory / name, plan.modes[0], cache, checked=False)
    return Built(plan, library, fusegen.load(name, directory))


def comparisons(chain: str, case: Case, schedule: str, cache: Path) -> list[Comparison]:
    """Everything that the kernels give, beside what eager PyTorch makes of it."""
    package = built(chain, cache)
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
            former = (1 - factor) * attrgetter(f"running_{name}")(norm)
            found = values[f"bn_running_{name}"].reshape(-1)
            results.append(
                judge(
                    f"running {name}",
                    found[known],
                    (former + factor * value)[known],
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
