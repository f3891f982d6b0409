"""The pre-commit hook and the workflow of examples/ci run a command that exists and does what they promise."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.check.conftest import ROOT
from tests.check.drifts import DRIFTS
from tests.check.test_command import UNNEEDED


def read(path: str) -> Any:
    return YAML(typ="safe").load((ROOT / path).read_text(encoding="utf-8"))


def local_hook() -> dict[str, Any]:
    (repository,) = read("examples/ci/pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    (hook,) = repository["hooks"]
    return hook


def test_the_hook_of_this_repository_and_of_the_example_are_one() -> None:
    (hook,) = read(".pre-commit-hooks.yaml")
    assert hook == local_hook()
    assert hook["id"] == "fusegen-check" and hook["language"] == "system"
    # A commit that only removes a spec gives the hook no file at all.
    assert hook["always_run"] is True and hook["pass_filenames"] is False


def test_the_entry_of_the_hook(project) -> None:
    entry = shlex.split(local_hook()["entry"])
    assert project.run(*entry).returncode == 0
    project.spec("gemm_scale_bn").unlink()
    done = project.run(*entry)
    assert done.returncode == 1 and b"orphaned" in done.stdout


def commands(workflow: dict[str, Any], job: str) -> list[str]:
    """The commands of a job, for a project whose output is `generated`."""
    environment = workflow["env"] | {"OUTPUT": "generated"}
    text = [step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step]
    return [re.sub(r"\$(\w+)", lambda name: environment[name.group(1)], each) for each in text]


def test_the_workflow(repository) -> None:
    workflow = read("examples/ci/github-workflow.yml")
    assert workflow["on"] == ["push", "pull_request"]
    *_, command = commands(workflow, "check")
    assert repository.run(*shlex.split(command)).returncode == 0
    DRIFTS["spec_changed"][0](repository)
    done = repository.run(*shlex.split(command))
    assert done.returncode == 1 and done.stdout.startswith(b"::error file=generated/")


def test_the_workflow_builds_what_it_checks() -> None:
    """Its wheel is that of examples/package, which renders and compiles: tests/wheel/test_setuptools.py does it."""
    install, wheel = commands(read("examples/ci/github-workflow.yml"), "build")
    assert re.fullmatch(r'python -m pip install "fusegen\[nvcc,wheel\] @ git\+https://\S+" "setuptools>=77"', install)
    page = (ROOT / "docs" / "shipping.md").read_text(encoding="utf-8")
    assert f"\n{wheel}\n" in page and wheel.startswith("python -m pip wheel ")


def test_the_workflow_keeps_the_patch_that_it_writes(repository) -> None:
    steps = read("examples/ci/github-workflow.yml")["jobs"]["check"]["steps"]
    (kept,) = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
    DRIFTS["spec_changed"][0](repository)
    repository.run(*shlex.split(commands(read("examples/ci/github-workflow.yml"), "check")[-1]))
    assert repository.run("git", "apply", kept).returncode == 0
    assert repository.check().ok


def test_the_workflow_installs_what_the_check_needs() -> None:
    """All that fusegen depends on, without what a check is shown to do without."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split("[<>=]", each)[0] for each in project["dependencies"]} - set(UNNEEDED)
    install, itself, _ = commands(read("examples/ci/github-workflow.yml"), "check")
    assert install.startswith("python -m pip install ") and set(install.split()[4:]) == needed
    assert re.fullmatch(r'python -m pip install --no-deps "fusegen @ git\+https://\S+@[0-9a-f]{40}"', itself)
    assert project["scripts"]["fusegen"] == "fusegen.cli:main"
