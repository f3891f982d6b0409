"""Norms over several trailing dimensions: the kernels, the module beside the original, and regions of other views."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Parameters and inputs that vary over all, some or none of the dimensions, and a dropout.
SPEC = """
fusegen: 1
name: trailing
dims: {batch: 16, positions: 12, features: 20}
arguments: {positions: {type: dim}, features: {type: dim}, p: {type: float, default: 0.25}}
inputs:
  x: [batch, positions, features]
  residual: [batch, positions, features]
  gate: [batch, 1, 1]
  place: [positions, features]
  of_features: [features]
  keep: [positions, 1]
dtypes: [bfloat16]
chain:
  - {op: mul, parameter: scale, shape: [features], init: ones}
  - {op: add, input: residual}
  - {op: layer_norm, name: norm, normalized_shape: [positions, features]}
  - {op: dropout, name: drop, p: p}
  - {op: mul, input: gate}
  - {op: add, input: place}
  - {op: mul, input: of_features, plus: 1}
  - {op: masked_fill, mask: keep, constant: 0.5}
  - {op: rms_norm, name: rms, normalized_shape: [positions, features], affine: false}
  - {op: add, parameter: shift, shape: [positions, 1], init: zeros}
  - {op: add, parameter: one, shape: [1, 1], init: zeros}
"""


class Original(nn.Module):
    def __init__(self, positions: int, features: int, p: float = 0.25) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.norm, self.drop = nn.LayerNorm((positions, features)), nn.Dropout(p)
        self.rms = nn.RMSNorm((positions, features), eps=1e-5, elementwise_affine=False)
        self.shift, self.one = nn.Parameter(torch.zeros(positions, 1)), nn.Parameter(torch.zeros(1, 1))

    def forward(self, x, residual, gate, place, of_features, keep):
        y = self.drop(self.norm(x * self.scale + residual)) * gate + place
        y = (y * (of_features + 1)).masked_fill(keep, 0.5)
        return self.rms(y) + self.shift + self.one


@pytest.fixture(scope="module")
def package(tmp_path_factory, emulation_cache):
    """In 16 bits; float32 is below."""
    root = tmp_path_factory.mktemp("trailing")
    plan = write("trailing", SPEC, root)
    return module_of(plan), emulate_package(root / "trailing", cache=emulation_cache, checked=False)


def test_the_module_is_verified(package) -> None:
    suite = Suite(Subject(*package, "cpu", Original), full=False)
    shapes = ((1, 1, 1, 1), (3, 1, 7, 1), (33, 1, 36, 1), (2, 1, 21027, 1))  # the last is in no block's registers
    found = [*suite.numerics(suite.modes()[0], shapes), *suite.leading(), *suite.training(suite._size())]
    assert {"numerics", "leading dimensions", "training"} == {each.check for each in found}
    assert not [each for each in found if not each.item.ok]
    labels = " ".join(each.item.name for each in found if each.check == "leading dimensions")
    assert "4 dimensions" in labels and "2 dimensions" in labels and "refused" not in labels


def test_the_state_is_the_original_s(package) -> None:
    module, original = package[1].Trailing(4, 6), Original(4, 6)
    assert list(module.state_dict()) == list(original.state_dict())
    for name, value in original.state_dict().items():
        assert torch.equal(module.state_dict()[name], value)


def drawn(*leading: int):
    shapes = ((*leading, 4, 6), (*leading, 4, 6), (*leading, 1, 1), (4, 6), (6,))
    return *(torch.randn(shape).bfloat16() for shape in shapes), torch.rand(4, 1) < 0.5


def test_calls_that_the_kernels_do_not_take(package) -> None:
    module = package[1].Trailing(4, 6).eval().bfloat16()
    for leading in ((3,), (2, 3), ()):
        assert module.fusegen_kernels(*drawn(*leading))
    for x in (torch.randn(3, 6, 4), torch.randn(3, 24), torch.randn(3, 4, 5)):
        with pytest.raises(ValueError, match=r"x must be \[\*, 4, 6\]|as many dimensions"):
            module(x.bfloat16(), *drawn(3)[1:])
    with pytest.raises(ValueError, match="the last 2"):
        module(torch.randn(6).bfloat16(), *drawn(3)[1:])
    module.norm = nn.LayerNorm(6).bfloat16()
    use = module.fusegen_kernels(*drawn(3))
    assert not use and "normalized_shape" in use.reason
    with pytest.warns(UserWarning, match="normalized_shape"):
        assert module(*drawn(3)).shape == (3, 4, 6)


def test_compiled_and_transposed(package) -> None:
    module = package[1].Trailing(4, 6).eval().bfloat16()
    module.fusegen_strict = True
    given = drawn(3)
    given = (torch.randn(3, 6, 4).bfloat16().mT, *given[1:])
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), module(*given))
    torch.testing.assert_close(module(*given), module.fusegen_reference(*given), rtol=0.05, atol=0.05)


# Layers and a norm over the last dimension beside a norm over two: regions of several views.
REGIONS = """
fusegen: 1
name: trailing_regions
dims: {batch: 8, positions: 64, features: 32, hidden: 48}
arguments: {positions: {type: dim}, features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, positions, features]}
dtypes: [float32]
chain:
  - {op: linear, name: up, out_features: hidden}
  - {op: gelu}
  - {op: rms_norm, name: middle, normalized_shape: [positions, hidden]}
  - {op: add, parameter: shift, shape: [hidden], init: zeros}
  - {op: linear, name: down, out_features: features}
  - {op: layer_norm, name: last}
  - {op: add, input: x}
"""


class Regions(nn.Module):
    def __init__(self, positions: int, features: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.middle = nn.RMSNorm((positions, hidden), eps=1e-5)
        self.shift = nn.Parameter(torch.zeros(hidden))
        self.down, self.last = nn.Linear(hidden, features), nn.LayerNorm(features)

    def forward(self, x):
        y = self.middle(F.gelu(self.up(x))) + self.shift
        return self.last(self.down(y)) + x


def test_regions_of_several_views(emulation_cache, tmp_path) -> None:
    (tmp_path / "trailing_regions.yaml").write_text(REGIONS)
    plan = planned_file(tmp_path / "trailing_regions.yaml")
    write_files(render_all([plan]), tmp_path / "generated")
    package = emulate_package(tmp_path / "generated" / "trailing_regions", cache=emulation_cache, checked=False)
    suite = Suite(Subject(plan, package, "cpu", Regions), full=False)
    assert [len(region.steps) for region in plan.regions] == [1, 3, 3]  # gelu is in front of the norm
    found = [*suite.numerics(suite.modes()[0])]
    assert len(found) > 50 and not [each for each in found if not each.item.ok]
    x, module = torch.randn(3, 4, 6), package.TrailingRegions(4, 6, 5)
    assert module.fusegen_kernels(x) and module(x).shape == x.shape


# A result from before the norm, and an input that is repeated.
BEFORE = """
fusegen: 1
name: before_the_norm
dims: {batch: 16, positions: 12, features: 20}
arguments: {positions: {type: dim}, features: {type: dim}}
inputs: {x: [batch, positions, features], place: [features]}
dtypes: [float32, bfloat16]
chain:
  - {op: add, input: place, save: sum}
  - {op: layer_norm, name: norm, normalized_shape: [positions, features]}
outputs: [sum, result]
"""


def test_a_result_before_the_norm_keeps_its_dtype_under_autocast(emulation_cache, tmp_path) -> None:
    plan = write("before_the_norm", BEFORE, tmp_path)
    module = emulate_package(tmp_path / plan.spec.name, cache=emulation_cache, checked=False).BeforeTheNorm(4, 6)
    module.fusegen_strict = True
    x, place = torch.randn(3, 4, 6).bfloat16(), torch.randn(6).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total, result = module(x, place)
    assert (total.dtype, result.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(total, x + place)
    (result.square().sum() + total.float().square().sum()).backward()
    assert place.grad.dtype == torch.bfloat16
