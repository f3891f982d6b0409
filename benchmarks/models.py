"""A training step of whole models: PyTorch, torch.compile, Liger, and fusegen as a backend of torch.compile.

    PYTHONPATH=. python benchmarks/models.py --out DIR [--models NAME ...] [--routes NAME ...]    on a CUDA device
    PYTHONPATH=. python benchmarks/models.py --self-test    anywhere: a tiny model on the CPU, without times of a GPU

A step is forward, loss and backward, without an optimizer. Each model and route has a process of its own. Several
prepare side by side: they trace, compile and check. One at a time is timed, while the others are stopped. DIR gets
models.csv, the reports of the routes of fusegen, and the kernels of each route with their times.

    device_ms    how long a kernel runs in a step, or several at once, by the profiler, the mean of five
    host_ms      of a step until Python is done with it, the device idle at the beginning
    wall_ms      of a step in a row of steps, the device waited for at the end
    peak_mib     what a step allocates at most, beside weights, gradients and the batch
    first_s      from the compiler's call to the end of the first step; fusegen's first start compiles its packages
    loss_off     of the loss beside PyTorch's, relative; gradients_off: the norm of the gradients' difference by that of
                 the gradients. `eager` has those of itself, run twice. Empty where a dropout draws other numbers
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from kernel_names import kernel_name
from model_processes import READY, STACKS, Children
from model_subjects import SUBJECTS, TINY, Step, Subject
from torch import Tensor, nn

import fusegen

COLUMNS = (
    *("model", "precision", "route", "device_ms", "host_ms", "wall_ms", "peak_mib", "kernels", "fusegen_ms"),
    *("triton_ms", "places", "left", "first_s", "loss_off", "gradients_off", "problem", "gpu", "torch"),
)
GRAPHS = "reduce-overhead"
ROUTES = ("eager", "compile", "compile_graphs", "fusegen", "fusegen_graphs", "fusegen_split", "liger")
LIGER = {"llama_4_layers": "llama"}  # the models that Liger patches
REPEATS = 20


def compiled(step: nn.Module, route: str, directory: Path) -> tuple[Callable[..., Tensor], fusegen.Backend | None]:
    """The step by a route, and what has its report."""
    if route in ("eager", "liger"):
        return step, None
    graphs = route.endswith("_graphs")
    if route.startswith("compile"):
        return torch.compile(step, mode=GRAPHS if graphs else None), None
    options = torch._inductor.list_mode_options(GRAPHS) if graphs else None
    precision = "fp32_split" if route == "fusegen_split" else "ieee"
    backend = fusegen.Backend(directory, precision=precision, options=options)
    return torch.compile(step, backend=backend), backend


def is_for(name: str, route: str) -> bool:
    """Whether a model has a route."""
    if route == "fusegen_split":
        return SUBJECTS[name].precision == "fp32"
    return route != "liger" or name in LIGER


def layout_of(tensor: Tensor) -> torch.memory_format:
    """Of an image channels_last; one of a single position has both layouts, and stays."""
    is_image = tensor.dim() == 4 and tensor.shape[-1] > 1
    return torch.channels_last if is_image else torch.contiguous_format


class Run:
    """One model by one route."""

    def __init__(self, name: str, subject: Subject, route: str, device: str, directory: Path) -> None:
        self.subject, self.route, self.device = subject, route, device
        self.row: dict[str, Any] = {"model": name, "precision": subject.precision, "route": route}
        is_tf32 = subject.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
        if route == "liger":
            _patch_transformers(name)
        torch.manual_seed(0)
        step = Step(subject.make(), subject).train().to(device)
        if subject.precision == "bf16":
            step = step.bfloat16()
        torch.manual_seed(1)
        self.batch = subject.batch(device)
        if subject.images:
            step = step.to(memory_format=torch.channels_last)
            self.batch = tuple(each.contiguous(memory_format=layout_of(each)) for each in self.batch)
        if subject.precision == "bf16":
            self.batch = tuple(each.bfloat16() if each.is_floating_point() else each for each in self.batch)
        self.step = step
        self.call, self.backend = compiled(step, route, directory)

    def once(self, call: Callable[..., Tensor] | None = None) -> Tensor:
        """A training step. Returns the loss."""
        if self.route.endswith("_graphs"):
            torch.compiler.cudagraph_mark_step_begin()
        self.step.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.subject.precision == "amp"):
            loss = (self.call if call is None else call)(*self.batch)
        loss.backward()
        return loss

    def prepare(self) -> None:
        """Compiles, and compares with PyTorch's operators."""
        state = {name: each.clone() for name, each in self.step.state_dict().items()}
        began = time.perf_counter()
        self.once()
        self._wait()
        self.row["first_s"] = round(time.perf_counter() - began, 1)
        if self.backend is not None:
            self.row["places"] = len(self.backend.report.taken)
            self.row["left"] = len(self.backend.report.left)
        if not any(isinstance(each, nn.Dropout) and each.p > 0 for each in self.step.modules()):
            self._compare(state)
        self.step.load_state_dict(state)
        self.step.zero_grad(set_to_none=True)

    def _compare(self, state: dict[str, Tensor]) -> None:
        results = []
        for call in (self.step, self.call):
            self.step.load_state_dict(state)
            loss = self.once(call).item()
            results.append((loss, [each.grad.float() for each in self.step.parameters() if each.grad is not None]))
        (expected, gradients), (loss, others) = results
        difference = sum((a - b).square().sum().item() for a, b in zip(gradients, others, strict=True))
        whole = sum(each.square().sum().item() for each in gradients)
        self.row["loss_off"] = f"{abs(loss - expected) / abs(expected):.1e}"
        self.row["gradients_off"] = f"{(difference / whole) ** 0.5:.1e}"

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def measure(self) -> Counter[str]:
        """Times the step. Returns the microseconds of each kernel."""
        for _ in range(5):
            self.once()
        host = []
        for _ in range(REPEATS):
            self._wait()
            began = time.perf_counter()
            self.once()
            host.append(time.perf_counter() - began)
        self._wait()
        began = time.perf_counter()
        for _ in range(REPEATS):
            self.once()
        self._wait()
        self.row["wall_ms"] = round(1e3 * (time.perf_counter() - began) / REPEATS, 3)
        self.row["host_ms"] = round(1e3 * statistics.median(host), 3)
        return self._on_gpu() if self.device == "cuda" else Counter()

    def _on_gpu(self) -> Counter[str]:
        from torch.profiler import ProfilerActivity, profile

        self.step.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() + sum(each.nbytes for each in self.step.parameters())
        self.once()
        torch.cuda.synchronize()
        self.row["peak_mib"] = (torch.cuda.max_memory_allocated() - before) >> 20
        steps = 5
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                self.once()
            torch.cuda.synchronize()
        events = [event for event in profiler.events() if str(event.device_type).endswith("CUDA")]
        kernels: Counter[str] = Counter()
        for event in events:
            kernels[event.name] += event.self_device_time_total / steps
        self.row["kernels"] = len(events) // steps
        spans = [(event.time_range.start, event.time_range.end) for event in events]
        self.row["device_ms"] = round(covered(spans) / steps / 1e3, 3)
        for column, is_meant in (("fusegen_ms", kernel_name), ("triton_ms", lambda name: name.startswith("triton_"))):
            self.row[column] = round(sum(us for name, us in kernels.items() if is_meant(name)) / 1e3, 3)
        self.row["gpu"] = torch.cuda.get_device_name()
        return kernels


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """What intervals cover, each moment once: a kernel that waits for the one before begins while that one runs."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _patch_transformers(name: str) -> None:
    """Liger's kernels in the place of transformers' classes."""
    import liger_kernel.transformers as liger

    getattr(liger, f"apply_liger_kernel_to_{LIGER[name]}")()


def child(name: str, route: str, out: Path, directory: Path) -> None:
    """Prepares one model by one route, waits for its turn, measures, and prints a row as JSON."""
    faulthandler.register(STACKS)
    row: dict[str, Any] = {"model": name, "route": route, "torch": torch.__version__}
    run = None
    try:
        run = Run(name, SUBJECTS[name], route, "cuda", directory)
        run.prepare()
        torch.cuda.empty_cache()
        print(READY, flush=True)
        sys.stdin.readline()
        kernels = run.measure()
        text = "".join(f"{us:10.1f}  {kernel}\n" for kernel, us in kernels.most_common())
        (out / f"{name}.{route}.kernels").write_text(text, encoding="utf-8")
    except Exception as error:  # whatever a model, a compiler or a package raises is a row of the table
        row["problem"] = f"{type(error).__name__}: {error}"[:600]
        import traceback

        traceback.print_exc()
    if run is not None and run.backend is not None:
        (out / f"{name}.{route}.report").write_text(str(run.backend.report), encoding="utf-8")
    print(json.dumps((run.row if run else {}) | row), flush=True)


def self_test(directory: Path) -> None:
    """A tiny model on the CPU by the routes that need no GPU."""
    for route in ("eager", "compile", "fusegen"):
        torch._dynamo.reset()
        run = Run("tiny", TINY, route, "cpu", directory)
        run.prepare()
        run.measure()
        found = run.row.get("places", 3) + run.row.get("left", 0)  # two norms and the loss, which a CPU leaves
        assert run.row["wall_ms"] > 0 and found == 3, run.row
    assert covered([(5, 8), (0, 2), (1, 3), (6, 7)]) == 6


def measured(table: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a CSV that have times, by model and route."""
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        return {(row["model"], row["route"]): row for row in csv.DictReader(file) if row["device_ms"]}


def main() -> None:
    """Measures and writes the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=list(SUBJECTS))
    parser.add_argument("--routes", nargs="*", default=ROUTES, choices=ROUTES)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600, help="what is not ready by then has no times")
    parser.add_argument("--resume", action="store_true", help="measure what DIR/models.csv lacks, or has no times of")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--self-test", action="store_true", help="on the CPU")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    directory = options.out / "fused"
    if options.self_test:
        self_test(directory)
        return
    if options.child:
        child(*options.child, options.out, directory / options.child[0])
        return
    jobs = [(name, route) for name in options.models for route in options.routes if is_for(name, route)]
    table = options.out / "models.csv"
    known = measured(table) if options.resume else {}
    waiting = [job for job in jobs if job not in known]
    rows = Children(Path(__file__), waiting, options.out, options.processes).rows(until)
    found = known | {(row["model"], row["route"]): row for row in rows}
    models, routes = list(SUBJECTS), list(ROUTES)
    order = sorted(found, key=lambda job: (models.index(job[0]), routes.index(job[1])))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found[job] for job in order)


if __name__ == "__main__":
    main()
