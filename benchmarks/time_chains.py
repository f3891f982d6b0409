"""Time fused modules beside eager PyTorch, torch.compile and the contraction alone.

    PYTHONPATH=. python benchmarks/time_chains.py --out DIR     on a CUDA device, with _C.so built
    PYTHONPATH=. python benchmarks/time_chains.py --self-test   anywhere: tiny sizes, the originals stand in

Outputs and gradients are checked against double precision before anything is timed; what is wrong is not
timed.
"""

from __future__ import annotations

import argparse
import copy
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from subjects import SEEDS, Subject, subjects
from timing import device_milliseconds, wall_microseconds
from torch import Tensor, nn

from fusegen.verify.training import compare_module

PRECISIONS = {"fp32": (torch.float32, False), "tf32": (torch.float32, True), "bf16": (torch.bfloat16, False)}
MODES = ("eval forward", "train forward", "train forward+backward")
SMALL = (("kb97", (64, 256, 256, 1)), ("kb97", (1024, 1024, 1024, 1)), ("kb94", (64, 512, 8192, 256)))
# how a peer is made of the original
PEERS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compile": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}
COLUMNS = (
    "kind",
    "config",
    "shape",
    "precision",
    "mode",
    "subject",
    "time",
    "unit",
    "ratio_to_best_peer",
    "device",
)


def works(module: nn.Module, x: Tensor, grad_output: Tensor) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The three things that are timed, with the module put into the right mode first."""
    wanted = [x, *module.parameters()]

    def evaluate() -> Tensor:
        with torch.no_grad():
            return module(x)

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(module(x), wanted, grad_output)

    module.eval()
    yield MODES[0], evaluate
    module.train()
    yield MODES[1], lambda: module(x)
    yield MODES[2], backward


def contraction(module: nn.Module, x: Tensor, grad_output: Tensor) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The linear layer's library calls alone: forward, and with both of its gradients."""
    linear = next(m for m in module.modules() if isinstance(m, nn.Linear))
    weight = linear.weight.detach()
    bias = None if linear.bias is None else linear.bias.detach()
    data = x.detach()

    def forward() -> Tensor:
        return nn.functional.linear(data, weight, bias)

    def both() -> None:
        forward()
        grad_output @ weight
        grad_output.t() @ data

    yield MODES[0], forward
    yield MODES[1], forward
    yield MODES[2], both


class Timer:
    """Collects rows, within a limit of seconds after which the remaining peers are left out and named."""

    def __init__(self, device: str, self_test: bool, peers: list[str], limit_s: float) -> None:
        self.device, self.self_test, self.peers = device, self_test, peers
        self.rows: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.deadline = time.perf_counter() + limit_s

    def large(self, subject: Subject, size: tuple[int, ...], precision: str) -> None:
        """One configuration by device events."""
        place = ("large", subject.id, size, precision)
        self._measure(place, subject, lambda work: device_milliseconds(work), "ms")

    def small(self, subject: Subject, size: tuple[int, ...]) -> None:
        """One small shape by wall clock."""
        calls = 10 if self.self_test else 200
        self._measure(("small", subject.id, size, "fp32"), subject, lambda w: wall_microseconds(w, calls=calls), "us")

    def _measure(self, place: tuple, subject: Subject, clock: Callable[[Callable], float], unit: str) -> None:
        kind, config, size, precision = place
        dtype, tf32 = PRECISIONS[precision]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        label = f"{config} {'x'.join(map(str, size[:3]))} {precision}"
        try:
            fused, original, x = subject.pair(size, dtype, self.device, seed=5)
            wrong = [item.name for item in compare_module(fused, original, [x]) if not item.ok]
            if wrong:
                self.problems.append(f"{label}: not timed, wrong: {', '.join(wrong)}")
                return
        except Exception as problem:
            self.problems.append(f"{label}: {type(problem).__name__}: {problem}"[:300])
            return
        grad_output = torch.randn(x.shape[0], size[2], device=x.device, dtype=dtype)
        times: dict[tuple[str, str], float] = {}
        timed = {"contraction": lambda: contraction(original, x, grad_output)}
        timed["fused"] = lambda: works(fused, x, grad_output)
        for name in self.peers:
            timed[name] = lambda name=name: works(self._peer(original, name), x, grad_output)
        for name, make in timed.items():
            if name not in ("contraction", "fused", "eager") and time.perf_counter() > self.deadline:
                self.problems.append(f"{label}: {name} left out, out of time")
                continue
            try:
                for mode, work in make():
                    times[name, mode] = clock(work)
            except Exception as problem:
                self.problems.append(f"{label} {name}: {type(problem).__name__}: {problem}"[:300])
        for (name, mode), value in times.items():
            best = min((t for (n, m), t in times.items() if m == mode and n in self.peers), default=None)
            ratio = f"{value / best:.3f}" if best and name != "contraction" else ""
            shape = "x".join(map(str, size[:3]))
            values = (
                kind,
                config,
                shape,
                precision,
                mode,
                name,
                f"{value:.4g}",
                unit,
                ratio,
                device_name(self.device),
            )
            self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(f"{label}: " + "  ".join(_ratios(times, self.peers)), flush=True)

    def _peer(self, original: nn.Module, name: str) -> nn.Module:
        options = PEERS[name]
        if options is None:
            return original
        torch._dynamo.reset()
        backend = {"backend": "aot_eager"} if self.self_test else options
        return torch.compile(copy.deepcopy(original), dynamic=False, **backend)


def _ratios(times: dict[tuple[str, str], float], peers: list[str]) -> Iterator[str]:
    for mode in MODES:
        best = min((t for (n, m), t in times.items() if m == mode and n in peers), default=None)
        if best and ("fused", mode) in times:
            mine = times["fused", mode]
            yield f"{mode} {mine:.4g}, best peer {best:.4g} ({mine / best:.3f})"


def device_name(device: str) -> str:
    """The device and the version of torch."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}"


def table(rows: list[dict[str, Any]]) -> str:
    """One line per shape, precision and mode; the columns are what was timed."""
    names = list(dict.fromkeys(row["subject"] for row in rows))
    lines = [f"| chain, size | precision | mode | {' | '.join(names)} | fused / best peer |"]
    lines.append("|---" * (len(names) + 4) + "|")
    places: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        key = (f"{row['config']} {row['shape']}", row["precision"], f"{row['mode']}, {row['unit']}")
        places.setdefault(key, {})[row["subject"]] = row
    for key, found in places.items():
        cells = [found[n]["time"] if n in found else "" for n in names]
        ratio = found["fused"]["ratio_to_best_peer"] if "fused" in found else ""
        lines.append(f"| {' | '.join([*key, *cells, ratio])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for timings.csv and timings.md")
    parser.add_argument("--chains", nargs="*", default=list(SEEDS), help="by id, such as kb97")
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--peers", nargs="*", default=["eager", "compile"], choices=list(PEERS))
    parser.add_argument("--limit", type=float, default=200.0, help="seconds after which compiled peers are left out")
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--no-small", action="store_true")
    parser.add_argument("--self-test", action="store_true", help="tiny sizes, the originals stand in")
    options = parser.parse_args()
    if not options.self_test and not torch.cuda.is_available():
        parser.error("no CUDA device; --self-test runs without one")
    device = "cpu" if options.self_test else "cuda"
    timer = Timer(device, options.self_test, options.peers, options.limit)
    began = time.perf_counter()
    chosen = subjects(options.chains, stand_in=options.self_test)
    tiny = (32, 48, 64, 4)
    if not options.no_small:
        for name, size in SMALL:
            if name in chosen:
                timer.small(chosen[name], tiny if options.self_test else size)
    if not options.no_large:
        for subject in chosen.values():
            for precision in options.precisions:
                timer.large(subject, tiny if options.self_test else subject.chain.full, precision)
                if device == "cuda":
                    torch.cuda.empty_cache()
    text = f"Measured on {device_name(device)}. Medians; L2 flushed for the large sizes.\n\n{table(timer.rows)}"
    if timer.problems:
        text += "\nNot measured:\n\n" + "".join(f"- {line}\n" for line in timer.problems)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "timings.md").write_text(text, encoding="utf-8")
        with (options.out / "timings.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(timer.rows)
    print(text, f"\nin {time.perf_counter() - began:.0f} s")
    return 1 if any("left out" not in line for line in timer.problems) else 0


if __name__ == "__main__":
    sys.exit(main())
