"""Norms of blocks of channels, such as the heads of an attention, with a weight that the blocks share."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402
from tests.emulate.test_chains import agreement, schedules_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: {name}
about: norms of heads
dims: {{batch: 64, features: 96, head: 24{dims}}}
arguments: {{features: {{type: dim}}, head: {{type: dim}}{arguments}}}
inputs: {{x: [batch, {width}]}}
dtypes: [{dtypes}]
chain:
{chain}
"""
HEADS = "  - {op: rms_norm, name: q_norm, width: head, eps: 1e-6}"
TWO = "  - {op: layer_norm, name: ln, width: head}\n  - {op: gelu}\n" + HEADS


def spec(name: str, chain: str, linear: bool = False, dtypes: str = "float32") -> str:
    return SPEC.format(
        name=name,
        dims=", hidden: 16" * linear,
        arguments=", hidden: {type: dim}" * linear,
        width="hidden" if linear else "features",
        dtypes=dtypes,
        chain="  - {op: linear, name: q_proj, out_features: features, bias: false}\n" * linear + chain,
    )


def test_every_schedule_against_double_precision(emulation_cache: Path, tmp_path: Path) -> None:
    plan = write("two", spec("two", TWO), tmp_path)
    mode, (variant,) = plan.modes[0], plan.variants
    library = compile_kernels(tmp_path / "two" / "kernels.cu", cache=emulation_cache, modes=[mode.index])
    for seed, (rows, heads, width) in enumerate(((1, 3, 5), (3, 2, 1), (33, 4, 8), (4, 1, 24), (2, 3, 1030))):
        torch.manual_seed(seed)
        module = module_class(plan, tmp_path)(heads * width, width)
        for parameter in module.parameters():
            nn.init.normal_(parameter)
        tensors = {name: torch.randn(rows, heads * width) for name in ("x", variant.result_gradient)}
        expected = tail_reference(plan, module, tensors, mode, True)
        assert expected["grad_q_norm_weight"].shape == (width,)
        tail = EmulatedTail(plan, variant, library, module)
        assert sum(agreement(tail, tensors, mode, each, seed, expected) for each in schedules_of(variant)) >= 10


class Original(nn.Module):
    def __init__(self, features: int, head: int, hidden: int) -> None:
        super().__init__()
        self.q_proj, self.q_norm = nn.Linear(hidden, features, bias=False), nn.RMSNorm(head, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q_proj(x)
        return self.q_norm(q.view(*q.shape[:-1], -1, self.q_norm.weight.numel())).flatten(-2)


@pytest.fixture(scope="module")
def package(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("heads")
    plan = write("heads", spec("heads", HEADS, linear=True, dtypes="bfloat16"), root)
    return module_of(plan), emulate_package(root / "heads", cache=emulation_cache, checked=False)


def test_the_module_is_verified(package) -> None:
    suite = Suite(Subject(*package, "cpu", Original), full=False)
    (size, *_) = several(package[0], SMALL[:1])
    found = [*(each for mode in suite.modes() for each in suite.numerics(mode)), *suite.leading()]
    found += [*suite.training(size)]
    assert {"numerics", "leading dimensions", "training"} == {each.check for each in found}
    assert not [each for each in found if not each.item.ok]


def test_a_module_that_was_changed(package) -> None:
    module = package[1].Heads(12, 4, 6).bfloat16()
    x = torch.randn(5, 6).bfloat16()
    torch.testing.assert_close(module(x), module.fusegen_reference(x))
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    for call in (module, compiled):
        call(x).square().sum().backward()
    assert torch.equal(module.q_norm.weight.grad, dict(compiled.named_parameters())["_orig_mod.q_norm.weight"].grad)
    module.q_norm = nn.RMSNorm(6, eps=1e-6).bfloat16()
    assert module.fusegen_kernels(x)
    expected = F.rms_norm(module.q_proj(x).view(5, 2, 6), (6,), eps=1e-6).flatten(1)
    torch.testing.assert_close(module(x), expected)
    module.q_norm = nn.RMSNorm(5).bfloat16()
    assert not module.fusegen_kernels(x)
    with pytest.raises(RuntimeError):
        module(x)


REFUSED = {
    "another width": (TWO.replace("ln, width: head", "ln, width: 8"), "FG401.*one number of groups"),
    "no part": (HEADS.replace("width: head", "width: 7") + "\n  - {op: mul, constant: 1}", "FG304.*do not divide"),
    "all channels": (HEADS.replace("width: head", "width: features"), "FG304.*leave the width out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path: Path) -> None:
    chain, message = REFUSED[case]
    text = spec("refused", chain)
    if "head" not in chain:
        text = text.replace(", head: 24", "").replace(", head: {type: dim}", "")
    with pytest.raises(SpecError, match=message):
        write("refused", text, tmp_path)


INSTANCE = """
fusegen: 1
name: of_instances
about: instance norm of rows
dims: {batch: 8, width: 16}
arguments: {width: {type: dim}, momentum: {type: float}}
inputs: {x: [batch, width]}
dtypes: [float32]
chain:
  - {op: instance_norm, name: norm, momentum: momentum}
"""


@pytest.mark.filterwarnings("ignore:input's size at dim=1")
def test_instance_norm_of_rows(tmp_path: Path) -> None:
    """Its kernels are those of layer_norm, which others test; here is what a call looks at."""
    module = module_class(write("of_instances", INSTANCE, tmp_path), tmp_path)(6, 0.2)
    x = torch.randn(5, 6)
    assert module.norm.momentum == 0.2 and not list(module.parameters())
    torch.testing.assert_close(module(x), F.layer_norm(x, (6,)))
    assert "where there are no kernels" in module.fusegen_kernels(x).reason
    assert "PyTorch refuses" in module.fusegen_kernels(x[:, :1]).reason
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        module(x[:, :1])
    module.norm.track_running_stats = True
    assert "PyTorch refuses" in module.fusegen_kernels(x).reason
    with pytest.raises(SpecError, match="FG30.*is used|FG205|affine"):
        write("affine", INSTANCE.replace("momentum: momentum", "affine: true, momentum: momentum"), tmp_path)
