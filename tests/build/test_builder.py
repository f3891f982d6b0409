"""What a build leaves behind: a complete output, or the one before."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from fusegen.build import BuildError, build_extension


def test_builds_once(workshop) -> None:
    first = workshop.build()
    assert first.built and first.reason == "not built yet" and first.path == workshop.output
    # Objects in the order of the sources: CUDA first.
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert [line.split()[0] for line in sorted(workshop.started())] == ["g++", "g++", "nvcc"]

    workshop.forget()
    second = workshop.build()
    assert not second.built and second.key == first.key
    assert workshop.started() == []


def test_change_compiles_only_what_it_reaches(workshop) -> None:
    workshop.build()
    workshop.forget()
    (workshop.package / "bindings.cpp").write_text("other\n")
    # Older than every object, as after unpacking an archive: content decides, not time.
    os.utime(workshop.package / "bindings.cpp", (1, 1))
    result = workshop.build()
    assert result.reason == "changed: source bindings.cpp"
    assert workshop.output.read_text() == "kernels\nother\n"
    assert [line.split()[0] for line in workshop.started()] == ["g++", "g++"]
    assert len(list((workshop.root / "generated/.build/chain").glob("*.o"))) == 2


def test_force_compiles_everything(workshop) -> None:
    workshop.build()
    workshop.forget()
    assert workshop.build(force=True).reason == "forced"
    assert len(workshop.started()) == 3


@pytest.mark.parametrize("source", ["kernels.cu", "bindings.cpp"])
def test_failure_keeps_the_former_output(workshop, source: str) -> None:
    workshop.build()
    content, key = workshop.output.read_bytes(), (workshop.package / "_C.key").read_bytes()
    good = (workshop.package / source).read_text()
    (workshop.package / source).write_text("BROKEN\n")
    for _ in range(2):  # the second time finds what the first has left
        with pytest.raises(BuildError) as raised:
            workshop.build()
        error = raised.value
        assert source in error.message
        assert error.output == "kernels.cu(3): error: BROKEN is undefined"
        assert error.command is not None and source in error.command
        assert error.command in str(error) and error.output in str(error)
    assert workshop.output.read_bytes() == content
    assert (workshop.package / "_C.key").read_bytes() == key
    assert not list((workshop.root / "generated/.build/chain").glob("work-*"))

    (workshop.package / source).write_text(good)
    assert not workshop.build().built
    (workshop.package / source).write_text("mended\n")
    assert workshop.build().built
    assert "mended" in workshop.output.read_text() and "half" not in workshop.output.read_text()


def test_failed_link_keeps_the_former_output(workshop, make_executable) -> None:
    workshop.build()
    content = workshop.output.read_bytes()
    script = (workshop.root / "bin/g++").read_text()
    failing = script.replace("[ -n", 'case "$*" in *-shared*) echo "ld: cannot find -ltorch_cpu"; exit 1;; esac\n[ -n')
    make_executable(workshop.root / "bin" / "g++", failing)
    with pytest.raises(BuildError, match="ld: cannot find -ltorch_cpu"):
        workshop.build()
    assert workshop.output.read_bytes() == content


def test_output_from_elsewhere_is_replaced(workshop) -> None:
    workshop.build()
    workshop.output.write_text("another object\n")
    assert workshop.build().reason == "_C.so is not the one that was built"
    assert workshop.output.read_text() == "kernels\nbindings\n"
    (workshop.package / "_C.key").write_text("{}")
    assert workshop.build().reason == "built by something else"


def test_paths_with_spaces_and_dollars(workshop) -> None:
    odd = workshop.root / "odd $HOME: dir"
    (workshop.root / "generated").rename(odd)
    result = build_extension(odd / "chain", targets=["sm_90"])
    assert result.path.read_text() == "kernels\nbindings\n"


def test_linker_is_given_no_rpath(workshop, monkeypatch) -> None:
    monkeypatch.setenv("LD_RUN_PATH", "/somewhere")
    script = (workshop.root / "bin/g++").read_text()
    (workshop.root / "bin/g++").write_text(script + 'echo "LD_RUN_PATH=$LD_RUN_PATH" >> "$out"\n')
    workshop.build()
    assert "LD_RUN_PATH=\n" in workshop.output.read_text()


def test_plain_lines_without_a_terminal(workshop) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=False, width=20)
    workshop.build(console=console)
    lines = file.getvalue().splitlines()
    assert lines[0] == "chain: building (not built yet)"
    assert sorted(lines[1:4]) == ["chain: _C.so", "chain: bindings.cpp", "chain: kernels.cu"]
    assert lines[4].startswith("chain: built in ")
    workshop.build(console=console)
    assert len(file.getvalue().splitlines()) == 5


def test_live_progress_on_a_terminal(workshop) -> None:
    file = io.StringIO()
    workshop.build(console=Console(file=file, force_terminal=True, width=100))
    assert "\x1b[" in file.getvalue() and "chain: built in " in file.getvalue()


def test_what_the_file_system_refuses_is_a_build_error(workshop) -> None:
    store = workshop.root / "generated" / ".build"
    store.write_text("in the way\n")
    with pytest.raises(BuildError, match=r"cannot build: .*\.build.*: (Not a directory|File exists)"):
        workshop.build()
    store.unlink()
    (workshop.package / "kernels.cu").unlink()
    (workshop.package / "kernels.cu").mkdir()
    with pytest.raises(BuildError, match=r"cannot build: .*kernels\.cu: Is a directory"):
        workshop.build()
