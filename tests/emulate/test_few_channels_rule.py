"""Which convolutions have zeros as further channels, and the op that copies tensors so."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.emulate.convolutions import part_of_support  # noqa: E402
from tests.emulate.test_few_channels import CONVOLUTIONS, packages  # noqa: E402

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

BF16, FP16 = torch.bfloat16, torch.float16
ALONE = {"followed": False}
RULE = (  # channels, those of the result, the kernel, dtype, what else is so, channels with zeros
    *((n, 64, (3, 3), BF16, {}, 32) for n in (2, 3, 8, 12, 15, 17, 24, 31)),
    *((n, 64, (3, 3), BF16, {}, 64) for n in (33, 40, 56, 63)),
    *((n, 64, (3, 3), BF16, {}, 0) for n in (1, 16, 32, 48, 64, 72)),
    *((n, 64, (3, 3), BF16, ALONE, 32) for n in (8, 16, 24)),
    *((n, 64, (3, 3), BF16, ALONE, 0) for n in (32, 48)),
    (16, 64, (3, 3), BF16, {"followed": False, "last": True}, 0),
    (8, 64, (3, 3), BF16, {"followed": False, "last": True}, 32),
    *((n, 64, (3, 3), FP16, {}, 32) for n in (9, 12, 24)),
    *((n, 64, (3, 3), FP16, ALONE, 0) for n in (2, 3, 8, 16, 32)),
    (24, 64, (3, 3, 3), FP16, ALONE, 0),
    (24, 64, (3, 3, 3), FP16, {}, 0),
    (24, 64, (3, 3, 3), BF16, {}, 32),
    (100, 128, (3, 3), BF16, {}, 128),
    (250, 256, (3, 3), FP16, {}, 256),
    (257, 512, (3, 3), BF16, {}, 0),
    (8, 64, (3, 3), torch.float32, {}, 0),
    (8, 32, (3, 3), BF16, {}, 32),
    (8, 31, (3, 3), BF16, {}, 0),
    (40, 63, (3, 3), BF16, {}, 0),
    (8, 64, (9,), BF16, {}, 32),
    (8, 64, (8,), BF16, {}, 0),
    (8, 64, (1, 1), BF16, {}, 0),
    (8, 64, (9, 1), BF16, {}, 32),
    *((8, 64, (3, 3), BF16, each, 0) for each in ({"stride": (1, 2)}, {"dilation": (2, 1)}, {"groups": 2})),
    (8, 64, (3, 3), BF16, {"transposed": True}, 0),
    (8, 64, (3, 3), BF16, {"positions": 100}, 0),  # less than a megabyte
    (8, 64, (3, 3), BF16, {"batch": 1 << 16, "positions": 180}, 0),  # more elements than cuDNN counts in 32 bits
)  # fmt: skip


@pytest.mark.parametrize(("channels", "out", "kernel", "dtype", "more", "expected"), RULE, ids=str)
def test_which_have_zeros(packages, channels, out, kernel, dtype, more, expected) -> None:
    dimensions, batch = len(kernel), more.get("batch", 4)
    options = {key: more[key] for key in ("stride", "dilation", "groups") if key in more}
    kind = nn.ConvTranspose2d if more.get("transposed") else CONVOLUTIONS[dimensions]
    layer = kind(channels, out, kernel, device="meta", **options)
    size = {1: 1 << 18, 2: 512, 3: 64}[dimensions]
    x = torch.empty(batch, channels, *(more.get("positions", size),) * dimensions, dtype=dtype, device="meta")
    if more.get("last"):
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    rule = part_of_support(packages(2), "few_channels").padded_channels
    assert rule(layer, x, layer.weight, dtype, followed=more.get("followed", True)) == expected


def test_the_op(packages) -> None:
    package = packages(2)._fusegen_package
    op = part_of_support(packages(2), "memory_formats")._padding_op(package)
    modes = {row["activation"]: index for index, row in enumerate(package.dtypes)}
    x = torch.randn(2, 3, 70)
    last = torch.randn(2, 70, 3).mT
    for arguments in ((x.bfloat16(), 32, -1), (x, 32, modes[BF16]), (last, 8, modes[FP16]), (last.half(), 32, -1)):
        torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))
        made = op(*arguments)
        assert torch.equal(made[..., :3], arguments[0].to(made.dtype).mT) and not made[..., 3:].any()
        assert made.shape == (2, 70, arguments[1])
    half = x.half()
    for wrong in ((x, 32, -1), (x.double(), 32, -1), (half, 32, modes[BF16]), (half, 33, -1), (half, 0, -1)):
        with pytest.raises(RuntimeError, match="no copy of"):
            op(*wrong)
    with pytest.raises(RuntimeError, match="expected shape"):
        op(half[0], 32, -1)
