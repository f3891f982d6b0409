"""Writes a ninja file and runs it. What to compile has been decided before."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.errors import BuildError


@dataclass(frozen=True)
class Step:
    """One command: what it is called (no two alike), what it makes, where it runs, what has to be there first.

    Those of the most `weight` start first: the bytes of a source of kernels, which tell how long it takes. `part`: what
    the command writes, if not the output, which is made of the part in one step once it is whole and on the disk.
    """

    what: str
    output: Path
    command: Sequence[str]
    cwd: Path
    needs: Sequence[Path] = ()
    weight: int = 0
    part: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The outputs that are complete, and the first failure, if any."""

    finished: frozenset[Path]
    error: BuildError | None


def run_steps(
    ninja: Path, steps: Sequence[Step], *, cores: int, work: Path, ended: Callable[[Step, int], None]
) -> Outcome:
    """Runs the steps, `cores` at a time at most, those first that come first and have what they need.

    The order is up to ninja, whose recent versions start with what has the most steps behind it, and keep that of the
    file among those that have equally many. After a failure no further one is started.

    `ended` is called as each one ends, with how many have. One that failed has ended too.
    """
    file = work / "build.ninja"
    file.write_text(_ninja_file(steps, work), encoding="utf-8", errors="surrogateescape")
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    # The linker would take it for an rpath.
    environment.pop("LD_RUN_PATH", None)
    process = subprocess.Popen(
        [os.fspath(ninja), "-j", str(cores), "-f", file.name],
        cwd=work, env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    by_name = {step.what: step for step in steps}
    done: list[Step] = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            step = by_name.get(_status(line) or "")
            if step is not None:
                done.append(step)
                ended(step, len(done))
        code = process.wait()
    except BaseException:
        # ninja stops its compilers when it is told to stop.
        process.terminate()
        process.wait()
        raise
    finally:
        process.stdout.close()
    if code == 0:
        return Outcome(frozenset(step.output for step in steps), None)
    failed = [step for step in steps if any(_failed(line, step, work) for line in lines)]
    return Outcome(frozenset(step.output for step in done if step not in failed), _failure(lines, failed, work))


def relative(path: Path, start: Path) -> str:
    """The path for a command that runs in the directory `start`. What lies below one output directory has no other
    directory's name in it: nvcc has its tools started by a shell, which expands `$`."""
    return os.path.relpath(os.path.realpath(path), os.path.realpath(start))


def _ninja_file(steps: Iterable[Step], work: Path) -> str:
    parts = [
        "ninja_required_version = 1.8",
        "builddir = .",
        "rule run\n  command = $command\n  description = $what",
    ]
    for step in steps:
        needs = "".join(f" {_escape_path(relative(path, work))}" for path in step.needs)
        # `$` is ninja's own escape; the rest is quoted for the shell that ninja starts.
        command = f"cd {shlex.quote(relative(step.cwd, work))} && {shlex.join(step.command)}"
        if step.part is not None:
            part, output = (shlex.quote(relative(path, step.cwd)) for path in (step.part, step.output))
            command += f" && sync {part} && mv -f {part} {output}"
        command = command.replace("$", "$$")
        if "\n" in command:
            raise BuildError(f"{step.what}: a path with a line break in it cannot be given to ninja", command=command)
        parts.append(f"build {_escape_path(relative(step.output, work))}: run{needs}")
        parts.append(f"  command = {command}\n  what = {_escape(step.what)}")
    return "\n".join(parts) + "\n"


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _escape_path(path: str) -> str:
    return _escape(path).replace(" ", "$ ").replace(":", "$:")


def _status(line: str) -> str | None:
    """The description in one of ninja's status lines, `[1/3] chain: kernels.cu`."""
    head, separator, what = line.rstrip("\n").partition("] ")
    return what if separator and head.startswith("[") and head[1:].replace("/", "").isdigit() else None


def _failed(line: str, step: Step, work: Path) -> bool:
    """Whether this is ninja's line for a step that failed: it ends with the output."""
    return line.startswith("FAILED: ") and line.rstrip().endswith(f" {relative(step.output, work)}")


def _failure(lines: Sequence[str], failed: Sequence[Step], work: Path) -> BuildError:
    """Picks the first failing command and its own output from what ninja printed."""
    start = next((n for n, line in enumerate(lines) if line.startswith("FAILED: ")), None)
    if start is None or start + 1 >= len(lines):
        return BuildError("ninja failed", output="\n".join(lines))
    output = []
    for line in lines[start + 2 :]:
        if line.startswith("ninja: ") or line.startswith("FAILED: ") or _status(line) is not None:
            break
        output.append(line)
    step = next((step for step in failed if _failed(lines[start], step, work)), None)
    if step is None:
        return BuildError("building failed: a step", command=lines[start + 1], output="\n".join(output))
    command = f"cd {shlex.quote(os.fspath(step.cwd))} && {shlex.join(step.command)}"
    return BuildError(f"building failed: {step.what}", command=command, output="\n".join(output))
