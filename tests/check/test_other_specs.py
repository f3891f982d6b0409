"""One output directory with packages of several directories of specs, and packages that are beside their specs."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.check.conftest import ROOT
from tests.check.drifts import DRIFTS, KERNELS, A, B

REGIONS = "transformer_mlp_prenorm"  # several packages of one spec


@pytest.fixture
def two(project):
    """fused/specs has B and a spec of several regions, whose packages are where those of specs are."""
    fused = project.root / "fused" / "specs"
    fused.mkdir(parents=True)
    project.spec(B).rename(fused / f"{B}.yaml")
    shutil.copy(ROOT / "specs" / f"{REGIONS}.yaml", fused)
    done = project.fusegen("build", "--no-compile", "--quiet", "fused/specs")
    assert done.returncode == 0, done.stderr
    assert len(project.check("fused/specs").others) == 1
    return project


@pytest.mark.parametrize("specs", ["specs", "fused/specs"])
def test_packages_of_other_specs_are_not_left_over(two, specs: str) -> None:
    done = two.fusegen("check", specs)
    other = f"specs/{A}.yaml" if specs == "fused/specs" else f"fused/specs/{B}.yaml, fused/specs/{REGIONS}.yaml"
    assert done.returncode == 0 and done.stdout.decode().splitlines()[1:] == [f"Not compared: packages of {other}"]


@pytest.mark.parametrize("specs", ["specs", "fused/specs"])
def test_a_prune_keeps_them_and_what_they_share(two, specs: str) -> None:
    before = two.contents()
    done = two.fusegen("build", "--no-compile", "--prune", specs)
    assert done.returncode == 0 and b"removed" not in done.stderr and two.contents() == before


def test_what_is_left_over_beside_them_goes(two) -> None:
    (two.root / "fused" / "specs" / f"{B}.yaml").unlink()
    report = two.check("specs")
    assert {finding.path.partition("/")[0] for finding in report.findings} == {B}
    assert report.repair == "fusegen build --no-compile --prune specs"
    assert two.fusegen("build", "--no-compile", "--prune", "specs").returncode == 0
    assert not (two.generated / B).exists() and (two.generated / REGIONS).is_dir() and two.check("specs").ok


def test_a_spec_of_that_name_with_a_package_of_its_own(two) -> None:
    """It is not where the other package is from."""
    done = two.fusegen("build", "--no-compile", "--quiet", "fused/specs", "--output", "fused/generated")
    assert done.returncode == 0 and {finding.kind for finding in two.check("specs").findings} == {
        "orphaned",
        "manifest",
    }


def test_drift_is_told_with_them(two) -> None:
    DRIFTS["a_line_more"][0](two)
    text = two.fusegen("check", "specs").stdout.decode()
    assert f"generated/{KERNELS}: edited by hand" in text and text.splitlines()[-1].startswith("Not compared: ")


def test_packages_beside_their_specs(project) -> None:
    """As `fusegen fuse` leaves them, and checked without --output."""
    shutil.copytree(project.root / "specs", project.root / "fused" / "specs")
    (project.root / "fused" / "specs" / f"{A}.yaml").rename(project.root / "fused" / "specs" / "other.yaml")
    text = (project.root / "fused" / "specs" / "other.yaml").read_text().replace(f"name: {A}", "name: other")
    (project.root / "fused" / "specs" / "other.yaml").write_text(text)
    (project.root / "fused" / "specs" / f"{B}.yaml").unlink()
    command = "fusegen check fused/specs --output fused/generated"
    assert project.fusegen("build", "--no-compile", "--output", "fused/generated", "fused/specs").returncode == 0
    done = project.fusegen("check", "fused/specs")
    told = f"generated has none of these packages, fused/generated has them: {command}\n"
    assert (done.returncode, done.stdout.decode()) == (1, told)
    assert json.loads(project.fusegen("check", "fused/specs", "--format", "json").stdout)["repair"] == command
    assert told.encode() in project.fusegen("check", "fused/specs", "--format", "github").stdout
    assert project.run("sh", "-c", command).returncode == 0
    shutil.rmtree(project.generated)
    assert project.fusegen("check", "fused/specs").stdout.decode() == told
    named = project.fusegen("check", "fused/specs", "--output", "elsewhere").stdout.decode()
    assert named.startswith("elsewhere has nothing of fusegen's yet. To build it: fusegen build --output elsewhere")


def test_a_region_that_a_given_spec_has_no_more(project) -> None:
    """It is left over, though the spec is there."""
    (project.generated / f"{A}_old").mkdir()
    text = (project.generated / A / "__init__.py").read_text()
    project.rendered_before(f"{A}_old/__init__.py", text)
    assert project.kinds("specs")[f"{A}_old/__init__.py"] == "orphaned"
    assert project.fusegen("build", "--no-compile", "--prune", "specs").returncode == 0
    assert not (project.generated / f"{A}_old").exists()


@pytest.mark.torch
def test_a_verification_of_packages_that_are_elsewhere(project) -> None:
    pytest.importorskip("torch")
    shutil.rmtree(project.generated / A)
    done = project.fusegen("verify", "--emulate", f"specs/{A}.yaml")
    told = f"generated/{A}/kernels.cu is not there: run `fusegen build`, or give its directory as --output\n"
    assert (done.returncode, done.stderr.decode()) == (1, told)
