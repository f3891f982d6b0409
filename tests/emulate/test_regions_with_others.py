"""Modules of several regions that divide channels and drop elements, on the emulator."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

# A packed gate, a part of which is returned, too; dropouts of elements and of samples behind each layer.
MLP = """\
fusegen: 1
name: packed_mlp
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: linear, name: packed, out_features: 2 * hidden, bias: false}
  - {op: chunk, parts: [a, gate], running: gate}
  - {op: silu}
  - {op: mul, value: a}
  - {op: dropout, name: first_drop, p: 0.25}
  - {op: linear, name: down, out_features: features}
  - {op: dropout, name: second_drop, p: 0.3}
  - {op: drop_path, name: path, p: 0.2}
  - {op: add, input: x}
outputs: [a, result]
"""


@pytest.fixture(scope="module")
def mlp(tmp_path_factory, emulation_cache):
    """The plan, and its emulated package."""
    root = tmp_path_factory.mktemp("packed")
    (root / "packed_mlp.yaml").write_text(MLP)
    plan = planned_file(root / "packed_mlp.yaml")
    write_files(render_all([plan]), root / "generated")
    return plan, emulate_package(root / "generated" / "packed_mlp", cache=emulation_cache, checked=False)


def made(package, seed: int = 1):
    torch.manual_seed(seed)
    module = package.PackedMlp(6, 9)
    module.fusegen_strict = True
    return module, torch.randn(40, 6)


def test_the_whole_beside_the_original(mlp) -> None:
    plan, package = mlp
    report = Suite(Subject(plan, package, "cpu"), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 60


def test_each_region_draws_a_seed_of_its_own(mlp) -> None:
    """Dropouts of both have the first stream, and drop other elements all the same."""
    module, _ = made(mlp[1])
    shape = (40, 9)
    torch.manual_seed(5)
    seeds = [module.fusegen_seed("cpu") for _ in range(2)]
    assert seeds[0] != seeds[1]
    dropouts = type(module)._fusegen_dropouts
    assert dropouts == {"first_drop": (0, False, -1), "second_drop": (0, False, -1), "path": (1, True, -1)}
    torch.manual_seed(5)
    x = torch.randn(40, 6)
    torch.manual_seed(5)
    _, result = module.train()(x)
    first, second, path = (
        module.fusegen_factors(name, seed, each).float()
        for name, seed, each in (
            ("first_drop", seeds[0], shape),
            ("second_drop", seeds[1], x.shape),
            ("path", seeds[1], x.shape),
        )
    )
    a, gate = module.packed(x).chunk(2, dim=-1)
    expected = module.down(torch.nn.functional.silu(gate) * a * first) * second * path + x
    torch.testing.assert_close(result, expected)
    assert 0.1 < (first == 0).float().mean() < 0.4
