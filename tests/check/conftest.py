"""A small project: two specs and what they render, to be put out of step."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.check.run import Report, check
from fusegen.plan import load
from fusegen.plan.load import planned_files, planned_spec
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.files.manifest import MANIFEST, digest, listed_sources, listed_specs, manifest_text, read_manifest
from fusegen.render.files.spec_digests import spec_digests
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.spec.document import Document
from fusegen.spec.find import spec_files
from fusegen.spec.model import SpecModel
from tests.commands import run_here

ROOT = Path(__file__).resolve().parents[2]
SPECS = ("gemm_add_relu", "gemm_scale_bn")
PLANNED: dict[tuple[str, tuple[str, ...]], ModulePlan] = {}


class Project:
    """The current directory of a test, with specs/ and generated/."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.generated = root / "generated"

    def spec(self, name: str) -> Path:
        return self.root / "specs" / f"{name}.yaml"

    def edit_spec(self, name: str, old: str, new: str) -> None:
        text = self.spec(name).read_text(encoding="utf-8")
        assert old in text
        self.spec(name).write_text(text.replace(old, new), encoding="utf-8")

    def rendered_before(self, path: str, text: str) -> None:
        """The file and the manifest as they were left by templates that have changed since."""
        (self.generated / path).write_bytes(text.encode())
        self.list(path, digest(text.encode()))

    def list(self, path: str, listed: str | None) -> None:
        """Changes an entry of the manifest; None removes it."""
        entries = read_manifest(self.generated)
        entries.pop(path, None)
        manifest = self.generated / MANIFEST
        former = manifest.read_bytes() if manifest.exists() else None
        files = entries | ({path: listed} if listed else {})
        manifest.write_text(manifest_text(files, listed_sources(former), listed_specs(former)))

    def check(self, *arguments: str) -> Report:
        return check([Path(each) for each in arguments or ("specs",)], Path("generated"))

    def kinds(self, *arguments: str) -> dict[str, str]:
        return {finding.path: finding.kind for finding in self.check(*arguments).findings}

    def meaning(self, path: str) -> str:
        return next(finding.meaning for finding in self.check().findings if finding.path == path)

    def run(self, *command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        """A command in the project's directory, where `fusegen` is this checkout's."""
        path = f"{self.root.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, **options)

    def fusegen(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return run_here(*arguments, cwd=self.root)

    def repair(self, command: str) -> subprocess.CompletedProcess[bytes]:
        """What a check says to run: shell commands, of which fusegen's run here."""
        for part in command.split(" && "):
            program, *words = shlex.split(part)
            done = self.fusegen(*words) if program == "fusegen" else self.run("sh", "-c", part)
            if done.returncode:
                break
        return done

    def contents(self) -> dict[str, bytes]:
        files = (path for path in self.root.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(autouse=True)
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check plans the same two specs, and most of its time is that."""

    def planned(spec: SpecModel, document: Document) -> ModulePlan:
        key = document.file, document.lines
        if key not in PLANNED:
            PLANNED[key] = planned_spec(spec, document)
        return PLANNED[key]

    monkeypatch.setattr(load, "planned_spec", planned)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "project"
    (root / "specs").mkdir(parents=True)
    for name in SPECS:
        shutil.copy(ROOT / "specs" / f"{name}.yaml", root / "specs")
    plans = planned_files(spec_files([root / "specs"]))
    write_files(render_all(plans), root / "generated", specs=spec_digests(plans))
    program = root.parent / "bin" / "fusegen"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fusegen "$@"\n')
    program.chmod(0o755)
    return root


@pytest.fixture
def project(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    shutil.copytree(pristine.parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    return Project(tmp_path / "project")


@pytest.fixture
def repository(project: Project) -> Project:
    """The project at the root of a git repository."""
    done = project.run("git", "init", "-q", ".")
    assert done.returncode == 0, done.stderr
    return project
