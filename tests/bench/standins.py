"""What stands in for a GPU: a clock that follows a script, and a package whose module runs PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fusegen.bench.clock import Machine
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.importing import import_package
from fusegen.verify.subjects.subject import Subject

CHAIN = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 64, in_features: 32, features: 48}}
arguments:
  in_features: {{type: dim}}
  features: {{type: dim}}
inputs:
  x: [batch, in_features]
dtypes: [float32, bfloat16]
targets: [sm_90, sm_100]
chain:
  - {{op: linear, name: fc, out_features: features}}
  - {{op: batch_norm, name: bn}}
  - {{op: silu}}
"""
GROUPS = """\
fusegen: 1
name: {name}
about: A chain without a contraction, an input that gets no gradient and a fixed number of groups
dims: {{batch: 64, features: 48}}
arguments:
  features: {{type: dim}}
inputs:
  x: [batch, features]
  gate: [batch, features]
dtypes: [float32]
chain:
  - {{op: group_norm, name: norm, num_groups: 6}}
  - {{op: mul, input: gate, detach: true}}
"""


def stand_in(root: Path, name: str, text: str = CHAIN) -> Subject:
    """A chain whose generated module runs on the CPU, where it takes PyTorch's own operators."""
    spec = root / f"{name}.yaml"
    spec.write_text(text.format(name=name), encoding="utf-8")
    plan = plan_file(spec)
    write_files(render_all([module_of(plan)]), root / name)
    return Subject(module_of(plan), import_package(root / name, name), "cpu")


class ScriptedClock:
    """Makes every call, and reports times from a script: one a subject, in the order of a round, over and over.

    calls: which method was called, in order. device_ms, wall_us: of a round. drift: by how much each further sample is
    longer than the one before.
    """

    def __init__(self, device_ms: Sequence[float] = (1.0,), drift: float = 0.0) -> None:
        self.machine = Machine("NVIDIA Test", "2.0", "13.0")
        self.device_ms, self.drift = list(device_ms), drift
        self.samples = 0
        self.calls: list[tuple[str, object]] = []
        self.waiting = 0

    def issue_us(self, call: Callable) -> float:
        self.calls.append(("issue", call))
        call()
        return 7.0

    def enqueue(self, call: Callable, delay_us: float) -> Callable[[], float]:
        self.calls.append(("enqueue", call))
        self.delay_us = delay_us
        call()
        self.waiting += 1
        took = self.device_ms[self.samples % len(self.device_ms)] + self.drift * self.samples
        self.samples += 1

        def milliseconds() -> float:
            assert not self.waiting, "read before it was synchronised"
            return took

        return milliseconds

    def synchronise(self) -> None:
        self.calls.append(("synchronise", None))
        self.waiting = 0

    def wall_us(self, call: Callable, calls: int) -> float:
        self.calls.append(("wall", call))
        for _ in range(min(calls, 2)):
            call()
        return 100.0

    def peak_bytes(self, call: Callable) -> int:
        self.calls.append(("peak", call))
        call()
        return 4096
