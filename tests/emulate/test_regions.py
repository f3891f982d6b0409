"""Modules of several regions and of several results, on the emulator: beside the original, and where kernels may not
run."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.runtime.load import load  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

# A norm in front, a gate, batch norms in two regions, a value that two regions take, two results, a layer alone.
BLOCK = """\
fusegen: 1
name: region_block
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}, slope: {type: float, default: 0.2}}
inputs: {x: [batch, features], shift: [batch, features]}
dtypes: [float32]
chain:
  - {op: add, input: shift, save: total}
  - {op: layer_norm, name: norm, save: normed}
  - {op: linear, name: gate, out_features: hidden}
  - {op: leaky_relu, negative_slope: slope, save: opened}
  - {op: linear, from: normed, name: up, out_features: hidden}
  - {op: batch_norm, name: first_bn}
  - {op: mul, value: opened}
  - {op: linear, name: down, out_features: features}
  - {op: batch_norm, name: second_bn}
  - {op: add, value: total}
outputs: [result, total]
"""


@pytest.fixture(scope="module")
def block(tmp_path_factory, emulation_cache):
    """The plan, the directory of its packages, and the emulated package."""
    root = tmp_path_factory.mktemp("regions")
    (root / "region_block.yaml").write_text(BLOCK)
    plan = planned_file(root / "region_block.yaml")
    write_files(render_all([plan]), root / "generated")
    return (
        plan,
        root / "generated",
        emulate_package(root / "generated" / "region_block", cache=emulation_cache, checked=False),
    )


def made(package):
    torch.manual_seed(1)
    module = package.RegionBlock(6, 9)
    module.fusegen_strict = True
    return module, torch.randn(5, 6), torch.randn(5, 6)


def test_the_whole_beside_the_original(block) -> None:
    plan, _, package = block
    report = Suite(Subject(plan, package, "cpu"), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 100
    checks = {finding.check for finding in report.findings}
    assert {"numerics", "bitwise", "strides", "frozen parameters", "opcheck", "torch.compile", "training"} <= checks


def test_one_region_of_several_results(block) -> None:
    """That of the norm returns its sum, too. Its package is one like all others."""
    plan, _, package = block
    norm = plan.plans[0]
    assert norm.spec.outputs == ("total", "normed")
    suite = Suite(Subject(module_of(norm), _package_of(package._region_norm), "cpu"), full=False)
    findings = [*suite.numerics(norm.modes[0]), *suite.leading(), *suite.gradcheck()]
    assert findings and all(finding.item.ok for finding in findings), [f for f in findings if not f.item.ok]


def _package_of(region):
    return sys.modules[region.__module__]


def test_results_and_gradients_that_nobody_wants(block, monkeypatch) -> None:
    """What is computed from one result alone; by C++ and by Python."""
    module, x, shift = made(block[2])
    found = []
    operator = next(each for each in vars(_package_of(block[2]._region_norm)).values() if hasattr(each, "in_cpp"))
    for in_cpp in (True, False):
        monkeypatch.setattr(operator, "in_cpp", in_cpp and operator.in_cpp)
        for index in range(2):
            given = [x.clone().requires_grad_(), shift.clone()]
            module.train()(*given)[index].square().sum().backward()
            found.append(given[0].grad)
            module.zero_grad()
    for index in range(2):
        given = x.clone().requires_grad_()
        module.fusegen_reference(given, shift)[index].square().sum().backward()
        for mine in (found[index], found[2 + index]):
            torch.testing.assert_close(mine, given.grad, rtol=1e-4, atol=1e-4)


def test_a_region_that_cannot_run_says_so_and_the_others_run(block) -> None:
    module, x, shift = made(block[2])
    expected = module.eval()(x, shift)
    assert module.fusegen_kernels(x, shift)
    hook = module.second_bn.register_forward_hook(lambda *_: None)
    use = module.fusegen_kernels(x, shift)
    assert not use and use.reason == "region_block_down: second_bn has hooks"
    with pytest.raises(RuntimeError, match="region_block_down: fusegen_strict is set"):
        module(x, shift)
    module.fusegen_strict = False
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = [module(x, shift) for _ in range(2)]
    assert [(str(each.message).partition(":")[0], each.filename) for each in told] == [("region_block_down", __file__)]
    torch.testing.assert_close(results[1], expected)
    hook.remove()
    assert module.fusegen_kernels(x, shift)


def test_what_is_asked_computes_nothing(block) -> None:
    module, x, shift = made(block[2])
    before = copy.deepcopy(module.state_dict())
    assert module.train().fusegen_kernels(x, shift)
    with pytest.raises(ValueError, match="batch_norm takes no others"):  # as a call does
        module.fusegen_kernels(x[None], shift[None])
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_no_second_derivative(block) -> None:
    module, x, shift = made(block[2])
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(module(x.requires_grad_(), shift)[0].sum(), x, create_graph=True)


def test_copies_and_calls_by_name(block) -> None:
    module, x, shift = made(block[2])
    module.eval()
    expected = module(x, shift)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(other(x, shift), expected)
    state = {name: value * 2 if name == "up.weight" else value for name, value in module.state_dict().items()}
    with torch.no_grad():
        changed = torch.func.functional_call(module, state, (x, shift))
    assert not torch.equal(changed[0], expected[0]) and torch.equal(changed[1], expected[1])


def test_there_is_no_precision_where_pytorch_calls_a_layer(block) -> None:
    module, _, _ = made(block[2])
    assert module.fusegen_precision == "ieee"
    with pytest.raises(AttributeError):
        module.fusegen_precision = "fp32_split"


def test_a_package_that_is_not_built_runs_on_the_cpu(block) -> None:
    module_class = load("region_block", block[1])
    torch.manual_seed(1)
    module = module_class(6, 9).eval()
    reference, x, shift = made(block[2])
    torch.testing.assert_close(module(x, shift), reference.eval()(x, shift))
    use = module.fusegen_kernels(x, shift)
    assert not use and "the input is on cpu" in use.reason


@pytest.mark.parametrize("stale", ["region_block", "region_block_norm"])
def test_a_module_and_regions_of_two_renderings_are_refused(block, tmp_path, stale: str) -> None:
    """One kept of another chain, as a merge may leave it, beside a manifest of the rest."""
    (tmp_path / "region_block.yaml").write_text(BLOCK.replace("op: add, input: shift", "op: sub, input: shift"))
    plan = planned_file(tmp_path / "region_block.yaml")
    write_files(render_all([plan]), tmp_path / "mixed")
    kept = (block[1] / stale / "__init__.py").read_bytes()
    assert (tmp_path / "mixed" / stale / "__init__.py").read_bytes() != kept
    (tmp_path / "mixed" / stale / "__init__.py").write_bytes(kept)
    with pytest.raises(
        ImportError, match=f"{stale}/__init__.py is not what .*run `fusegen build specs/region_block.yaml`"
    ):
        load("region_block", tmp_path / "mixed")
