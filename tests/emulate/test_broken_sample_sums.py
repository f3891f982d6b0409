"""Each mistake in sums of samples is caught, where blocks go on from one sample to others, and by what should catch it.

For a GPU of one multiprocessor, and with grids of a few blocks.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, module_class, write  # noqa: E402
from tests.emulate.mutants.samples import SAMPLES  # noqa: E402
from tests.emulate.mutants.scenario import add_mutants, choose  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

_HEAD = "fusegen: 1\nname: {name}\ndims: {{batch: 4, {dims}}}\narguments: {{{arguments}}}\ndtypes: [float32]\n"
ROWS = (
    _HEAD.format(name="sampled_rows", dims="positions: 16, features: 32", arguments="features: {type: dim}")
    + """\
inputs: {x: [batch, positions, features], scale: [batch, features]}
chain:
  - {op: layer_norm, name: norm, affine: false}
  - {op: mul, input: scale}
"""
)
IMAGES = (
    _HEAD.format(
        name="sampled_images",
        dims="c: 3, height: 8, width: 9, hidden: 16",
        arguments="c: {type: dim}, hidden: {type: dim}",
    )
    + """\
inputs: {x: [batch, c, height, width], scale: [batch, hidden, 1, 1]}
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 1, bias: false}
  - {op: tanh}
  - {op: mul, input: scale}
"""
)
PLANES = (
    _HEAD.format(name="sampled_planes", dims="c: 26, height: 36, width: 32", arguments="c: {type: dim}")
    + """\
inputs: {x: [batch, c, height, width], scale: [batch, c, height, width]}
chain:
  - {op: group_norm, name: norm, num_groups: 2, affine: false}
  - {op: mul, input: scale}
"""
)
MUTANTS = dict(enumerate(SAMPLES, start=1))
# The spec, the schedule, samples, rows of each, and channels.
SCENARIOS = {
    "row": (ROWS, "persistent", 9, 40, 20),
    "pointwise": (ROWS, "two_pass", 9, 90, 20),
    "tile": (IMAGES, "automatic", 9, 300, 20),
    # A block has 13 warps, and a thread more vectors than are on their way at once.
    "planes": (PLANES, "automatic", 2, 1152, 26),
}


class Tail(EmulatedTail):
    """Of which samples are images, if there are positions."""

    positions = 0

    def _call(self, groups, shapes):
        return replace(super()._call(groups, shapes), positions=self.positions)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory, emulation_cache):
    """By the text of a spec: its plan, its module's class and its library, with all mutants."""
    found = {}
    for text in (ROWS, IMAGES, PLANES):
        root = tmp_path_factory.mktemp("samples")
        plan = write(re.search(r"name: (\w+)", text)[1], text, root, multiprocessors=1)
        small = {"samples.cuh": ("65535 / blocks", "5 / blocks"), "kernels/sample_reduction.cuh": ("65535", "2")}
        for name, (old, new) in small.items():
            path = root / "support" / name
            assert path.read_text(encoding="utf-8").count(old) == 1
            path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        package = root / plan.spec.name
        add_mutants(package, list(MUTANTS.items()))
        found[text] = plan, module_class(plan, root), kernels_of(package, plan.modes[0], emulation_cache)
    return found


def reference(plan, samples, x, scale, grad):
    """The result and both gradients in double precision, by the plan's names. scale: of each sample, or as x is."""
    leaves = [each.double().view(samples, -1, x.shape[1]).requires_grad_() for each in (x, scale)]
    if plan.chain.convolution:
        made = torch.tanh(leaves[0])
    else:
        made = F.group_norm(leaves[0].mT, 2).mT if plan.chain.spatial else F.layer_norm(leaves[0], x.shape[1:])
    y = made * leaves[1]
    names = (plan.variants[0].result, f"grad_{plan.chain.source.name}", "grad_scale")
    found = (y, *torch.autograd.grad(y, leaves, grad.double().view_as(y)))
    return {name: each.detach().reshape(-1, x.shape[1]) for name, each in zip(names, found, strict=True)}


def verdict(libraries, scenario: str, number: int, seed: int) -> str:
    """What a run with a mutant ends with."""
    text, schedule, samples, count, channels = SCENARIOS[scenario]
    plan, cls, library = libraries[text]
    variant, mode, images = plan.variants[0], plan.modes[0], text is not ROWS
    torch.manual_seed(seed)
    module = cls(*(3, channels) if text is IMAGES else (channels,))
    source, name = plan.chain.source.name, variant.result_gradient
    x, grad = (torch.randn(samples * count, channels) for _ in range(2))
    scale = torch.randn(samples * (count if text is PLANES else 1), channels)
    wanted = reference(plan, samples, x, scale, grad)
    tail = Tail(plan, variant, library, module, samples)
    tail.positions = count if images else 0
    if images:  # gradient and result are [samples, channels, positions] in memory
        grad = grad.view(samples, count, channels).mT.reshape(grad.shape)
    if text is PLANES:
        x, scale = (each.view(samples, count, channels).mT.reshape(each.shape) for each in (x, scale))
    choose(library, number)
    try:
        found = tail.run(
            {source: x, "scale": scale, name: grad}, mode, shapes=forced_shapes(schedule), seed=seed
        ).values
    except EmulationError as error:
        return str(error)
    finally:
        choose(library, 0)
    for key in {ROWS: (), IMAGES: (variant.result,), PLANES: tuple(wanted)}[text]:
        found[key] = found[key].view(samples, channels, count).mT.reshape(x.shape)
    problems = []
    for key in wanted:
        if found[key].isnan().any():
            problems.append(f"NaN in {key}")
        elif not torch.allclose(found[key].double(), wanted[key], rtol=0, atol=2e-5 * float(wanted[key].abs().max())):
            problems.append(f"wrong {key}")
    return "; ".join(problems) or "fine"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_copy_without_a_mutant_is_right(scenario: str, libraries) -> None:
    for seed in range(2):
        assert verdict(libraries, scenario, 0, seed) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[f"{mutant.run} {mutant.name}" for mutant in SAMPLES])
def test_mutant_is_caught(number: int, libraries) -> None:
    mutant = MUTANTS[number]
    for seed in range(2):
        found = verdict(libraries, mutant.run, number, seed)
        assert re.search(mutant.caught, found), f"seed {seed}: {found}"
