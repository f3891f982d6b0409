"""Launchers of a package in a library of their own, by the compiler that a build would take."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.runtime.launchers import Call
from fusegen.tune import launchers

pytestmark = pytest.mark.nvcc

ROOT = Path(__file__).resolve().parents[2]
NAME = "gemm_add_relu"


def test_a_library_links_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a compiler from wheels, which does not know where its own libraries are."""
    found = launchers.compile_launchers([NAME], ROOT / "generated", tmp_path, "sm_90")[NAME]
    assert found.workspace(f"fusegen_{NAME}_forward", Call(mode=0, rows=4, channels=8)) == 0
    (library,) = tmp_path.iterdir()
    assert library.name.startswith(NAME) and library.suffix == ".so"

    def compiled_again(*_, **__):
        raise AssertionError("it was there")

    monkeypatch.setattr(launchers.subprocess, "run", compiled_again)
    launchers.compile_launchers([NAME], ROOT / "generated", tmp_path, "sm_90")
