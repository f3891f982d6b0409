"""The chains that people write, exported: the text of all of them, and some that run on the emulator."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.ir.multiples import value_of  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.runtime import load  # noqa: E402
from tests.chains.collection import BUILT  # noqa: E402
from tests.export.graders import complaints  # noqa: E402

# Layers in an nn.Sequential, a norm over several dimensions.
NESTED = """\
fusegen: 1
name: nested
dims: {batch: 64, positions: 8, features: 32}
arguments: {positions: {type: dim}, features: {type: dim}}
inputs: {x: [batch, positions, features]}
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: features}
  - {op: gelu}
  - {op: layer_norm, name: norm, normalized_shape: [positions, features]}
state_dict: {fc: "body.0", norm: "body.2.norm"}
"""
# What PyTorch calls over positions, and rows of all that is left.
OVER_POSITIONS = """\
fusegen: 1
name: over_positions
dims: {batch: 8, channels: 4, height: 8, width: 6, classes: 10}
arguments: {channels: {type: dim}, height: {type: dim}, width: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: instance_norm, name: first, affine: true, track_running_stats: true, momentum: null}
  - {op: relu, save: a}
  - {op: instance_norm, name: second, track_running_stats: true, momentum: 0.3}
  - {op: rms_norm, name: rms, normalized_shape: [height, width], eps: null}
  - {op: layer_norm, name: norm, normalized_shape: [channels, height, width], bias: false}
  - {op: log_softmax, dim: 2}
  - {op: softmin, dim: 3}
  - {op: normalize, dim: 2}
  - {op: mul, value: a}
  - {op: softmax, dim: 3}
  - {op: logsumexp, dim: [3], keepdim: true, save: sums}
  - {op: std, dim: 2, keepdim: true, save: spread, from: a}
  - {op: adaptive_avg_pool2d, name: pool, output_size: 1, from: a}
  - {op: flatten}
  - {op: batch_norm, name: bn}
  - {op: linear, name: fc, out_features: classes}
outputs: [result, sums, spread]
"""
# The block of a diffusion model's U-Net: values of rows become those of images.
UNET_BLOCK = """\
fusegen: 1
name: unet_block
dims: {batch: 4, channels: 64, height: 32, width: 32, embedding: 128}
arguments: {channels: {type: dim}, embedding: {type: dim}}
inputs: {x: [batch, channels, height, width], time: [batch, embedding]}
dtypes: [float32]
chain:
  - {op: silu, from: time}
  - {op: linear, name: proj, out_features: channels}
  - {op: unsqueeze, positions: 2, save: shift}
  - {op: group_norm, name: norm1, num_groups: 4, from: x}
  - {op: silu}
  - {op: conv2d, name: conv1, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: add, value: shift}
  - {op: group_norm, name: norm2, num_groups: 4}
  - {op: silu}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: add, input: x}
"""
# A classifier: its head takes all elements of an image.
CLASSIFIER = """\
fusegen: 1
name: classifier
dims: {batch: 8, channels: 3, hidden: 8, flat: 96, classes: 10, height: 8, width: 7}
arguments: {channels: {type: dim}, hidden: {type: dim}, flat: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, padding: 1}
  - {op: relu}
  - {op: max_pool2d, name: pool, kernel_size: 2}
  - {op: flatten, features: flat}
  - {op: linear, name: fc, out_features: classes}
  - {op: relu}
"""
# What gives images other sizes, and joins channels.
DECODER = """\
fusegen: 1
name: decoder
dims: {batch: 8, channels: 8, hidden: 12, height: 8, width: 7}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: group_norm, name: norm, num_groups: 4}
  - {op: silu}
  - {op: upsample, name: up, scale_factor: 2, mode: bilinear, align_corners: true, save: u}
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, padding: 1}
  - {op: relu}
  - {op: cat, values: [u]}
  - {op: narrow, start: 0, length: hidden}
  - {op: pixel_shuffle, name: shuffle, upscale_factor: 2}
  - {op: tanh}
"""
OWN = {
    "classifier": CLASSIFIER,
    "decoder": DECODER,
    "nested": NESTED,
    "over_positions": OVER_POSITIONS,
    "unet_block": UNET_BLOCK,
}


@dataclass(frozen=True)
class Case:
    """Sizes at which a chain runs, and arguments of the constructor without a default."""

    sizes: dict[str, int]
    arguments: dict[str, Any] = field(default_factory=dict)


CASES = {
    # A convolution with conditions, and a batch norm.
    "film": Case({"batch": 3, "in_channels": 5, "height": 4, "width": 6, "out_channels": 7}),
    "kb26": Case(
        {
            **{"batch": 2, "in_channels": 3, "depth": 2, "height": 3, "width": 2},
            **{"out_channels": 5, "out_depth": 4, "out_height": 6, "out_width": 4},
        }
    ),
    # A product of two inputs, a mask, a dropout.
    "attention_scores": Case({"batch": 3, "queries": 5, "keys": 7, "width": 4}),
    # Several regions: a loss of positions; conditions that have fewer rows; layers that PyTorch calls.
    "segmentation_head": Case({"batch": 2, "channels": 3, "hidden": 5, "classes": 4, "height": 4, "width": 3}),
    "dit_one": Case({"batch": 3, "positions": 4, "features": 8, "hidden": 12, "cond": 5}),
    "resnet_v2_down": Case({"batch": 2, "channels": 4, "wider": 6, "height": 6, "width": 4}),
    "kb75": Case({"batch": 5, "in_features": 6, "out_features": 8}, {"num_groups": 4}),
    # PyTorch calls norms, reductions and views over positions, and pools the features of rows.
    "kb19": Case({"batch": 2, "in_channels": 3, "height": 3, "width": 4, "out_channels": 8}),
    "kb27": Case({"batch": 3, "in_channels": 2, "depth": 4, "height": 5, "width": 6, "out_channels": 8}),
    "kb85": Case({"batch": 2, "in_channels": 3, "height": 10, "width": 11, "out_channels": 32}),
    "kb98": Case({"batch": 5, "in_features": 6, "out_features": 32}),
    "se_block": Case({"batch": 3, "channels": 6, "reduced": 4, "height": 5, "width": 4}),
    "over_positions": Case({"batch": 3, "channels": 4, "height": 6, "width": 4, "classes": 5}),
    "unet_block": Case({"batch": 3, "channels": 8, "height": 4, "width": 5, "embedding": 6}),
    "decoder": Case({"batch": 3, "channels": 4, "hidden": 8, "height": 4, "width": 5}),
    "classifier": Case({"batch": 3, "channels": 2, "hidden": 4, "flat": 24, "classes": 5, "height": 5, "width": 6}),
    "nested": Case({"batch": 3, "positions": 4, "features": 6}),
}


IN_CHUNKS = "token_loss_in_chunks"


def test_a_loss_in_chunks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{IN_CHUNKS}.yaml"
    path.write_text(BUILT[IN_CHUNKS].text(), encoding="utf-8")
    with pytest.raises(SpecError, match="FG510.*a loss of all rows at once"):
        fusegen.export(path)


def test_promised_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "token_loss.yaml"
    text = BUILT[IN_CHUNKS].text().replace(IN_CHUNKS, "token_loss").replace(", chunk: auto", "")
    path.write_text(f"{text}\ninvariant: rows\n", encoding="utf-8")
    with pytest.raises(SpecError, match="FG510.*promises no bits"):
        fusegen.export(path)


@pytest.mark.parametrize("name", [name for name in BUILT if name != IN_CHUNKS])
def test_the_text(name: str, tmp_path: Path) -> None:
    """Each that builds exports, as a file that graders take."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(BUILT[name].text(), encoding="utf-8")
    text = fusegen.export(path)
    compile(text, name, "exec")
    assert complaints(text) == []


@pytest.mark.parametrize("name", OWN)
def test_the_text_of_others(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(OWN[name], encoding="utf-8")
    assert complaints(fusegen.export(path)) == []


@pytest.mark.parametrize(
    ("name", "oldest"), [("nested", "2.2"), ("se_block", "2.2"), ("over_positions", "2.2"), ("kb19", "2.10")]
)
def test_the_oldest_torch(name: str, oldest: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(OWN[name] if name in OWN else BUILT[name].text(["float32"]), encoding="utf-8")
    assert f"needs torch >= {oldest} with" in " ".join(fusegen.export(path)[:2000].replace("#", " ").split())


@pytest.fixture(scope="module")
def pairs(emulated, tmp_path_factory) -> dict[str, tuple[type, type]]:
    """By chain: the class of its package, which is not built, and of the file."""
    root = tmp_path_factory.mktemp("collection")
    specs = {name: root / f"{name}.yaml" for name in CASES}
    for name, spec in specs.items():
        spec.write_text(OWN[name] if name in OWN else BUILT[name].text(["float32"]), encoding="utf-8")
    write_files(render_all([planned_file(spec) for spec in specs.values()]), root / "generated")
    files = emulated.run(*((spec, None) for spec in specs.values()))
    return {name: (load(name, root / "generated"), file["ModelNew"]) for name, file in zip(CASES, files, strict=True)}


def constructed(kind: type, spec: dict, case: Case) -> nn.Module:
    values = {
        name: case.sizes[name] if argument["type"] == "dim" else case.arguments.get(name, argument.get("default"))
        for name, argument in spec.get("arguments", {}).items()
    }
    torch.manual_seed(7)
    return kind(**values)


def step(module: nn.Module, given: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Results, all gradients and buffers of a call in a dtype."""
    module = copy.deepcopy(module).to(dtype)
    own = {n: each.to(dtype).requires_grad_() if each.is_floating_point() else each for n, each in given.items()}
    results = module(*own.values())
    results = results if isinstance(results, tuple) else (results,)
    torch.manual_seed(5)
    torch.autograd.backward(results, [torch.randn(each.shape).to(dtype) for each in results])
    found = {f"result {i}": each.detach() for i, each in enumerate(results)}
    found |= {f"gradient of {name}": each.grad for name, each in own.items() if each.is_floating_point()}
    found |= {f"gradient of {name}": each.grad for name, each in module.named_parameters()}
    return found | dict(module.named_buffers())


def given_to(spec: dict, case: Case) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {n: value(n, [value_of(d, case.sizes) for d in shape], case) for n, shape in spec["inputs"].items()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_beside_double_precision(pairs, name: str, training: bool) -> None:
    """Results, every gradient and buffers are as near to float64 as those of the chain in PyTorch's operators."""
    spec, case = spec_of(name), CASES[name]
    package, exported = (constructed(kind, spec, case).train(training) for kind in pairs[name])
    assert list(package.state_dict()) == list(exported.state_dict())
    assert all(map(torch.equal, package.state_dict().values(), exported.state_dict().values()))
    for module in (package, exported):
        for each in module.modules():
            if isinstance(getattr(each, "p", None), float):
                each.p = 0.0  # else nothing would be alike
    given = given_to(spec, case)
    expected, eager = (step(package, given, dtype) for dtype in (torch.float64, torch.float32))
    for what, came in step(exported, given, torch.float32).items():
        wanted, theirs = expected[what].double(), eager[what].double()
        assert came.shape == wanted.shape and came.is_contiguous() == eager[what].is_contiguous(), what
        error, limit = (float((each - wanted).abs().max()) for each in (came.double(), theirs))
        assert error <= 2 * limit + 2**-22 * float(wanted.abs().max()), what


@pytest.mark.parametrize("training", [True, False])
def test_a_convolution_is_that_of_the_package(pairs, emulation_cache: Path, training: bool) -> None:
    """Bit for bit. test_regions.py compares regions so."""
    spec, case = BUILT["film"].spec, CASES["film"]
    package, exported = pairs["film"]
    directory = Path(sys.modules[package.__module__].__file__ or "").parent
    kinds = (emulate_package(directory, cache=emulation_cache, checked=False).Film, exported)
    modules = [constructed(kind, spec, case).train(training) for kind in kinds]
    modules[0].fusegen_strict = True
    theirs, ours = (step(module, given_to(spec, case), torch.float32) for module in modules)
    assert list(theirs) == list(ours) and all(torch.equal(theirs[what], ours[what]) for what in theirs)


def spec_of(name: str) -> dict:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(OWN[name]) if name in OWN else BUILT[name].spec


def value(name: str, shape: list[int], case: Case) -> torch.Tensor:
    """An input, by its name."""
    if name == "target":
        return torch.randint(case.sizes["classes"], shape)
    return torch.rand(shape) < 0.3 if name == "hidden" else torch.randn(shape)
