"""`choose="measure"`: what is measured of a region, when, and what follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.backend import Backend  # noqa: E402
from fusegen.capture import measure  # noqa: E402
from fusegen.capture.partition import partition  # noqa: E402
from tests.bench.standins import ScriptedClock  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402
from tests.capture.models import Residual  # noqa: E402
from tests.capture.test_autocast import within  # noqa: E402
from tests.capture.test_backend import Make, step  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
Clocks = Callable[..., list[ScriptedClock]]


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Sets what kernels and PyTorch's compiler take, and returns the clocks that are asked from then on."""

    def scripted(*milliseconds: float) -> list[ScriptedClock]:
        asked: list[ScriptedClock] = []

        def clock() -> ScriptedClock:
            asked.append(ScriptedClock(milliseconds))
            return asked[-1]

        monkeypatch.setattr(measure, "CudaClock", clock)
        return asked

    return scripted


@pytest.fixture
def measured(backend: Make, fused: Path) -> Callable[..., Backend]:
    """Makes backends that measure, where nothing is known."""
    (fused / measure.FILE).unlink(missing_ok=True)
    return lambda **options: backend(choose="measure", **options)


class Norm(nn.Module):
    """A norm whose result two others take, and a dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.norm(x), 0.5)
        return y + self.inner(y)


@pytest.mark.parametrize(("ours", "theirs", "is_taken"), [(1.0, 2.0, True), (2.0, 1.0, False), (1.0, 1.005, False)])
def test_what_is_faster_is_taken(
    measured: Callable[..., Backend], clocks: Clocks, ours: float, theirs: float, is_taken: bool
) -> None:
    asked, own = clocks(ours, theirs), measured()
    torch.compile(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.GELU()), backend=own)(torch.randn(5, 6))
    assert len(asked) == 1 and (len(own.report.taken), len(own.report.left)) == (is_taken, not is_taken)
    assert f"its kernels take {ours:.3f} ms, and PyTorch's {theirs:.3f} ms" in str(own.report)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_nothing_of_a_model_changes(measured: Callable[..., Backend], clocks: Clocks, rest: str) -> None:
    """Measuring draws no random number of the model's, and moves no statistics."""
    model, x, grad = nn.Sequential(Residual(6), Norm(5)), torch.randn(3, 6, 7, 5), torch.randn(3, 6, 7, 5)
    found, state = [], {name: each.clone() for name, each in model.state_dict().items()}
    for count in (3, 0):  # measured, and known
        torch._dynamo.reset()
        asked = clocks(2.0, 1.0)
        model.load_state_dict(state)
        torch.manual_seed(1)
        found.append(step(model, torch.compile(model, backend=measured(rest=rest)), x, grad))
        assert len(asked) == count
    assert all(torch.equal(each, found[1][name]) for name, each in found[0].items())
    torch._dynamo.reset()
    model.load_state_dict(state)
    torch.manual_seed(1)
    left = step(model, torch.compile(model, backend="aot_eager" if rest == "eager" else "inductor"), x, grad)
    assert all(torch.equal(each, left[name]) for name, each in found[0].items())


def test_each_kind_is_measured_once(measured: Callable[..., Backend], clocks: Clocks, fused: Path) -> None:
    model = nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(6, 6), nn.LayerNorm(6))))
    first, known = measured(), measured()
    for own, rows, count in ((first, 4, 1), (known, 4, 0), (first, 9, 1)):
        torch._dynamo.reset()
        asked = clocks(1.0, 2.0)
        torch.compile(model, backend=own, dynamic=False)(torch.randn(rows, 6)).sum().backward()
        assert len(asked) == count, (fused / measure.FILE).read_text()
    entries = json.loads((fused / measure.FILE).read_text())
    assert len(entries) == 2 and list(entries.values()) == [{"fusegen": 1.0, "pytorch": 2.0}] * 2
    assert all("float32[4, 6] with gradient" in key or "float32[9, 6] with gradient" in key for key in entries)
    asked = clocks(1.0, 2.0)
    with torch.no_grad():  # another kind: without a backward pass, for the weights either
        torch.compile(model, backend=measured())(torch.randn(4, 6))
    assert len(asked) == 1 and len(entries := json.loads((fused / measure.FILE).read_text())) == 3
    assert sum("with gradient" not in key for key in entries) == 1
    for options in ({"rest": "inductor"}, {"rest": "inductor", "options": {"max_autotune": True}}):
        asked = clocks(1.0, 2.0)
        torch._dynamo.reset()
        torch.compile(model, backend=measured(**options), dynamic=False)(torch.randn(4, 6)).sum().backward()
        assert len(asked) == 1, options


def test_a_program_draws_nothing(measured: Callable[..., Backend], clocks: Clocks) -> None:
    """Where torch.compile does not keep the generator's state."""
    asked, own = clocks(1.0, 2.0), measured()
    program = torch.export.export(Norm(6), (torch.randn(5, 6),))
    state = torch.get_rng_state()
    own.export(program)
    assert len(asked) == len(own.report.taken) == 1, str(own.report)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_autocast_of_a_region() -> None:
    """That of the graph, or else what is around it."""
    norm = nn.LayerNorm(6)

    def of(call: Callable[[Tensor], Tensor]) -> tuple[bool, torch.dtype]:
        (region,) = partition(lowered(call, torch.randn(5, 6)).graph)
        with measure._autocast_of(region, "cpu"):
            return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    inside, behind = within(norm), lambda x: norm(within(torch.sort)(x).values)
    assert of(inside) == (True, torch.bfloat16) and not of(norm)[0] and not of(behind)[0]
    with torch.autocast("cpu", torch.float16):
        assert of(inside) == (True, torch.bfloat16) and of(norm) == of(behind) == (True, torch.float16)


def test_what_cannot_be_measured_stays(measured: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not tried again."""
    tried = []

    def broken() -> Any:
        tried.append(1)
        raise RuntimeError("out of memory\nfor ever")

    monkeypatch.setattr(measure, "CudaClock", broken)
    own = measured()
    torch.compile(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.LayerNorm(6)), backend=own)(torch.randn(5, 6))
    assert [each.reason for each in own.report.left] == ["it cannot be measured: RuntimeError: out of memory"] * 2
    assert 1 <= len(tried) <= 2  # the first has no gradient of its input


def test_what_a_region_takes(measured: Callable[..., Backend], clocks: Clocks, fused: Path) -> None:
    """An operand that is expanded, and values of a region that is replaced, which have gradients."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.first, self.second = nn.Linear(6, 6), nn.LayerNorm(6), nn.LayerNorm(6)
            self.row = nn.Parameter(torch.randn(1, 6))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            total = self.inner(x) + self.row.expand(5, 6)
            other = torch.sort(total).values
            return self.first(total), self.second(other)

    asked, own = clocks(1.0, 2.0), measured()
    for each in torch.compile(Model(), backend=own)(torch.randn(5, 6)):
        each.sum().backward(retain_graph=True)
    assert len(asked) == len(own.report.taken) == 2, str(own.report)
    keys = list(json.loads((fused / measure.FILE).read_text()))
    assert any("float32[5, 6] by [0, 1] with gradient" in key or "float32[1, 6] with gradient" in key for key in keys)
    assert all(key.count("with gradient") >= 3 for key in keys), keys


@pytest.mark.parametrize("content", ["[]", "{", '{"a": 1}', '{"a": {"fusegen": "x", "pytorch": 1}}'])
def test_a_file_of_another_kind(measured: Callable[..., Backend], clocks: Clocks, fused: Path, content: str) -> None:
    (fused / measure.FILE).write_text(content)
    asked, own = clocks(1.0, 2.0), measured()
    torch.compile(nn.LayerNorm(6), backend=own)(torch.randn(5, 6)).sum().backward()
    assert len(asked) == len(own.report.taken) == 1


def test_never_writes_nothing(measured: Callable[..., Backend], clocks: Clocks, fused: Path) -> None:
    asked, own = clocks(1.0, 2.0), measured(build="never")
    torch.compile(nn.LayerNorm(6), backend=own)(torch.randn(5, 6)).sum().backward()
    assert len(asked) == len(own.report.taken) == 1 and not (fused / measure.FILE).exists()
