"""What a build has here: compilers, torch, a GPU, targets, and what is compiled already. Asks what a build asks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fusegen.build.errors import BuildError
from fusegen.build.key import KEY_FILE, OUTPUT, read_key
from fusegen.build.libraries import find_libraries
from fusegen.build.toolchain import CXX_REMEDY, NVCC_REMEDY, find_cxx, find_ninja, find_nvcc
from fusegen.commands.app import Output, app
from fusegen.errors import FusegenError, printable
from fusegen.paths import DEFAULT_OUTPUT, DEFAULT_SPECS
from fusegen.version import __version__

_DRIVER = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b\d+\.\d+(\.\d+)*\b")


@dataclass
class _Findings:
    """Lines of a name and what was found; and the reasons why no build can work."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, find: Callable[[], str]) -> None:
        """What `find` returns; its BuildError or SpecError is a reason."""
        try:
            self.lines.append((name, find()))
        except FusegenError as error:
            self.lines.append((name, "none that a build can use"))
            self.reasons.append(str(error))


@app.command()
def doctor(
    specs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Spec files, or directories of them; without, the directory `specs` if it is there.",
            show_default=False,
        ),
    ] = None,
    output: Output = DEFAULT_OUTPUT,
) -> None:
    """Say what a build of SPECS has here, and why it could not work: compilers, torch, the GPU, what is compiled."""
    found = _Findings()
    known: list[str] = []  # what nvcc has code for
    wanted: list[str] = []  # the targets of the specs
    found.lines.append(("fusegen", f"{__version__}, Python {sys.version.partition(' ')[0]}"))
    found.add("CUDA compiler", lambda: _nvcc(known))
    found.add("host compiler", _host)
    found.add("ninja", lambda: str(find_ninja()))
    found.add("torch", _torch)
    given = specs or ([DEFAULT_SPECS] if DEFAULT_SPECS.is_dir() else [])
    found.add("targets", lambda: _targets(given, known, wanted))
    found.lines += [("driver", _driver()), ("GPU", _gpu(wanted))]
    found.add(str(output), lambda: _compiled(output))
    width = max(len(name) for name, _ in found.lines)
    for name, text in found.lines:
        print(printable(f"{name:{width}}  {text}"))
    if found.reasons:
        print("A build cannot work here:")
        for reason in found.reasons:
            print("\n".join(f"  {printable(line)}" for line in reason.splitlines()))
        raise typer.Exit(1)
    print(f"A build can work here: fusegen build {' '.join(map(str, given)) or 'SPEC'}")


def _started(command: Sequence[str], hint: str) -> str:
    """What a compiler prints for these arguments. Raises BuildError where it cannot be started."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{command[0]} cannot be started: {error}", hint=hint) from None


def _nvcc(known: list[str]) -> str:
    nvcc = find_nvcc(os.environ)
    version = _RELEASE.search(_started([str(nvcc.path), "--version"], NVCC_REMEDY).partition(" release ")[2])
    known += _started([str(nvcc.path), "--list-gpu-code"], NVCC_REMEDY).split()
    return f"nvcc {version[0] if version else 'of an unknown version'}, {nvcc.path} (from {nvcc.origin})"


def _host() -> str:
    launcher, cxx, options = find_cxx(os.environ)
    told = _started([*launcher, str(cxx), *options, "--version"], CXX_REMEDY)
    return f"{told.partition(chr(10))[0]}, {' '.join([*launcher, str(cxx), *options])}"


def _torch() -> str:
    """Its headers are a build's; what it says of itself needs an import, without which a build can work."""
    version = find_libraries().torch_version
    try:
        import torch
    except Exception as error:  # whatever its libraries lack
        return f"{version}, which cannot be imported: {type(error).__name__}: {error}".partition("\n")[0]
    cuda = torch.version.cuda
    return f"{version}, for {f'CUDA {cuda}' if cuda else 'CPUs alone: kernels are compiled, and run elsewhere'}"


def _driver() -> str:
    try:
        found = _RELEASE.search(_DRIVER.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return f"NVIDIA {found[0]}" if found else "none of NVIDIA; a build needs none"


def _gpu(wanted: Sequence[str]) -> str:
    try:
        import torch

        from fusegen.capture.packages import gpu_target

        target = gpu_target()
        if target is None:
            return "none that torch sees; a build needs none"
        other = wanted and target not in (each.removesuffix("a") for each in wanted)
        return f"{torch.cuda.get_device_name()}, {target}{', which is not among the targets' if other else ''}"
    except Exception as error:
        return f"unknown: {type(error).__name__}: {error}".partition("\n")[0]


def _targets(specs: Sequence[Path], known: Sequence[str], wanted: list[str]) -> str:
    """Raises SpecError for a wrong spec, and BuildError for a target that this nvcc has no code for."""
    from fusegen.ops.catalogue import STEPS
    from fusegen.ops.lacking import unknown_op
    from fusegen.spec.find import spec_files
    from fusegen.spec.model import spec_model
    from fusegen.spec.validate import validate
    from fusegen.spec.yaml import read_yaml

    if not specs:
        return f"those of the specs to come; there is no directory {DEFAULT_SPECS}"
    model = spec_model(STEPS, unknown_op)
    files = spec_files(specs)
    counted = Counter(target for file in files for target in validate(model, read_yaml(file)).targets)
    wanted += counted
    lacking = [target for target in counted if known and target.removesuffix("a") not in known]
    if lacking:
        raise BuildError(f"nvcc has no code for {', '.join(lacking)}", hint="take a newer one, or other targets")
    return ", ".join(f"{target} of {count} spec{'s' * (count != 1)}" for target, count in counted.items())


def _compiled(output: Path) -> str:
    """What is compiled of the packages, and for what. Raises SpecError for a damaged manifest."""
    from fusegen.render.files.manifest import read_manifest

    names = [path.partition("/")[0] for path in read_manifest(output) if path.endswith("/bindings.cpp")]
    if not names:
        return "no packages yet"
    counted = Counter(_for_what(output / name) for name in names)
    states = [f"{count} compiled for {what}" for what, count in counted.items() if what]
    if counted[None]:
        states.append(f"{counted[None]} not compiled")
    return f"{len(names)} package{'s' * (len(names) != 1)} with kernels: {', '.join(states)}"


def _for_what(package: Path) -> str | None:
    """The targets and the Python of a library; None where there is none."""
    if not (package / OUTPUT).is_file():
        return None
    try:
        parts, _ = read_key(package / KEY_FILE)
    except (OSError, ValueError):
        return "what is not known here"
    targets = dict.fromkeys(re.findall(r"code=(sm_\d+\w*)", str(parts.get("nvcc flags", ""))))
    return f"{' and '.join(targets)}, {parts.get('python', 'any Python')}"
