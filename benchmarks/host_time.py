"""Host time of one training step of the seed chains at small shapes, by its parts, in microseconds.

    PYTHONPATH=. python benchmarks/host_time.py --out FILE    on a CUDA device, with _C.so built
    PYTHONPATH=. python benchmarks/host_time.py --self-test   anywhere with g++: emulated kernels, tiny sizes

A part is timed by a loop that waits for the device only between rounds of few calls, so that what counts is the
time until the host may go on, whatever the device does. Parts overlap: the forward pass contains the op's call.

    step              forward and torch.autograd.grad of the input and all parameters
    one thread        the same with the autograd engine in the calling thread: `step` also hands over to the engine's
                      thread of the device and back, which takes as long as the machine takes to wake a thread
    forward           the module's call, in training, with a gradient to come
    eval no_grad      the module's call in evaluation, without gradients
    grad              torch.autograd.grad alone, of a graph that is kept
    op forward        the C++ op that the forward pass calls; `op backward` likewise

Besides the module (`fused`) and the original (`eager`) there are
    bare              an autograd.Function with as many inputs and gradients that does nothing: the floor of `step`
    registered        torch.library.register_autograd around the same ops, in place of the autograd.Function; in
                      evaluation for chains with batch norm, since PyTorch refuses it for ops that change an argument
    function          the module's autograd.Function in the same mode, called as `registered` is
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from subjects import SEEDS, Subject
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = ((64, 256, 256, 8), (64, 512, 8192, 256), (1024, 1024, 1024, 32))  # rows, inputs, outputs, groups
SELF_TEST = ("kb97", "kb94")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CALLS, ROUNDS = 40, 25  # few calls a round: the device's queue must not fill up
SELF_TEST_CALLS = 2
COLUMNS = ("config", "shape", "precision", "subject", "part", "microseconds", "device")
Parts = Iterator[tuple[str, str, Callable[[], Any]]]


class Recorder(TorchDispatchMode):
    """Keeps the last call of each of fusegen's ops, with arguments that want no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, tuple] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace == "fusegen":
            self.calls[func] = tuple(a.detach() if isinstance(a, Tensor) else a for a in args)
        return func(*args, **(kwargs or {}))


def host_microseconds(work: Callable[[], Any], calls: int) -> float:
    """The median over rounds of the time per call."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(calls // 2):
        work()
    found = []
    for _ in range(ROUNDS if calls == CALLS else 1):
        synchronise()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        found.append(1e6 * (time.perf_counter() - began) / calls)
    synchronise()
    return statistics.median(found)


def steps(subject: str, step: Callable[[], Any]) -> Parts:
    """A step, with the engine in a thread of its own and without."""

    def in_one_thread() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            step()

    yield subject, "step", step
    yield subject, "one thread", in_one_thread


def module_parts(subject: str, module: nn.Module, x: Tensor, grad_output: Tensor) -> Parts:
    """What a user calls."""
    wanted = [x, *module.parameters()]
    module.train()
    kept = module(x)
    yield from steps(subject, lambda: torch.autograd.grad(module(x), wanted, grad_output))
    yield subject, "forward", lambda: module(x)
    yield subject, "grad", lambda: torch.autograd.grad(kept, wanted, grad_output, retain_graph=True)

    def evaluate() -> Tensor:
        with torch.no_grad():
            return module(x)

    module.eval()
    yield subject, "eval no_grad", evaluate
    module.train()


def op_parts(module: nn.Module, x: Tensor, grad_output: Tensor) -> Parts:
    """The C++ ops alone."""
    with Recorder() as recorder:
        torch.autograd.grad(module(x), [x, *module.parameters()], grad_output)
    for op, arguments in recorder.calls.items():
        part = "op backward" if op._schema.name.endswith("backward") else "op forward"
        yield "fused", part, lambda op=op, arguments=arguments: op(*arguments)


def bare_parts(wanted: Sequence[Tensor], grad_output: Tensor) -> Parts:
    """What autograd itself takes: no Function in Python is faster than this one."""
    result = torch.empty_like(grad_output)
    gradients = tuple(torch.empty_like(tensor) for tensor in wanted)

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            return result.detach()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            return gradients

    kept = Bare.apply(*wanted)
    yield from steps("bare", lambda: torch.autograd.grad(Bare.apply(*wanted), wanted, grad_output))
    yield "bare", "forward", lambda: Bare.apply(*wanted)
    yield "bare", "grad", lambda: torch.autograd.grad(kept, wanted, grad_output, retain_graph=True)


def registered_parts(module: nn.Module, x: Tensor, grad_output: Tensor) -> Parts:
    """register_autograd beside the module's Function, from the same arguments. Run this last: it changes the op."""
    has_batch_norm = any(isinstance(each, nn.BatchNorm1d) for each in module.modules())
    module.train(not has_batch_norm)
    with Recorder() as recorder:
        torch.autograd.grad(module(x), [x, *module.parameters()], grad_output)
    (forward, arguments), (backward, last) = recorder.calls.items()
    count = len(last[-1])  # `needs`: a flag for each differentiable argument, which come first
    wanted = [tensor.clone().requires_grad_() for tensor in arguments[:count]]
    rest = arguments[count:]
    package = sys.modules[type(module).__module__]
    function = package._Eval if has_batch_norm else package._Fused

    def step(call: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(call(*wanted, *rest), wanted, grad_output)

    yield "function", "step", step(function.apply)
    yield "function", "forward", lambda: function.apply(*wanted, *rest)

    names = [argument.name for argument in forward._schema.arguments]
    returned = [result.name for result in forward._schema.returns]
    needed = [argument.name for argument in backward._schema.arguments][1:-1]

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        values = dict(zip(names, inputs, strict=True))
        values |= zip(returned, output if isinstance(output, tuple) else (output,), strict=True)
        kept = [values[name] for name in needed]
        ctx.save_for_backward(*(value for value in kept if isinstance(value, Tensor)))
        ctx.scalars = [value for value in kept if not isinstance(value, Tensor)]

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple:
        needs = ctx.needs_input_grad
        found = iter(backward(grad, *ctx.saved_tensors, *ctx.scalars, needs[:count]))
        return tuple(next(found) if need else None for need in needs)

    torch.library.register_autograd(forward, differentiate, setup_context=setup_context)
    first = (lambda *values: forward(*values)[0]) if len(returned) > 1 else forward
    yield "registered", "step", step(first)
    yield "registered", "forward", lambda: first(*wanted, *rest)


def measure(fused: nn.Module, original: nn.Module, x: Tensor, *, last: bool) -> Parts:
    """The parts of one chain at one size. last: no other size of this chain follows."""
    grad_output = torch.randn_like(original(x))
    yield from module_parts("eager", original, x, grad_output)
    yield from module_parts("fused", fused, x, grad_output)
    yield from op_parts(fused, x, grad_output)
    yield from bare_parts([x, *fused.parameters()], grad_output)
    if last:
        yield from registered_parts(fused, x, grad_output)


def emulated(chain: str, cache: Path) -> type[nn.Module]:
    """The generated class around kernels that run on the CPU."""
    from fusegen.emulate.package import emulate_package

    root = Path(__file__).resolve().parents[1]
    package = emulate_package(root / "generated" / Subject(chain).chain.spec, cache=cache)
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
            for who, part, work in measure(fused, original, x, last=last):
                time_us = host_microseconds(work, SELF_TEST_CALLS if options.self_test else CALLS)
                yield dict(zip(COLUMNS, (id_, shape, name, who, part, f"{time_us:.1f}", device), strict=True))


def show(found: Sequence[dict[str, Any]]) -> None:
    """One line for each chain, size, dtype and subject, one column for each part."""
    parts = list(dict.fromkeys(row["part"] for row in found))
    table: dict[tuple[str, ...], dict[str, str]] = {}
    for row in found:
        key = (row["config"], row["shape"], row["precision"], row["subject"])
        table.setdefault(key, {})[row["part"]] = row["microseconds"]
    print(f"{'':38}" + "".join(f"{part:>14}" for part in parts))
    for key, times in table.items():
        title = "{:6}{:16}{:6}{:10}".format(*key)
        print(title + "".join(f"{times.get(part, ''):>14}" for part in parts))


def main() -> None:
    """Measures, prints a table and writes a CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the CSV to write")
    parser.add_argument("--chains", nargs="*", help="ids such as kb97")
    parser.add_argument("--self-test", action="store_true", help="on the CPU, with emulated kernels")
    options = parser.parse_args()
    options.chains = options.chains or (SELF_TEST if options.self_test else SEEDS)
    options.device = "cpu" if options.self_test else "cuda"
    with tempfile.TemporaryDirectory() as cache:
        EmulatedSubject.cache = Path(cache)
        found = list(rows(options))
    show(found)
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    if options.self_test:
        subjects = {row["subject"] for row in found}
        assert subjects == {"eager", "fused", "bare", "function", "registered"}, subjects


if __name__ == "__main__":
    main()
