"""What a trace does not show: branches on sizes and dtypes, state of Python, random numbers, infinities."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing import module as importing
from fusegen.importing.checks.check import FIXED_ROWS
from fusegen.importing.checks.pairs import Differs, Pair
from fusegen.importing.checks.rows import OTHER_DIMENSIONS
from fusegen.importing.checks.variants import AUTOCAST
from fusegen.importing.module import from_module
from fusegen.importing.reading.read import Reader
from fusegen.importing.reading.values import Number
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, chain, imported, plan
from tests.importing.test_check import changed, keys

# Each with the code, words of the message, and words of the line that it names.
REFUSED = {
    "more rows": (Source("", "return y.tanh() if x.shape[0] > 4 else y"), "FG702", "sizes of inputs", "if x.shape"),
    "fewer rows": (Source("", "return y.tanh() if x.shape[0] < 40 else y"), "FG702", "sizes of inputs", "x.shape"),
    "even rows": (Source("", "return y.tanh() if x.size(0) % 2 == 0 else y"), "FG702", "sizes of inputs", "x.size(0)"),
    "other rows": (Source("", "return y.tanh() if x.shape[0] != 99 else y"), "FG702", "sizes of inputs", "if x.shape"),
    "one row": (Source("", "return y.tanh() if x.shape[0] == 1 else y"), "FG708", "of shape [1, 32]", None),
    "a dtype": (Source("", "return y * 2 if x.dtype == torch.float32 else y"), "FG710", "else in bfloat16", "y * 2"),
    "an eps of the dtype": (
        Source("", "return F.layer_norm(y, (y.shape[-1],), eps=torch.finfo(y.dtype).eps)"),
        "FG710",
        "else in bfloat16",
        "torch.finfo",
    ),
    "float16 alone": (
        Source("", "return y.tanh() if x.dtype == torch.float16 else y"),
        "FG710",
        "in float16",
        "y.tanh()",
    ),
    "a GPU": (Source("", "return y.tanh() if x.is_cuda else y"), "FG710", "else on a GPU", "x.is_cuda"),
    "a device": (Source("", "return y.tanh() if x.device.type == 'cpu' else y"), "FG710", "else on a GPU", "x.device"),
    "gradients": (
        Source("", "return y.tanh() if torch.is_grad_enabled() else y"),
        "FG710",
        "without gradients",
        "tanh",
    ),
    "contiguous inputs": (
        Source("", "return y.tanh() if x.is_contiguous() else y"),
        "FG710",
        "not contig",
        "x.is_cont",
    ),
    "wanted gradients": (Source("", "return y.tanh() if x.requires_grad else y"), "FG710", "", "x.requires"),
    "autocast": (
        Source("", "return y.tanh() if torch.is_autocast_enabled() else y"),
        "FG710",
        "under autocast",
        "tanh",
    ),
    "a sum of another dtype": (
        Source("", "return y / y.sum(-1, keepdim=True, dtype=torch.float32)"),
        "FG710",
        "in bfloat16, the result is of float32",
        "y.sum",
    ),
    "a softmax of another dtype": (
        Source("", "return y.softmax(-1, dtype=torch.float32)"),
        "FG710",
        "in bfloat16, the result is of float32",
        "y.softmax",
    ),
    "a softmax in double": (Source("", "return y.softmax(-1, dtype=torch.float64)"), "FG703", "a cast", "y.softmax"),
    "a cast of the result": (Source("", "return y.float().tanh()"), "FG710", "the result is of float32", "y.float"),
    "a parameter in double": (
        Source("self.p = nn.Parameter(torch.ones(m, dtype=torch.float64))", "return y * self.p"),
        "FG706",
        "'p' is of torch.float64",
        None,
    ),
    "a layer in double": (
        Source("self.b = nn.BatchNorm1d(m).double()", "return self.b(y.tanh())"),
        "FG706",
        "",
        None,
    ),
    "calls that are counted": (
        Source("self.calls = 0", "self.calls += 1\nreturn y.tanh()"),
        "FG711",
        "changes the attribute 'calls'",
        "def forward",
    ),
    "a result that is kept": (
        Source("self.last = None", "self.last = y.shape[-1] * 2 + len(str(self.last))\nreturn y.tanh()"),
        "FG711",
        "changes the attribute 'last'",
        "def forward",
    ),
    "a list that grows": (
        Source("self.seen = []", "self.seen.append(y.shape[-1])\nreturn y.tanh()"),
        "FG711",
        "changes the attribute 'seen'",
        "def forward",
    ),
    "an attribute of a part": (
        Source(
            "self.act = nn.Tanh()\nself.act.calls = {}", "self.act.calls[len(self.act.calls)] = 1\nreturn self.act(y)"
        ),
        "FG711",
        "changes the attribute 'act.calls'",
        None,
    ),
    "numbers of Python": (
        Source("self.draw = __import__('random').random", "return y + 0 * self.draw()"),
        "FG711",
        "draws random numbers",
        "def forward",
    ),
    "numbers of NumPy": (
        Source("", "__import__('numpy').random.rand()\nreturn y.tanh()"),
        "FG711",
        "draws random numbers",
        "def forward",
    ),
    "numbers of one's own": (
        Source(
            "self.draw = torch.Generator().manual_seed(0)",
            "k = torch.rand(1, generator=self.draw, device='cpu').item() if not torch.compiler.is_exporting() else 2\n"
            "return y * (1 if k < 0.5 else 2)",
        ),
        "FG711",
        "another result the next time",
        "def forward",
    ),
    "nothing that is finite": (Source("", "return torch.log(-y.abs() - 1)"), "FG708", "shows nothing: the ", None),
    "gradients that are not finite": (
        Source("", "return torch.sqrt(y * 0)"),
        "FG708",
        "shows nothing: the gradient of fc",
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    source, code, words, line = REFUSED[name]
    state = random.getstate()
    with pytest.raises(SpecError) as raised:
        imported(source)
    random.setstate(state)
    (found,) = raised.value.diagnostics
    assert found.code.startswith(code) and words in found.message, raised.value
    if line is not None:
        assert found.location is not None and found.location.line == source.line(line), raised.value


def test_a_number_of_rows_that_is_asked_for_is_the_specs() -> None:
    text = imported(Source("", "return y.tanh() if x.shape[0] == 6 else y"))
    assert plan(text).spec.inputs["x"] == (6, "n") and FIXED_ROWS.format(6) in text


def test_other_dimensions_are_told() -> None:
    remark = OTHER_DIMENSIONS.format(2)
    assert remark in imported(Source("", "return y.view(x.shape[0], -1).tanh()"))
    assert remark in imported(Source("", "return y.tanh() if x.dim() == 2 else y"))
    assert remark not in imported(Source("", "return y.tanh()"))


class Pointwise(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.shape[:2]
        if self.what == "swapped":
            return x.view(b, a, *x.shape[2:]).tanh()
        return x.tanh()


def test_equal_sizes_are_not_one() -> None:
    for shape in ((8, 8), (4, 4, 8), (8, 4, 8)):
        with pytest.raises(SpecError, match=r"FG703.*view"):
            from_module(Pointwise("swapped"), [torch.randn(shape)])
        text = from_module(Pointwise(""), [torch.randn(shape)])
        assert plan(text).spec.inputs["x"] == ("batch", "channels")
    text = imported(Source("", "return y * r", "x, r"), (CHANNELS, WIDTH), (CHANNELS, CHANNELS))
    assert plan(text).spec.inputs == {"x": ("batch", "n"), "r": ("batch", "m")}


def test_a_module_in_half_precision() -> None:
    module = Source("self.n = nn.LayerNorm(m)", "return self.n(y).tanh()").module().bfloat16()
    text = from_module(module, [torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)])
    assert [step["op"] for step in chain(text)] == ["layer_norm", "tanh"]
    with pytest.raises(SpecError, match=r"FG70[16].*float32"):
        from_module(module, [torch.randn(ROWS, WIDTH)])


def test_another_dtype_under_autocast_is_told() -> None:
    """Softplus is one of the functions that autocast has in float32, mish is none."""
    text = imported(Source("", "return y * torch.tanh(F.softplus(y))"))
    assert chain(text) == [{"op": "mish"}] and AUTOCAST.format("bfloat16", "float32") in text
    assert AUTOCAST[:14] not in imported(Source("", "return F.mish(y)"))


class Scaled(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * 1e200 * 1e200 * self.by


def test_infinities_have_signs() -> None:
    Pair(Scaled(1.0), Scaled(1.0), [torch.randn(4, 8)]).differs([(torch.ones(1, 4, 8).double(), True)])
    for other in (-1.0, math.nan):
        pair = Pair(Scaled(1.0), Scaled(other), [torch.randn(4, 8)])
        with pytest.raises(Differs, match="not finite elsewhere|off by inf"):
            pair.differs([(pair.given, True)])


def test_functions_of_positive_numbers() -> None:
    text = imported(Source("", "return torch.log(y).sqrt()"))
    assert chain(text) == [{"op": "log"}, {"op": "sqrt"}]


def test_a_small_eps_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("self.n = nn.LayerNorm(m, eps=1e-10)", "return self.n(y) + 1")
    assert chain(imported(source))[0] == {"op": "layer_norm", "name": "n", "eps": 1e-10}
    monkeypatch.setattr(importing, "recognised", changed(keys("layer_norm", eps=Number(3e-10))))
    with pytest.raises(SpecError, match="FG708"):
        imported(source)


def test_a_call_that_nobody_thought_of_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("", "return torch.relu(y)")
    for error in (AssertionError, IndexError, KeyError, TypeError):

        def fail(*_: object, raised: type[Exception] = error) -> None:
            raise raised

        monkeypatch.setattr(Reader, "_function", fail)
        with pytest.raises(SpecError, match=r"FG703.*relu is called in a way") as found:
            imported(source)
        location = found.value.diagnostics[0].location
        assert location is not None and location.line == source.line("torch.relu")
