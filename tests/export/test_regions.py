"""Exported modules of several regions and of several results, whose kernels run on the CPU: beside their packages, bit
for bit, and beside the original."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from tests.emulate.test_regions import BLOCK  # noqa: E402
from tests.emulate.test_regions_with_others import MLP  # noqa: E402

# One region, which returns what it saves behind what it ends with. Its inputs have more dimensions in the spec, too.
SUMS = """\
fusegen: 1
name: exported_sums
dims: {batch: 64, positions: 8, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, positions, features], shift: [batch, positions, features]}
dtypes: [float32]
chain:
  - {op: add, input: shift, save: total}
  - {op: layer_norm, name: norm}
  - {op: silu}
outputs: [result, total]
"""


class Sums(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + shift
        return nn.functional.silu(self.norm(total)), total


@pytest.fixture(scope="module")
def files(emulated, emulation_cache, tmp_path_factory) -> dict[str, tuple[dict[str, Any], Any]]:
    """By spec: what the exported file defines, and what it is compared with."""
    root = tmp_path_factory.mktemp("regions")
    specs = [root / "region_block.yaml", root / "packed_mlp.yaml", root / "exported_sums.yaml"]
    for spec, text in zip(specs, (BLOCK, MLP, SUMS), strict=True):
        spec.write_text(text)
    block, mlp, sums = emulated.run(*((spec, None) for spec in specs))
    write_files(render_all([planned_file(spec) for spec in specs[:2]]), root / "generated")
    packages = [
        emulate_package(root / "generated" / spec.stem, cache=emulation_cache, checked=False) for spec in specs[:2]
    ]
    return {
        "region_block": (block, packages[0].RegionBlock),
        "packed_mlp": (mlp, packages[1].PackedMlp),
        "exported_sums": (sums, Sums),
    }


def pair(files, name: str, *sizes: int) -> tuple[nn.Module, nn.Module]:
    """What the file is compared with, and its module, from one seed and away from their initial values."""
    made = []
    names, other = files[name]
    for module in (other, names["ModelNew"]):
        torch.manual_seed(3)
        made.append(module(*sizes))
        with torch.no_grad():
            for parameter in made[-1].parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    made[0].fusegen_strict = True
    return made[0], made[1]


def step(module: nn.Module, inputs: tuple[torch.Tensor, ...], count: int) -> dict[str, torch.Tensor]:
    """Results, all gradients, and buffers after the call. count: of the results, how many are used."""
    own = [each.clone().requires_grad_() for each in inputs]
    torch.manual_seed(11)  # of dropouts
    results = module(*own)
    assert isinstance(results, tuple)
    torch.manual_seed(5)
    module.zero_grad()
    torch.autograd.backward(results[:count], [torch.randn(each.shape) for each in results[:count]])
    found = {f"result {i}": each.detach() for i, each in enumerate(results)}
    found |= {f"grad of input {i}": each.grad for i, each in enumerate(own)}
    found |= {f"grad of {name}": each.grad for name, each in module.named_parameters()}
    return found | {name: each.clone() for name, each in module.named_buffers()}


def agree(
    other: nn.Module, exported: nn.Module, shape: tuple[int, ...], count: int, tolerance: float, taken: int = 2
) -> None:
    """taken: how many inputs there are."""
    inputs = tuple(torch.randn(shape) for _ in range(taken))
    ours, theirs = step(exported, inputs, count), step(other, inputs, count)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def test_the_same_seed_gives_the_same_state(files) -> None:
    package, exported = pair(files, "region_block", 6, 9)
    theirs, ours = package.state_dict(), exported.state_dict()
    assert list(theirs) == list(ours) and all(torch.equal(theirs[key], ours[key]) for key in theirs)
    assert (exported.slope, exported.gate.in_features) == (0.2, 6)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("count", [2, 1])
def test_it_computes_what_the_package_does(files, training, count) -> None:
    """Regions with batch norms, one of several results, and a layer that PyTorch calls."""
    package, exported = pair(files, "region_block", 6, 9)
    for _ in range(2):
        agree(package.train(training), exported.train(training), (5, 6), count, 0.0)
    assert int(exported.first_bn.num_batches_tracked) == (2 if training else 0)


@pytest.mark.parametrize("shape", [(40, 6), (5, 7, 6), (3, 2, 2, 6)])
def test_dropouts_draw_what_those_of_the_package_do(files, shape) -> None:
    """Each region a seed of its own, for elements and for samples. What is left out draws nothing."""
    package, exported = pair(files, "packed_mlp", 6, 9)
    agree(package, exported, shape, 2, 0.0, taken=1)
    x = torch.randn(shape)
    assert not torch.equal(exported(x)[1], exported(x)[1])
    for module in (package, exported):
        module.first_drop.p, module.path.p = 0.0, 1.0
    agree(package, exported, shape, 2, 0.0, taken=1)
    agree(package.eval(), exported.eval(), shape, 2, 0.0, taken=1)
    before = torch.get_rng_state()
    exported(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_computes_what_the_original_does(files) -> None:
    package, exported = pair(files, "region_block", 7, 13)
    x, shift = torch.randn(11, 7), torch.randn(11, 7)
    double = pair(files, "region_block", 7, 13)[0].double()
    expected = double.fusegen_reference(x.double(), shift.double())
    torch.testing.assert_close(exported(x, shift), tuple(each.float() for each in expected), atol=2e-5, rtol=2e-5)
    with torch.no_grad():
        assert exported(x, shift)[0].grad_fn is None


@pytest.mark.parametrize("shape", [(1, 1, 32), (2, 3, 32)])
def test_one_region_of_several_results(files, shape) -> None:
    original, exported = pair(files, "exported_sums", 32)
    for count in (2, 1):
        agree(original, exported, shape, count, 1e-5)


def test_what_the_kernels_do_not_do_is_refused(files) -> None:
    _, exported = pair(files, "region_block", 6, 9)
    with pytest.raises(ValueError, match=r"inputs must be \[rows, channels\]"):
        exported(torch.randn(2, 3, 6), torch.randn(2, 3, 6))
    with pytest.raises(ValueError, match="there are no rows"):
        exported(torch.randn(0, 6), torch.randn(0, 6))
    with pytest.raises(ValueError, match="more than one row"):
        exported(torch.randn(1, 6), torch.randn(1, 6))
    with pytest.raises(ValueError, match="no kernel for float64"):
        exported(torch.randn(4, 6).double(), torch.randn(4, 6))
    _, exported = pair(files, "packed_mlp", 6, 9)
    exported.path.p = 1.5
    with pytest.raises(ValueError, match="path.p must be between 0 and 1"):
        exported(torch.randn(4, 6))
    _, exported = pair(files, "exported_sums", 32)
    with pytest.raises(ValueError, match=r"inputs must be \[\*, \*, channels\]"):
        exported(torch.randn(5, 32), torch.randn(5, 32))
    with pytest.raises(ValueError, match=r"shift is .*\[2, 1, 32\].*, where the kernels take .*\[2, 3, 32\]"):
        exported(torch.randn(2, 3, 32), torch.randn(2, 1, 32))
