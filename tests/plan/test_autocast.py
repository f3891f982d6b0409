"""The planned dtype of a result under autocast is eager PyTorch's for every op, asked of fake CUDA tensors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from fusegen.ops.arithmetic import Arithmetic  # noqa: E402
from fusegen.ops.catalogue import STEPS  # noqa: E402
from tests.emulate.building import arguments, module_class, write  # noqa: E402
from tests.emulate.other_chains import Other, parameter  # noqa: E402

OF_ROWS = ("sum", "mean", "max", "min", "amax", "amin", "logsumexp", "var", "std", "norm")
# What an op needs beside its name; others are asked as they are.
NEEDED = {
    "clamp": "min: 0",
    "pow": "exponent: 1.5",
    "threshold": "threshold: 0, value: 1",
    "prelu": "name: n",
    "cross_entropy": "target: t",
    "group_norm": "name: n, num_groups: 2",
    **dict.fromkeys(("batch_norm", "layer_norm", "rms_norm"), "name: n"),
    **dict.fromkeys(OF_ROWS, "keepdim: true"),
    "masked_fill": "mask: r, constant: 2",
    "chunk": "parts: [a, b]",
    "cast": "dtype: float16",
}
# instance_norm asks for a GPU, even of fake tensors. Autocast has no rule for it.
ALONE = [op for step in STEPS if not (step.anchor or not step.has_kernels or step is Arithmetic) for op in step.ops()]
ALONE.remove("instance_norm")
DIVIDING = {op for step in STEPS if step.divides for op in step.ops()}
STEPS_OF = (
    *(f"{op}, {NEEDED[op]}" if op in NEEDED else op for op in ALONE),
    "gelu, approximate: tanh",
    "prelu, name: n, num_parameters: features",
    "rms_norm, name: n, affine: false",
    "layer_norm, name: n, affine: false",
    "batch_norm, name: n, affine: false",
    *(f"{op}, constant: 2{swap}" for op in Arithmetic.ops() for swap in ("", ", swap: true")),
    *(f"{op}, input: r{swap}" for op in ("add", "div", "minimum", "hypot") for swap in ("", ", swap: true")),
    *(f"{op}, input: r" for op in ("logaddexp", "atan2")),
    *(
        parameter(op, "p", shape)[5:-1]
        for op in ("sub", "mul", "maximum", "hypot", "logaddexp", "atan2")
        for shape in ("[]", "[1]", "[features]")
    ),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all packages, which share what support files define."""
    return tmp_path_factory.mktemp("autocast")


@pytest.mark.parametrize("linear", [True, False], ids=["behind_linear", "alone"])
@pytest.mark.parametrize("step", STEPS_OF)
def test_result_under_autocast(step: str, linear: bool, root: Path) -> None:
    name = f"autocast_{STEPS_OF.index(step)}_{'behind_linear' if linear else 'alone'}"
    steps = (f"{{op: {step}}}", *(["{op: add, input: r}"] if "keepdim" in step else []))
    parts = 2 if step.split(",")[0] in DIVIDING else 1
    inputs = ("r",) if re.search("input|mask:", " ".join(steps)) else ("t",) if "target" in step else ()
    text = Other(steps, linear, inputs=inputs, parts=parts).spec(name).replace("[float32]", "[float32, bfloat16]")
    plan = write(name, text.replace("t: [batch, features]", "t: [batch]"), root)
    cls = module_class(plan, root)
    modes = [mode for mode in plan.modes if mode.autocast]
    assert modes or ("prelu" in step and not linear), "its result has autocast's dtype, which no tensor tells"
    module = cls(*arguments(plan, 4, 6, 2)).eval()
    with FakeTensorMode():
        for part in module.modules():
            for table in (part._parameters, part._buffers):
                table.update({key: on_cuda(value) for key, value in table.items() if value is not None})
        for mode in modes:
            further = "bool" if "r" in plan.chain.masks else mode.roles.get("input r", "float32")
            first = "float32" if linear else mode.roles["activation"]
            widths = (6 if linear else parts * 6, 6)
            tensors = [
                torch.empty(4, width, dtype=getattr(torch, dtype), device="cuda")
                for width, dtype in zip(widths, (first, further), strict=True)
            ][: len(plan.chain.inputs)]
            if plan.chain.targets:
                tensors[1] = torch.empty(4, dtype=torch.int64, device="cuda")
            found = under_autocast(module, tensors)
            assert str(found).removeprefix("torch.") == mode.roles["output"], mode.name


def on_cuda(tensor):
    """Fake, and made there: a CPU-only PyTorch cannot move anything to a GPU, not even a fake."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")


def under_autocast(module, tensors) -> torch.dtype:
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    # torch.autocast would ask for a GPU first.
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        return module.fusegen_reference(*tensors).dtype
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
        torch.clear_autocast_cache()
