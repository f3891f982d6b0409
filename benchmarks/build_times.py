"""Times of cold and repeated builds of the seed specs, of importing what was built, and of a cold build's parts.

    PYTHONPATH=. python benchmarks/build_times.py [--runs 3] [--out benchmarks/results/build_times_2_cores.csv]

Needs a CUDA compiler and no GPU. Each figure is the median of some runs in processes of their own. `cpu_s` is the
user and system time of a build with all its compilers: it bounds the wall time on any number of cores, and says
what a build costs where other work makes the wall time meaningless. Parts are the compilations of a build, one after
another, and the headers of its binding and of the Python module alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from subjects import CHAINS, SEEDS

from fusegen.build.autograd import AutogradLibrary
from fusegen.build.commands import Commands
from fusegen.build.key import collect_inputs
from fusegen.build.libraries import find_libraries
from fusegen.build.toolchain import find_toolchain
from fusegen.paths import BUILD_STORE, SUPPORT

ROOT = Path(__file__).parent.parent
SPECS = [CHAINS[name].spec for name in SEEDS]
ONE, ALL = ("sm_90",), ("sm_80", "sm_90", "sm_100")

IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
started = time.perf_counter()
__import__("generated." + sys.argv[2])
print(time.perf_counter() - started)
"""


@dataclass(frozen=True)
class Row:
    """One figure. `limit_s` is what the project wants of the wall time on two idle cores."""

    what: str
    specs: str
    targets: str
    wall_s: float
    cpu_s: float | None
    runs: int
    limit_s: float | None
    cores: int
    load: float  # of the machine before the first run: well below one where nothing else ran


def build(output: Path, specs: list[str], targets: tuple[str, ...]) -> tuple[float, float]:
    """Wall and CPU seconds of one `fusegen build` in a process of its own."""
    command = [sys.executable, "-m", "fusegen", "build", "--output", os.fspath(output)]
    command += [argument for target in targets for argument in ("--target", target)]
    command += [os.fspath(ROOT / "specs" / f"{name}.yaml") for name in specs]
    return run(command, ROOT)


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one process and its children."""
    before, started = os.times(), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    wall, after = time.monotonic() - started, os.times()
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    children = (after.children_user, after.children_system, -before.children_user, -before.children_system)
    return wall, sum(children)


def environment() -> dict[str, str]:
    """As users have it: with Python's compiled modules kept, whatever this process is told."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def cold(folder: Path, specs: list[str], targets: tuple[str, ...], runs: int) -> tuple[float, float]:
    """Medians of builds that find nothing; the last one stays in `folder/generated`."""
    measured = []
    for number in range(runs):
        output = folder / "generated" if number == runs - 1 else folder / f"cold-{number}"
        measured.append(build(output, specs, targets))
    return medians(measured)


def beside(folder: Path, name: str, runs: int) -> tuple[float, float]:
    """Medians of builds of a spec that find all of `folder/generated` but its own package."""
    store = folder / "generated" / BUILD_STORE
    # Another package's: what packages share is taken from it.
    shutil.copytree(store / name, store / "another")
    measured = []
    for _ in range(runs):
        for mine in (folder / "generated" / name, store / name):
            shutil.rmtree(mine)
        measured.append(build(folder / "generated", [name], ONE))
    return medians(measured)


def parts(package: Path, targets: tuple[str, ...], runs: int) -> dict[str, tuple[float, float]]:
    """What each object of a rendered package takes to compile, and what their libraries' headers alone do."""
    toolchain, libraries = find_toolchain(), find_libraries()
    inputs = collect_inputs(package, targets=targets, verification=False, toolchain=toolchain, libraries=libraries)
    commands = Commands(inputs, toolchain, libraries, targets, False)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        for unit in inputs.units:
            step = commands.compile_step(unit, Path(temporary) / "object.o")
            found[str(unit)] = medians([run(list(step.command), step.cwd) for _ in range(runs)])
        library = AutogradLibrary(package.parent / SUPPORT, toolchain, libraries)
        making = library.command(Path(temporary) / "library.so")
        found[library.source.name] = medians([run(making, library.support) for _ in range(runs)])
        for name, header, unit in (
            ("pybind11", "pybind11/pybind11.h", inputs.shared[0]),
            ("LibTorch's stable ABI", "torch_glue.h", inputs.cxx[0]),
        ):
            source = Path(temporary) / "header.cpp"
            source.write_text(f"#include <{header}>\n", encoding="utf-8")
            step = commands.compile_step(unit, Path(temporary) / "object.o")
            only = [os.fspath(source) if word == unit.source.name else word for word in step.command]
            found[f"headers of {name} alone"] = medians([run(only, step.cwd) for _ in range(runs)])
    return found


def import_seconds(folder: Path, name: str) -> float:
    """What importing a built package takes where torch has been imported."""
    command = [sys.executable, "-c", IMPORT, os.fspath(folder), name]
    return float(subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout)


def medians(measured: list[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*measured, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def measure(runs: int, many: int) -> list[Row]:
    """All figures: `runs` of what takes long, `many` of what does not."""
    rows: list[Row] = []
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]

    def add(
        what: str, specs: str, targets: tuple[str, ...], times: tuple[float, float | None], n: int, limit: float | None
    ):
        wall, cpu = times
        cpu = None if cpu is None else round(cpu, 3)
        rows.append(Row(what, specs, " ".join(targets), round(wall, 3), cpu, n, limit, cores, round(load, 1)))
        print(*asdict(rows[-1]).values(), flush=True)

    for name in SPECS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            add("cold build", name, ONE, cold(folder, [name], ONE, runs), runs, 12)
            add("cold build beside another", name, ONE, beside(folder, name, runs), runs, None)
            again = [build(folder / "generated", [name], ONE) for _ in range(many)]
            add("no-op build", name, ONE, medians(again), many, 0.5)
            imported = [import_seconds(folder, name) for _ in range(many)]
            add("import", name, ONE, (statistics.median(imported), None), many, 0.05)
            for part, times in parts(folder / "generated" / name, ONE, runs).items() if name == SPECS[0] else ():
                add(part, name, ONE, times, runs, None)
    with tempfile.TemporaryDirectory() as temporary:
        add("cold build", "all seed specs", ALL, cold(Path(temporary), SPECS, ALL, runs), runs, 90)
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="cold builds of each kind")
    parser.add_argument("--many", type=int, default=9, help="no-op builds and imports of each")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "benchmarks" / "results" / f"build_times_{len(os.sched_getaffinity(0))}_cores.csv",
    )
    options = parser.parse_args()
    rows = measure(options.runs, options.many)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main()
