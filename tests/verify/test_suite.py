"""`fusegen verify` accepts what is right and catches modules that are wrong in one place, whatever place it is."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402

from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL, sizes  # noqa: E402
from fusegen.verify.checks import behaviour, memory, operators  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.verify.chains import emulated  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def subject(tmp_path_factory, emulation_cache):
    return emulated(tmp_path_factory.mktemp("subject"), emulation_cache, "verified")


@pytest.fixture
def pair(subject):
    return subject.pair(sizes(subject.plan.single, *SMALL[0]), subject.plan.modes[0], seed=3)


def failed(subject) -> set[str]:
    """What falls short in float32, and the gradients that differ from finite differences."""
    suite = Suite(subject, full=False)
    found = [*suite.numerics(subject.plan.modes[0]), *suite.gradcheck()]
    return {finding.item.name for finding in found if not finding.item.ok}


def test_a_right_module_passes_every_check(subject) -> None:
    report = Suite(subject, full=False).report()
    assert not report.failed and report.ok
    checks = {finding.check for finding in report.findings}
    assert checks >= {"numerics", "training", "gradcheck", "opcheck", "torch.compile", "bitwise", "memory"}
    assert set(report.skipped) == {"NaN and infinity", "other stream", "CUDA graph", "tails"}
    names = {finding.item.name for finding in report.findings if finding.check == "numerics"}
    assert names >= {"output", "grad input", "grad input 2", "grad scale", "grad fc.weight", "bn.running_var"}
    dtypes = {finding.dtypes for finding in report.findings if finding.check == "numerics"}
    assert dtypes == {mode.name for mode in subject.plan.modes[:-1]}
    shapes = {finding.shape for finding in report.findings if finding.check == "numerics"}
    assert len(shapes) == len(SMALL)


def test_the_same_seed_gives_the_same_figures_and_another_gives_others(subject) -> None:
    mode = subject.plan.modes[0]
    first, again, other = (list(Suite(subject, seed, full=False).numerics(mode)) for seed in (0, 0, 1))
    assert first == again != other


# Kernels that are wrong in one place, with what they get wrong. The sizes are those of the persistent schedule.
WRONG_KERNELS = {
    "gradient_term": (
        "{name}/kernels.cu",
        "bn_hat_v * k.bn_grad_slope_v + k.bn_grad_mean_v",
        "k.bn_grad_mean_v",
        "grad input",
    ),
    "activation": ("support/activations.cuh", "fma(s, fma(-x, s, x), s)", "fma(s, x, s)", "grad input 2"),
    "biased_variance": ("{name}/kernels.cu", "k.bn_variance_v * k.bn_bessel_v", "k.bn_variance_v", "bn.running_var"),
}


@pytest.fixture(scope="module")
def may_be_wrong(tmp_path_factory, emulation_cache):
    """A package with all of these in its kernels, and what chooses one: its number from 1, or 0."""
    root, header = tmp_path_factory.mktemp("wrong"), '#include "launchers.h"\n'
    changes = [("{name}/kernels.cu", header, f'extern "C" {{ int fusegen_mutant = 0; }}\n{header}')]
    for number, (path, old, new, _) in enumerate(WRONG_KERNELS.values(), start=1):
        changes.append((path, old, f"(fusegen_mutant == {number} ? ({new}) : ({old}))"))
    subject = emulated(root, emulation_cache, "may_be_wrong", changes)
    source = root / "may_be_wrong" / "may_be_wrong" / "kernels.cu"
    libraries = [  # of the modes that failed() runs: each has a number of its own
        compile_kernels(source, cache=emulation_cache, defines=["FUSEGEN_VERIFICATION"], modes=[mode.index])
        for mode in (subject.plan.modes[0], subject.plan.modes[-1])
    ]

    def choose_in_all(number: int) -> None:
        for library in libraries:
            choose(library, number)

    return subject, choose_in_all


@pytest.mark.parametrize("name", [None, *WRONG_KERNELS])
def test_a_wrong_kernel_is_caught(name, may_be_wrong) -> None:
    subject, choose = may_be_wrong
    choose([None, *WRONG_KERNELS].index(name))
    found = failed(subject)
    if name is None:
        assert not found
        return
    quantity = WRONG_KERNELS[name][-1]
    assert quantity in found
    assert any(name.startswith("gradcheck") for name in found) == quantity.startswith("grad")


def patched(subject, monkeypatch, variant: str, function: str, change) -> None:
    """`change(results, arguments)` sees what an op returned and may replace it."""
    operator = getattr(subject.package, variant)
    plain = getattr(operator, function)
    monkeypatch.setattr(operator, "in_cpp", False)
    monkeypatch.setattr(operator, function, lambda *arguments: change(plain(*arguments), arguments))


def test_running_statistics_that_stay_are_caught(subject, monkeypatch) -> None:
    plain = subject.package._train.forward

    def forward(*arguments):
        copies = [a.clone() if isinstance(a, torch.Tensor) and a.dim() == 1 else a for a in arguments]
        return plain(*copies)

    monkeypatch.setattr(subject.package._train, "forward", forward)
    assert failed(subject) == {"bn.running_mean", "bn.running_var"}


def test_operators_in_the_place_of_kernels_are_a_finding(subject) -> None:
    class Active(TorchFunctionMode):
        """Which may do anything, so that no kernel runs."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Active():
        found = list(Suite(subject, full=False).numerics(subject.plan.modes[0]))
    assert found and not any(finding.item.ok for finding in found)
    assert all("a TorchFunctionMode is active" in finding.item.note for finding in found)


def test_a_dropped_parameter_gradient_is_caught(subject, monkeypatch) -> None:
    def drop(gradients, arguments):
        return [torch.zeros_like(g) if g.dim() == 1 else g for g in gradients]

    patched(subject, monkeypatch, "_eval", "backward", drop)
    assert failed(subject) >= {"grad scale", "grad bn.weight", "grad fc.bias"}


def test_a_parameter_without_any_gradient_is_caught(subject, monkeypatch) -> None:
    operator = subject.package._train
    backward = operator.function.backward

    def forgetful(ctx, grad_y):
        found = list(backward(ctx, grad_y))
        found[3] = None
        return tuple(found)

    monkeypatch.setattr(operator, "in_cpp", False)
    monkeypatch.setattr(operator.function, "backward", staticmethod(forgetful))
    assert "dtypes and shapes" in failed(subject)


def test_results_that_change_from_run_to_run_are_caught(subject, monkeypatch, pair) -> None:
    def noisy(results, arguments):
        return (results[0] * (1 + 1e-7 * torch.rand_like(results[0])), *results[1:])

    patched(subject, monkeypatch, "_train", "forward", noisy)
    found = behaviour.repeated(*pair)
    assert [item.ok for item in found] == [False, True] and "output" in found[0].note


def test_a_changed_input_is_caught(subject, monkeypatch, pair) -> None:
    def change(results, arguments):
        arguments[0].data.mul_(2)
        return results

    patched(subject, monkeypatch, "_train", "backward", change)
    (found,) = behaviour.inputs_untouched(*pair)
    assert not found.ok


def test_ignored_strides_are_caught(subject, monkeypatch, pair) -> None:
    plain = subject.package._train.forward

    def forward(x, *others):
        flat = torch.as_strided(x, x.shape, (x.shape[1], 1))
        return plain(flat, *others)

    monkeypatch.setattr(subject.package._train, "forward", forward)
    found = {item.name: item.ok for item in behaviour.strides(*pair)}
    assert not all(found.values()) and found["transposed gradient"]


def test_a_fake_that_lies_is_caught_by_opcheck(subject, pair) -> None:
    fused, original, inputs = pair
    assert all(item.ok for item in operators.opcheck(fused, original, inputs))
    with torch.library._scoped_library("fusegen", "FRAGMENT") as library:
        name = subject.package._eval.forward._schema.name.removeprefix("fusegen::")
        library._register_fake(name, lambda x, *others: x.new_empty(1), allow_override=True)
        found = {item.name: item.ok for item in operators.opcheck(fused, original, inputs)}
    assert not found["opcheck verified_eval_forward"] and found["opcheck verified_train_forward"]


def test_a_module_that_calls_no_op_of_ours_is_caught(pair) -> None:
    _, original, inputs = pair
    assert not operators.opcheck(original, original, inputs)[0].ok


def test_more_saved_than_eager_is_caught(pair) -> None:
    fused, original, inputs = pair

    class Hoarder(type(fused)):
        def forward(self, *given):
            y = super().forward(*given)
            for _ in range(4):
                y = y.exp().log()
            return y

    greedy = copy.deepcopy(fused)
    greedy.__class__ = Hoarder
    assert memory.footprint(fused, original, inputs)[0].ok
    assert not memory.footprint(greedy, original, inputs)[0].ok


def test_an_exception_is_a_finding(subject, monkeypatch) -> None:
    def broken(*arguments):
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(subject.package._eval, "forward", broken)
    report = Suite(subject, full=False).report()
    notes = {finding.item.note for finding in report.failed}
    assert any("ZeroDivisionError: no such thing" in note for note in notes)
