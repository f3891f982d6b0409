"""Kernels of an emulated package: compiled in the dtype modes that are called, from the sources it was made of."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import compile_kernels, launchers  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: compiled_when_called
dims: {batch: 4, features: 8}
inputs: {x: [batch, features]}
dtypes: [float32, bfloat16]
chain: [{op: softplus}]
"""


def test_a_mode_is_compiled_when_it_is_first_called(tmp_path, emulation_cache, monkeypatch) -> None:
    modes = []

    def compile_(source, **options):
        modes.append(options["modes"])
        return compile_kernels(source, **options)

    monkeypatch.setattr(launchers, "compile_kernels", compile_)
    write("compiled_when_called", SPEC, tmp_path)
    module = emulate_package(
        tmp_path / "compiled_when_called", cache=emulation_cache, checked=False
    ).CompiledWhenCalled()
    module.fusegen_strict = True
    x = torch.randn(4, 8, requires_grad=True)
    assert not modes
    for _ in range(2):
        torch.testing.assert_close(module(x), torch.nn.functional.softplus(x))
    module(x).sum().backward()
    assert modes == [[0]]
    source = tmp_path / "compiled_when_called" / "kernels.cu"
    source.write_text(source.read_text() + "// Another one.\n")
    with pytest.raises(RuntimeError, match="kernels.cu was changed after its package was imported"):
        module(x.bfloat16())
    assert modes == [[0]]


def test_a_compilation_that_is_interrupted_is_an_error(tmp_path, emulation_cache, monkeypatch) -> None:
    def interrupted(source, **options):
        raise KeyboardInterrupt

    write("compiled_when_called", SPEC.replace("softplus", "mish"), tmp_path)
    module = emulate_package(
        tmp_path / "compiled_when_called", cache=emulation_cache, checked=False
    ).CompiledWhenCalled()
    module.fusegen_strict = True
    with monkeypatch.context() as patch:
        patch.setattr(launchers, "compile_kernels", interrupted)
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            module(torch.randn(4, 8))
    x = torch.randn(4, 8)
    torch.testing.assert_close(module(x), torch.nn.functional.mish(x))
