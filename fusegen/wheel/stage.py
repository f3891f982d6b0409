"""Specs rendered and compiled for a wheel: the files that whoever installs it needs, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fusegen.build import Request, build_extensions
from fusegen.build.key import OUTPUT
from fusegen.build.progress import shown
from fusegen.plan.modules.module import ModulePlan, compiled
from fusegen.render.files.manifest import MANIFEST, digest, manifest_text
from fusegen.render.files.support import library_digests
from fusegen.render.output import write_files
from fusegen.render.package import Files, render_all
from fusegen.wheel.symbols import require_portable

_SHIPPED = ".shipped"  # in the directory of a stage: what differs from what lies there


def stage(
    plans: Sequence[ModulePlan],
    directory: Path,
    *,
    targets: Sequence[str] | None = None,
    console: Console | None = None,
) -> dict[str, Path]:
    """Renders and compiles in `directory`, and returns what to ship: files by their paths below a Python package.

    plans: of specs in files of their own names. targets: in place of each spec's own. What is in the directory of a
    former call is used again. Raises BuildError, WheelError where a library is not portable, and SpecError.
    """
    with shown(console):
        rendered = render_all(plans)
    # Nobody edits these files: what was changed here all the same is replaced.
    write_files(rendered, directory, overwrite=True)
    built = build_extensions(build_requests(plans, directory, targets), portable=True, console=console)
    require_portable([result.path for result in built])
    found = {path: directory / path for path in shipped_paths(plans, rendered)}
    return {**found, MANIFEST: _manifest(rendered, directory)}


def _manifest(rendered: Files, directory: Path) -> Path:
    """A manifest of the Python files, and of what the libraries are compiled from: none of these sources is shipped."""
    found = directory / _SHIPPED / MANIFEST
    found.parent.mkdir(exist_ok=True)
    digests = {path: digest(rendered[path].encode()) for path in _python(rendered)}
    found.write_text(manifest_text(digests, library_digests(rendered)), encoding="utf-8")
    return found


def build_requests(plans: Sequence[ModulePlan], directory: Path, targets: Sequence[str] | None) -> list[Request]:
    """A build request for each package in `directory` that has kernels. targets: None for the targets of each spec."""
    return [Request(directory / plan.spec.name, targets or plan.spec.targets) for plan in compiled(plans)]


def shipped_paths(plans: Sequence[ModulePlan], rendered: Files) -> list[str]:
    """The paths of what runs, sorted: Python files, compiled libraries and the manifest that has the digests of these,
    without CUDA sources and plans."""
    return sorted([*_python(rendered), MANIFEST, *(f"{plan.spec.name}/{OUTPUT}" for plan in compiled(plans))])


def _python(rendered: Files) -> list[str]:
    return [path for path in rendered if path.endswith((".py", "/py.typed"))]
