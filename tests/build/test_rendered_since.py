"""`fusegen build` after sources were rendered without compiling: by --no-compile, or in a commit that was pulled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fusegen.cli import main

SPEC = Path(__file__).resolve().parents[2] / "specs" / "gemm_add_relu.yaml"


def fusegen(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert not ended.value.code


def test_it_compiles_what_is_there_now(workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, output = tmp_path / SPEC.name, tmp_path / "output"
    library = output / SPEC.stem / "_C.so"
    shutil.copy(SPEC, spec)
    fusegen("build", "--output", output, spec)
    first = library.read_bytes()
    spec.write_text(spec.read_text().replace("op: relu", "op: silu"))
    fusegen("build", "--no-compile", "--output", output, spec)
    assert library.read_bytes() == first
    capsys.readouterr()
    fusegen("build", "--output", output, spec)
    changed = "header launchers.h, source bindings.cpp, source kernels.cu"
    assert f"gemm_add_relu: building (changed: {changed})" in capsys.readouterr().err
    # What the stand-in of a compiler makes is the text of the sources.
    assert (output / SPEC.stem / "kernels.cu").read_bytes() in library.read_bytes() != first
    fusegen("build", "--output", output, spec)
    assert "is up to date" in capsys.readouterr().err
