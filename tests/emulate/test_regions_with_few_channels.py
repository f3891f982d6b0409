"""Convolutions of few channels in modules of several regions. On the CPU, through the emulator."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from tests.emulate.convolutions import part_of_support  # noqa: E402
from tests.emulate.test_few_channels import Operands, assert_near, formats_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


def test_regions(tmp_path, emulation_cache) -> None:
    """Between regions values are in channels_last, of which a second convolution's copy with zeros is made."""
    text = (
        "fusegen: 1\nname: few_regions\ndims: {batch: 2, height: 7, width: 9}\n"
        "inputs: {x: [batch, 3, height, width]}\ndtypes: [bfloat16]\nchain:\n"
        "  - {op: conv2d, name: one, out_channels: 40, kernel_size: 3, padding: 1}\n  - {op: silu}\n"
        "  - {op: conv2d, name: two, out_channels: 64, kernel_size: 3}\n  - {op: silu}\n"
    )
    (tmp_path / "few_regions.yaml").write_text(text, encoding="utf-8")
    plan = planned_file(tmp_path / "few_regions.yaml")
    write_files(render_all([plan]), tmp_path)
    package = emulate_package(tmp_path / "few_regions", cache=emulation_cache, checked=False)
    fused = getattr(package, plan.spec.class_name)().to(torch.bfloat16)
    fused.fusegen_strict = True
    formats = part_of_support(fused._fusegen_package.regions[0], "memory_formats")
    x = torch.randn(2, 3, 7, 9).to(torch.bfloat16)
    exact = copy.deepcopy(fused).double()
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_LEAST_BYTES", "_LEAST_IMAGE"):
            patch.setattr(formats, limit, 0)
        for kind, given in formats_of(x):
            given.requires_grad_()
            with Operands() as seen:
                y = fused(given)
                mine = [y, *torch.autograd.grad(y, [given, *fused.parameters()], torch.ones_like(y))]
            doubled = given.detach().double().requires_grad_()
            theirs = exact.fusegen_reference(doubled)
            theirs = [theirs, *torch.autograd.grad(theirs, [doubled, *exact.parameters()], torch.ones_like(theirs))]
            assert seen.forward == [[32, 32], [64, 64]] and seen.backward == [[40, 40], [3, 3]], kind
            assert y.stride() == fused.fusegen_reference(given).stride()
            for a, b in zip(mine, theirs, strict=True):
                assert_near(a, b, torch.bfloat16)
