"""The clock of a GPU: in which order it uses the device, on a stand-in of torch.cuda; and a run on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fusegen.bench import clock as clock_module
from fusegen.bench.bench import Bench
from fusegen.bench.ceilings import Ceilings, measure_ceilings
from fusegen.bench.clock import CudaClock
from fusegen.bench.names import MODES, PEERS
from fusegen.bench.options import Options
from fusegen.bench.shapes import sizes_of
from fusegen.verify.subjects.subject import Subject
from tests.bench.standins import stand_in


class Device:
    """Records what is asked of it. Every event is 4 ms after the one before."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.recorded = 0
        self.allocated = [100, 900]

    def Event(self, enable_timing: bool) -> Device.Mark:
        assert enable_timing
        return Device.Mark(self)

    class Mark:
        def __init__(self, device: Device) -> None:
            self.device = device

        def record(self) -> None:
            self.device.log.append("event")
            self.device.recorded += 1
            self.at = 4.0 * self.device.recorded

        def elapsed_time(self, other: Device.Mark) -> float:
            return other.at - self.at

    def _sleep(self, cycles: int) -> None:
        self.log.append(("sleep", cycles))

    def synchronize(self) -> None:
        self.log.append("synchronise")

    def get_device_name(self) -> str:
        return "NVIDIA Test"

    def memory_allocated(self) -> int:
        self.log.append("allocated")
        return self.allocated[0]

    def max_memory_allocated(self) -> int:
        self.log.append("peak")
        return self.allocated[1]

    def reset_peak_memory_stats(self) -> None:
        self.log.append("reset")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for name in ("Event", "_sleep", "synchronize", "get_device_name", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", made.reset_peak_memory_stats)
    monkeypatch.setattr(clock_module, "_FLUSH_BYTES", 16)
    return made


def test_a_sample_is_flushed_and_queued_behind_a_delay(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = CudaClock("cpu")
    flushes = []
    monkeypatch.setattr(clock, "_flush", type("Flush", (), {"zero_": lambda self: device.log.append("flush")})())
    device.log.clear()
    waiting = clock.enqueue(lambda: device.log.append("call"), 300.0)
    # Ten million cycles took 4 ms: 2500 a microsecond.
    assert device.log == ["flush", ("sleep", 750_000), "event", "call", "event"] and not flushes
    clock.synchronise()
    assert waiting() == 4.0 and device.log[-1] == "synchronise"


@pytest.mark.parametrize(("delay", "least", "most"), [(0.0, 1, 10**9), (1e9, 1, 10**9)])
def test_the_delay_has_bounds(device: Device, delay: float, least: int, most: int) -> None:
    clock = CudaClock("cpu")
    device.log.clear()
    clock.enqueue(lambda: None, delay)
    ((_, cycles),) = [entry for entry in device.log if isinstance(entry, tuple)]
    assert least <= cycles <= most


def test_wall_time_is_of_a_synchronised_loop(device: Device) -> None:
    clock = CudaClock("cpu")
    device.log.clear()
    assert clock.wall_us(lambda: device.log.append("call"), 3) > 0
    assert device.log == ["synchronise", "call", "call", "call", "synchronise"]


def test_issuing_does_not_wait_for_the_device(device: Device) -> None:
    clock = CudaClock("cpu")
    device.log.clear()
    assert clock.issue_us(lambda: device.log.append("call")) > 0
    assert device.log == ["synchronise", "call", "synchronise"]


def test_the_peak_is_beyond_what_was_there(device: Device) -> None:
    clock = CudaClock("cpu")
    device.log.clear()
    assert clock.peak_bytes(lambda: device.log.append("call")) == 800
    assert device.log == ["synchronise", "allocated", "reset", "call", "synchronise", "peak"]


@pytest.mark.gpu
def test_a_run_on_a_gpu_with_every_peer(tmp_path: Path) -> None:
    found = stand_in(tmp_path, "bench_on_a_gpu")
    cls = type(found.fused_class.__name__, (found.fused_class,), {"forward": found.fused_class.fusegen_reference})
    package = type(found.package)(found.package.__name__)
    setattr(package, found.plan.spec.class_name, cls)
    subject = Subject(found.plan, package, "cuda")
    clock = CudaClock()
    ceilings = measure_ceilings(clock, "cuda", ("fp32", "tf32", "bf16"))
    assert isinstance(ceilings, Ceilings) and ceilings.copy > 0 and all(v > 0 for v in ceilings.contraction.values())
    bench = Bench(clock, ceilings, Options(), "fusegen bench", "now", lambda rows: None, print)
    for precision in ("fp32", "tf32", "bf16"):
        bench.measure(subject, sizes_of(subject.plan, "256x128x512"), precision)
    assert not bench.wrong and not bench.problems
    assert len(bench.rows) == 3 * len(MODES) * (len(PEERS) + 3)
    assert all(row.device_ms > 0 and row.wall_us > 0 for row in bench.rows)
    assert all((row.peak_bytes is None) == (row.subject == "reduce-overhead") for row in bench.rows)
