"""`fusegen import` as a process, and the page about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fusegen.cli import app, main
from fusegen.errors import CODES, SpecError
from fusegen.importing.load import import_spec

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "importing.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"))


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fusegen", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def invoke(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and what is printed as an error, without a process of its own."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(blocks("python")[0], encoding="utf-8")
    return path


def test_the_page(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands run, and print and write what it says. After a change: FUSEGEN_ACCEPT=1 pytest, here."""
    (commands,) = blocks("sh")
    first, second = [line.removeprefix("fusegen ").split() for line in commands.splitlines()]
    done = run(model.parent, *first)
    wrote, expected = done.stdout.splitlines()
    assert (done.returncode, wrote) == (0, "wrote specs/gate.yaml"), done.stderr
    assert re.fullmatch(
        r"expected on H100 in float32 at .*: step .* times as fast.*; forward .* times as fast", expected
    )
    text = (model.parent / "specs" / "gate.yaml").read_text(encoding="utf-8")
    (shown,) = blocks("yaml")
    if os.environ.get("FUSEGEN_ACCEPT"):
        page = PAGE.read_text(encoding="utf-8").replace(f"```yaml\n{shown}```", f"```yaml\n{text}```")
        PAGE.write_text(page, encoding="utf-8", newline="\n")
        (shown,) = blocks("yaml")
    assert text == shown
    monkeypatch.chdir(model.parent)
    planned = CliRunner().invoke(app, second)
    assert planned.exit_code == 0 and "gate" in planned.stdout


def test_from_python(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(model.parent))
    names: dict[str, str] = {}
    try:
        exec(blocks("python")[1], names)
    finally:
        sys.modules.pop("model", None)
    assert names["text"].replace("name: model\n", "name: gate\n") == blocks("yaml")[0]


def test_the_page_has_every_code() -> None:
    shown = re.findall(r"(?m)^\| (FG\d+) \|", PAGE.read_text(encoding="utf-8"))
    assert shown == [code for code in CODES if code.startswith("FG7")]


def test_a_spec_is_replaced_only_if_that_is_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    output = model.parent / "a.yaml"
    output.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"FG502.*--overwrite"):
        import_spec(f"{model}:Model", "get_init_inputs", "get_inputs", output, overwrite=False)
    assert output.read_text(encoding="utf-8") == "mine"
    assert invoke(capsys, "import", "model.py:Model", "-o", "a.yaml", "--overwrite") == (0, "")
    assert output.read_text(encoding="utf-8") == blocks("yaml")[0].replace("gate\n", "a\n", 1)


def test_a_refusal_names_the_line_and_writes_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    text = model.read_text(encoding="utf-8").replace("y / 2 + gate", "torch.erfinv(y)")
    model.write_text(text, encoding="utf-8")
    code, printed = invoke(capsys, "import", "model.py:Model", "-o", "specs/a.yaml")
    line = text.splitlines().index("        return torch.erfinv(y)") + 1
    assert code == 2 and printed.startswith(f"model.py:{line}:9: error[FG703]: ")
    assert "            return torch.erfinv(y)\n            ^" in printed
    assert not (model.parent / "specs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "no.py:Model"}, "there is no file no.py"),
        ({"model": "model.py"}, "write FILE.py:CLASS"),
        ({"model": "model.py:Modle"}, "did you mean 'Model'?"),
        ({"model": "model.py:get_inputs"}, "no class of nn.Module"),
        ({"init": "no_function"}, "there is no no_function in model.py"),
        ({"init": "get_inputs"}, "TypeError"),
        ({"inputs": "get_inptus"}, "did you mean 'get_inputs'?"),
        ({"inputs": "examples_of_it"}, "or name a function with --inputs"),
        ({"inputs": "get_init_inputs"}, "does not return a list of tensors"),
    ],
)
def test_what_is_not_in_the_file(
    model: Path, arguments: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    given = {"model": "model.py:Model", "init": "get_init_inputs", "inputs": "get_inputs", **arguments}
    with pytest.raises(SpecError, match="FG701") as raised:
        import_spec(**given, output=Path("a.yaml"), overwrite=False)
    assert words in str(raised.value)
    assert not (model.parent / "a.yaml").exists()


def test_an_error_of_the_file_has_its_line(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.write_text("import torch\n\n\nraise ValueError('mine')\n", encoding="utf-8")
    monkeypatch.chdir(model.parent)
    with pytest.raises(SpecError, match=r"^model.py:4:1: error\[FG701\]: ValueError: mine"):
        import_spec("model.py:Model", "get_init_inputs", "get_inputs", Path("a.yaml"), overwrite=False)


def test_the_help_says_what_is_run() -> None:
    text = " ".join(CliRunner().invoke(app, ["import", "--help"]).output.split())
    assert "This runs the file of the module" in text and "It runs nothing else" in text
