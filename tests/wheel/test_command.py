"""`fusegen wheel`: what it refuses before it compiles anything."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fusegen.cli import app
from fusegen.errors import SpecError
from fusegen.plan.load import planned_files
from fusegen.wheel import command, tools
from fusegen.wheel.command import mislicensed, misnamed, misversioned, write_wheel
from fusegen.wheel.errors import WheelError
from fusegen.wheel.project import Wheel

SPEC = """\
fusegen: 1
name: {name}
class: Activation
dims: {{batch: 64, features: 32}}
inputs: {{x: [batch, features]}}
dtypes: [float32]
targets: [sm_90]
chain: [{{op: relu}}]
"""


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    directory = tmp_path / "specs"
    directory.mkdir()
    for name in ("first", "second"):
        (directory / f"{name}.yaml").write_text(SPEC.format(name=name))
    return directory


def refusal(*arguments: str | Path) -> str:
    """What a wrong usage is told."""
    done = CliRunner().invoke(app, ["wheel", *map(str, arguments)])
    assert done.exit_code == 2
    return " ".join(done.output.replace("│", " ").split())


def test_several_specs_have_no_name(specs: Path) -> None:
    assert "Invalid value for --name: give one: there are several specs" in refusal(specs)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--name", "-kernels", "no name of a package"),
        ("--name", "torch", "something else in Python"),
        ("--version", "one", "no version"),
        ("--license", "Apache", "Unknown license: 'apache'; an SPDX expression is such as MIT"),
        ("--target", "sm_100b", "unsupported target"),
        ("--license-file", "missing", "does not exist"),
    ],
)
def test_options(option: str, value: str, reason: str, specs: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(specs / "first.yaml", option, value)
    assert reason in message and option in message
    assert [path.name for path in tmp_path.iterdir()] == ["specs"]


def test_license_files_need_names_of_their_own(specs: Path, tmp_path: Path) -> None:
    """Of each other, and of what else is packed."""
    for name in ("LICENSE", "other/LICENSE", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    spec = specs / "first.yaml"
    two = ("--license-file", tmp_path / "LICENSE", "--license-file", tmp_path / "other/LICENSE")
    assert "one name for two files: LICENSE, LICENSE" in refusal(spec, *two)
    assert "one name for two files: README.md" in refusal(spec, "--license-file", tmp_path / "README.md")


def test_names() -> None:
    assert [misnamed(name) for name in ("kernels", "my-kernels", "My.Kernels_2")] == [None] * 3
    assert Wheel("My.Kernels-2", "1").import_name == "my_kernels_2"
    for name in ("", "my kernels", "kernels-", "2kernels", "é", "class", "json", "Torch", "fusegen"):
        assert misnamed(name), name


def test_versions() -> None:
    versions = ("1", "1.0.2", "1!2.0", "1.0a1", "1.0.post2", "1.0.dev3", "1.0rc1.post2.dev3+cu130.1")
    assert [misversioned(version) for version in versions] == [None] * len(versions)
    for version in ("", "v1.0", "1.0-beta", "1..0", "1.0+", "1.0 ", "\u0663.0"):
        assert misversioned(version), version


def test_licenses() -> None:
    assert [mislicensed(each) for each in ("MIT", "Apache-2.0 OR MIT", "LicenseRef-Proprietary")] == [None] * 3
    for expression in ("", "MIT license", "MIT AND ("):
        assert mislicensed(expression), expression


@pytest.fixture
def uncompiled(monkeypatch) -> None:
    monkeypatch.setattr(command, "stage", lambda *_, **__: pytest.fail("compiled"))
    monkeypatch.setattr(tools, "find_spec", lambda name: name)


def test_two_specs_of_one_class(specs: Path, tmp_path: Path, uncompiled) -> None:
    plans = planned_files(sorted(specs.iterdir()))
    with pytest.raises(SpecError, match="FG208.*first and second .*Activation"):
        write_wheel(plans, Wheel("kernels", "1"), tmp_path)


def test_a_class_named_as_another_spec(specs: Path, tmp_path: Path, uncompiled) -> None:
    """Whoever imported it would get a Python package or a class, as imports are ordered. Of its own spec, the class."""
    for name, class_name in (("first", "first"), ("second", "Second")):
        file = specs / f"{name}.yaml"
        file.write_text(file.read_text().replace("Activation", class_name))
    with pytest.raises(pytest.fail.Exception, match="compiled"):
        write_wheel(planned_files(sorted(specs.iterdir())), Wheel("kernels", "1"), tmp_path)
    file.write_text(file.read_text().replace("Second", "first").replace("name: second", "name: other"))
    file.rename(specs / "other.yaml")
    (specs / "first.yaml").write_text(SPEC.format(name="first"))
    with pytest.raises(SpecError, match="FG208.*first is both a spec and the class of the spec other"):
        write_wheel(planned_files(sorted(specs.iterdir())), Wheel("kernels", "1"), tmp_path)


def test_tools_that_are_missing(specs: Path, tmp_path: Path, uncompiled, monkeypatch) -> None:
    """They are told before anything is compiled."""
    monkeypatch.setattr(tools, "find_spec", lambda name: None if name in ("auditwheel", "hatchling") else name)
    plans = planned_files([specs / "first.yaml"])
    with pytest.raises(WheelError, match=r"not installed: auditwheel, hatchling \(run: pip install 'fusegen\[wheel\]'"):
        write_wheel(plans, Wheel("kernels", "1"), tmp_path / "dist")


def test_two_commands_at_once(specs: Path, tmp_path: Path, monkeypatch) -> None:
    """Of one directory and for different targets: each packs its own libraries, and the second says that it waits."""
    library = tmp_path / "library"

    def stage(*_: object, targets: tuple[str, ...], **__: object) -> dict[str, Path]:
        library.write_text(targets[0])
        time.sleep(1.5)
        return {"_C.so": library}

    monkeypatch.setattr(command, "stage", stage)
    monkeypatch.setattr(command, "pack", lambda wheel, plans, files, _: (wheel.targets[0], files["_C.so"].read_text()))
    monkeypatch.setattr(tools, "find_spec", lambda name: name)
    plans, said = planned_files([specs / "first.yaml"]), io.StringIO()
    with ThreadPoolExecutor() as threads:
        started = [
            threads.submit(write_wheel, plans, Wheel("kernels", "1", targets=(each,)), tmp_path, Console(file=said))
            for each in ("sm_80", "sm_90")
        ]
        assert [each.result() for each in started] == [("sm_80", "sm_80"), ("sm_90", "sm_90")]
    assert said.getvalue().count("waiting for another `fusegen wheel`") == 1


def test_a_directory_that_cannot_be_written(specs: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "stage", lambda *_, **__: {})
    monkeypatch.setattr(command, "pack", full)
    monkeypatch.setattr(tools, "find_spec", lambda name: name)
    with pytest.raises(SpecError, match="FG502.*cannot write the wheel into .*: No space left on device"):
        write_wheel(planned_files([specs / "first.yaml"]), Wheel("kernels", "1"), tmp_path)
