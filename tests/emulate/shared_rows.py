"""Chains whose rows are in shared memory, short ones too: with copies of the kernels that have none in registers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fusegen.emulate import compile_kernels
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.choice import Choice, choice
from fusegen.runtime.launchers import Call, Launcher
from fusegen.tune.launchers import EmulatedLaunchers
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference
from tests.emulate.building import module_class, on_another_device
from tests.emulate.mutants.mutant import Mutant
from tests.emulate.mutants.scenario import add_mutants
from tests.emulate.test_chains import compare

SPEC = """
fusegen: 1
name: {name}
about: rows
dims: {{batch: 64, width: 32}}
{arguments}inputs: {{x: [batch, width]{inputs}}}
dtypes: [float32, bfloat16]
chain:
{chain}
"""
SCALE = "{op: mul, parameter: scale, shape: [width], init: randn}"
# The steps, and the inputs besides x.
CHAINS = {
    "sums_of_columns": ((SCALE, "{op: softmax}"), ""),
    "norm_and_side_input": (
        ("{op: add, input: z}", "{op: layer_norm, name: norm}", "{op: mul, input: z}"),
        ", z: [batch, width]",
    ),
    "no_sums_of_columns": (("{op: softmax}", "{op: mul, input: z}"), ", z: [batch, width]"),
    "loss_of_a_row": (("{op: cross_entropy, target: target, reduction: none}",), ", target: [batch]"),
    "extreme": (("{op: amax, keepdim: false}",), ""),
    "ties_of_a_row": (("{op: amax, keepdim: true, save: a}", "{op: sub, value: a}"), ""),
}
_REGISTERS = "if (work.threads < kRowOne) return none;"


class SharedRows:
    """A chain and its kernels, for a device of four multiprocessors with so many bytes of shared memory for a block.

    in_registers: as many rows as fit have registers. mutants: by number, those that the copy has.
    """

    def __init__(
        self,
        name: str,
        shared_bytes: int,
        root: Path,
        cache: Path,
        *,
        mode: int = 0,
        in_registers: bool = False,
        mutants: Mapping[int, Mutant] | None = None,
    ) -> None:
        steps, inputs = CHAINS[name]
        chain = "\n".join(f"  - {step}" for step in steps)
        owned = "arguments: {width: {type: dim}}\n" * ("name: norm" in chain or "parameter" in chain)
        path = root / f"{name}.yaml"
        path.write_text(SPEC.format(name=name, arguments=owned, inputs=inputs, chain=chain), encoding="utf-8")
        self.plan = plan_file(path)
        self.variant, self.mode = self.plan.variants[0], self.plan.modes[mode]
        write_files(render_all([module_of(self.plan)]), root)
        on_another_device(root, multiprocessors=4, shared_bytes=shared_bytes)
        if not in_registers:
            shapes = root / "support" / "row_shapes.cuh"
            text = shapes.read_text(encoding="utf-8")
            assert text.count(_REGISTERS) == 1
            shapes.write_text(text.replace(_REGISTERS, "return none;"), encoding="utf-8")
        if mutants:
            add_mutants(root / name, list(mutants.items()))
        self.library = compile_kernels(root / name / "kernels.cu", cache=cache, modes=[mode])
        self.module_class = module_class(self.plan, root)

    def choices(self, rows: int, width: int) -> list[Choice]:
        """What the forward and the backward program run."""
        launchers = EmulatedLaunchers(self.library)
        symbols = [Launcher(self.plan, program).symbol for program in (self.variant.forward, self.variant.backward)]
        return [choice(launchers.explain(each, Call(self.mode.index, rows, width, 1))) for each in symbols]

    def clusters(self, rows: int, width: int) -> list[int]:
        """Of each program that has rows in shared memory, the blocks of a cluster."""
        made = [each for each in self.choices(rows, width) if "shared memory" in each.considered[0].reason]
        return [launch.grid[2] for each in made for launch in each.launches if launch.kernel == "row"]

    def prepared(self, rows: int, width: int):
        """What runs, with fresh tensors, and the results in double precision."""
        torch.manual_seed(rows * width)
        module = self.module_class(width) if self.plan.spec.arguments else self.module_class()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter)
        activation, output = (getattr(torch, self.mode.roles[role]) for role in ("activation", "output"))
        of_rows = self.plan.chain.result.node.axes != self.plan.chain.graph.view
        tensors = {name: torch.randn(rows, width).to(activation) for name in "xz"}
        tensors["target"] = torch.randint(0, width, (rows,))
        tensors[self.variant.result_gradient] = torch.randn(rows, 1 if of_rows else width).to(output)
        expected = tail_reference(self.plan, module, tensors, self.mode, True)
        return EmulatedTail(self.plan, self.variant, self.library, module), tensors, expected

    def check(self, rows: int, width: int, *, seeds: tuple[int, ...] = (0,), misalign: str = "") -> None:
        """Against double precision, and to the same bits in whatever order threads run. Raises AssertionError."""
        tail, tensors, expected = self.prepared(rows, width)
        first, *others = (tail.run(tensors, self.mode, seed=seed, misalign=misalign).values for seed in seeds)
        assert compare(first, expected, f"{self.plan.spec.name} of {rows}x{width}")
        assert all(torch.equal(first[key], other[key]) for other in others for key in first)
