"""The models in examples/models: their chains are replaced, and they train as before."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from tests.fusing.models import losses  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# What the model is made of here, the shapes of its inputs, and the chains.
EXAMPLES = {
    "residual_mlp": ([8, 12, 4], [(16, 8)], ["block"] * 3 + ["linear_batch_norm_relu"]),
    "transformer_block": ([16, 2], [(2, 6, 16)], ["feed_forward", "norm", "norm"]),
    "time_embedding": ([8, 16], [(10, 8), (10,)], ["linear_silu"] * 2 + ["modulated"] * 2),
}


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_losses_by_the_specs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is the chain of each spec, in PyTorch's operators, with the model's tensors."""
    arguments, shapes, specs = EXAMPLES[name]
    torch.manual_seed(0)
    model = load(ROOT / "examples" / "models" / f"{name}.py").Model(*arguments)
    inputs = [torch.rand(shape) for shape in shapes]
    original = copy.deepcopy(model)
    report = fusegen.fuse(model, inputs, directory=tmp_path, compile=False)
    assert sorted(each.spec for each in report.replaced) == specs
    runs = []
    for kind in {type(each) for part in model.modules() for each in vars(part).get("_fusegen_regions", ())}:

        def by_the_spec(self, *inputs, _kind=kind):
            runs.append(_kind)
            return _kind._fusegen_generated.fusegen_reference(self, *inputs)

        monkeypatch.setattr(kind, "fusegen_reference", by_the_spec)
    torch.testing.assert_close(losses(model, inputs), losses(original, inputs), rtol=1e-5, atol=0)
    assert len(runs) == 4 * len(specs)


def test_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script, with other images: the same curve twice, and a plot."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = load(ROOT / "examples" / "train_digits.py")
    torch.manual_seed(0)
    monkeypatch.setattr(script, "digits", lambda: (torch.rand(64, 64), torch.randint(10, (64,))))
    monkeypatch.setattr(script, "BATCH", 32)
    monkeypatch.setattr(script, "WIDTH", 16)
    plot = tmp_path / "digits.png"
    first, second = script.main(["--epochs", "3", "--directory", str(tmp_path), "--plot", str(plot)]).values()
    assert first == second and len(first) == 3 and first[-1] < first[0]
    assert plot.read_bytes().startswith(b"\x89PNG")
