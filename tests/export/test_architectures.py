"""Which GPUs a file is compiled for: those of TORCH_CUDA_ARCH_LIST, and sm_90a beside sm_90 for split products."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils import cpp_extension  # noqa: E402

from fusegen.plan.modules.module import ModulePlan  # noqa: E402
from fusegen.standalone.inputs import inputs_of_spec  # noqa: E402
from fusegen.standalone.module import render_standalone  # noqa: E402
from fusegen.standalone.plan import standalone_plan  # noqa: E402
from tests.export.stand_in import Recorder, executed  # noqa: E402

SPEC = Path(__file__).resolve().parents[2] / "specs" / "gemm_multiply_leakyrelu_split.yaml"
NAME = "TORCH_CUDA_ARCH_LIST"


@pytest.fixture(scope="module")
def split() -> tuple[str, ModulePlan]:
    plan = standalone_plan(SPEC, ["float32"])
    return render_standalone(plan, inputs_of_spec(plan)), plan


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ("9.0+PTX", ["compute_90", "sm_90", "sm_90a"]),
        ("Hopper", ["compute_90", "sm_90", "sm_90a"]),
        ("8.0 9.0", ["sm_80", "sm_90", "sm_90a"]),
        ("9.0a", ["sm_90a"]),
        ("8.0;9.0a+PTX", ["compute_90a", "sm_80", "sm_90a"]),
        ("8.6", ["sm_86"]),
    ],
)
def test_split_products(split, given: str, codes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each architecture that was given, once, and sm_90a with sm_90. The variable is as before afterwards."""
    text, plan = split
    monkeypatch.setenv(NAME, given)
    extension = Recorder(plan)
    executed(text, extension)
    assert os.environ[NAME] == given
    monkeypatch.setenv(NAME, extension.architectures)
    flags = cpp_extension._get_cuda_arch_flags(extension.options["extra_cuda_cflags"])
    assert sorted(re.fullmatch(r"-gencode=arch=.*,code=(\w+)", flag)[1] for flag in flags) == codes


@pytest.mark.parametrize("given", [None, "", "native"])
def test_split_products_for_the_gpus_at_hand(split, given, monkeypatch: pytest.MonkeyPatch) -> None:
    text, plan = split
    _give(monkeypatch, given)
    for capabilities, expected in (([(8, 0), (9, 0), (9, 0)], "8.0;9.0;9.0a"), ([(8, 0)], given)):
        extension = Recorder(plan)
        executed(text, extension, capabilities)
        assert (extension.architectures, os.environ.get(NAME)) == (expected, given)


@pytest.mark.parametrize("given", [None, "", "native"])
@pytest.mark.parametrize("precision", ["ieee", "fp32_split"])
def test_without_a_gpu_it_says_what_to_set(precision: str, given, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself would raise an IndexError."""
    plan = standalone_plan(SPEC, ["float32"], precision)
    text = render_standalone(plan, inputs_of_spec(plan))
    _give(monkeypatch, given)
    with pytest.raises(RuntimeError, match=r"no GPU is at hand .* TORCH_CUDA_ARCH_LIST .* such as 9\.0$"):
        executed(text, Recorder(plan), gpus=())
    monkeypatch.setenv(NAME, "8.0")
    executed(text, Recorder(plan), gpus=())


def _give(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if given is not None:
        monkeypatch.setenv(NAME, given)


def test_other_products_leave_it_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = standalone_plan(SPEC, ["float32"], "ieee")
    monkeypatch.setenv(NAME, "9.0+PTX")
    extension = Recorder(plan)
    executed(render_standalone(plan, inputs_of_spec(plan)), extension)
    assert extension.architectures == "9.0+PTX"
    assert not any("arch" in flag or "gencode" in flag for flag in extension.options["extra_cuda_cflags"])
