"""Rendering is a function of the spec and the repository alone: other surroundings give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.plan.load import plan_file
from fusegen.render.package import render_all
from tests.render.rendering import ROOT, SPECS, rendered

SCRIPT = """
import hashlib, json, sys
from fusegen.plan.load import plan_file
from fusegen.plan.report import report
from fusegen.render.package import render_all

plans = [plan_file(path) for path in sys.argv[1:]]
files = render_all(plans)
texts = {**files, **{plan.spec.name: report(plan) for plan in plans}}
digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
print(json.dumps({"digests": digests, "torch": sorted(m for m in sys.modules if m.split(".")[0] == "torch")}))
"""
SURROUNDINGS = [
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "TZ": "Pacific/Kiritimati"},
    {"PYTHONHASHSEED": "4242", "LC_ALL": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "40", "HOME": "/"},
]


def elsewhere(directory: Path, changes: dict[str, str]) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    command = [sys.executable, "-c", SCRIPT, *map(str, SPECS)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    return [elsewhere(tmp_path_factory.mktemp("elsewhere"), changes) for changes in SURROUNDINGS]


def test_twice_in_one_process() -> None:
    again = render_all([plan_file(path) for path in SPECS])
    assert again == rendered() and list(again) == list(rendered())


def test_other_hash_seed_locale_and_directory(found: list[dict]) -> None:
    here = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in rendered().items()}
    for other in found:
        assert {path: other["digests"][path] for path in here} == here
    assert found[0]["digests"] == found[1]["digests"], "the printed plans"


def test_torch_is_not_imported(found: list[dict]) -> None:
    assert [other["torch"] for other in found] == [[], []]


def test_a_package_does_not_depend_on_its_neighbours() -> None:
    alone = render_all([plan_file(SPECS[0])])
    assert alone == {path: rendered()[path] for path in alone} and len(alone) > 4
    backwards = render_all([plan_file(path) for path in reversed(SPECS)])
    assert list(backwards.items()) == list(rendered().items())
