"""A wheel as hatchling packs it: a project with the files to ship, its metadata and a README."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.libraries import OLDEST_TORCH
from fusegen.paths import templates_directory
from fusegen.plan.plan import Plan
from fusegen.render.environment import render
from fusegen.version import __version__
from fusegen.wheel.errors import WheelError
from fusegen.wheel.platform import platform_tag

_TAG = "tag.py"
_METADATA = "pyproject.toml"
_README = "README.md"
OWN_FILES = frozenset({_TAG, _METADATA, _README})  # no license file may have one of these names


@dataclass(frozen=True)
class Wheel:
    """What its user chose. license: an SPDX expression. license_files: of different names. targets: None for each
    spec's own."""

    name: str
    version: str
    license: str | None = None
    license_files: tuple[Path, ...] = ()
    targets: tuple[str, ...] | None = None

    @property
    def import_name(self) -> str:
        """The Python package that all generated packages are in."""
        return self.name.lower().replace("-", "_").replace(".", "_")


def pack(wheel: Wheel, plans: Sequence[Plan], files: Mapping[str, Path], directory: Path) -> Path:
    """Writes the wheel into `directory`, in one step, and returns its path. files: as stage() gives them.

    The same files give the same bytes. Raises WheelError.
    """
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as temporary:
        project = Path(temporary).resolve()  # hatchling runs in it
        _write(project, wheel, plans, files)
        # auditwheel reads wheels, so there has to be one before its platform is known.
        platform = platform_tag(_pack(project, wheel, plans, "linux_x86_64"))
        made = _pack(project, wheel, plans, platform)
        os.replace(made, directory / made.name)
        return directory / made.name


def _write(project: Path, wheel: Wheel, plans: Sequence[Plan], files: Mapping[str, Path]) -> None:
    """All but the metadata."""
    package = project / wheel.import_name
    for path, source in files.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, package / path)
    for file in wheel.license_files:
        shutil.copyfile(file, project / file.name)
    shutil.copyfile(templates_directory() / "wheel" / _TAG, project / _TAG)
    specs = [plan.spec for plan in plans]
    text = {"specs": specs, "fusegen_version": __version__}
    (package / "__init__.py").write_text(render("wheel/init.py.j2", **text), encoding="utf-8")
    (package / "py.typed").touch()
    rows = [_row(plan, wheel.targets) for plan in plans]
    readme = render("wheel/README.md.j2", wheel=wheel, rows=rows, oldest_torch=_oldest_torch(), **text)
    (project / _README).write_text(readme, encoding="utf-8")


def _row(plan: Plan, targets: Sequence[str] | None) -> list[str]:
    """Of the README's table."""
    spec = plan.spec
    inputs = ", ".join(f"{name} {list(shape)}".replace("'", "") for name, shape in spec.inputs.items())
    cells = (spec.class_name, spec.about, inputs, ", ".join(spec.dtypes), ", ".join(targets or spec.targets))
    return [cell.replace("|", r"\|") for cell in cells]


def _pack(project: Path, wheel: Wheel, plans: Sequence[Plan], platform: str) -> Path:
    """Has hatchling pack the project for a platform."""
    metadata = render(
        "wheel/pyproject.toml.j2",
        wheel=wheel,
        platform=platform,
        description="Fused CUDA kernels for PyTorch: " + ", ".join(plan.spec.class_name for plan in plans),
        license_files=[path.name for path in wheel.license_files],
        oldest_torch=_oldest_torch(),
    )
    (project / _METADATA).write_text(metadata, encoding="utf-8")
    output = project / f"for-{platform}"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(output)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    if done.returncode != 0:
        raise WheelError(f"hatchling failed\n{done.stderr.rstrip() or done.stdout.rstrip()}")
    (made,) = output.glob("*.whl")
    return made


def _oldest_torch() -> str:
    return ".".join(map(str, OLDEST_TORCH))
