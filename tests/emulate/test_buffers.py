"""Buffers of a module, to which no gradient flows: imported, and verified beside the module in PyTorch."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.errors import SpecError  # noqa: E402
from fusegen.importing.module import from_module  # noqa: E402
from fusegen.plan.load import planned_document, planned_file  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


class Weighted(nn.Module):
    """Weights of classes below a name of a submodule, and a norm with a buffer in a region of its own."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.loss = nn.CrossEntropyLoss(weight=torch.linspace(0.5, 2, classes), label_smoothing=0.1)

    def forward(self, x, target):
        return self.loss(self.head(self.norm(x * self.scale)), target)


class Scaled(nn.Module):
    """A buffer that two steps take, one of one element and one with a function's numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.register_buffer("table", torch.arange(width) / 7.0)
        self.register_buffer("offset", torch.full((1,), 3.0))

    def forward(self, x):
        return torch.tanh(self.fc(x) * self.table + self.offset) * (1 + self.table)


ORIGINALS = {"weighted": (Weighted, [6, 9]), "scaled": (Scaled, [6])}
SHAPES = {"weighted": (10, 6, 9, 1), "scaled": (10, 6, 6, 1)}


def text_of(name: str) -> str:
    original, arguments = ORIGINALS[name]
    target = [torch.arange(8) % 9] if name == "weighted" else []
    return from_module(original(*arguments), [torch.randn(8, 6), *target], arguments=arguments, name=name)


@pytest.fixture(scope="module")
def suite(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("buffers")

    @functools.cache
    def suite_(name: str) -> Suite:
        path = root / f"{name}.yaml"
        path.write_text(text_of(name).replace("[float32, bfloat16, float16]", "[float32]"), encoding="utf-8")
        made = emulated_suite(planned_file(path), root / "made", emulation_cache).subject
        original = None if name == "weighted" else ORIGINALS[name][0]  # which has other names
        return Suite(Subject(made.plan, made.package, "cpu", original), full=False)

    return suite_


def module_of(suite, name: str):
    subject = suite(name).subject
    made = getattr(subject.package, subject.plan.spec.class_name)(*ORIGINALS[name][1])
    made.fusegen_strict = True
    return made


def test_what_an_import_writes() -> None:
    text = text_of("weighted")
    assert "{op: mul, parameter: scale, shape: [width], init: 0.5, learnt: false}" in text
    assert "buffer: loss_weight, init: ones}" in text
    assert "loss_weight: loss.weight" in text
    assert "begin with other values than the original's" in text


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_module_is_verified(suite, name: str) -> None:
    found, wrong = compared(suite(name), [SHAPES[name]])
    assert found and not wrong


@pytest.mark.parametrize(("name", "learnt"), [("weighted", {"norm_weight", "norm_bias"}), ("scaled", {"fc_bias"})])
def test_kernels_make_no_gradient_of_a_buffer(suite, name: str, learnt: set[str]) -> None:
    found = {each for plan in suite(name).subject.plan.plans for each in plan.variants[0].gradients}
    held = {"scale", "loss_weight", "table", "offset"}
    assert learnt <= found and not held & found


def test_weights_of_classes_are_the_originals(suite) -> None:
    original, module = Weighted(6, 9).double(), module_of(suite, "weighted")
    original.loss.weight *= torch.rand(9) + 0.5
    module.load_state_dict(original.state_dict())
    x, target = torch.randn(11, 6), torch.arange(11) % 9
    losses = [original(x.double(), target), module(x, target)]
    torch.testing.assert_close(losses[1].double(), losses[0], rtol=1e-5, atol=1e-6)
    for loss in losses:
        loss.backward()
    for ours, theirs in zip(module.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_state_is_the_originals(suite, name: str) -> None:
    original, arguments = ORIGINALS[name]
    theirs, ours = original(*arguments), module_of(suite, name)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    assert len(list(ours.buffers())) == len(list(theirs.buffers()))
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))
    before = [each.clone() for each in ours.buffers()]
    ours.reset_parameters()
    assert all(map(torch.equal, before, ours.buffers()))


def test_a_buffer_that_wants_a_gradient_is_pytorchs(suite) -> None:
    module = module_of(suite, "scaled")
    module.table.requires_grad_()
    x = torch.randn(5, 6)
    assert not module.fusegen_kernels(x)
    with torch.no_grad():
        assert module.fusegen_kernels(x)
    module.fusegen_strict = False
    with pytest.warns(UserWarning, match="a buffer of the module wants a gradient"):
        module(x).sum().backward()
    assert module.table.grad.any()


SPEC = """fusegen: 1
name: refused
dims: {batch: 8, width: 6}
inputs: {x: [batch, width], target: [batch], weights: [width]}
chain:
  - {op: mul, parameter: scale, shape: [width], init: ones, learnt: false}
  - {op: add, input: weights}
  - {op: cross_entropy, target: target, buffer: w, init: ones}
"""
REFUSED = {
    "learnt of a constant": (
        ("parameter: scale, shape: [width], init: ones", "constant: 2"),
        "FG307.*learnt goes with",
    ),
    "learnt again": (("input: weights", "parameter: scale, learnt: false"), "FG205.*where its shape is given"),
    "no init": ((", init: ones}\n", "}\n"), "FG307.*buffer and init go together"),
    "two weights": (("buffer: w", "weight: weights, buffer: w"), "FG307.*an input or a buffer, not both"),
    "one name": (("buffer: w", "buffer: scale"), "FG305.*two steps would own the attribute 'scale'"),
    "z_loss": (("buffer: w", "z_loss: 0.1, buffer: w"), "FG205.*z_loss has no weights of classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    (old, new), message = REFUSED[case]
    before, found, behind = SPEC.rpartition(old)
    assert found
    with pytest.raises(SpecError, match=message):
        planned_document(parse_yaml(f"{before}{new}{behind}", "refused.yaml"))


class Held(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.plain = kind, torch.rand(6)
        if kind == "of a norm":
            self.bn = nn.BatchNorm1d(6)
        if kind == "a product":
            self.register_buffer("weight", torch.rand(6, 6))
        else:
            self.register_buffer("passing", torch.rand(6), persistent=False)

    def forward(self, x):
        if self.kind == "a product":
            return nn.functional.linear(x, self.weight).tanh()
        if self.kind == "of a norm":
            return self.bn(x) * self.bn.running_var
        return (x * (self.plain if self.kind == "no buffer" else self.passing)).tanh()


NOT_IMPORTED = {
    "not persistent": "the buffer 'passing' is part of the chain.*a persistent buffer",
    "no buffer": "a tensor that no state_dict has",
    "of a norm": "the buffer 'bn.running_var' is part of the chain",
    "a product": "the buffer 'weight' is the weight of a product",
}


@pytest.mark.parametrize("kind", NOT_IMPORTED)
def test_what_is_not_imported(kind: str) -> None:
    with pytest.raises(SpecError, match=NOT_IMPORTED[kind]):
        from_module(Held(kind), [torch.randn(8, 6)])
