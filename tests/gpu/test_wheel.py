"""The kernels of an installed wheel on the GPU, without fusegen: tests/wheel/use_wheel.py trains with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("auditwheel")
pytest.importorskip("hatchling")

from fusegen.tune.device import current_target  # noqa: E402
from tests.wheel.conftest import USE, pack, run  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]


def test_it_trains(tmp_path: Path) -> None:
    wheel = pack(tmp_path / "dist", "--target", current_target())
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--target", tmp_path / "site")
    run(sys.executable, *install, wheel)
    assert run(sys.executable, USE, "cuda", path=tmp_path / "site") == "trained on cuda\n"
