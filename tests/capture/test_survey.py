"""`fusegen fuse`: the specs of a model that is not run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.capture.survey import survey  # noqa: E402
from fusegen.cli import main  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
EXAMPLES = {
    "residual_mlp": {"batch_norm_relu": 4, "batch_norm_add_relu": 3},
    "transformer_block": {"square_mean_add_rsqrt_mul_mul": 1, "add_square_mean_add_rsqrt_mul_mul": 1},
    "time_embedding": {"layer_norm_mul_add_add_gelu_add": 2},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's file, in the directory where commands run."""
    monkeypatch.chdir(tmp_path)
    (source,) = (each for each in blocks("python") if "get_inputs" in each)
    path = tmp_path / "model.py"
    path.write_text(source, encoding="utf-8")
    return path


def fuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["fuse", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_page(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command prints what it says and writes nothing. After a change: FUSEGEN_ACCEPT=1 pytest, here."""
    (command,) = blocks("sh")
    code, out, err = fuse(capsys, *command.split()[2:])
    assert code == 0, err
    shown = blocks("text")[-1]
    if os.environ.get("FUSEGEN_ACCEPT"):
        page = PAGE.read_text(encoding="utf-8").replace(f"```text\n{shown}```", f"```text\n{out}```")
        PAGE.write_text(page, encoding="utf-8", newline="\n")
        shown = blocks("text")[-1]
    assert out == shown
    assert [path.name for path in model.parent.iterdir()] == ["model.py"]


def test_the_report_that_the_page_begins_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the place: its script needs a GPU."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("python")[0].partition("backend =")[0], names)
    report = fusegen.survey(nn.Sequential(*names["layers"]), [torch.randn(512, 1024)], targets=["sm_90"])
    told, shown = str(report).splitlines(), blocks("text")[0].splitlines()
    assert [*told[:2], *told[3:]] == [*shown[:2], *shown[3:]] and shown[2].endswith(" (3 times)")


def test_float32_on_tensor_cores(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = model.read_text(encoding="utf-8")
    model.write_text(text.replace("[256]", "[1024]").replace("(1024, 256)", "(4096, 1024)"), encoding="utf-8")
    code, out, err = fuse(capsys, "model.py:Model", "--dry-run", "--precision", "fp32_split")
    assert code == 0, err
    assert re.search(r"linear\.yaml: linear\n.*\(8 times\)", out), out


LANGUAGE = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(512, 64), nn.Linear(64, 512, bias=False)

    def forward(self, tokens):
        logits = self.head(self.embed(tokens))[:, :-1].float()
        return F.cross_entropy(logits.reshape(-1, 512), tokens[:, 1:].reshape(-1))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.zeros(4, 65, dtype=torch.int64)]
"""


def test_a_loss_in_chunks(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("language.py").write_text(LANGUAGE, encoding="utf-8")
    for rows in ("auto", "96"):
        command = ("language.py:Model", "--no-compile", "--directory", rows, "--loss-chunk", rows)
        code, out, err = fuse(capsys, *command)
        assert code == 0, err
        (spec,) = Path(rows, "specs").iterdir()
        assert f"chunk: {rows}" in spec.read_text(encoding="utf-8") and "linear" in out
    code, _, err = fuse(capsys, "language.py:Model", "--dry-run", "--loss-chunk", "0")
    assert code == 2 and "'auto' or a number of rows" in err


def test_what_is_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `fusegen check` finds in order, and nothing new for a second time."""
    command = ("model.py:Model", "--no-compile", "--directory", "here", "--target", "sm_80")
    code, first, err = fuse(capsys, *command)
    assert code == 0, err
    specs = {path: path.read_text(encoding="utf-8") for path in Path("here/specs").iterdir()}
    assert {path.name for path in specs} == {"layer_norm.yaml", "add_layer_norm.yaml"}
    assert all("targets: [sm_80]" in text for text in specs.values())
    with pytest.raises(SystemExit) as checked:
        main(["check", "here/specs", "--output", "here/generated"])
    assert not checked.value.code, capsys.readouterr()
    capsys.readouterr()
    assert fuse(capsys, *command)[1] == first
    assert {path: path.read_text(encoding="utf-8") for path in Path("here/specs").iterdir()} == specs


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each norm of the models in examples/models is in a chain."""
    file = ROOT / "examples" / "models" / f"{name}.py"
    code, out, err = fuse(capsys, f"{file}:Model", "--dry-run", "--directory", str(tmp_path))
    assert code == 0, err
    for spec, count in EXAMPLES[name].items():
        (places,) = re.findall(rf"/{spec}\.yaml: .*\n(.*)", out)
        counts = [int(each) for each in re.findall(r"\((\d+) times\)", places)]
        assert sum(counts) + len(places.split(", ")) - len(counts) == count, out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("model.py:Model", "there is no GPU 'sm_1'"),
        ("needs.py:Model", "the model cannot be run without values"),
        ("raises.py:Model", "the model cannot be run without values"),
        ("lazy.py:Model", "the model has parameters without a size"),
        ("nothing_such:resnet50", "there is no file"),
        ("timm:resnet50", "timm cannot be imported"),
    ],
)
def test_refusals(
    source: str, message: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = model.read_text(encoding="utf-8")
    line = "return torch.sort(self.blocks(x)).values"
    (model.parent / "needs.py").write_text(text.replace(line, "return x * float(x.sum().item())"), encoding="utf-8")
    (model.parent / "raises.py").write_text(text.replace(line, "return self.blocks(x[:, 1:])"), encoding="utf-8")
    (model.parent / "lazy.py").write_text(text.replace("nn.Linear(width,", "nn.LazyLinear("), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "timm", None)
    code, out, err = fuse(capsys, source, *(["--target", "sm_1"] if "sm_1" in message else []))
    assert code == 2 and message in err and not out, err
    assert "survey.py" not in err
    assert not Path("fused").exists()


def test_a_tensor_that_is_an_attribute_alone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = model.read_text(encoding="utf-8")
    text = text.replace("self.norm = ", "self.scale = torch.tensor(2.0)\n        self.norm = ")
    model.write_text(text.replace("self.norm(x))", "self.norm(x) * self.scale)"), encoding="utf-8")
    code, out, err = fuse(capsys, "model.py:Model", "--dry-run")
    assert code == 0 and "kernels of fusegen in 4 places" in out, err


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.pretrained_cfg = {"input_size": (3, 8, 8)}

    def forward(self, x):
        return torch.relu(self.norm(x))


class Embedded(nn.Module):
    def __init__(self, config: str) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 8), nn.LayerNorm(8)

    def forward(self, ids):
        return torch.relu(self.norm(self.table(ids)))


@pytest.mark.parametrize(
    ("package", "stand_in"),
    [
        ("timm", SimpleNamespace(create_model=lambda name: Named())),
        ("torchvision", SimpleNamespace(models=SimpleNamespace(get_model=lambda name, weights: Named()))),
        (
            "transformers",
            SimpleNamespace(
                AutoConfig=SimpleNamespace(from_pretrained=str), AutoModel=SimpleNamespace(from_config=Embedded)
            ),
        ),
    ],
)
def test_by_name(
    package: str, stand_in: object, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, stand_in)
    code, out, err = fuse(capsys, f"{package}:some/name", "--dry-run")
    assert code == 0 and "kernels of fusegen in 1 place\n" in out, err


def test_what_has_no_kernel_is_said(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True), nn.LayerNorm((5, 6)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits = self.norms(x).flatten(1)[:, :9].float()
            classes = logits.argmax(1)
            images = nn.functional.cross_entropy(self.norms(x), classes.new_zeros(x.shape[0], 5, 6))
            return images + nn.functional.cross_entropy(logits.double(), classes)

    report = survey(Model(), [torch.randn(8, 4, 5, 6)], tmp_path, targets=["sm_90"], dry_run=True, compile=False)
    reasons = {each.ops: each.reason for each in report.left if "float64" not in each.reason}
    assert not report.taken and all("test_survey.py" in each.place for each in report.left)
    for name in ("instance_norm", "layer_norm"):
        assert "this norm" in reasons[name,], reasons
    assert "the numbers of classes" in reasons["cross_entropy_loss",]
    assert len(report.left) == 2 * 2 + 2, str(report)
    assert [each.ops for each in report.left if each.reason == "there are no kernels for torch.float64"] == [
        ("cross_entropy_loss",)
    ]
