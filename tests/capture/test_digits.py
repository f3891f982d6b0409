"""examples/train_digits.py: one curve, with emulated kernels and without."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.backend import Backend  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def test_digits(
    backend: Callable[..., Backend],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With other images, and a plot."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("train_digits", ROOT / "examples" / "train_digits.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    torch.manual_seed(0)
    monkeypatch.setattr(script, "digits", lambda: (torch.rand(64, 64), torch.randint(10, (64,))))
    monkeypatch.setattr(script, "BATCH", 32)
    monkeypatch.setattr(script, "WIDTH", 16)
    plot = tmp_path / "digits.png"
    first, second = script.main(["--epochs", "3", "--directory", str(tmp_path), "--plot", str(plot)]).values()
    assert first == pytest.approx(second, rel=1e-4) and len(first) == 3 and first[-1] < first[0]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "kernels of fusegen in 7 places" in capsys.readouterr().out
