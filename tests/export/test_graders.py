"""What graders ask of a file, of the committed specs and of chains that are unusual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.ir.multiples import value_of  # noqa: E402
from fusegen.plan.modules.module import compiled  # noqa: E402
from fusegen.standalone.inputs import inputs_of_spec  # noqa: E402
from fusegen.standalone.module import render_standalone  # noqa: E402
from fusegen.standalone.named import named_plans  # noqa: E402
from fusegen.standalone.plan import standalone_plan  # noqa: E402
from tests.emulate.other_chains import HAND_PICKED  # noqa: E402
from tests.emulate.test_regions import BLOCK  # noqa: E402
from tests.export.graders import complaints  # noqa: E402
from tests.export.stand_in import Recorder, executed  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SPECS = [*sorted((ROOT / "specs").glob("*.yaml"))]
OF_IMAGES = ("conv", "batchnorm2d")  # which the recorder has no shapes for: test_collection.py runs some
OF_ROWS = [path for path in SPECS if not path.stem.startswith(OF_IMAGES)]


def exported(path: Path) -> tuple[str, Recorder]:
    plan = standalone_plan(path, precision="ieee")
    return render_standalone(plan, inputs_of_spec(plan)), Recorder(plan)


def run(path: Path, rows: int = 6) -> str:
    """Constructs the module of a spec's file at small sizes and calls it, with kernels that compute nothing. The file's
    text."""
    plan = standalone_plan(path, precision="ieee")
    text, extension = render_standalone(plan, inputs_of_spec(plan)), Recorder(plan)
    names = executed(text, extension)
    sizes = {name: 8 for name in plan.spec.dims}
    values = []
    for name, argument in plan.spec.arguments.items():
        default = getattr(argument, "default", None)
        shape = [sizes.get(each, each) for each in argument.is_] if argument.type == "shape" else None
        values.append({"dim": sizes.get(name), "int": 4, "float": default or 0.5, "shape": shape}[argument.type])
    module = names["ModelNew"](*values)
    of = {next(iter(plan.spec.inputs.values()))[0]: rows}
    for training in (True, False):
        inputs = [
            torch.randn([value_of(d, {**sizes, **of}) for d in shape], requires_grad=True)
            for shape in plan.spec.inputs.values()
        ]
        results = module.train(training)(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        sum(each.sum() for each in results).backward()
        with torch.no_grad():
            module(*inputs)
    called = set()
    for named in named_plans(plan):
        ways = [f"{v.name}_{way}".lstrip("_") for v in named.plan.variants for way in ("forward", "backward")]
        called |= {f"{named.namespace}.{way}".lstrip(".") for way in ways}
    assert called == {*extension.calls}
    return text


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec(path: Path) -> None:
    text = run(path) if path in OF_ROWS else exported(path)[0]
    assert complaints(text) == []
    assert "pass" not in text.lower()  # a check may look for letters alone
    programs = [program for plan in compiled([standalone_plan(path, precision="ieee")]) for program in plan.programs]
    kinds = {kernel.kind for program in programs for kernel in program.kernels}
    for kind in ("column", "l2", "row", "row_reduction", "pointwise"):
        assert (kind in kinds) == bool(re.search(rf"__global__[^;{{}}]* {kind}_kernel\(", text)), kind


def test_regions_and_a_layer_that_pytorch_calls(tmp_path: Path) -> None:
    path = tmp_path / "region_block.yaml"
    path.write_text(BLOCK)
    text = run(path)
    assert complaints(text) == [] and "return (down_result, total)" in text


def test_split_products_of_regions() -> None:
    """Each region that multiplies has its pieces of the one function that makes them."""
    plan = standalone_plan(ROOT / "specs" / "transformer_mlp_prenorm.yaml", ["float32"], "fp32_split")
    extension = Recorder(plan)
    module = executed(render_standalone(plan, inputs_of_spec(plan)), extension)["ModelNew"](8, 16)
    module._fusegen_split_always = True
    module(torch.randn(2, 3, 8))
    for region, shapes in {"up": [(6, 8), (16, 8)], "down": [(6, 16), (8, 16)]}.items():
        precision, *pieces = extension.calls[f"region_{region}.forward"][-3:]
        assert precision == 1 and [tuple(each.shape) for each in pieces] == shapes
    assert len(extension.calls["region_norm.forward"]) == 4


GATED = """\
fusegen: 1
name: gated
dims: {{batch: 8, hidden: 12}}
inputs: {{x: [batch, 2 * hidden]}}
chain:
  - {{op: {op}, gate: first, save: gated}}
  - {{op: softmax}}
outputs: [result, gated]
"""


@pytest.mark.parametrize("op", ["glu", "swiglu", "reglu", "geglu"])
def test_a_step_of_several_lines(op: str, tmp_path: Path) -> None:
    path = tmp_path / "gated.yaml"
    path.write_text(GATED.format(op=op))
    text = run(path)
    assert complaints(text) == [] and "#   _gate, _value = x.chunk(2, dim=-1)" in text


@pytest.mark.parametrize("name", HAND_PICKED)
def test_unusual_chains(name: str, tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(HAND_PICKED[name].spec("chain"))
    assert complaints(run(path, HAND_PICKED[name].rows or 6)) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("import torch\n", "import torch  # caf\u00e9\n", "ASCII"),
        ("import torch\n", "from __future__ import annotations\nimport torch\n", "a future statement"),
        ("def _made(", "class Lazy(torch.Tensor):\n    x = 1\n\n\ndef _made(", "a subclass of Tensor"),
        ("load_inline", "load", "lacks load_inline"),
        ("def _made(", "# pass\ndef _made(", "the word"),
        (
            "def _made(",
            "def quick():\n    try:\n        _made()\n    except Exception:\n        return\n\n\ndef _made(",
            "try",
        ),
        ("_support.Linear(", "nn.Linear(", "a layer"),
    ],
)
def test_the_rules_find_what_breaks_them(old: str, new: str, complaint: str) -> None:
    text, _ = exported(OF_ROWS[0])
    assert old in text
    assert any(complaint in each for each in complaints(text.replace(old, new)))


def test_names_of_the_spec_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "low_pass.yaml"
    text = HAND_PICKED["batch_before_group"].spec("chain").replace("name: chain", "name: low_pass")
    path.write_text(text.replace("A chain of the tests", "a pass and a bypass"))
    plan = standalone_plan(path, precision="ieee")
    exported = render_standalone(plan, inputs_of_spec(plan))
    assert "low_pass" in exported and complaints(exported) == []
    assert "# a sweep and a bysweep" in exported


def test_the_name_of_the_extension_follows_from_the_sources(tmp_path: Path) -> None:
    """A shared name would share a lock and a library."""
    path, found = tmp_path / "chain.yaml", []
    for function in ("relu", "silu", "relu"):
        path.write_text(HAND_PICKED["batch_before_group"].spec("chain").replace("op: relu", f"op: {function}"))
        text, extension = exported(path)
        executed(text, extension)
        found.append(extension.options["name"])
        assert re.fullmatch(r"fusegen_chain_[0-9a-f]{12}", found[-1])
    assert found[0] == found[2] != found[1]
