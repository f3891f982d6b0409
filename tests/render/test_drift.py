"""generated/ is what specs/ and templates/ say: no file differs, is missing or is left over.

After a change of either: fusegen build --no-compile specs/*.yaml
"""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from fusegen.render.output import MANIFEST
from tests.render.rendering import ROOT, SPECS, rendered

GENERATED = ROOT / "generated"
# What compiling and importing leave there.
_BY_PRODUCTS = ("_C.*", "*.pyc")


def present() -> set[str]:
    """The paths of the generated files, without the manifest and what git ignores."""
    files = (path for path in GENERATED.rglob("*") if path.is_file())
    kept = (path for path in files if not any(path.match(pattern) for pattern in _BY_PRODUCTS))
    return {str(path.relative_to(GENERATED)) for path in kept if ".build" not in path.parts} - {MANIFEST}


@pytest.mark.parametrize("path", sorted(rendered()))
def test_committed_text_is_a_fresh_rendering(path: str) -> None:
    committed = (GENERATED / path).read_bytes().decode()
    assert committed == rendered()[path], f"generated/{path} is stale: fusegen build --no-compile specs/*.yaml"


def test_nothing_is_missing_or_left_over() -> None:
    assert present() == set(rendered())


def test_the_manifest_lists_every_file_with_its_hash() -> None:
    manifest = json.loads((GENERATED / MANIFEST).read_text(encoding="utf-8"))
    expected = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in rendered().items()}
    assert manifest == {"generator": "fusegen", "format": 1, "files": expected}
    assert list(manifest["files"]) == sorted(expected)


def test_every_spec_is_named_after_its_package() -> None:
    packages = {path.split("/")[0] for path in rendered()} - {"support"}
    assert packages == {path.stem for path in SPECS}


def test_git_has_the_sources_and_ignores_what_is_built() -> None:
    listed = subprocess.run(["git", "ls-files", "generated"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not listed.stdout:
        pytest.skip("needs a git checkout")
    assert set(listed.stdout.split()) == {f"generated/{path}" for path in (*rendered(), MANIFEST)}
