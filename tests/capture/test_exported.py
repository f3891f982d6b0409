"""Programs of torch.export with ops of packages: what they compute, and where they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.export import Dim, ExportedProgram  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.capture.test_backend import Make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
_ROWS = Dim("rows", min=2, max=64)


class Block(nn.Module):
    """A region with one result, one with two, and one behind a branch that the values of a batch decide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.inner, self.outer = nn.LayerNorm(2 * width), nn.LayerNorm(width)
        self.batch = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, more: dict[str, Tensor], scale: float = 1.0) -> tuple[Tensor, Tensor]:
        total = more["residual"] + self.down(F.gelu(self.inner(self.up(x))))
        return self.batch(total * scale), self.outer(total)


def batch(rows: int, width: int = 12) -> tuple[Tensor, dict[str, Tensor]]:
    return torch.randn(rows, width), {"residual": torch.randn(rows, width)}


def exported(model: nn.Module, *given: Any) -> ExportedProgram:
    sizes = ({0: _ROWS}, {"residual": {0: _ROWS}}, *[None] * (len(given) - 2))
    return torch.export.export(model, given, dynamic_shapes=sizes)


def ops_of(program: ExportedProgram) -> list[str]:
    graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    names = [str(node.target) for graph in graphs for node in graph.nodes]
    return [name.partition(".")[2].rpartition("_forward_")[0] for name in names if name.startswith("fusegen.")]


def test_a_program_with_ops(backend: Make, tmp_path: Path) -> None:
    model, own = Block(12).eval(), backend(choose="all")
    program = exported(model, *batch(5))
    with torch.autocast("cpu", torch.bfloat16):  # a program has its own
        program = own.export(program)
    assert len(ops_of(program)) == 3, program
    calls = [node for node in program.graph.nodes if str(node.target).startswith("fusegen.")]
    assert all("test_exported.py" in node.meta["stack_trace"] for node in calls)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    for each in (program, program.run_decompositions(), loaded):
        for rows in (2, 33):
            given = batch(rows)
            torch.testing.assert_close(each.module()(*given), model(*given))
    with pytest.raises(Exception, match="64"):
        program.module()(*batch(65))


def test_aot_inductor(backend: Make, tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3))
    exported = torch.export.export(model, (torch.randn(4, 12),), dynamic_shapes=({0: _ROWS},))
    program = backend(choose="all").export(exported)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    run = torch._inductor.aoti_load_package(path)
    x = torch.randn(7, 12)
    torch.testing.assert_close(run(x), model(x))
    assert len(ops_of(program)) == 1


def test_running_statistics_move(backend: Make) -> None:
    torch.manual_seed(0)
    model, given = Block(12), batch(5)
    module = backend(choose="all").export(exported(model, *given, 0.5)).module()
    torch.testing.assert_close(module(*given, 0.5), model(*given, 0.5))
    torch.testing.assert_close(dict(module.named_buffers()), dict(model.named_buffers()))


def test_nothing_is_taken_where_nothing_pays(backend: Make) -> None:
    program, own = exported(Block(12).eval(), *batch(5)), backend()
    assert own.export(program) is program and own.report.left and not own.report.taken


def test_float32_from_pieces(backend: Make) -> None:
    program = exported(Block(12).eval(), *batch(5))
    assert ops_of(backend(precision="fp32_split", choose="all").export(program)).count("linear") == 2


class Autocast(Block):
    def forward(self, x: Tensor, more: dict[str, Tensor], scale: float = 1.0) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x, more, scale)


def test_autocast_of_a_program(backend: Make, tmp_path: Path) -> None:
    model, given = Autocast(12).eval(), batch(5)
    program = backend(choose="all").export(exported(model, *given))
    assert len(ops_of(program)) == 3, program
    torch.export.save(program, tmp_path / "program.pt2")
    for each in (program, program.run_decompositions(), torch.export.load(tmp_path / "program.pt2")):
        torch.testing.assert_close(each.module()(*given), model(*given), rtol=2e-2, atol=2e-2)


class Blocks(Autocast):
    """Blocks within each other, and graphs of a condition."""

    def forward(self, x: Tensor, more: dict[str, Tensor], scale: float = 1.0) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found = super().forward(self.outer(x).cos(), more, scale)
        return found[0], torch.cond(x.sum() > 0, lambda y: self.outer(y).sin(), lambda y: y.cos(), (found[1],))


def test_graphs_within_a_graph(backend: Make) -> None:
    model, given = Blocks(12).eval(), batch(5)
    program = backend(choose="all").export(exported(model, *given))
    assert len(ops_of(program)) == 4, program
    for sign in (-1, 1):
        x = given[0] - given[0].sum() + sign
        wanted = model(x, given[1])
        for each in (program, program.run_decompositions()):
            torch.testing.assert_close(each.module()(x, given[1]), wanted, rtol=2e-2, atol=2e-2)


class Named(nn.Module):
    """Inputs with names that operators have, a result that is one of them, and a weight that is there twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(6), nn.Linear(6, 6)
        self.again = self.inner

    def forward(self, linear: Tensor, layer_norm: Tensor, none: Tensor | None = None) -> tuple[Tensor | None, ...]:
        result = self.norm(self.inner(linear) + self.again(layer_norm.expand(3, 6)))
        return result, linear, result, none


def test_names_stay(backend: Make, tmp_path: Path) -> None:
    model, given = Named(), (torch.randn(3, 6), torch.randn(1, 6))
    before = torch.export.export(model, given, preserve_module_call_signature=("norm",))
    program = backend(choose="all").export(before)
    assert ops_of(program) == ["add_layer_norm"]
    assert program.graph_signature.user_inputs == before.graph_signature.user_inputs == ("linear", "layer_norm")
    assert program.graph_signature.parameters == before.graph_signature.parameters
    torch.export.save(program, tmp_path / "program.pt2")
    for each in (program, torch.export.load(tmp_path / "program.pt2")):
        torch.testing.assert_close(each.module()(*given), model(*given))


@pytest.mark.parametrize("precision", ["ieee", "fp32_split"])
def test_sizes_that_depend_on_values(backend: Make, precision: str) -> None:
    """A program with these stays: a new trace would have others."""
    model = Named()
    model.forward = lambda x: model.norm(model.inner(x[x[:, 0] > 0]))  # type: ignore[method-assign]
    program, own = torch.export.export(model, (torch.randn(9, 6),)), backend(choose="all", precision=precision)
    assert own.export(program) is program
    assert [each.reason for each in own.report.left] == ["it has sizes that depend on values"]
