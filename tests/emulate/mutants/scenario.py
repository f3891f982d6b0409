"""Runs that have to notice a mutant: a chain's forward and backward on a schedule, beside double precision."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import fusegen
from fusegen.emulate import EmulatedLibrary, EmulationError
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.render.cuda import render_kernels
from fusegen.render.files.support import support_files
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference
from tests.chains.originals import CHAINS
from tests.emulate.building import forced_shapes, kernels_of, on_another_device
from tests.emulate.mutants.mutant import Mutant, with_mutants
from tests.emulate.test_chains import LIMITS, count_batch

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Copy:
    """Kernels to mutate: one chain in one mode, in training. changed: a support header, what stands in it, and what
    then does."""

    name: str
    chain: str
    mode: str = "float32"
    changed: tuple[str, str, str] | None = None

    @functools.cached_property
    def plan(self) -> Plan:
        return plan_file(ROOT / "specs" / f"{CHAINS[self.chain].spec}.yaml")

    @property
    def dtypes(self) -> Mode:
        return next(mode for mode in self.plan.modes if mode.name == self.mode)

    def write(self, root: Path) -> Path:
        """Renders the package below `root`, for a GPU of one multiprocessor: there a block's loops have most turns."""
        write_files(render_all([module_of(self.plan)]), root)
        on_another_device(root, multiprocessors=1)
        training = replace(self.plan, variants=self.plan.variants[:1], tuning=())
        package = root / self.plan.spec.name
        (package / "kernels.cu").write_text(render_kernels(training), encoding="utf-8")
        if self.changed is not None:
            name, old, new = self.changed
            header = root / "support" / name
            text = header.read_text(encoding="utf-8")
            assert text.count(old) == 1
            header.write_text(text.replace(old, new), encoding="utf-8")
        return package


def build(copy: Copy, mutants: list[tuple[int, Mutant]], root: Path, cache: Path) -> EmulatedLibrary:
    """The copy with these mutants in it, compiled."""
    package = copy.write(root)
    add_mutants(package, mutants)
    return kernels_of(package, copy.dtypes, cache)


def add_mutants(package: Path, mutants: list[tuple[int, Mutant]]) -> None:
    """Puts mutants into the support headers beside a package, but for those of headers that it does not include."""
    source = package / "kernels.cu"
    for name in {each.file for _, each in mutants}:
        path = package.parent / "support" / name
        if not path.is_file():
            assert f"support/{name}" in support_files()
            continue
        text = path.read_text(encoding="utf-8")
        path.write_text(with_mutants(text, [each for each in mutants if each[1].file == name]), encoding="utf-8")
    source.write_text('extern "C" { int fusegen_mutant = 0; }\n' + source.read_text(encoding="utf-8"), encoding="utf-8")


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

    def verdict(self, library: EmulatedLibrary, copy: Copy, root: Path, seed: int) -> str:
        """What was wrong, or "fine"."""
        size = (self.rows, self.channels, self.groups)
        module, tensors, expected = prepared(copy, *size, self.mean, self.cumulative, root)
        tail = EmulatedTail(copy.plan, copy.plan.variants[0], library, module)
        try:
            shapes = forced_shapes(self.schedule)
            run = tail.run(tensors, copy.dtypes, shapes=shapes, seed=seed, misalign=self.misalign)
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

    def verdict(self, library: EmulatedLibrary, copy: Copy, root: Path, seed: int) -> str:
        module, tensors, _ = prepared(copy, self.rows, self.channels, 1, 0.0, False, root)
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        for tensor in tensors.values():
            tensor[::3] = tensor[0]
        tail = EmulatedTail(copy.plan, copy.plan.variants[0], library, module)
        try:
            values = tail.run(tensors, copy.dtypes, shapes=forced_shapes(self.schedule), seed=seed).values
        except EmulationError as error:
            return str(error)
        full = [name for name, value in values.items() if value.shape == (self.rows, self.channels)]
        different = [name for name in full if not torch.equal(values[name][3::3], values[name][:-3:3])]
        return f"rows that are alike differ in {', '.join(different)}" if different else "fine"


@functools.cache
def prepared(copy: Copy, rows: int, channels: int, groups: int, mean: float, cumulative: bool, root: Path):
    """The generated module with every parameter and buffer away from its initial value, and what is expected of it. The
    linear layer's weight is small: its product is given."""
    given, plan, mode = CHAINS[copy.chain], copy.plan, copy.dtypes
    torch.manual_seed(0)
    module = fusegen.load(given.spec, root)(*given.arguments(4, channels, groups))
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    for part in module.train().modules():
        if isinstance(part, torch.nn.BatchNorm1d) and cumulative:
            part.momentum = None
    tensors = {plan.chain.source.name: mean + torch.randn(rows, channels), "grad_y": torch.randn(rows, channels)}
    tensors = {name: tensor.to(getattr(torch, mode.roles["activation"])) for name, tensor in tensors.items()}
    expected = tail_reference(plan, module, tensors, mode, True)
    count_batch(plan, module, True)
    return module, tensors, expected


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
