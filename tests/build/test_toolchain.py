"""Which nvcc is taken, and that finding it starts none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusegen.build import BuildError, toolchain
from fusegen.build.toolchain import find_cxx, find_ninja, find_nvcc, find_toolchain


@pytest.fixture
def everywhere(tmp_path: Path, monkeypatch, make_executable) -> tuple[dict[str, str], dict[str, Path]]:
    """An environment with an nvcc in every place, each of which would leave a trace if it ran."""
    text = f"#!/bin/sh\ntouch {tmp_path}/started\n"
    places = {
        "FUSEGEN_NVCC": tmp_path / "explicit" / "my-nvcc",
        "CUDA_HOME": tmp_path / "home" / "bin" / "nvcc",
        "CUDA_PATH": tmp_path / "path" / "bin" / "nvcc",
        "pip wheels": tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc",
        "PATH": tmp_path / "bin" / "nvcc",
    }
    for path in places.values():
        make_executable(path, text)
    make_executable(tmp_path / "bin" / "g++", text)
    wheel = places["pip wheels"].parent.parent
    make_executable(wheel / "bin" / "ptxas", text)
    make_executable(wheel / "nvvm" / "bin" / "cicc", text)
    monkeypatch.setattr(toolchain, "_wheel_roots", lambda: [tmp_path / "site" / "nvidia"])
    environment = {
        "FUSEGEN_NVCC": str(places["FUSEGEN_NVCC"]),
        "CUDA_HOME": str(tmp_path / "home"),
        "CUDA_PATH": str(tmp_path / "path"),
        "PATH": str(tmp_path / "bin"),
    }
    return environment, places


def test_order(everywhere, tmp_path: Path) -> None:
    environment, places = everywhere
    for origin, path in places.items():
        found = find_nvcc(environment)
        assert (found.origin, found.path) == (origin, path)
        # Take this one away; the next must be found.
        environment.pop(origin, None)
        path.unlink()
    with pytest.raises(BuildError):
        find_nvcc({**environment, "PATH": ""})
    assert not (tmp_path / "started").exists()


def test_explicit_nvcc_must_exist(everywhere) -> None:
    environment, _ = everywhere
    with pytest.raises(BuildError, match="FUSEGEN_NVCC is '/nowhere/nvcc'"):
        find_nvcc({**environment, "FUSEGEN_NVCC": "/nowhere/nvcc"})


def test_file_that_cannot_be_executed_is_no_compiler(everywhere) -> None:
    environment, places = everywhere
    del environment["FUSEGEN_NVCC"]
    places["CUDA_HOME"].chmod(0o644)
    assert find_nvcc(environment).origin == "CUDA_PATH"


def test_cuda_home_without_compiler_is_passed_over(everywhere, tmp_path: Path) -> None:
    environment, _ = everywhere
    del environment["FUSEGEN_NVCC"]
    environment["CUDA_HOME"] = str(tmp_path / "runtime-only")
    assert find_nvcc(environment).origin == "CUDA_PATH"


def test_incomplete_wheel_is_passed_over(everywhere) -> None:
    environment, places = everywhere
    (places["pip wheels"].parent.parent / "nvvm" / "bin" / "cicc").unlink()
    assert find_nvcc({"PATH": environment["PATH"]}).origin == "PATH"


def test_newest_wheel_wins(everywhere, tmp_path: Path, make_executable) -> None:
    root = tmp_path / "site" / "nvidia" / "cu100"
    for name in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc"):
        make_executable(root / name)
    assert find_nvcc({"PATH": ""}).root == root


def test_wheels_are_found_on_the_module_path(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "nvidia" / "cu13").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert tmp_path / "nvidia" in toolchain._wheel_roots()


def test_nothing_found_names_places_and_remedy(no_wheels: None, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as raised:
        find_nvcc({"CUDA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    message = str(raised.value)
    assert "pip install 'fusegen[nvcc]'" in message
    assert str(tmp_path / "bin" / "nvcc") in message
    for place in ("CUDA_HOME", "CUDA_PATH", "pip wheels", "PATH"):
        assert place in message


def test_no_host_compiler_names_remedy(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="install g\\+\\+"):
        find_cxx({"PATH": str(tmp_path)})
    with pytest.raises(BuildError, match="CXX is 'no-such-compiler'"):
        find_cxx({"PATH": str(tmp_path), "CXX": "no-such-compiler"})


def test_cxx_is_a_command(tmp_path: Path, make_executable) -> None:
    """As torch takes it: what starts a compiler, the compiler, options."""
    tools = tmp_path / "a tool"
    ccache, cxx = make_executable(tools / "ccache"), make_executable(tools / "my g++")
    nvcc = {"FUSEGEN_NVCC": str(make_executable(tools / "nvcc")), "PATH": str(tools)}
    quoted = f"ccache '{cxx}' -m64 -DX='a b'"
    found = find_toolchain(nvcc | {"CXX": quoted})
    assert found.cxx_command() == [str(ccache), str(cxx), "-m64", "-DX=a b"]
    assert found.nvcc_command()[1:] == ["-ccbin", str(cxx), "-Xcompiler", "-m64", "-Xcompiler", "-DX=a b"]
    alone = find_toolchain(nvcc | {"CXX": str(cxx)})  # the path of one program needs no quotes
    assert alone.cxx_command() == [str(cxx)] and alone.nvcc_command()[1:] == ["-ccbin", str(cxx)]
    assert alone.identity() == find_toolchain(nvcc | {"CXX": f"ccache '{cxx}'"}).identity() != found.identity()


@pytest.mark.parametrize("cxx", ["ccache no-such-compiler", "g++ '", " ", "-O2"])
def test_a_command_that_is_none(cxx: str, tmp_path: Path, make_executable) -> None:
    make_executable(tmp_path / "ccache")
    make_executable(tmp_path / "g++")
    with pytest.raises(BuildError, match="CXX is "):
        find_cxx({"PATH": str(tmp_path), "CXX": cxx})


def test_identity_follows_the_compiler(everywhere) -> None:
    environment, places = everywhere
    before = find_toolchain(environment).identity()
    assert find_toolchain(environment).identity() == before
    os.utime(places["FUSEGEN_NVCC"], (1, 1))
    after = find_toolchain(environment).identity()
    assert after["nvcc"] != before["nvcc"] and after["cxx"] == before["cxx"]


def test_identity_follows_what_a_wrapper_starts(tmp_path: Path, make_executable) -> None:
    real = make_executable(tmp_path / "cuda" / "bin" / "nvcc")
    wrapper = make_executable(tmp_path / "bin" / "nvcc", f'#!/bin/sh\nexec {real} "$@"\n')
    make_executable(tmp_path / "bin" / "g++")
    environment = {"FUSEGEN_NVCC": str(wrapper), "PATH": str(tmp_path / "bin")}
    nvcc = find_toolchain(environment).nvcc
    assert nvcc.root == tmp_path / "cuda" and nvcc.path == wrapper
    before = find_toolchain(environment).identity()
    os.utime(real, (1, 1))
    assert find_toolchain(environment).identity() != before


def test_ninja_is_found() -> None:
    assert os.access(find_ninja(), os.X_OK)
