"""The notebook in examples runs from its first cell to its last, on a CPU and without Jupyter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"

# As a kernel does: all cells in the namespace of __main__, and what a cell ends with is shown.
RUNNER = """
import ast, json, linecache, sys

for index, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"], 1):
    if cell["cell_type"] != "code":
        continue
    source, name = "".join(cell["source"]), f"/ipykernel_1/{index}.py"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), globals())
    value = last and eval(compile(ast.Expression(last.value), name, "eval"), globals())
    if value is not None:
        kinds = [kind for kind in ("_repr_html_", "_repr_svg_") if hasattr(value, kind)]
        shown = [getattr(value, kind)() for kind in kinds]
        print("SHOWN " + json.dumps([index, str(value), *map(str.strip, shown)]))
"""


def test_it_has_no_outputs_and_ten_cells() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], len(notebook["cells"])) == (4, 10)
    assert len({cell["id"] for cell in notebook["cells"]}) == 10
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.torch
def test_all_cells(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", RUNNER, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    shown = {index: rest for index, *rest in (json.loads(each[6:]) for each in lines if each.startswith("SHOWN "))}
    report, picture, kernels = shown[4], shown[7], shown[10]
    assert "kernels of fusegen in 2 places" in report[0] and "eager PyTorch" in report[0]
    assert "/ipykernel_1/2.py:21:9 (2 times)" in report[0]
    assert "<table" in report[1] and "batch_norm, gelu, add" in report[1]
    assert picture[0].startswith("<svg") and picture[0].strip() == picture[1]
    assert "cpu" in kernels[0]
    assert any(line.startswith("layer: ") for line in lines) and "lines of CUDA C++" in done.stdout
    assert any("is what the specs and templates give: 1 package" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["fusegen_notebook"]
