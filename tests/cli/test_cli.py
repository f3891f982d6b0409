"""The command line: output, exit codes and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from fusegen import __version__
from fusegen.cli import app, main
from tests.commands import run_here

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "gemm_multiply_leakyrelu.yaml"
COMMANDS: Any = typer.main.get_command(app)


def run(*arguments: str | Path, cwd: Path = ROOT, **changes: str) -> subprocess.CompletedProcess[str]:
    done = run_here(*map(str, arguments), cwd=cwd, **changes)
    out, err = (written.decode() for written in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def start(*arguments: str | Path, cwd: Path = ROOT, **changes: str) -> subprocess.CompletedProcess[str]:
    """As run(), in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    command = [sys.executable, "-m", "fusegen", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def changed(directory: Path, old: str, new: str) -> Path:
    path = directory / SPEC.name
    text = SPEC.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_build_writes_what_is_committed_and_then_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run("build", "--no-compile", "--output", out, SPEC)
    assert first.returncode == 0, first.stderr
    shared = sum(path.is_file() for path in (out / "support").rglob("*"))
    assert (out / ".gitignore").is_file() and (out / ".gitattributes").is_file() and shared > 20
    wrote = [f"wrote {out}: 2 files", f"wrote {out / SPEC.stem}: 6 files", f"wrote {out}/support: {shared} files"]
    closing = [
        f"{out} has the sources of 1 package. Next:",
        f"  fusegen build {SPEC} --output {out}  (compiles them)",
    ]
    assert first.stdout == "" and first.stderr.splitlines() == [*wrote, *closing]
    second = run("build", "--no-compile", "--output", out, SPEC)
    assert (second.returncode, second.stdout, second.stderr.splitlines()) == (0, "", closing)
    (out / SPEC.stem / "plan.json").unlink()
    third = run("build", "--no-compile", "--output", out, SPEC)
    assert third.stderr.splitlines() == [f"wrote {out / SPEC.stem}/plan.json", *closing]


def test_a_quiet_build(tmp_path: Path) -> None:
    """Only errors are told."""
    done = run("build", "--no-compile", "--quiet", SPEC, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "generated" / SPEC.stem / "__init__.py").is_file()
    done = run("build", "--no-compile", "--quiet", changed(tmp_path, "op: leaky_relu", "op: leaky_rely"), cwd=tmp_path)
    assert done.returncode == 2 and "FG203" in done.stderr


def test_the_output_directory_is_generated_below_the_current_one(tmp_path: Path) -> None:
    assert run("build", "--no-compile", SPEC, cwd=tmp_path).returncode == 0
    assert (tmp_path / "generated" / SPEC.stem / "__init__.py").is_file()


def test_plan() -> None:
    """The answer in some ten lines; in full the reasons behind it."""
    done = run("plan", SPEC)
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.splitlines()) < 12
    answer = "".join(done.stdout.splitlines(keepends=True)[:4])
    golden = ROOT / "tests" / "plan" / "golden" / f"{SPEC.stem}.txt"
    full = run("plan", "--full", SPEC)
    assert (full.returncode, full.stdout) == (0, f"{answer}\n{golden.read_text(encoding='utf-8')}")
    assert "times as fast" in answer and done.stdout.splitlines()[-1].startswith("--full: all schedules")


def test_plan_as_json_is_the_text_of_plan_json(tmp_path: Path) -> None:
    run("build", "--no-compile", "--output", tmp_path, SPEC)
    done = run("plan", "--json", SPEC)
    assert done.returncode == 0 and json.loads(done.stdout)["name"] == SPEC.stem
    assert done.stdout == (tmp_path / SPEC.stem / "plan.json").read_text(encoding="utf-8")


def test_plan_of_several_specs() -> None:
    done = run("plan", SPEC, SPEC.with_name("gemm_add_relu.yaml"))
    assert done.returncode == 0 and "\n\ngemm_add_relu: " in done.stdout and done.stdout.startswith(f"{SPEC.stem}: ")


@pytest.mark.parametrize("command", [["build"], ["build", "--no-compile"], ["plan"], ["plan", "--json"]])
def test_a_mistake_in_the_spec(tmp_path: Path, command: list[str]) -> None:
    path = changed(tmp_path, "op: leaky_relu", "op: leaky_rely")
    done = run(*command, path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    header, source, caret = done.stderr.splitlines()
    message = "error[FG203]: unknown op 'leaky_rely' (did you mean 'leaky_relu'?)"
    assert header == f"{path}:20:10: {message}"
    assert caret.index("^") == source.index("leaky_rely")
    assert not (tmp_path / "generated").exists(), "nothing is written"


def test_a_mistake_in_the_chain(tmp_path: Path) -> None:
    path = changed(tmp_path, "constant: multiplier", "value: earlier")
    done = run("build", "--no-compile", path, cwd=tmp_path)
    assert done.returncode == 2 and f"{path}:19:22: error[FG301]" in done.stderr


def test_one_broken_spec_of_two_writes_nothing(tmp_path: Path) -> None:
    path = changed(tmp_path, "targets: [sm_90]", "targets: [sm_1]")
    done = run("build", "--no-compile", SPEC, path, cwd=tmp_path)
    assert done.returncode == 2 and "FG212" in done.stderr
    assert not (tmp_path / "generated").exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("plan", "absent.yaml", cwd=tmp_path)
    assert done.returncode == 2 and "absent.yaml" in done.stderr and "FG101" in done.stderr


def test_an_output_directory_of_somebody_else(tmp_path: Path) -> None:
    package = tmp_path / "generated" / SPEC.stem
    package.mkdir(parents=True)
    (package / "kernels.cu").write_text("mine")
    done = run("build", "--no-compile", SPEC, cwd=tmp_path)
    assert done.returncode == 2 and "FG501" in done.stderr and "--output" in done.stderr
    assert (package / "kernels.cu").read_text() == "mine"


def test_without_a_compiler(tmp_path: Path) -> None:
    done = run("build", SPEC, cwd=tmp_path, FUSEGEN_NVCC=str(tmp_path / "nowhere"))
    assert done.returncode == 1 and "FUSEGEN_NVCC" in done.stderr
    assert (tmp_path / "generated" / SPEC.stem / "kernels.cu").is_file(), "the sources are there"


@pytest.mark.parametrize("arguments", [["build"], ["plan"], ["plan", "--yaml", "x"], ["destroy", "x"]])
def test_wrong_usage(arguments: list[str]) -> None:
    done = start(*arguments)
    assert done.returncode == 2 and "Usage" in done.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option: str) -> None:
    for command in ([], ["build"], ["plan"]):
        done = run(*command, option)
        assert done.returncode == 0 and "Usage: fusegen" in done.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS.commands])
def test_no_help_is_cut(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal of the usual width, which is what a pipe has, too: all words of all texts."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*([command] if command else []), "-h"])
    shown = capsys.readouterr().out
    assert "…" not in shown and not any(line.rstrip(" │").endswith("...") for line in shown.splitlines()[3:])
    # Cells of a table are beside each other: all words in order, with those of other columns between them.
    words = [word.strip("│") for word in shown.split()]
    of_command = COMMANDS.commands[command] if command else COMMANDS
    texts = [of_command.help, *(each.help for each in of_command.params if hasattr(each, "help") and each.help)]
    for text in texts if command else [*texts, *(each.help.splitlines()[0] for each in COMMANDS.commands.values())]:
        rest = iter(words)
        assert all(word in rest for word in text.split()), text


def test_version() -> None:
    done = start("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fusegen {__version__}\n", "")


def test_shell_completion() -> None:
    """As a shell asks for it, and the script that makes a shell ask."""
    words = {"COMP_WORDS": "fusegen bui", "COMP_CWORD": "1"}
    done = start(_FUSEGEN_COMPLETE="complete_bash", **words)
    assert (done.returncode, done.stdout.split()) == (0, ["build"])
    # Not that of the shell which the tests run in, if there is one.
    done = start("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0 and "_FUSEGEN_COMPLETE=complete_bash" in done.stdout


def test_a_bug_is_told_as_one() -> None:
    """Exit code 3, and a message that asks for a report."""
    script = (
        "import fusegen.plan.modules.plan, fusegen.errors\n"
        "def broken(*arguments): raise fusegen.errors.InternalError('two kernels of one name')\n"
        "fusegen.plan.modules.plan.make_plan = broken\n"
        "import fusegen.cli\n"
        f"fusegen.cli.main(['plan', {str(SPEC)!r}])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "fusegen has a bug, please report it with the spec: two kernels of one name" in done.stderr


def test_neither_command_imports_torch(tmp_path: Path) -> None:
    """A torch that cannot be imported is no hindrance."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    for command in (["plan", SPEC], ["build", "--no-compile", "--output", tmp_path / "out", SPEC]):
        done = start(*command, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
        assert done.returncode == 0, done.stderr


@pytest.mark.nvcc
def test_build_compiles_once(tmp_path: Path) -> None:
    spec = changed(
        tmp_path, "dtypes: [float32, bfloat16, float16]", "dtypes: [bfloat16]"
    )  # the others take the compilers long
    first = start("build", "--output", tmp_path, spec)
    assert first.returncode == 0, first.stderr
    assert (tmp_path / SPEC.stem / "_C.so").is_file() and "built in" in first.stderr
    second = start("build", "--output", tmp_path, spec)
    there, closing, *following = second.stderr.splitlines()
    assert second.returncode == 0 and there.endswith("is up to date")
    assert closing == f"{tmp_path} has 1 package, compiled. Next:"
    assert following == [
        f'  fusegen.load("{SPEC.stem}", "{tmp_path}")',
        f"  fusegen verify {spec} --output {tmp_path}  (on a GPU; with --emulate on the CPU)",
        f"  fusegen check {spec} --output {tmp_path}  (in CI, once {tmp_path} is committed)",
    ]


def test_a_spec_to_start_from(tmp_path: Path) -> None:
    done = run("init", "demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrote specs/demo.yaml\nwrote specs/fusegen.schema.json\n"
    assert run("schema").stdout == (tmp_path / "specs" / "fusegen.schema.json").read_text(encoding="utf-8")
    again = run("init", "demo", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "") and "specs/demo.yaml is there already" in again.stderr


def test_ops() -> None:
    assert "leaky_relu" in run("ops").stdout and run("ops", "relu6").stdout.startswith("relu6: min(max(x, 0), 6)\n")
    done = run("ops", "max_unpool2d")
    assert (done.returncode, done.stdout) == (2, "") and "the op 'max_unpool2d' is not supported" in done.stderr


def test_a_target_that_nothing_is_built_for(tmp_path: Path) -> None:
    done = run("build", "--target", "sm_70", SPEC, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "unsupported target 'sm_70'" in " ".join(done.stderr.split())
    assert not (tmp_path / "generated").exists(), "nothing is written"


@pytest.mark.parametrize("command", [["build", "--no-compile"], ["plan"]])
def test_a_gpu_s_name_as_a_target(tmp_path: Path, command: list[str]) -> None:
    done = run(*command, "--target", "h100", SPEC, cwd=tmp_path, COLUMNS="300")
    assert done.returncode == 2 and "(write sm_90, nvcc's name for it)" in done.stderr
    done = run(*command, changed(tmp_path, "targets: [sm_90]", "targets: [rtx 5090]"), cwd=tmp_path)
    assert done.returncode == 2 and "unsupported target 'rtx 5090' (write sm_120" in done.stderr
