"""Check fused modules against their originals and double precision, at the sizes they are made for.

    PYTHONPATH=. python benchmarks/check_full_size.py --out DIR      on a CUDA device, with _C.so built
    PYTHONPATH=. python benchmarks/check_full_size.py --render CSV   only writes docs/numerics_full_size.md
    PYTHONPATH=. python benchmarks/check_full_size.py --self-test    anywhere: the originals, on themselves

Exits 1 if anything failed. A configuration that raises is recorded as failed and the rest goes on.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from numerics_page import Row, read_rows, summary, write_page, write_rows
from subjects import FURTHER, SEEDS, Subject, subjects

from fusegen.verify import behaviour
from fusegen.verify.policy import Comparison
from fusegen.verify.reference import reference
from fusegen.verify.run import draw_gradient, run
from fusegen.verify.training import compare_module, compare_runs, compare_steps

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
# name -> dtype of the module and the input, autocast dtype
PRECISIONS = {
    "fp32": (FP32, None),
    "bf16": (BF16, None),
    "fp16": (FP16, None),
    "autocast bf16": (FP32, BF16),
    "autocast fp16": (FP32, FP16),
}
FULL_PRECISIONS = ("fp32", "bf16", "autocast bf16")
# rows, input features, output features, groups; a single row, two, odd and prime sizes among them
MID_SIZES = ((512, 1024, 2048, 32), (33, 70, 96, 6), (1, 64, 128, 8), (2, 64, 128, 8), (127, 251, 509, 1))
BEHAVIOUR_SIZE = (96, 256, 512, 16)
SELF_TEST_SIZES = ((33, 70, 96, 6), (1, 64, 128, 8), (2, 24, 32, 4), (31, 37, 41, 1))


@dataclass
class Checker:
    """Runs checks and keeps their rows."""

    device: str
    rows: list[Row]
    self_test: bool = False

    def check(self, subject: Subject, size: tuple[int, ...], precision: str, mode: str, work) -> None:
        """Record what `work()` yields; an exception becomes a row."""
        shape = "x".join(map(str, size[:3]))
        try:
            found = list(work())
        except Exception as problem:
            traceback.print_exc()
            found = [Comparison.statement("runs", False, f"{type(problem).__name__}: {problem}"[:300])]
        self.rows += [Row.of(subject.id, shape, precision, mode, item) for item in found]
        failed = [item.name for item in found if not item.ok]
        if failed:
            print(f"FAILED {subject.id} {shape} {precision} {mode}: {', '.join(failed[:6])}", flush=True)

    def full_size(self, subject: Subject, size: tuple[int, ...]) -> None:
        """Numerics and training steps of one seed configuration, train and eval."""
        for dtype in (FP32, BF16):
            precisions = [p for p in FULL_PRECISIONS if PRECISIONS[p][0] is dtype]
            pair = functools.cache(lambda dtype=dtype: subject.pair(size, dtype, self.device, seed=size[0]))
            for mode in ("train", "eval"):
                # One reference serves float32 and autocast: weights and input are the same.
                cache: dict = {}
                for precision in precisions:
                    work = functools.partial(self._numerics, pair, precision, mode, cache)
                    self.check(subject, size, precision, mode, work)
            for precision in precisions:
                work = functools.partial(self._steps, subject, size, precision)
                self.check(subject, size, precision, "3 steps", work)
            pair.cache_clear()
            self._release()

    def _numerics(self, pair, precision: str, mode: str, cache: dict) -> Iterator[Comparison]:
        fused, original, x = pair()
        train, autocast = mode == "train", PRECISIONS[precision][1]
        drawn = draw_gradient(original, x, autocast_dtype=autocast, train=train)
        if drawn.dtype not in cache:
            cache[drawn.dtype] = drawn, reference(original, x, drawn, train=train)
        grad_output, exact = cache[drawn.dtype]
        options = {"autocast_dtype": autocast, "train": train}
        eager_run = run(original, x, grad_output, **options)
        behaviour.poison(x, grad_output, *original.parameters())
        first = run(fused, x, grad_output, **options)
        yield from compare_runs(first, eager_run, exact, autocast or x.dtype)
        behaviour.poison(x, grad_output)
        yield behaviour.bitwise_equal(first, run(fused, x, grad_output, **options))

    def _steps(self, subject: Subject, size: tuple[int, ...], precision: str) -> list[Comparison]:
        dtype, autocast = PRECISIONS[precision]
        fused, original, x = subject.pair(size, dtype, self.device, seed=size[0] + 1)
        xs = [torch.randn(x.shape, device=x.device, dtype=dtype) for _ in range(3)]
        return compare_steps(fused, original, xs, autocast_dtype=autocast)

    def mid_size(self, subject: Subject, size: tuple[int, ...]) -> None:
        """All precisions, train and eval, at a size that costs little."""
        for precision, (dtype, autocast) in PRECISIONS.items():
            for mode in ("train", "eval"):

                def work(dtype=dtype, autocast=autocast, mode=mode) -> list[Comparison]:
                    fused, original, x = subject.pair(size, dtype, self.device, seed=size[1])
                    behaviour.poison(x)
                    return compare_module(fused, original, x, autocast_dtype=autocast, train=mode == "train")

                self.check(subject, size, precision, mode, work)
            if size[0] > 2:
                work = functools.partial(self._steps, subject, size, precision)
                self.check(subject, size, precision, "3 steps", work)

    def behaviour(self, subject: Subject, size: tuple[int, ...], *, compiled: bool) -> None:
        """Initial values, strides, frozen parameters, streams, graphs and, on demand, torch.compile."""
        checks = {
            "strides": behaviour.strides,
            "frozen": behaviour.frozen,
            "other stream": behaviour.other_stream,
            "CUDA graph": behaviour.cuda_graph,
            "inputs": lambda fused, original, x: [behaviour.inputs_untouched(fused, x)],
        }
        if compiled:
            backend = "aot_eager" if self.self_test else "inductor"
            checks["torch.compile"] = functools.partial(behaviour.compiled, backend=backend)
        for dtype, precision in ((FP32, "fp32"), (BF16, "bf16")):
            for name, one in checks.items():

                def work(one=one, dtype=dtype) -> list[Comparison]:
                    fused, original, x = subject.pair(size, dtype, self.device, seed=11)
                    return one(fused, original, x)

                self.check(subject, size, precision, name, work)
        self.check(subject, size, "fp32", "construction", lambda: [subject.same_initial_values(size, self.device)])

    def _release(self) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()


def run_all(checker: Checker, chosen: dict[str, Subject], *, compiled: bool, full: bool) -> None:
    """Everything, one subject after another, with a line of progress each."""
    for name, subject in chosen.items():
        began = time.perf_counter()
        if name in SEEDS and full:
            checker.full_size(subject, subject.chain.full)
        for size in SELF_TEST_SIZES if checker.self_test else MID_SIZES:
            checker.mid_size(subject, size)
        if checker.self_test:
            checker.full_size(subject, SELF_TEST_SIZES[0])
        checker.behaviour(subject, SELF_TEST_SIZES[0] if checker.self_test else BEHAVIOUR_SIZE, compiled=compiled)
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


def device_name(device: str) -> str:
    """The device and the version of torch, for the page's head."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for numerics.csv and numerics.md")
    parser.add_argument("--render", type=Path, metavar="CSV", help="write docs/numerics_full_size.md and stop")
    parser.add_argument("--self-test", action="store_true", help="the originals stand in for the fused modules")
    parser.add_argument("--chains", nargs="*", default=[*SEEDS, *FURTHER], help="by id, such as kb97")
    parser.add_argument("--compile", action="store_true", help="check torch.compile too, which takes a while")
    parser.add_argument("--no-full", action="store_true", help="leave the full sizes out")
    options = parser.parse_args()
    if options.render:
        return write_page(read_rows(options.render), Path("docs/numerics_full_size.md"))
    if not options.self_test and not torch.cuda.is_available():
        parser.error("no CUDA device; --self-test runs without one")
    device = "cpu" if options.self_test else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    checker = Checker(device, [], options.self_test)
    began = time.perf_counter()
    chosen = subjects(options.chains, stand_in=options.self_test)
    run_all(checker, chosen, compiled=options.compile, full=not (options.no_full or options.self_test))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_rows(checker.rows, options.out / "numerics.csv", device_name(device))
        write_page(read_rows(options.out / "numerics.csv"), options.out / "numerics.md")
    print(summary(checker.rows), f"in {time.perf_counter() - began:.0f} s on {device_name(device)}")
    return 1 if not checker.rows or any(not row.ok for row in checker.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
