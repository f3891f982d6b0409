"""Changes that a call has to see, modes of the caller, and other processes at work in the same directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.fusing import fuse as fusing  # noqa: E402


class Scaled(nn.Module):
    """A number of the class, a private one, a method, a property, and an attribute that may be absent."""

    factor = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self._shift = 0.25

    def activation(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    @property
    def whole(self) -> float:
        return self.factor * 3

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(x)) * self.whole + self._shift + getattr(self, "more", 0.125)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scaled(), Scaled()
        self.second._shift = 0.75

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).sort().values


X = torch.linspace(-1, 1, 32).view(4, 8)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fused")


@pytest.fixture
def scaled(directory: Path) -> Scaled:
    model = Scaled()
    assert fusegen.fuse(model, X, directory=directory, compile=False).replaced
    assert obstacle(model) is None
    return model


def obstacle(model: nn.Module, x: Tensor = X) -> str | None:
    return model._fusegen_regions[0].fusegen_obstacle((x,))


@pytest.mark.parametrize("name, value", [("_shift", 0.5), ("factor", 0.75), ("activation", torch.relu), ("more", 1.0)])
def test_attributes(scaled: Scaled, name: str, value: object) -> None:
    setattr(scaled, name, value)
    assert obstacle(scaled).startswith(name)


@pytest.mark.parametrize(
    "name, value", [("factor", 0.75), ("activation", lambda _, x: torch.relu(x)), ("whole", property(lambda _: 2.0))]
)
def test_attributes_of_the_class(scaled: Scaled, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    monkeypatch.setattr(Scaled, name, value)
    assert obstacle(scaled) == f"Scaled.{name} was replaced"


def test_private_notes_of_trainers(scaled: Scaled) -> None:
    scaled._wrapped_by_a_trainer = scaled.norm._note = True
    assert obstacle(scaled) is None


def test_more_dimensions(scaled: Scaled) -> None:
    """A forward may ask for their number, and was traced with that of the example alone."""
    assert obstacle(scaled, X[None]) == "an input has 3 dimensions, and the example 2"


def test_private_numbers_make_another_chain(tmp_path: Path) -> None:
    model = Pair()
    expected = model(X)
    report = fusegen.fuse(model, X, directory=tmp_path, compile=False)
    assert [each.spec for each in report.replaced] == ["scaled", "scaled_2"]
    assert torch.equal(model(X), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_caller(directory: Path, mode: Callable) -> None:
    model = Scaled()
    with mode():
        report = fusegen.fuse(model, X, directory=directory, compile=False)
    assert [each.spec for each in report.replaced] == ["scaled"] and report.written == []


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_the_example_changes_nothing(directory: Path) -> None:
    """Nor buffers and numbers that a forward assigns."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("sum", torch.zeros(()))
            self.number, self.inner = 0, Scaled()

        def forward(self, x: Tensor) -> Tensor:
            self.calls, self.number, self.last = self.calls + 1, self.number + 1, x
            self.sum += 1
            return self.inner(x).sort().values

    model = Counting()
    before = model.calls
    assert fusegen.fuse(model, X, directory=directory, dry_run=True).replaced
    assert model.calls is before and model.calls == model.sum == model.number == 0 and not hasattr(model, "last")


def test_a_compiled_model(directory: Path) -> None:
    with pytest.raises(SpecError, match="FG701.*fuse before torch.compile"):
        fusegen.fuse(torch.compile(Scaled(), backend="eager"), X, directory=directory, dry_run=True)


@pytest.mark.parametrize("text", ["a: b\n", "chain: 3\n", "chain: [3]\n"])
def test_a_file_that_is_no_spec(tmp_path: Path, text: str) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "other.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"other\.yaml:1:1: error\[FG2"):
        fusegen.fuse(Scaled(), X, directory=tmp_path, dry_run=True)


def test_a_spec_that_another_process_writes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another chain, under the name that this one would have had: it stays."""

    search = fusing.Search

    class Slow(search):
        def walk(self, module: nn.Module, path: str = "") -> None:
            super().walk(module, path)
            monkeypatch.setattr(fusing, "Search", search)
            other = Scaled()
            other._shift = 0.75
            fusegen.fuse(other, X, directory=tmp_path, compile=False)

    monkeypatch.setattr(fusing, "Search", Slow)
    assert fusegen.fuse(Scaled(), X, directory=tmp_path, compile=False).written == ["scaled_2"]
    assert sorted(path.name for path in (tmp_path / "specs").iterdir()) == ["scaled.yaml", "scaled_2.yaml"]


RANK = """
import sys, torch, fusegen
from torch import nn
from fusegen.fusing import fuse
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
print("ready", flush=True)
fusegen.fuse(model, torch.randn(4, 8), directory=sys.argv[1], compile=False)
"""


def test_two_ranks_at_once(tmp_path: Path) -> None:
    """Both succeed, and leave specs and packages alone."""
    command = [sys.executable, "-c", RANK, str(tmp_path)]
    rank = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert rank.stdout.readline() == "ready\n"
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", str(tmp_path)])
        exec(RANK, names)
    _, errors = rank.communicate(timeout=120)
    assert rank.returncode == 0, errors
    assert [path.name for path in (tmp_path / "specs").iterdir()] == ["linear_layer_norm_gelu.yaml"]
    assert (tmp_path / "generated" / "linear_layer_norm_gelu").is_dir()
