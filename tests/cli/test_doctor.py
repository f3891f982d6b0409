"""`fusegen doctor` with compilers that only say what they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.cli.test_cli import ROOT, SPEC  # noqa: E402
from tests.commands import run_here  # noqa: E402

pytestmark = pytest.mark.torch

NVCC = """#!/bin/sh
case $1 in
--version) echo 'nvcc: a compiler'; echo 'Cuda compilation tools, release 12.4, V12.4.131' ;;
*) echo sm_80; echo sm_90 ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (("nvcc", NVCC), ("g++", "#!/bin/sh\necho 'g++ (Some) 13.1'\necho more\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "specs").mkdir()
    shutil.copy(SPEC, tmp_path / "specs")
    return tmp_path


def doctor(project: Path, *arguments: str, **changes: str) -> tuple[int, dict[str, str], str]:
    """The exit code, the findings by their names, and what is behind these."""
    environment = {"FUSEGEN_NVCC": str(project / "nvcc"), "CXX": str(project / "g++"), **changes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)  # this process may have looked for GPUs already
        done = run_here("doctor", *arguments, cwd=project, **environment)
    assert done.stderr == b""
    lines = done.stdout.decode().splitlines()
    end = next(index for index, line in enumerate(lines) if line.startswith("A build "))
    found = dict(line.split("  ", 1) for line in lines[:end])
    return done.returncode, {name.strip(): text.strip() for name, text in found.items()}, "\n".join(lines[end:])


def test_what_a_build_has(project: Path) -> None:
    code, found, rest = doctor(project)
    assert (code, rest) == (0, "A build can work here: fusegen build specs")
    assert list(found) == [
        "fusegen", "CUDA compiler", "host compiler", "ninja", "torch", "targets", "driver", "GPU", "generated",
    ]  # fmt: skip
    assert found["CUDA compiler"] == f"nvcc 12.4, {project / 'nvcc'} (from FUSEGEN_NVCC)"
    assert found["host compiler"] == f"g++ (Some) 13.1, {project / 'g++'}"
    assert found["targets"] == "sm_90 of 1 spec" and found["generated"] == "no packages yet"
    assert found["GPU"] == "none that torch sees; a build needs none" and "for C" in found["torch"]


def test_what_is_compiled(project: Path) -> None:
    both = map(str, (SPEC, ROOT / "specs" / "gemm_add_relu.yaml"))
    assert run_here("build", "--no-compile", "--quiet", *both, cwd=project).returncode == 0
    assert doctor(project)[1]["generated"] == "2 packages with kernels: 2 not compiled"
    package = project / "generated" / SPEC.stem
    (package / "_C.so").touch()
    assert "1 compiled for what is not known here, 1 not compiled" in doctor(project)[1]["generated"]
    flags = "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a"
    parts = {"nvcc flags": flags, "python": "cpython 3.11"}
    (package / "_C.key").write_text(json.dumps({"parts": parts, "output": ""}))
    assert "1 compiled for sm_80 and sm_90a, cpython 3.11, 1 not compiled" in doctor(project)[1]["generated"]


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"FUSEGEN_NVCC": "/nowhere"}, "CUDA compiler", "FUSEGEN_NVCC is '/nowhere', which is not an executable file"),
        ({"FUSEGEN_NVCC": "/bin/false"}, "CUDA compiler", "/bin/false cannot be started"),
        ({"CXX": "nothing"}, "host compiler", "CXX is 'nothing', which is not an executable (install g++"),
    ],
)
def test_why_no_build_can_work(project: Path, changes: dict[str, str], name: str, reason: str) -> None:
    code, found, rest = doctor(project, **changes)
    assert code == 1 and found[name] == "none that a build can use" and found["targets"] == "sm_90 of 1 spec"
    assert rest.startswith(f"A build cannot work here:\n  {reason}")


def test_a_target_that_nvcc_does_not_know(project: Path) -> None:
    spec = project / "specs" / SPEC.name
    spec.write_text(spec.read_text().replace("targets: [sm_90]", "targets: [sm_90a, sm_120]"))
    code, _, rest = doctor(project)
    assert code == 1 and rest.splitlines()[1:] == ["  nvcc has no code for sm_120 (take a newer one, or other targets)"]


def test_a_wrong_spec(project: Path) -> None:
    spec = project / "specs" / SPEC.name
    spec.write_text(spec.read_text().replace("op: leaky_relu", "op: leaky_rely"))
    code, found, rest = doctor(project)
    assert code == 1 and "FG203" in rest and found["CUDA compiler"].startswith("nvcc 12.4")


def test_without_specs(project: Path) -> None:
    shutil.rmtree(project / "specs")
    code, found, rest = doctor(project)
    assert (code, rest) == (0, "A build can work here: fusegen build SPEC") and "no directory specs" in found["targets"]


def test_a_gpu_that_is_no_target(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusegen.commands import doctor as command

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Card")
    assert command._gpu(["sm_90a"]) == "A Card, sm_80, which is not among the targets"
    assert command._gpu(["sm_80"]) == command._gpu([]) == "A Card, sm_80"


def test_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusegen.commands import doctor as command

    monkeypatch.setattr(command, "_DRIVER", tmp_path / "version")
    assert command._driver() == "none of NVIDIA; a build needs none"
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12.2.0\n"
    (tmp_path / "version").write_text(text)
    assert command._driver() == "NVIDIA 580.65.06"
