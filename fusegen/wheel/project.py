"""A wheel as hatchling packs it: a project with the files to ship, its metadata and a README."""

from __future__ import annotations

import glob
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.libraries import OLDEST_TORCH
from fusegen.files import write_output
from fusegen.paths import templates_directory
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.text.environment import render
from fusegen.version import __version__
from fusegen.wheel.errors import WheelError
from fusegen.wheel.platform import platform_tag

_WORK = ".wheel-"
_TAG = "tag.py"
_METADATA = "pyproject.toml"
_README = "README.md"
_PACKAGES = "packages"
OWN_NAMES = frozenset({_TAG, _METADATA, _README, _PACKAGES})  # no license file may have one of them
_LONGEST_DESCRIPTION = 512  # of the package index


@dataclass(frozen=True)
class Wheel:
    """What its user chose. license: an SPDX expression. license_files: of different names. targets: None for each
    spec's own. overwrite: whether to replace a wheel of that name."""

    name: str
    version: str
    license: str | None = None
    license_files: tuple[Path, ...] = ()
    targets: tuple[str, ...] | None = None
    overwrite: bool = False

    @property
    def import_name(self) -> str:
        """The Python package that all generated packages are in."""
        return self.name.lower().replace("-", "_").replace(".", "_")


def pack(wheel: Wheel, plans: Sequence[ModulePlan], files: Mapping[str, Path], directory: Path) -> Path:
    """Writes the wheel into `directory`, in one step, and returns its path. files: as stage() gives them.

    The same files give the same bytes. Nobody else packs there meanwhile. Raises WheelError, and SpecError rather than
    replace a wheel without `overwrite`.
    """
    for left in directory.glob(f"{_WORK}*"):  # of a command that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=directory) as temporary:
        project = Path(temporary).resolve() / "project"  # hatchling runs in it
        project.mkdir()
        _write(project, wheel, plans, files)
        # auditwheel reads wheels, so there has to be one before its platform is known.
        platform = platform_tag(_pack(project, wheel, plans, "linux_x86_64"))
        made = _pack(project, wheel, plans, platform)
        _require_licenses(made, wheel)
        output = directory / made.name
        write_output(output, made.read_bytes(), inputs=wheel.license_files, overwrite=wheel.overwrite)
        return output


def _write(project: Path, wheel: Wheel, plans: Sequence[ModulePlan], files: Mapping[str, Path]) -> None:
    """All but the metadata."""
    # Below a directory of its own: Python looks in hatchling's working directory for the modules that this imports.
    package = project / _PACKAGES / wheel.import_name
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


def _row(plan: ModulePlan, targets: Sequence[str] | None) -> list[str]:
    """Of the README's table."""
    spec = plan.spec
    inputs = ", ".join(f"{name} {list(shape)}".replace("'", "") for name, shape in spec.inputs.items())
    cells = (spec.class_name, spec.about, inputs, ", ".join(spec.dtypes), ", ".join(targets or spec.targets))
    return [cell.replace("|", r"\|") for cell in cells]


def _pack(project: Path, wheel: Wheel, plans: Sequence[ModulePlan], platform: str) -> Path:
    """Has hatchling pack the project for a platform."""
    names = ", ".join(plan.spec.class_name for plan in plans)
    description = textwrap.shorten(f"Fused CUDA kernels for PyTorch: {names}", _LONGEST_DESCRIPTION, placeholder=" ...")
    metadata = render(
        "wheel/pyproject.toml.j2",
        wheel=wheel,
        platform=platform,
        packages=f"{_PACKAGES}/{wheel.import_name}",
        description=description,
        license_files=[glob.escape(path.name) for path in wheel.license_files],
        oldest_torch=_oldest_torch(),
    )
    (project / _METADATA).write_text(metadata, encoding="utf-8")
    output = project.parent / platform
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(output)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    if done.returncode != 0:
        raise WheelError(f"hatchling failed\n{done.stderr.rstrip() or done.stdout.rstrip()}")
    (made,) = output.glob("*.whl")
    return made


def _require_licenses(made: Path, wheel: Wheel) -> None:
    """The metadata has patterns of license files, and what no pattern finds would be missing without a word."""
    with zipfile.ZipFile(made) as archive:
        names = {name.rpartition("/licenses/")[2] for name in archive.namelist()}
    if missing := sorted({path.name for path in wheel.license_files} - names):
        listed = ", ".join(missing)
        raise WheelError(f"hatchling left out {listed}: it takes [, * and ? in the path of the wheel for a pattern")


def _oldest_torch() -> str:
    return ".".join(map(str, OLDEST_TORCH))
