"""Modules whose regions have layers over positions between them, which PyTorch calls, on the emulator."""

from __future__ import annotations

import weakref

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.module_sizes import module_typical  # noqa: E402
from tests.emulate.image_chains import Sources  # noqa: E402
from tests.emulate.suites import compared, emulated_suite, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    "volume": """\
dims: {batch: 8, channels: 3, out: 8, depth: 6, height: 7, width: 5}
arguments: {channels: {type: dim}, out: {type: dim}, groups: {type: int, typical: 4}}
inputs: {x: [batch, channels, depth, height, width]}
chain:
  - {op: conv3d, name: conv, out_channels: out, kernel_size: 3}
  - {op: group_norm, name: norm, num_groups: groups}
  - {op: hardswish}
  - {op: mean, dim: [2, 3, 4], keepdim: false}
  - {op: relu}
  - {op: softmax, dim: 1}
""",
    "squeezed": """\
dims: {batch: 4, channels: 16, reduced: 8, height: 9, width: 7}
arguments: {channels: {type: dim}, reduced: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: silu, save: y}
  - {op: mean, dim: [2, 3], keepdim: false}
  - {op: linear, name: down, out_features: reduced}
  - {op: relu}
  - {op: linear, name: up, out_features: channels}
  - {op: sigmoid}
  - {op: unsqueeze, positions: 2}
  - {op: mul, value: y}
""",
    "excited": """\
dims: {batch: 4, channels: 16, reduced: 8, height: 8, width: 6}
arguments: {channels: {type: dim}, reduced: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: adaptive_avg_pool2d, name: pool, output_size: 1}
  - {op: linear, name: down, out_features: reduced}
  - {op: relu}
  - {op: linear, name: up, out_features: channels}
  - {op: sigmoid}
  - {op: mul, input: x}
""",
    "residual": """\
dims: {batch: 4, channels: 16, height: 9, width: 7, embedded: 12}
arguments: {channels: {type: dim}, embedded: {type: dim}}
inputs: {x: [batch, channels, height, width], t: [batch, embedded]}
chain:
  - {op: silu, from: t}
  - {op: linear, name: proj, out_features: channels}
  - {op: unsqueeze, positions: 2, save: shift}
  - {op: group_norm, name: norm1, num_groups: 4, from: x}
  - {op: silu}
  - {op: conv2d, name: conv1, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: add, value: shift}
  - {op: group_norm, name: norm2, num_groups: 4, affine: false}
  - {op: silu}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: add, input: x}
""",
    "normed": """\
dims: {batch: 8, channels: 6, height: 8, width: 6}
arguments: {channels: {type: dim}, height: {type: dim}, width: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: instance_norm, name: tracked, affine: true, track_running_stats: true}
  - {op: gelu}
  - {op: layer_norm, name: last, normalized_shape: [width]}
  - {op: mul, parameter: scale, shape: [channels, 1, 1], init: randn}
  - {op: rms_norm, name: whole, normalized_shape: [channels, height, width], eps: 0.00001}
  - {op: tanh}
  - {op: softmax, dim: 3}
  - {op: mul, constant: 3.0}
""",
    "reduced": """\
dims: {batch: 8, channels: 3, out: 6, depth: 6, height: 7, width: 5}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, depth, height, width]}
chain:
  - {op: conv3d, name: conv, out_channels: out, kernel_size: 3, bias: false}
  - {op: mish}
  - {op: min, dim: 2, keepdim: false}
  - {op: softmax, dim: 1}
  - {op: logsumexp, dim: 3, keepdim: true}
  - {op: relu}
  - {op: amax, dim: [1, 2, 3], keepdim: true}
""",
    "classified": """\
dims: {batch: 6, channels: 3, out: 8, height: 8, width: 7, classes: 5}
arguments: {channels: {type: dim}, out: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width], target: [batch]}
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3}
  - {op: relu}
  - {op: adaptive_avg_pool2d, name: pool, output_size: 1}
  - {op: flatten}
  - {op: linear, name: fc, out_features: classes}
  - {op: cross_entropy, target: target}
""",
    "flattened": """\
dims: {batch: 6, channels: 2, out: 4, height: 12, width: 9, flat: 40, classes: 5}
arguments: {channels: {type: dim}, out: {type: dim}, flat: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3}
  - {op: relu}
  - {op: avg_pool2d, name: pool, kernel_size: 2, stride: [2, 1]}
  - {op: max_pool2d, name: pool_two, kernel_size: [1, 3], stride: [1, 3]}
  - {op: flatten, features: flat}
  - {op: layer_norm, name: norm}
  - {op: linear, name: fc, out_features: classes}
  - {op: relu}
""",
    "pooled_loss": """\
dims: {batch: 8, inside: 12, out: 24}
arguments: {inside: {type: dim}, out: {type: dim}}
inputs: {x: [batch, inside], target: [batch]}
chain:
  - {op: linear, name: fc, out_features: out}
  - {op: avg_pool1d, name: pool, kernel_size: 4}
  - {op: cross_entropy, target: target}
""",
    "features": """\
dims: {batch: 8, inside: 12, out: 24}
arguments: {inside: {type: dim}, out: {type: dim}}
inputs: {x: [batch, inside]}
chain:
  - {op: linear, name: matmul, out_features: out}
  - {op: max_pool1d, name: pool, kernel_size: 3, stride: 2, padding: 1}
  - {op: gelu}
  - {op: mul, constant: 0.5}
  - {op: sum, dim: 1, keepdim: true}
""",
    "normalized": """\
dims: {batch: 4, channels: 6, height: 7, width: 9}
arguments: {channels: {type: dim}, eps: {type: float, default: 0.25}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: mul, parameter: scale, shape: [channels, 1, 1], init: randn}
  - {op: tanh}
  - {op: normalize, dim: 3, eps: eps}
""",
    "called_first": """\
dims: {batch: 4, channels: 6, out: 5, height: 7, width: 9}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: mean, dim: [2, 3], keepdim: false}
  - {op: linear, name: fc, out_features: out}
  - {op: relu}
""",
    "from_rows": """\
dims: {batch: 4, inside: 12, channels: 6}
arguments: {inside: {type: dim}, channels: {type: dim}}
inputs: {x: [batch, inside]}
chain:
  - {op: linear, name: fc, out_features: channels}
  - {op: unsqueeze, positions: 2}
  - {op: conv_transpose2d, name: conv, out_channels: channels, kernel_size: 3, bias: false}
  - {op: group_norm, name: norm, num_groups: 2}
  - {op: tanh}
""",
}


@pytest.fixture(scope="module")
def suites(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("positions"), emulation_cache)


# One of images and rows, one of two inputs, one of every layer over positions, one with a loss.
WHOLE = ("squeezed", "residual", "normed", "classified")


@pytest.mark.parametrize("name", CHAINS)
def test_results_and_gradients(suites, name) -> None:
    found, wrong = compared(suites(name), ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1)))
    assert not wrong and len(found) >= 3 * 2 * 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in WHOLE else pytest.mark.slow) for name in CHAINS]
)
def test_the_whole_beside_the_original(suites, name) -> None:
    report = suites(name).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 50
    assert {"numerics", "strides", "torch.compile", "training"} <= {each.check for each in report.findings}


def test_a_product_of_images_beside_the_original(suites, tmp_path, emulation_cache) -> None:
    """In its own package a region is checked as any module is."""
    plan = next(plan for plan in suites("excited").subject.plan.plans if plan.spec.name == "excited_down")
    suite = emulated_suite(module_of(plan), tmp_path, emulation_cache)
    found = [*suite.leading(), *suite.other_precisions()]
    assert not [f"{each.check} {each.item.name}: {each.item.note}" for each in found if not each.item.ok]
    assert {"memory formats", "rounded operands"} <= {each.check for each in found}


def test_contiguous_images_are_not_copied_where_no_layer_takes_others(suites) -> None:
    suite = suites("excited")
    fused, _, inputs = suite.subject.pair(module_typical(suite.subject.plan), suite.modes()[0], 0)
    with Sources() as sources:
        result = fused(*inputs)
    result.sum().backward()
    pooled, *_, scaled = sources.seen
    assert pooled.data_ptr() == scaled.data_ptr() == inputs[0].data_ptr()
    assert result.is_contiguous() and inputs[0].grad.is_contiguous()


def test_a_value_goes_when_no_further_region_takes_it(suites) -> None:
    module = suites("residual").subject.package.Residual(16, 12).eval()
    run, made, alive = module._fusegen_run_part, [], []

    def recorded(*args, **kwargs):
        result = run(*args, **kwargs)
        made.append(weakref.ref(result))
        alive.append(sum(each() is not None for each in made))
        return result

    module._fusegen_run_part = recorded
    with torch.no_grad():
        module(torch.randn(2, 16, 5, 4), torch.randn(2, 12))
    assert len(made) == 4 and max(alive) == 2
