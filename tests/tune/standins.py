"""What stands in for a GPU: the emulator, and a clock whose times follow from the shapes that a launcher was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fusegen.bench.clock import Machine
from fusegen.emulate import compile_kernels
from fusegen.plan.launches.shapes import Shapes
from fusegen.runtime.launchers import Call
from fusegen.runtime.structs import Struct
from fusegen.tune.device import Device
from fusegen.tune.launchers import EmulatedLaunchers

CHAIN = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 64, features: 24}}
arguments: {{features: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [float32, bfloat16]
targets: [sm_80, sm_90a]
chain:
  - {{op: batch_norm, name: bn}}
  - {{op: silu}}
"""

Microseconds = Callable[[str, int, Shapes], float]


class Bench:
    """Launchers that note what they are called with, and a clock that asks what that takes.

    microseconds: of a launcher's name, a number of rows and shapes. damage: is called with the name, the shapes and
    the launcher's arguments after each launch that runs.
    """

    machine = Machine("NVIDIA Test", "2.10.0", "13.0")

    def __init__(self, cache: Path, microseconds: Microseconds) -> None:
        self.cache, self.microseconds = cache, microseconds
        self.timing = False
        self.noted: tuple[str, int, Shapes] = ("", 0, Shapes())
        self.damage: Callable[[str, Shapes, Struct], None] = lambda name, shapes, arguments: None

    def device(self, target: str = "sm_90") -> Device:
        return Device(target, "cpu", self, self.launchers)  # type: ignore[arg-type]

    def launchers(self, names: Sequence[str], packages: Path) -> Mapping[str, NotingLaunchers]:
        compiled = {
            n: compile_kernels(packages / n / "kernels.cu", cache=self.cache, checked=False, optimised=False)
            for n in names
        }
        return {name: NotingLaunchers(self, library) for name, library in compiled.items()}

    # The clock

    def enqueue(self, call: Callable[[], object], delay_us: float) -> Callable[[], float]:
        self.timing = True
        call()
        self.timing = False
        took = self.microseconds(*self.noted) / 1e3
        return lambda: took

    def synchronise(self) -> None:
        pass


class NotingLaunchers(EmulatedLaunchers):
    """Runs a launcher unless it is only timed."""

    def __init__(self, bench: Bench, library: Any) -> None:
        super().__init__(library)
        self.bench = bench

    def bind(self, name: str, call: Call, arguments: Struct) -> Callable[[], int]:
        run = super().bind(name, call, arguments)
        if call.forced is None:
            return run

        def noted() -> int:
            self.bench.noted = (name, call.rows, call.forced)
            if self.bench.timing:
                return 0
            status = run()
            self.bench.damage(name, call.forced, arguments)
            return status

        return noted
