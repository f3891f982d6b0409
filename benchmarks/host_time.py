"""Host time of one training step of the seed chains at small shapes, by its parts, in microseconds.

    PYTHONPATH=. python benchmarks/host_time.py --out FILE    on a CUDA device, with _C.so built
    PYTHONPATH=. python benchmarks/host_time.py --self-test   anywhere with g++: emulated kernels, tiny sizes

A part is timed by a loop that waits for the device only between rounds of few calls, so that what counts is the
time until the host may go on, whatever the device does. The parts of a size take turns, a round each, so that what
else the machine does meets all of them; but for `registered`, which comes last, since it changes the ops. Parts
overlap: the forward pass contains the op's call.

    step              forward and torch.autograd.grad of the input and all parameters
    one thread        the same with the autograd engine in the calling thread: `step` also hands over to the engine's
                      thread of the device and back, which takes as long as the machine takes to wake a thread
    forward           the module's call, in training, with a gradient to come
    eval no_grad      the module's call in evaluation, without gradients
    grad              torch.autograd.grad alone, of a graph that is kept
    op forward        the C++ op that the forward pass calls; `op backward` likewise

Besides the module (`fused`) and the original (`eager`) there are
    bare              an autograd.Function with as many inputs and gradients that does nothing
    bare and ops      the same with calls of the two ops, whose results it drops: about the least of `step`. It takes
                      longer than bare and both ops, each measured alone: presumably, as each then finds in the
                      caches what another has left there
    registered        torch.library.register_autograd around the same ops, in place of the autograd.Function; in
                      evaluation for chains with batch norm, since PyTorch refuses it for ops that change an argument
    function          the module's autograd.Function in the same mode, called as `registered` is
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from host_parts import Calls, Part, bare_parts, module_parts, op_parts, registered_parts
from subjects import SEEDS, Subject
from torch import Tensor, nn

SIZES = ((64, 256, 256, 8), (64, 512, 8192, 256), (1024, 1024, 1024, 32))  # rows, inputs, outputs, groups
SELF_TEST = ("matmul_bn_bias_div_swish", "gemm_bias_hardtanh_mish_groupnorm")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CALLS_AND_ROUNDS = 40, 25  # few calls a round: the device's queue must not fill up
SELF_TEST_CALLS_AND_ROUNDS = 4, 2
COLUMNS = ("spec", "shape", "precision", "subject", "part", "microseconds", "device")


def host_microseconds(parts: Sequence[Part], calls: int, rounds: int) -> Iterator[tuple[str, str, float]]:
    """The median over rounds of the time per call of each part."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    found: list[list[float]] = [[] for _ in parts]
    for _ in range(rounds):
        for (_, _, work), times in zip(parts, found, strict=True):
            for _ in range(calls // 4):
                work()  # the caches are those of the part before
            synchronise()
            began = time.perf_counter()
            for _ in range(calls):
                work()
            times.append(1e6 * (time.perf_counter() - began) / calls)
    synchronise()
    for (subject, part, _), times in zip(parts, found, strict=True):
        yield subject, part, statistics.median(times)


def measure(
    fused: nn.Module, original: nn.Module, x: Tensor, *, last: bool, calls: int, rounds: int
) -> Iterator[tuple[str, str, float]]:
    """The times of one chain at one size. last: no other size of this chain follows."""
    grad_output = torch.randn_like(original(x))
    parts = [
        *module_parts("eager", original, x, grad_output),
        *module_parts("fused", fused, x, grad_output),
        *op_parts(fused, x, grad_output),
        *bare_parts([x, *fused.parameters()], grad_output),
    ]
    if not last:
        yield from host_microseconds(parts, calls, rounds)
        return
    ops = Calls.of(fused, x, grad_output)
    yield from host_microseconds([*parts, *ops.parts("function", ops.function.apply)], calls, rounds)
    yield from host_microseconds(list(registered_parts(ops)), calls, rounds)


def emulated(chain: str, cache: Path) -> type[nn.Module]:
    """The generated class around kernels that run on the CPU."""
    from fusegen.emulate.package import emulate_package

    root = Path(__file__).resolve().parents[1]
    package = emulate_package(root / "generated" / Subject(chain).chain.spec, cache=cache, checked=False)
    return getattr(package, package.__all__[0])


class EmulatedSubject(Subject):
    """A subject whose fused class runs on the CPU."""

    cache: Path

    def fused_class(self) -> type[nn.Module]:
        """The emulated class, compiled at most once."""
        return emulated(self.id, self.cache)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The CSV's rows, as they come."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    for id_ in options.chains:
        subject = EmulatedSubject(id_) if options.self_test else Subject(id_)
        sizes = ((5, 6, 8, 2),) if options.self_test else SIZES
        variants = [(size, name) for size in sizes for name in DTYPES]
        for size, name in variants:
            fused, original, x = subject.pair(size, DTYPES[name], options.device, seed=3)
            last = (size, name) == variants[-1]
            shape = "x".join(map(str, size[:3]))
            calls, rounds = SELF_TEST_CALLS_AND_ROUNDS if options.self_test else CALLS_AND_ROUNDS
            for who, part, time_us in measure(fused, original, x, last=last, calls=calls, rounds=rounds):
                yield dict(zip(COLUMNS, (id_, shape, name, who, part, f"{time_us:.1f}", device), strict=True))


def show(found: Sequence[dict[str, Any]]) -> None:
    """One line for each chain, size, dtype and subject, one column for each part."""
    parts = list(dict.fromkeys(row["part"] for row in found))
    table: dict[tuple[str, ...], dict[str, str]] = {}
    for row in found:
        key = (row["spec"], row["shape"], row["precision"], row["subject"])
        table.setdefault(key, {})[row["part"]] = row["microseconds"]
    print(f"{'':42}" + "".join(f"{part:>14}" for part in parts))
    for key, times in table.items():
        title = "{:6}{:16}{:6}{:14}".format(*key)
        print(title + "".join(f"{times.get(part, ''):>14}" for part in parts))


def main() -> None:
    """Measures, prints a table and writes a CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the CSV to write")
    parser.add_argument("--chains", nargs="*", help="specs such as matmul_bn_bias_div_swish")
    parser.add_argument("--self-test", action="store_true", help="on the CPU, with emulated kernels")
    parser.add_argument("--cache", type=Path, help="where emulated kernels are kept")
    options = parser.parse_args()
    options.chains = options.chains or (SELF_TEST if options.self_test else SEEDS)
    options.device = "cpu" if options.self_test else "cuda"
    with tempfile.TemporaryDirectory() as temporary:
        EmulatedSubject.cache = options.cache or Path(temporary)
        found = list(rows(options))
    show(found)
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    if options.self_test:
        steps, whole = {"step", "one thread"}, {"step", "one thread", "forward", "grad"}
        expected = {
            "eager": {*whole, "eval no_grad"},
            "fused": {*whole, "eval no_grad", "op forward", "op backward"},
            "bare": whole,
            "bare and ops": steps,
            **dict.fromkeys(("function", "registered"), {"step", "forward"}),
        }
        parts = {who: {row["part"] for row in found if row["subject"] == who} for who in expected}
        assert parts == expected and {row["subject"] for row in found} == expected.keys(), parts


if __name__ == "__main__":
    main()
