"""Whether scale.py calls launchers as they are meant to be called: on the emulator, beside double precision."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from scale_chains import DTYPES, Chain, chains
from scale_sizes import Size
from scale_sweep import choices, sweep

from fusegen.bench.clock import Machine
from fusegen.bench.scale import grouped, read_scale
from fusegen.bench.scale_text import report
from fusegen.emulate import compile_kernels
from fusegen.plan.load import plan_file
from fusegen.tune.agreement import agreeing
from fusegen.tune.launchers import EmulatedLaunchers
from fusegen.tune.tail import Tail
from fusegen.verify.subjects.emulated import tail_reference

# Vectors and none; one row; a group beyond a block's registers. Not a few rows alone: what scales the input of a batch
# norm has a gradient that cancels then, and over three rows eager in float32 is off by 7e-4 of it.
SIZES = (Size(1, 48, 3), Size(33, 64, 8), Size(31, 37, 1), Size(17, 9000, 1))
_LIMITS = {torch.float32: 2e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.int64: 0.0}


class HostClock:
    """A clock of the CPU, for which nothing is flushed or delayed."""

    machine = Machine("emulated", torch.__version__, "none")

    def enqueue(self, call: Callable[[], Any], delay_us: float) -> Callable[[], float]:
        began = time.perf_counter()
        call()
        took = (time.perf_counter() - began) * 1e3
        return lambda: took

    def synchronise(self) -> None:
        pass


def self_test(specs: Sequence[str], dtypes: Sequence[str], cache: Path) -> None:
    """Raises AssertionError where a result is wrong or a row is missing."""
    wanted = {DTYPES[dtype] for dtype in dtypes}
    launchers = {}
    for name in specs:
        plan = plan_file(Path("specs") / f"{name}.yaml")
        modes = [mode.index for mode in plan.modes if mode.plain and mode.roles["activation"] in wanted]
        kernels = Path("generated") / name / "kernels.cu"
        launchers[name] = EmulatedLaunchers(
            compile_kernels(kernels, cache=cache, modes=modes, checked=False, optimised=False)
        )
    found = chains(specs, dtypes, launchers, "cpu")
    for chain in found:
        for size in chain.allowed(SIZES):
            _beside_double(chain, size)
    with tempfile.TemporaryDirectory() as directory:
        csv = Path(directory) / "scale.csv"
        work = [(chain, chain.allowed(SIZES[1:3])) for chain in found]
        rows, problems = sweep(HostClock(), work, 600.0, csv, "none")
        assert not problems, problems
        assert read_scale(csv) == rows
        programs = sum(2 * len(chain.plan.variants) for chain in found)
        assert sum(row.schedule == "automatic" for row in rows) == 2 * programs
        assert {row.schedule for row in rows} == {"automatic", "persistent", "l2", "two_pass"}
        for same in grouped(rows, "spec", "program", "dtype", "rows", "channels"):
            forced = {row.schedule for row in same} - {"automatic"}
            assert not forced or same[0].chosen in forced, f"{same[0].what} {same[0].size}: {same[0].chosen}"
    report(rows)
    print(f"{len(rows)} rows as they must be; their times mean nothing")


def _beside_double(chain: Chain, size: Any) -> None:
    """Every schedule's results are those of the chain in double precision."""
    module = chain.module(size)
    tail = Tail(chain.plan, chain.mode, size, chain.launchers, module, "cpu")
    compared = 0
    for variant in chain.plan.variants:
        training = variant.chain.training
        if training and chain.plan.chain.batch_norms and size.rows == 1:
            continue
        forward, backward = tail.programs(variant)
        names = [chain.plan.chain.source.name, *chain.plan.chain.tail_inputs, variant.result_gradient]
        tensors = {name: tail.tensors[name] for name in names if name in tail.tensors}
        expected = tail_reference(chain.plan, module, tensors, chain.mode, training)
        for program in (forward, backward):
            for schedule, launch in agreeing(program, choices(program.program)).items():
                program.reset()
                assert launch() == 0
                for name, value in program.outputs.items():
                    if name not in expected:
                        continue  # saved statistics
                    exact = expected[name]
                    error = float((value.double().reshape(exact.shape) - exact).abs().max())
                    bound = _LIMITS[value.dtype] * max(1.0, float(exact.abs().max()))
                    assert error <= bound, f"{program.program.name} {chain.dtype} {schedule}: {name} off by {error:.2e}"
                    compared += 1
    assert compared, f"{chain.plan.spec.name}: nothing was compared"
