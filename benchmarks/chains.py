"""Every chain of tests/chains/*.yaml that builds, on one GPU: built, verified, timed beside PyTorch.

    PYTHONPATH=. python benchmarks/chains.py --csv benchmarks/results/chains_h100.csv --shard 1/4

One `fusegen build` compiles all packages of the shard. Processes beside each other compare each with double precision
at small sizes and fill torch.compile's cache; then one after another is compared with eager at full size and timed. A
row for each dtype and mode is appended to the CSV as soon as it is there. float32 is as PyTorch has it: convolutions in
TF32, matrices not. A chain with a problem has it in its row, and the others go on. Exits 1 if a comparison failed.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for tests.chains, in the processes beside this one, too

from tests.chains.collection import BUILT, DTYPES  # noqa: E402


@dataclass(frozen=True)
class Line:
    """A row of the CSV. comparisons, failed: of the dtype, with double precision. *_ms: medians of device time.
    ratio: the fused module's time over that of the fastest peer. problem: what went wrong, or was left out."""

    gpu: str
    torch: str
    chain: str
    file: str
    kind: str
    size: str
    dtype: str
    mode: str
    comparisons: int = 0
    failed: int = 0
    fused_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    autotune_ms: float | None = None
    ratio: float | None = None
    problem: str = ""


Verified = tuple[Counter, Counter, list[str]]


def append(path: Path, lines: Sequence[Any]) -> None:
    """Writes rows, of one dataclass, at the end of the CSV, which is made if it is not there."""
    new = not path.exists() or not path.stat().st_size
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for line in lines:
            writer.writerows([[each.name for each in dataclasses.fields(line)]] if new else [])
            new, values = False, dataclasses.astuple(line)
            writer.writerow(["" if v is None else f"{v:.5g}" if isinstance(v, float) else v for v in values])


def build(names: Sequence[str], work: Path, dtypes: Sequence[str] = DTYPES) -> None:
    """Writes the specs and compiles their packages; those that do not compile are missing afterwards."""
    (work / "specs").mkdir(parents=True, exist_ok=True)
    files = [work / "specs" / f"{name}.yaml" for name in names]
    for name, file in zip(names, files, strict=True):
        file.write_text(BUILT[name].text(dtypes), encoding="utf-8")
    if fusegen_build(work, files):
        return
    for file in files:  # what is compiled already is kept
        fusegen_build(work, [file])


def fusegen_build(work: Path, files: Sequence[Path]) -> bool:
    command = [sys.executable, "-m", "fusegen", "build", *map(str, files), "-o", str(work / "generated")]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], flush=True)
    return done.returncode == 0


def prepare(name: str, work: Path, verify: bool) -> Verified:
    """In a process of its own: the comparisons of a chain, and its peers compiled for the cache."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    import torch
    from chains_subject import CACHED, modes_of, opened, pair, subjects_of, verified

    torch.set_num_threads(1)
    subject = opened(name, work)
    found = verified(subject) if verify else (Counter(), Counter(), [])
    for mode in modes_of(subject.plan):
        try:
            subjects_of(pair(subject, mode), [], CACHED)
        except Exception as problem:  # the process that measures says what is wrong
            print(f"{name} {mode.name}: {type(problem).__name__}: {problem}"[:300], flush=True)
        torch.compiler.reset()
        torch.cuda.empty_cache()
    return found


def prepare_all(names: Sequence[str], work: Path, processes: int, verify: bool) -> dict[str, Verified | str]:
    """What each chain's process found, or why it ended."""
    found: dict[str, Verified | str] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        jobs = {pool.submit(prepare, name, work, verify): name for name in names}
        for job in as_completed(jobs):
            name = jobs[job]
            try:
                found[name] = job.result()
                made, failed, notes = found[name]
                print(f"{name}: {made.total()} comparisons, {failed.total()} failed {'; '.join(notes[:3])}", flush=True)
            except Exception as problem:  # whatever a chain may raise
                found[name] = f"{type(problem).__name__}: {problem}"[:300]
                print(f"{name}: {found[name]}", flush=True)
    return found


def measure(name: str, work: Path, found: Verified | str, path: Path, peers: Sequence[str]) -> None:
    """Times a chain in each dtype and mode beside the peers, and appends its rows."""
    import torch
    from chains_subject import FORWARD, STEP, modes_of, opened, pair, ratio, subjects_of, times

    from fusegen.bench.clock import CudaClock

    entry, clock = BUILT[name], CudaClock()
    size = "x".join(str(each) for each in entry.spec["dims"].values())
    place = (torch.cuda.get_device_name(), torch.__version__, name, entry.file, entry.kind, size)
    made, failed, notes = found if not isinstance(found, str) else (Counter(), Counter(), [found])
    try:
        subject = opened(name, work)
        modes = {mode.roles["activation"]: mode for mode in modes_of(subject.plan)}
    except Exception as problem:
        message = f"{type(problem).__name__}: {problem}"[:300]
        append(path, [Line(*place, dtype, STEP, problem=message) for dtype in DTYPES])
        return
    for dtype, mode in modes.items():
        problems = [*notes[:2]]
        counts = {"comparisons": made[dtype], "failed": failed[dtype]}
        try:
            both = pair(subject, mode)
            problems += both.differences()
            modules = subjects_of(both, problems, peers)
            for what in (STEP, FORWARD):
                calls = {each: both.call(module, what) for each, module in modules.items()}
                taken = {each: spread.median for each, spread in times(clock, calls).items()}
                figures = {f"{each.removeprefix('max-')}_ms": value for each, value in taken.items()}
                line = Line(*place, dtype, what, **counts, **figures, ratio=ratio(taken), problem="; ".join(problems))
                append(path, [line])
                shown = ", ".join(f"{each} {value:.3f}" for each, value in taken.items())
                print(f"{name} {dtype} {what}: {shown} ms, {line.ratio or 0:.3f} {line.problem}", flush=True)
            del calls
        except Exception as problem:
            traceback.print_exc()
            problems.append(f"{type(problem).__name__}: {problem}"[:300])
            append(path, [Line(*place, dtype, STEP, **counts, problem="; ".join(problems))])
        both = modules = None
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()


def chosen(options: argparse.Namespace) -> list[str]:
    """The chains of the options, in turn for each shard."""
    names = options.only.split(",") if options.only else list(BUILT)
    index, count = map(int, options.shard.split("/"))
    return names[index - 1 :: count]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=ROOT / "benchmarks/results/chains.csv")
    parser.add_argument("--shard", default="1/1", help="which of how many parts of the chains")
    parser.add_argument("--only", default="", help="names of chains, with commas between them")
    parser.add_argument("--against", default="eager,compile", help="peers; max-autotune, too, is possible")
    parser.add_argument("--processes", type=int, default=6, help="that verify and compile beside each other")
    parser.add_argument("--work", type=Path, help="where packages and caches are; kept")
    parser.add_argument("--no-verify", action="store_true")
    options = parser.parse_args()
    names, began = chosen(options), time.time()
    work = options.work or Path(tempfile.mkdtemp())
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))

    def say(what: str) -> None:
        print(f"-- {what}: {time.time() - began:.0f} s", flush=True)

    build(names, work)
    say(f"{len(names)} chains built")
    found = prepare_all(names, work, options.processes, not options.no_verify)
    say("verified and compiled")
    for name in names:
        measure(name, work, found[name], options.csv, options.against.split(","))
    say("timed")
    wrong = [name for name, each in found.items() if isinstance(each, str) or each[1].total()]
    print(f"failed: {', '.join(wrong) or 'none'}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
