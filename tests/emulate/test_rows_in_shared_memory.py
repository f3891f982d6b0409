"""Rows that are too long for registers, in shared memory of a block or of a cluster, beside double precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.shapes import PERSISTENT, Shapes  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.runtime.choice import choice  # noqa: E402
from fusegen.runtime.launchers import Call, Launcher  # noqa: E402
from fusegen.tune.launchers import EmulatedLaunchers  # noqa: E402
from fusegen.verify.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import module_class  # noqa: E402
from tests.emulate.test_chains import compare  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

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
# The steps, and the inputs besides x.
CHAINS = {
    "sums_of_columns": (["{op: mul, parameter: scale, shape: [width], init: randn}", "{op: softmax}"], ""),
    "norm_and_side_input": (["{op: add, input: z}", "{op: layer_norm, name: norm}", "{op: mul, input: z}"],
                            ", z: [batch, width]"),
    "no_sums_of_columns": (["{op: softmax}", "{op: mul, input: z}"], ", z: [batch, width]"),
    "loss_of_a_row": (["{op: cross_entropy, target: target, reduction: none}"], ", target: [batch]"),
    "ties_of_a_row": (["{op: amax, keepdim: true, save: a}", "{op: sub, value: a}"], ""),
}  # fmt: skip
# Just beyond registers, in float32: of a block, and of a cluster where there are column sums; not all with vectors.
WIDTHS = {"sums_of_columns": (16388, 16501), "norm_and_side_input": (16388, 16501)}
NO_SUMS = (8196, 8301)


class Narrow:
    """A chain and its kernels, for a device of four multiprocessors with so little shared memory."""

    def __init__(self, name: str, kilobytes: int, root: Path, cache: Path, modes: list[int]) -> None:
        steps, inputs = CHAINS[name]
        path = root / f"{name}.yaml"
        chain = "\n".join(f"  - {step}" for step in steps)
        owned = "arguments: {width: {type: dim}}\n" * ("name: norm" in chain or "parameter" in chain)
        path.write_text(SPEC.format(name=name, arguments=owned, inputs=inputs, chain=chain), encoding="utf-8")
        plan = plan_file(path)
        self.plan = replace(plan, device=replace(plan.device, multiprocessors=4, shared_bytes=kilobytes * 1024))
        self.variant = self.plan.variants[0]
        write_files(render_all([self.plan]), root)
        self.library = compile_kernels(root / name / "kernels.cu", cache=cache, modes=modes)
        self.module = module_class(self.plan, root)

    def drawn(self, mode, rows: int, width: int) -> dict[str, torch.Tensor]:
        activation, output = (getattr(torch, mode.roles[role]) for role in ("activation", "output"))
        of_rows = self.plan.chain.result.axes != self.plan.chain.graph.view
        tensors = {"x": torch.randn(rows, width).to(activation), "z": torch.randn(rows, width).to(activation)}
        tensors["target"] = torch.randint(0, width, (rows,))
        tensors[self.variant.result_gradient] = torch.randn(rows, 1 if of_rows else width).to(output)
        return tensors

    def clusters(self, mode, rows: int, width: int) -> list[int]:
        """Of each program that has rows in shared memory, the blocks of a cluster."""
        launchers, found = EmulatedLaunchers(self.library), []
        for program in (self.variant.forward, self.variant.backward):
            symbol = Launcher(self.plan, program).symbol
            made = choice(launchers.explain(symbol, Call(mode.index, rows, width, 1)))
            if any("shared memory" in each.reason and each.chosen for each in made.considered):
                found += [launch.grid[2] for launch in made.launches if launch.kernel == "row"]
        return found


@pytest.mark.parametrize("kilobytes, clusters", [(227, 1), (64, 8)])
@pytest.mark.parametrize("name", CHAINS)
def test_against_double_precision(name, kilobytes, clusters, emulation_cache, tmp_path) -> None:
    """Several rows of a block; to the same bits whatever the order of threads."""
    narrow = Narrow(name, kilobytes, tmp_path, emulation_cache, [0])
    mode = narrow.plan.modes[0]
    for width in WIDTHS.get(name, NO_SUMS):
        print(name, kilobytes, narrow.clusters(mode, 6, width))
        torch.manual_seed(width)
        module = narrow.module(width) if narrow.plan.spec.arguments else narrow.module()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter)
        tensors = narrow.drawn(mode, 6, width)
        expected = tail_reference(narrow.plan, module, tensors, mode, True)
        tail = EmulatedTail(narrow.plan, narrow.variant, narrow.library, module)
        found = tail.run(tensors, mode).values
        assert compare(found, expected, f"{name} of {width}")
        again = tail.run(tensors, mode, seed=1).values
        assert all(torch.equal(found[key], again[key]) for key in found)
