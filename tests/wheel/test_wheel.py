"""A wheel of `fusegen wheel`: its name, its metadata, its files, and what somebody without fusegen does with it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import platform
import re
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("auditwheel")
pytest.importorskip("hatchling")

from fusegen.build import BuildResult  # noqa: E402
from fusegen.plan.load import planned_files  # noqa: E402
from fusegen.wheel import stage  # noqa: E402
from fusegen.wheel.command import write_wheel  # noqa: E402
from fusegen.wheel.errors import WheelError  # noqa: E402
from fusegen.wheel.project import Wheel  # noqa: E402
from tests.wheel.conftest import SPECS, USE, pack, run  # noqa: E402
from tests.wheel.test_symbols import compiled  # noqa: E402

pytestmark = pytest.mark.nvcc
NAMES = ("bias_relu", "linear_gelu", "mlp_up")
INFO = "my_kernels-1.2.dist-info"


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_it_trains_without_fusegen(installed: Path) -> None:
    assert run(sys.executable, USE, "cpu", path=installed) == "trained on cpu\n"


def test_it_is_for_every_python_and_one_platform(wheel: Path, files: dict[str, bytes]) -> None:
    found = re.fullmatch(rf"my_kernels-1\.2-(py3-none-manylinux_2_(\d+)_{platform.machine()})\.whl", wheel.name)
    assert found is not None, wheel.name
    about = message_from_bytes(files[f"{INFO}/WHEEL"])
    assert (about["Tag"], about["Root-Is-Purelib"]) == (found[1], "false")
    # As much of glibc as the newest symbols that are taken.
    libraries = b"".join(data for name, data in files.items() if name.endswith(".so"))
    assert max(int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", libraries)) <= int(found[2])


def test_its_files(files: dict[str, bytes]) -> None:
    """Of the module of two layers, `mlp`, what the kernels are in is a package of its own."""
    modules = {f"my_kernels/{name}/{file}" for name in NAMES for file in ("__init__.py", "_C.so", "py.typed")}
    modules |= {"my_kernels/mlp/__init__.py", "my_kernels/mlp/py.typed"}
    support = {name for name in files if re.fullmatch(r"my_kernels/support/\w+\.py", name)}
    assert "my_kernels/support/__init__.py" in support and "my_kernels/support/operators.py" in support
    own = {"my_kernels/__init__.py", "my_kernels/py.typed", "my_kernels/manifest.json"}
    info = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/NOTICE")}
    assert set(files) == modules | support | own | info


def test_its_libraries_are_for_the_chosen_target(files: dict[str, bytes]) -> None:
    """The specs are for sm_90, one for sm_80."""
    for name in NAMES:
        library = files[f"my_kernels/{name}/_C.so"]
        assert set(re.findall(rb"-arch (sm_\d+)", library)) == {b"sm_90"}  # what ptxas notes in its code
        digest = json.loads(files["my_kernels/manifest.json"])["sources"][name]
        assert f"fusegen sources {name} {digest}\0".encode() in library and b"PyInit" not in library


def test_its_manifest_lists_its_packages(files: dict[str, bytes]) -> None:
    """Which an import compares with what is there."""
    listed = json.loads(files["my_kernels/manifest.json"])["files"]
    modules = {name: data for name, data in files.items() if re.fullmatch(r"my_kernels/\w+/__init__.py", name)}
    assert len(modules) > len(NAMES)
    for name, data in modules.items():
        assert listed[name.removeprefix("my_kernels/")] == hashlib.sha256(data).hexdigest()


def test_its_metadata(files: dict[str, bytes]) -> None:
    metadata = pytest.importorskip("packaging.metadata")
    found = metadata.Metadata.from_email(files[f"{INFO}/METADATA"], validate=True)
    assert (found.name, str(found.version), found.license_expression) == ("my-kernels", "1.2", "MIT")
    assert list(map(str, found.requires_dist)) == ["torch>=2.10"]
    assert str(found.requires_python) == ">=3.10" and found.license_files == ["NOTICE"]
    assert found.description_content_type == "text/markdown"
    assert "| BiasRelu | Bias, relu | x [batch, channels] | float32 | sm_90 |" in found.description
    assert "| MLP | Linear, relu, linear | x [batch, features] | float32 | sm_90 |" in found.description
    assert "MlpUp" not in found.description and "from my_kernels import BiasRelu" in found.description


def test_its_record(files: dict[str, bytes]) -> None:
    rows = list(csv.reader(io.StringIO(files[f"{INFO}/RECORD"].decode())))
    assert {name for name, *_ in rows} == set(files)
    for name, digest, size in rows:
        if name != f"{INFO}/RECORD":
            found = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(files[name])), name


def test_again_it_has_the_same_bytes(wheel: Path) -> None:
    """And nothing is compiled: libraries of the first are kept."""
    before = wheel.read_bytes()
    kept = wheel.parent / ".wheel" / NAMES[0] / "_C.so"
    made = kept.stat().st_mtime_ns
    assert pack(wheel.parent, "--target", "sm_90", "--overwrite") == wheel
    assert wheel.read_bytes() == before and kept.stat().st_mtime_ns == made
    assert sorted(path.name for path in wheel.parent.iterdir()) == [".wheel", wheel.name]


def test_none_is_written_of_a_library_that_is_not_portable(tmp_path: Path, monkeypatch) -> None:
    library = compiled(tmp_path, 'extern "C" void PyErr_Clear(); void f() { PyErr_Clear(); }')
    monkeypatch.setattr(stage, "build_extensions", lambda *_, **__: [BuildResult(library, "", None, 0.0)])
    plans = planned_files([SPECS / "bias_relu.yaml"])
    with pytest.raises(WheelError, match="PyErr_Clear"):
        write_wheel(plans, Wheel("kernels", "1"), tmp_path / "dist")
    assert not list((tmp_path / "dist").glob("*.whl"))
