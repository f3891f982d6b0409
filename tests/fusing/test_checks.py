"""A replaced module is compared with its original, and its spec with those that are there."""

from __future__ import annotations

import importlib
import linecache
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.fusing import chains, imports  # noqa: E402


class Twice(nn.Module):
    """Two norms that a mistake may take for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        nn.init.uniform_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Sorted(nn.Module):
    """No chain, but six parts that are."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Twice() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return torch.sort(x).values


class ByPowers(nn.Module):
    """GELU by its formula: under autocast the power makes the result float32, and gelu does not."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3))))


def test_tensors_of_another_layer_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(module: nn.Module):
        made, paths = flat(module)
        return made, {"first": paths["second"], "second": paths["first"]}

    flat = chains.flat
    monkeypatch.setattr(chains, "flat", swapped)
    model = Twice()
    with pytest.raises(SpecError, match="FG708.*computes something else"):
        fusegen.fuse(model, torch.randn(4, 8), directory=tmp_path, compile=False)
    assert type(model) is Twice and "_fusegen_regions" not in vars(model)


def test_another_dtype_under_autocast(tmp_path: Path) -> None:
    """The original runs there, and the kernels elsewhere."""
    model, x = ByPowers(), torch.randn(4, 8)
    assert fusegen.fuse(model, x, directory=tmp_path, compile=False).replaced
    (region,) = model._fusegen_regions
    assert region.fusegen_obstacle((x,)) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert "under autocast" in region.fusegen_obstacle((x,))


def test_the_same_dtype_under_autocast(tmp_path: Path) -> None:
    model, x = Twice(), torch.randn(4, 8)
    fusegen.fuse(model, x, directory=tmp_path, compile=False)
    with torch.autocast("cpu", torch.bfloat16):
        assert model._fusegen_regions[0].fusegen_obstacle((x,)) is None


@pytest.mark.parametrize("name", ["Support", "Tensor", "Import", "Häuser", "X__Y", "A" * 70])
def test_classes_whose_names_no_spec_can_have(name: str, tmp_path: Path) -> None:
    model = type(name, (Twice,), {})()
    report = fusegen.fuse(model, torch.randn(4, 8), directory=tmp_path, compile=False)
    assert [each.spec for each in report.replaced] == [path.stem for path in (tmp_path / "specs").iterdir()]
    assert isinstance(model, Twice) and len(vars(model)["_fusegen_regions"]) == 1


def test_modules_that_are_alike_are_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number is another module, and so is another object that a forward may read."""
    count, from_module = [], fusegen.from_module
    monkeypatch.setattr(imports, "from_module", lambda *given, **named: count.append(1) or from_module(*given, **named))
    model = Sorted()
    model.parts[2].first.eps = 0.5
    model.parts[3].settings = model.parts[4].settings = {"a": object()}
    model.parts[5].settings = {"a": object()}
    report = fusegen.fuse(model, torch.randn(4, 8), directory=tmp_path, dry_run=True)
    assert [each.spec for each in report.replaced] == ["twice", "twice", "twice_2", "twice", "twice", "twice"]
    assert len(count) == 1 + 4  # of the model, and of four forms


HELPER = """
def activation(x):
    return x.tanh() {rest}
"""
USER = """
from torch import nn
from helper_of_fusing import activation

class User(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.factor = nn.LayerNorm(8), 0.5

    def forward(self, x):
        return activation(self.norm(x)) * self.factor
"""


def test_an_import_that_passed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until an attribute, or a file that its operators come from, is another one."""
    count = []
    monkeypatch.setattr(imports, "from_module", lambda *given, **named: count.append(1) or from_module(*given, **named))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from_module = fusegen.from_module

    def imports_of(factor: float = 0.5, **options: bool) -> int:
        for name in ("user_of_fusing", "helper_of_fusing"):
            sys.modules.pop(name, None)
        linecache.clearcache()
        model = importlib.import_module("user_of_fusing").User()
        model.factor = factor
        before = len(count)
        assert fusegen.fuse(model, torch.randn(4, 8), directory=tmp_path / "fused", compile=False, **options).replaced
        return len(count) - before

    (tmp_path / "user_of_fusing.py").write_text(USER)
    (tmp_path / "helper_of_fusing.py").write_text(HELPER.format(rest=""))
    try:
        assert [imports_of(dry_run=True), imports_of(), imports_of(), imports_of(dry_run=True)] == [1, 1, 0, 0]
        assert [imports_of(0.25), imports_of(0.25), imports_of()] == [1, 0, 0]
        (tmp_path / "helper_of_fusing.py").write_text(HELPER.format(rest="# the same"))
        assert [imports_of(), imports_of()] == [1, 0]
    finally:
        for name in ("user_of_fusing", "helper_of_fusing"):
            sys.modules.pop(name, None)


def test_a_bias_that_comes_later(tmp_path: Path) -> None:
    """The chain has none, and the original adds it."""
    model, x = ByPowers(), torch.randn(4, 8)
    model.fc = nn.Linear(8, 8, bias=False)
    fusegen.fuse(model, x, directory=tmp_path, compile=False)
    assert model._fusegen_regions[0].fusegen_obstacle((x,)) is None
    model.fc.bias = nn.Parameter(torch.ones(8))
    assert model._fusegen_regions[0].fusegen_obstacle((x,)) == "fc has other parameters now"


def test_hooks_for_all_modules_where_no_layer_has_tensors(tmp_path: Path) -> None:
    """They would not run for the activations inside."""
    model, x = nn.Sequential(nn.SiLU(), nn.Tanh()), torch.randn(4, 8)
    fusegen.fuse(model, x, directory=tmp_path, compile=False)
    (region,) = model._fusegen_regions
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert region.fusegen_obstacle((x,)) == "hooks are registered for all modules"
    finally:
        handle.remove()
    assert region.fusegen_obstacle((x,)) is None


def test_a_mode_that_is_set_by_hand(tmp_path: Path) -> None:
    model, x = Twice(), torch.randn(4, 8)
    fusegen.fuse(model, x, directory=tmp_path, compile=False)
    for part in (model, model.first, model.second):
        part.training = False
    (region,) = model._fusegen_regions
    assert region.training and region.fusegen_obstacle((x,)) is None and not region.training


def spec_of(directory: Path) -> Path:
    (path,) = (directory / "specs").iterdir()
    return path


def test_a_spec_that_is_there_is_taken_and_kept(tmp_path: Path) -> None:
    """Its name, targets, dtypes and precision are the user's, and so is every remark."""
    x = torch.randn(4, 8)
    fusegen.fuse(ByPowers(), x, directory=tmp_path, compile=False)
    text = spec_of(tmp_path).read_text()
    for old, new in (("name: by_powers", "name: mine"), ("[sm_90]", "[sm_80]"), ("batch: 4", "batch: 4096")):
        assert old in text
        text = text.replace(old, new)
    text = text.replace("op: linear,", "op: linear, precision: fp32_split,") + "# A remark.\n"
    spec_of(tmp_path).unlink()
    path = tmp_path / "specs" / "mine.yaml"
    path.write_text(text)
    model = ByPowers()
    report = fusegen.fuse(model, x, directory=tmp_path, compile=False)
    assert [each.spec for each in report.replaced] == ["mine"] and report.written == []
    assert spec_of(tmp_path).read_text() == text
    assert model._fusegen_regions[0].fusegen_precision == "fp32_split"


def test_trained_weights_do_not_change_a_spec(tmp_path: Path) -> None:
    """How a parameter begins is no part of it."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.scale = nn.LayerNorm(8), nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) * self.scale

    texts = []
    for name, x in (("first", torch.randn(4, 8)), ("trained", torch.randn(4, 8))):
        model = Scaled()
        if name == "trained":
            nn.init.normal_(model.scale)
        assert fusegen.fuse(model, x, directory=tmp_path / name, compile=False).written == ["scaled"]
        texts.append(spec_of(tmp_path / name).read_text())
        assert fusegen.fuse(Scaled(), torch.randn(9, 8), directory=tmp_path / name, dry_run=True).written == []
    assert texts[0] == texts[1]


def test_another_chain_gets_a_spec_of_its_own(tmp_path: Path) -> None:
    """The former one stays, and the report says that it is not needed."""
    fusegen.fuse(Twice(), torch.randn(4, 8), directory=tmp_path, compile=False)
    before = spec_of(tmp_path).read_text()
    changed = Twice()
    changed.first.eps = 0.5
    report = fusegen.fuse(changed, torch.randn(4, 8), directory=tmp_path, compile=False)
    assert (report.written, report.unused) == (["twice_2"], ["twice"])
    assert "specs that this model does not need: twice" in str(report)
    assert (tmp_path / "specs" / "twice.yaml").read_text() == before
