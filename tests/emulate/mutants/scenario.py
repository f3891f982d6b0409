"""Runs that have to notice a mutant: a chain's forward and backward on a schedule, beside double precision."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import torch

import fusegen
from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels
from fusegen.plan.load import plan_file
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.verify.emulated import EmulatedTail, tail_reference
from tests.chains.originals import CHAINS
from tests.emulate.building import forced_shapes
from tests.emulate.mutants.mutant import Mutant, with_mutants
from tests.emulate.test_chains import LIMITS, count_batch

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Copy:
    """A source to mutate. chain: a key of CHAINS; programs: those that are compiled; changed: what stands in a
    support header, and what then does."""

    name: str
    chain: str
    programs: tuple[str, ...] = ("forward", "backward")
    changed: tuple[str, str, str] | None = None

    def write(self, root: Path) -> Path:
        """Renders the package below `root`: float32 only, and launched as on a GPU of one multiprocessor."""
        plan = plan_file(ROOT / "specs" / f"{CHAINS[self.chain].spec}.yaml")
        write_files(render_all([plan]), root)
        source = root / plan.spec.name / "kernels.cu"
        source.write_text(self.cut(source.read_text(encoding="utf-8")), encoding="utf-8")
        if self.changed is not None:
            name, old, new = self.changed
            header = root / "support" / name
            text = header.read_text(encoding="utf-8")
            assert text.count(old) == 1
            header.write_text(text.replace(old, new), encoding="utf-8")
        return source

    def cut(self, text: str) -> str:
        """Fewer instances to compile, and more turns of a block's loops than on a large GPU."""
        text, one = re.subn(r"(kMultiprocessors =) \d+;", r"\1 1;", text)
        kept = {f"{program}_typed<float" for program in self.programs}
        # Fewer threads than there may be partial results of a column; some for each row of a line, as in all launches.
        text = text.replace("finalise.block", "dim3(32, 8)")
        # Instances for 16 bits alone have float32, too.
        text = text.replace("if constexpr (sizeof(T) == 2 || kMostCluster == 1)", "if constexpr (true)")
        cases = re.compile(r"^    case \d+:.*\n      return (\w+_typed<\w+)[^;]*;\n", re.MULTILINE)
        text = cases.sub(lambda match: match[0] if match[1] in kept else "", text)
        assert one == 1 and text.count("    case ") == len(self.programs)
        return text


def build(copy: Copy, mutants: list[tuple[int, Mutant]], root: Path) -> EmulatedLibrary:
    """The copy with these mutants in it, compiled."""
    source = copy.write(root)
    for name in {each.file for _, each in mutants}:
        path = source if name == "kernels.cu" else root / "support" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(with_mutants(text, [each for each in mutants if each[1].file == name]), encoding="utf-8")
    source.write_text('extern "C" { int fusegen_mutant = 0; }\n' + source.read_text(encoding="utf-8"), encoding="utf-8")
    return compile_kernels(source, cache=root / "cache")


def choose(library: EmulatedLibrary, number: int) -> None:
    """The mutant that runs from now on; 0 is none."""
    ctypes.c_int.in_dll(library._library, "fusegen_mutant").value = number


@dataclass(frozen=True)
class Tail:
    """A chain in training mode. Groups count only where the chain has them, `cumulative` where it has batch norms."""

    copy: str
    rows: int
    channels: int
    groups: int = 1
    schedule: str = "automatic"
    misalign: str = ""
    mean: float = 0.0  # of the elements, whose deviation is one
    cumulative: bool = False  # the running statistics are averages of all batches

    def verdict(self, library: EmulatedLibrary, chain: str, root: Path, seed: int) -> str:
        """What was wrong, or "fine"."""
        size = (self.rows, self.channels, self.groups)
        plan, module, tensors, expected = prepared(chain, *size, self.mean, self.cumulative, root)
        tail = EmulatedTail(plan, plan.variants[0], library, module)
        try:
            shapes = forced_shapes(self.schedule)
            run = tail.run(tensors, plan.modes[0], shapes=shapes, seed=seed, misalign=self.misalign)
        except EmulationError as error:
            return str(error)
        return compare(run.values, expected)


@dataclass(frozen=True)
class Alike:
    """A chain in training mode whose every third row is the same: so are the results, to the last bit."""

    copy: str
    rows: int
    channels: int
    schedule: str

    def verdict(self, library: EmulatedLibrary, chain: str, root: Path, seed: int) -> str:
        plan, module, tensors, _ = prepared(chain, self.rows, self.channels, 1, 0.0, False, root)
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        for tensor in tensors.values():
            tensor[::3] = tensor[0]
        tail = EmulatedTail(plan, plan.variants[0], library, module)
        try:
            values = tail.run(tensors, plan.modes[0], shapes=forced_shapes(self.schedule), seed=seed).values
        except EmulationError as error:
            return str(error)
        full = [name for name, value in values.items() if value.shape == (self.rows, self.channels)]
        different = [name for name in full if not torch.equal(values[name][3::3], values[name][:-3:3])]
        return f"rows that are alike differ in {', '.join(different)}" if different else "fine"


@functools.cache
def prepared(chain: str, rows: int, channels: int, groups: int, mean: float, cumulative: bool, root: Path):
    """The generated module with every parameter and buffer away from its initial value, and what is expected of it."""
    given = CHAINS[chain]
    plan = plan_file(ROOT / "specs" / f"{given.spec}.yaml")
    torch.manual_seed(0)
    module = fusegen.load(given.spec, root)(*given.arguments(channels, channels, groups))
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    for part in module.train().modules():
        if isinstance(part, torch.nn.BatchNorm1d) and cumulative:
            part.momentum = None
    tensors = {plan.chain.source.name: mean + torch.randn(rows, channels), "grad_y": torch.randn(rows, channels)}
    expected = tail_reference(plan, module, tensors, plan.modes[0], True)
    count_batch(plan, module, True)
    return plan, module, tensors, expected


def compare(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> str:
    """Which results have a NaN, and which are wrong without one."""
    verdicts = []
    for name in found.keys() & expected.keys():
        exact = expected[name]
        difference = (found[name].double().reshape(exact.shape) - exact).abs().max()
        if difference.isnan():
            verdicts.append(f"NaN in {name}")
        elif difference > LIMITS[found[name].dtype] * max(1.0, float(exact.abs().max())):
            verdicts.append(f"wrong {name}")
    return ", ".join(sorted(verdicts)) or "fine"
