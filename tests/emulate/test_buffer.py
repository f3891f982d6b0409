"""Guarded memory holds what tensors hold, and says where it was overwritten."""

import ctypes

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [[], [0], [5], [3, 7], [4096]])
def test_round_trip_and_placement(dtype, shape):
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    for offset in range(0, 16, dtype.itemsize):
        buffer = Buffer.from_tensor(x, offset_bytes=offset)
        assert torch.equal(buffer.tensor(), x)
        assert buffer.pointer % 16 == offset
        assert 0 <= -(buffer.pointer + buffer.nbytes) % 4096 < 16
        buffer.check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_poison_is_nan(dtype):
    assert Buffer.poisoned([5], dtype).tensor().isnan().all()
    assert Buffer.poisoned([2], torch.int32).tensor().tolist() == [0x7F7F7F7F] * 2


@pytest.mark.parametrize(
    "offset, message",
    [(-1, "1 bytes before its start"), (5, "0 bytes past its end"), (15, "10 bytes past its end")],
)
def test_canary(offset, message):
    buffer = Buffer.poisoned([5], torch.bool)
    ctypes.memset(buffer.pointer + offset, 0, 1)
    with pytest.raises(EmulationError, match=message):
        buffer.check()


def test_refusals():
    with pytest.raises(ValueError, match="contiguous"):
        Buffer.from_tensor(torch.zeros(3, 4).t())
    for offset in (2, 16, -4):
        with pytest.raises(ValueError, match="offset_bytes"):
            Buffer.poisoned([1], torch.float32, offset_bytes=offset)
