"""Packing a wheel of a library that a C++ compiler makes at once: names that mean something to the tools."""

from __future__ import annotations

import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

pytest.importorskip("auditwheel")
pytest.importorskip("hatchling")

from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.load import planned_files  # noqa: E402
from fusegen.wheel.errors import WheelError  # noqa: E402
from fusegen.wheel.project import Wheel, pack  # noqa: E402
from tests.wheel.conftest import SPECS  # noqa: E402
from tests.wheel.test_symbols import PORTABLE, compiled  # noqa: E402

pytestmark = pytest.mark.nvcc  # for its C++ compiler


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return compiled(tmp_path, PORTABLE)


def license_file(directory: Path, name: str) -> Path:
    file = directory / name
    file.write_text(f"text of {name}")
    return file


def test_names_that_mean_something_to_hatchling(library: Path, tmp_path: Path) -> None:
    """A pattern, a package that it imports, and the name of that for a license."""
    texts = tuple(license_file(tmp_path, name) for name in ("LI[CEN]SE", "packaging"))
    plans = planned_files([SPECS / "bias_relu.yaml"]) * 60
    made = pack(Wheel("packaging", "1", license_files=texts), plans, {"bias_relu/_C.so": library}, tmp_path)
    with zipfile.ZipFile(made) as archive:
        found = {path.name: archive.read(f"packaging-1.dist-info/licenses/{path.name}").decode() for path in texts}
        assert found == {path.name: path.read_text() for path in texts}
        assert "packaging/bias_relu/_C.so" in archive.namelist()
        summary = message_from_bytes(archive.read("packaging-1.dist-info/METADATA"))["Summary"]
    # The package index takes no more.
    assert len(summary) <= 512 and summary.endswith("BiasRelu, ...")


def test_a_license_that_would_be_missing(library: Path, tmp_path: Path) -> None:
    directory = tmp_path / "dist[1]"
    directory.mkdir()
    wheel = Wheel("kernels", "1", license_files=(license_file(tmp_path, "LICENSE"),))
    with pytest.raises(WheelError, match="hatchling left out LICENSE"):
        pack(wheel, planned_files([SPECS / "bias_relu.yaml"]), {"bias_relu/_C.so": library}, directory)
    assert list(directory.iterdir()) == []


def test_a_wheel_that_is_there(library: Path, tmp_path: Path) -> None:
    """It is replaced when told to; what a killed command has left beside it goes."""
    (tmp_path / "dist" / ".wheel-left").mkdir(parents=True)
    plans, given = planned_files([SPECS / "bias_relu.yaml"]), {"bias_relu/_C.so": library}
    made = pack(Wheel("kernels", "1"), plans, given, tmp_path / "dist")
    content = made.read_bytes()
    made.write_bytes(b"mine")
    with pytest.raises(SpecError, match=rf"FG502.*{made.name} is there already.*--overwrite"):
        pack(Wheel("kernels", "1"), plans, given, tmp_path / "dist")
    assert made.read_bytes() == b"mine"
    assert pack(Wheel("kernels", "1", overwrite=True), plans, given, tmp_path / "dist").read_bytes() == content
    assert list((tmp_path / "dist").iterdir()) == [made]
