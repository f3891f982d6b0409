"""examples/package, whose setup.py has kernels() compile its specs: wheels, source distributions, editable installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")
pytest.importorskip("elftools")

from setuptools import Distribution, Extension  # noqa: E402
from setuptools.errors import CompileError  # noqa: E402

from fusegen import setuptools as hook  # noqa: E402
from fusegen.plan.modules.module import compiled  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.setuptools import kernels  # noqa: E402
from tests.wheel.conftest import ROOT, commands  # noqa: E402

GENERATED = "mypackage/generated"
USE = """
import sys, mypackage, torch
from mypackage.generated.linear_gelu import LinearGelu
module = LinearGelu(8, 4)
assert LinearGelu is mypackage.LinearGelu and module(torch.randn(2, 8)).shape == (2, 4)
assert len(torch.ops.loaded_libraries) == 1
assert "fusegen" not in sys.modules
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / "package", tmp_path / "project")


def run(*command: str | Path, cwd: Path, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)


def distribution(targets: list[str] | None = None, **options: object) -> Distribution:
    arguments = kernels("specs", package="mypackage.generated", targets=targets)
    return arguments["distclass"]({"name": "x", "version": "1", "cmdclass": arguments["cmdclass"], **options})


@pytest.mark.torch
@pytest.mark.nvcc
def test_the_wheel(project: Path, tmp_path: Path) -> None:
    """It loads from any working directory, without fusegen."""
    (command,) = commands("shipping.md", "python -m pip wheel ")
    done = run(sys.executable, "-m", "pip", "wheel", "--no-index", *command, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (project / "dist").glob("*.whl")
    assert re.fullmatch(r"mypackage-1\.0-py3-none-linux_\w+\.whl", file.name)
    site = tmp_path / "site"
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    package = {f"{GENERATED}/linear_gelu/{name}" for name in ("__init__.py", "_C.so", "py.typed")}
    assert package < names and {f"{GENERATED}/support/__init__.py", f"{GENERATED}/manifest.json"} < names
    kinds = (".py", ".so", "py.typed", "manifest.json")
    assert all(name.endswith(kinds) for name in names if name.startswith("mypackage/"))
    shutil.rmtree(project)
    done = run(sys.executable, "-c", USE, cwd=tmp_path, path=site)
    assert done.returncode == 0, done.stderr


def source_distribution(project: Path, specs: str) -> subprocess.CompletedProcess[str]:
    file = project / "setup.py"
    file.write_text("from pathlib import Path\n" + file.read_text().replace('"specs"', specs))
    code = "import setuptools.build_meta; setuptools.build_meta.build_sdist('dist')"
    return run(sys.executable, "-c", code, cwd=project)


@pytest.mark.parametrize("specs", ['"specs"', 'Path(__file__).resolve().parent / "specs"'])
def test_the_source_distribution_has_specs_and_tunings(specs: str, project: Path) -> None:
    shutil.copy(ROOT / "tests" / "wheel" / "specs" / "mlp.yaml", project / "specs")
    for name in ("linear_gelu", "mlp_up", "mlp_other"):
        (project / "specs" / f"{name}.tuning.json").write_text("{}\n")
    done = source_distribution(project, specs)
    assert done.returncode == 0, done.stderr
    with tarfile.open(project / "dist" / "mypackage-1.0.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    found = {name for name in names if name.endswith((".yaml", ".json"))}
    expected = ("linear_gelu.yaml", "linear_gelu.tuning.json", "mlp.yaml", "mlp_up.tuning.json")
    assert found == {f"specs/{name}" for name in expected}


def test_a_source_distribution_without_its_specs(project: Path) -> None:
    (project / "specs").rename(project.parent / "specs")
    done = source_distribution(project, '"../specs"')
    assert done.returncode == 1 and "cannot have ../specs/linear_gelu.yaml" in done.stderr
    assert not list((project / "dist").glob("*"))


def build_kernels(targets: list[str] | None = None) -> Path:
    """Runs the command, and returns the directory into which it builds."""
    command = distribution(targets, package_dir={"": "src"}).get_command_obj("build_kernels")
    command.ensure_finalized()
    command.run()
    return Path(command.build_lib, GENERATED)


@pytest.fixture
def uncompiled(project: Path, monkeypatch) -> Path:
    """The project in which a library is the text `portable`."""

    def stage(plans, directory: Path, **_: object) -> dict[str, Path]:
        write_files(render_all(plans), directory)
        for plan in compiled(plans):
            (directory / plan.spec.name / "_C.so").write_text("portable")
        names = [name for plan in plans for name in plan.package_names]
        files = [file for name in names for file in (directory / name).glob("*.[ps][yo]")]
        return {str(file.relative_to(directory)): file for file in files}

    monkeypatch.setattr(hook, "stage", stage)
    monkeypatch.chdir(project)
    return project


def test_a_spec_that_is_gone_is_not_shipped(uncompiled: Path) -> None:
    """Where setuptools keeps what an earlier build made of it, and where its package is still among the sources."""
    specs = uncompiled / "specs"
    (specs / "second.yaml").write_text(
        (specs / "linear_gelu.yaml").read_text().replace("name: linear_gelu", "name: second")
    )
    output = build_kernels()
    (output / "own").mkdir()
    (output / "own" / "__init__.py").write_text("# of a person\n")
    write_files({"second/__init__.py": (output / "second" / "__init__.py").read_text()}, Path("src", GENERATED))
    build_kernels()
    (specs / "second.yaml").unlink()
    with pytest.raises(CompileError, match="generated/second is of no spec"):
        build_kernels()
    shutil.rmtree(Path("src", GENERATED))
    build_kernels()
    assert sorted(path.name for path in output.iterdir()) == ["linear_gelu", "own"]


def test_what_a_spec_of_two_regions_ships(uncompiled: Path) -> None:
    """The module's package, and that of the region that has kernels; without the spec neither."""
    spec = Path(shutil.copy(ROOT / "tests" / "wheel" / "specs" / "mlp.yaml", uncompiled / "specs"))
    output = build_kernels()
    found = {path.relative_to(output).as_posix() for path in output.glob("mlp*/*")}
    assert found == {"mlp/__init__.py", "mlp_up/__init__.py", "mlp_up/_C.so"}
    spec.unlink()
    build_kernels()
    assert not list(output.glob("mlp*"))


def test_a_newer_library_of_an_editable_install_is_not_shipped(uncompiled: Path) -> None:
    """setuptools copies it where the project has `*.so` among its package data."""
    library = build_kernels() / "linear_gelu" / "_C.so"
    library.write_text("of one Python")
    os.utime(library, (2**31, 2**31))
    build_kernels()
    assert library.read_text() == "portable"


def test_a_target_that_nothing_is_built_for(uncompiled: Path) -> None:
    with pytest.raises(CompileError, match=r"targets of kernels\(\): unsupported target 'sm_70'"):
        build_kernels(["sm_90", "sm_70"])


def test_what_is_committed_is_what_is_shipped(project: Path) -> None:
    """An edit, or a spec that was not rendered since, is an error before anything is compiled."""
    (build,), (check,) = (commands("shipping.md", f"fusegen {command} ") for command in ("build", "check"))
    fusegen = (sys.executable, "-m", "fusegen")
    assert run(*fusegen, "build", "--no-compile", *build, cwd=project).returncode == 0
    assert run(*fusegen, "check", *check, cwd=project).returncode == 0
    edited = project / "src" / GENERATED / "linear_gelu" / "kernels.cu"
    edited.write_text(edited.read_text() + "\n")
    assert run(*fusegen, "check", *check, cwd=project).returncode == 1
    done = run(sys.executable, "setup.py", "build_kernels", cwd=project)
    message = "linear_gelu/kernels.cu is not what the specs give: run `fusegen build --output"
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    assert not (project / "build").exists()


def test_a_mistake_in_a_spec_is_told_as_one(project: Path) -> None:
    spec = project / "specs" / "linear_gelu.yaml"
    spec.write_text(spec.read_text().replace("op: gelu", "op: gulu"))
    done = run(sys.executable, "setup.py", "build_kernels", cwd=project)
    assert done.returncode == 1 and "linear_gelu.yaml:14:10: error[FG203]" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_editable_install_builds_in_the_source_directory(project: Path, monkeypatch) -> None:
    monkeypatch.chdir(project)
    built = []
    monkeypatch.setattr(hook, "build_extensions", lambda requests, **options: built.extend(requests))
    command = distribution(package_dir={"": "src"}).get_command_obj("build_kernels")
    command.editable_mode = True
    command.ensure_finalized()
    command.run()
    generated = Path("src") / GENERATED
    assert (generated / "linear_gelu" / "__init__.py").is_file() and (generated / "manifest.json").is_file()
    assert [(each.package, tuple(each.targets)) for each in built] == [(generated / "linear_gelu", ("sm_90",))]
    mapping = command.get_output_mapping()
    assert set(mapping) == set(command.get_outputs())
    assert mapping[f"{command.build_lib}/{GENERATED}/linear_gelu/_C.so"] == str(generated / "linear_gelu" / "_C.so")


def test_a_project_with_other_extensions_is_for_one_python(project: Path, monkeypatch) -> None:
    monkeypatch.chdir(project)
    tags = []
    for extensions in ([], [Extension("other", ["other.c"])]):
        command = distribution(ext_modules=extensions).get_command_obj("bdist_wheel")
        command.ensure_finalized()
        tags.append(command.get_tag()[:2])
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tags[0] == ("py3", "none") and tags[1][0] == python
