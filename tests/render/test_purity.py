"""Rendering is a function of the spec and the repository alone: other surroundings give the same bytes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fusegen.explain.text import report
from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import compiled
from fusegen.render.files.manifest import MANIFEST
from fusegen.render.files.spec_digests import spec_digests
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from tests.render.rendering import ROOT, SPECS, rendered

# Prints the hash of every file and of every printed plan. The first argument says what is to be the other way round.
SCRIPT = """
import hashlib, json, os, pathlib, sys
if sys.argv[1] == "backwards":
    listdir, iterdir = os.listdir, pathlib.Path.iterdir
    os.listdir = lambda *a: sorted(listdir(*a), reverse=True)
    pathlib.Path.iterdir = lambda path: iter(sorted(iterdir(path), reverse=True))
from fusegen.plan.modules.module import compiled
from fusegen.plan.load import planned_file
from fusegen.explain.text import report
from fusegen.render.package import render_all

plans = [planned_file(path) for path in sys.argv[2:]]
texts = {**render_all(plans), **{plan.spec.name: report(plan) for plan in compiled(plans)}}
digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
print(json.dumps({"digests": digests, "torch": sorted(m for m in sys.modules if m.split(".")[0] == "torch")}))
"""
TUNINGS = sorted((ROOT / "specs").glob("*.tuning.json"))
LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "hash seed 4242": {"PYTHONHASHSEED": "4242"},
    "locale C, not in UTF-8 mode": {**LOCALE, "PYTHONUTF8": "0"},
    "locale C, in UTF-8 mode": {**LOCALE, "PYTHONUTF8": "1"},
    "far east": {"TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "LANG": "tr_TR.UTF-8"},
    "far west": {
        "TZ": "Etc/GMT+12",
        "HOME": "/",
        "COLUMNS": "40",
        "CUDA_VISIBLE_DEVICES": "",
        "SOURCE_DATE_EPOCH": "1",
    },
    "optimised": {"PYTHONOPTIMIZE": "2"},
}


def elsewhere(
    directory: Path,
    *,
    specs: Sequence[Path | str] = SPECS,
    python: Sequence[str] = (sys.executable,),
    root: Path = ROOT,
    order: str = "",
    **changes: str,
) -> dict[str, str]:
    """What another process renders: the hashes by path, and those of the printed plans by name."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", **changes}
    command = [*python, "-c", SCRIPT, order, *map(str, specs)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["torch"] == []
    return found["digests"]


@functools.cache
def here() -> dict[str, str]:
    plans = compiled(planned_file(path) for path in SPECS)
    printed = {plan.spec.name: report(plan) for plan in plans}
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in {**rendered(), **printed}.items()}


def test_twice_in_one_process() -> None:
    again = render_all([planned_file(path) for path in SPECS])
    assert again == rendered() and list(again) == list(rendered())


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_other_surroundings(name: str, tmp_path: Path) -> None:
    assert elsewhere(tmp_path, **SURROUNDINGS[name]) == here()


def test_without_assertions(tmp_path: Path) -> None:
    assert elsewhere(tmp_path, python=[sys.executable, "-O"]) == here()


# Other Pythons


def interpreters() -> list[str]:
    """The other versions of Python 3 on the PATH."""
    this = f"python3.{sys.version_info.minor}"
    found = {}
    for folder in os.get_exec_path():
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                if re.fullmatch(r"python3\.\d\d", name) and name != this:
                    found.setdefault(name, os.path.join(folder, name))
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("python", interpreters() or [None])
def test_other_versions_of_python(python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("there is no other Python 3 on the PATH")
    version = tuple(map(int, re.findall(r"\d+", Path(python).name)))
    probe = f"import sys, jinja2, pydantic, rich, ruamel.yaml, typer; assert sys.version_info[:2] == {version}"
    done = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.splitlines()
        why = next((line for line in reversed(lines) if "Error" in line), lines[0] if lines else "it does not run")
        pytest.skip(f"{python} cannot render: {why}")
    assert elsewhere(tmp_path, python=[python]) == here()


# Files


def test_a_listing_in_another_order(tmp_path: Path) -> None:
    assert elsewhere(tmp_path, order="backwards") == here()


def test_other_names_of_the_specs(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ROOT / "specs")
    for path in (SPECS[0], *TUNINGS):
        (tmp_path / path.name).symlink_to(path)
    relative = [os.path.relpath(path, tmp_path) for path in SPECS]
    assert elsewhere(tmp_path, specs=relative) == here()
    assert elsewhere(ROOT, specs=[f"./specs/{path.name}" for path in SPECS]) == here()
    linked = [tmp_path / SPECS[0].name, *(tmp_path / "link" / path.name for path in SPECS[1:])]
    assert elsewhere(tmp_path, specs=linked) == here()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fusegen, the templates and the specs as git on Windows may write them, and with what editors leave."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("fusegen", "templates", "specs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in root.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for path in ("templates/support/.launch.cuh.swp", "templates/support/launch.cuh~", "templates/.DS_Store"):
        (root / path).write_bytes(b"\xff")
    (root / "templates" / "support" / "below").mkdir()
    return root


def test_a_checkout_with_crlf(checkout: Path, tmp_path: Path) -> None:
    assert b"\r\n" in (checkout / "specs" / SPECS[0].name).read_bytes()
    assert elsewhere(tmp_path, root=checkout, specs=sorted((checkout / "specs").glob("*.yaml"))) == here()


def test_a_byte_order_mark(tmp_path: Path) -> None:
    for path in (*SPECS, *TUNINGS):
        (tmp_path / path.name).write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert elsewhere(tmp_path, specs=[path.name for path in SPECS]) == here()


def test_the_files_and_their_modes_under_another_umask(tmp_path: Path) -> None:
    write_files(rendered(), tmp_path / "here", specs=spec_digests(map(planned_file, SPECS)))
    build = [sys.executable, "-m", "fusegen", "build", "--no-compile", "-o", str(tmp_path / "there"), *map(str, SPECS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["sh", "-c", 'umask 077; exec "$@"', "sh", *build]
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
    for path in (*rendered(), MANIFEST):
        one, other = tmp_path / "here" / path, tmp_path / "there" / path
        assert one.read_bytes() == other.read_bytes()
        assert stat.S_IMODE(one.stat().st_mode) == stat.S_IMODE(other.stat().st_mode) == 0o644


# Other packages


def test_a_package_does_not_depend_on_its_neighbours() -> None:
    alone = render_all([planned_file(SPECS[0])])
    assert alone == {path: rendered()[path] for path in alone} and len(alone) > 4
    backwards = render_all([planned_file(path) for path in reversed(SPECS)])
    assert list(backwards.items()) == list(rendered().items())
