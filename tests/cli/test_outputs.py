"""Every command that writes a file: none replaces one that is there unless told to, and none what it reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fusegen.bench.rows import append_rows
from fusegen.cli import main
from tests.bench.test_rows import row
from tests.cli.test_cli import SPEC

MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.ones(4, 8)]


def get_init_inputs():
    return []
"""
COMMANDS = {
    "export": (f"export {SPEC.name} -o out.py", ["out.py"]),
    "import": ("import model.py:Model -o out.yaml", ["out.yaml"]),
    "init": ("init demo", ["specs/demo.yaml", "specs/fusegen.schema.json"]),
    "check": (f"check {SPEC.name} --patch out.patch", ["out.patch"]),
    "bench": ("bench --from-csv rows.csv --plots out", ["out/times_demo_4x8x8.svg", "out/times_demo_4x8x8.png"]),
}


def invoke(command: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(SPEC, tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    append_rows(tmp_path / "rows.csv", [row(subject="fused", device_ms=1.5), row(subject="eager", device_ms=3.0)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.torch
@pytest.mark.parametrize(("command", "outputs"), COMMANDS.values(), ids=COMMANDS)
def test_a_file_that_is_there(command: str, outputs: list[str], project: Path, capsys) -> None:
    if "bench" in command:
        pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fusegen[bench]'")
    for output in outputs:
        path = project / output
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        assert invoke(command) == 2
        assert f"error[FG502]: {output} is there already (--overwrite replaces it)" in capsys.readouterr().err
        assert path.read_text() == "mine" and not list(path.parent.glob(".fusegen-*"))
        path.unlink()
        for each in outputs:
            (project / each).unlink(missing_ok=True)
    for _ in range(2):
        assert invoke(f"{command} --overwrite") in (0, 1)  # a check that finds something is 1
        assert all((project / output).read_bytes() not in (b"", b"mine") for output in outputs)


@pytest.mark.parametrize("how", ["itself", "link", "hard link"])
@pytest.mark.parametrize(
    ("command", "given"),
    [
        (f"export {SPEC.name} -o", SPEC.name),
        (f"export {SPEC.name} --inputs-from model.py -o", "model.py"),
        (f"check {SPEC.name} --patch", SPEC.name),
        (f"check {SPEC.name} --patch", "generated/manifest.json"),
        ("import model.py:Model -o", "model.py"),
    ],
)
def test_what_is_read_is_not_written(command: str, given: str, how: str, project: Path, capsys) -> None:
    if given.startswith("generated"):
        assert invoke(f"build --no-compile {SPEC.name}") == 0
    before = (project / given).read_bytes()
    output = "other.yaml"
    if how == "link":
        (project / output).symlink_to(project / given)
    elif how == "hard link":
        os.link(project / given, project / output)
    elif command.startswith("import"):
        pytest.skip("a spec has another suffix than its module")
    else:
        output = given
    assert invoke(f"{command} {output} --overwrite") == 2
    assert f"{output} is read by this command" in capsys.readouterr().err
    assert (project / given).read_bytes() == before


def test_a_schema_of_another_version_is_replaced(project: Path) -> None:
    assert invoke("init first") == 0
    schema = project / "specs" / "fusegen.schema.json"
    current = schema.read_bytes()
    schema.write_text('{"title": "fusegen spec"}')
    assert invoke("init second") == 0 and schema.read_bytes() == current


def test_plots_are_refused_before_anything_is_measured(project: Path, capsys) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fusegen[bench]'")
    (project / "plots").mkdir()
    plot = project / "plots" / f"times_{SPEC.stem}_1x1x1.svg"
    plot.write_text("mine")
    assert invoke(f"bench {SPEC.name} --plots plots") == 2
    assert f"plots/{plot.name} is there already" in capsys.readouterr().err and plot.read_text() == "mine"
