"""Several packages, and several parts of one source, in one build."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.build import BuildError, Request, build_extensions, steps
from fusegen.build.flags import PARTS

GUARDED = "#ifndef FUSEGEN_BACKWARD_ONLY\n#endif\n#ifndef FUSEGEN_FORWARD_ONLY\n#endif\n"


def build(*packages: Path):
    return build_extensions([Request(package, ["sm_90"]) for package in packages])


def test_all_are_built_and_only_the_stale_again(workshop) -> None:
    other = workshop.add("other", "other")
    results = build(other, workshop.package)
    assert [result.path for result in results] == [other / "_C.so", workshop.output]
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\n"
    assert workshop.output.read_text() == "kernels\nbindings\n"

    workshop.forget()
    (other / "bindings.cpp").write_text("changed\n")
    results = build(workshop.package, other)
    assert [result.reason for result in results] == [None, "changed: source bindings.cpp"]
    assert len(workshop.started()) == 2
    assert (other / "_C.so").read_text() == "other kernels\nchanged\n"


def test_same_sources_give_each_package_its_own_output(workshop) -> None:
    twin = workshop.add("twin", "")
    for name in ("kernels.cu", "bindings.cpp"):
        (twin / name).write_text((workshop.package / name).read_text())
    build(workshop.package, twin)
    assert (twin / "_C.so").read_text() == workshop.output.read_text() == "kernels\nbindings\n"


def test_failure_of_one_leaves_the_finished_in_place(workshop, make_executable) -> None:
    bad = workshop.add("bad", "BROKEN")
    # The broken one fails late, and its link is never tried: by then the other one is linked.
    script = (workshop.root / "bin" / "nvcc").read_text()
    late = 'case "$PWD" in */bad) FAKE_SECONDS=2;; esac\n'
    make_executable(workshop.root / "bin" / "nvcc", script.replace("sleep", late + "sleep"))
    (bad / "bindings.cpp").write_text("fine\n")
    with pytest.raises(BuildError, match=r"building failed: bad: kernels\.cu") as raised:
        build(bad, workshop.package)
    assert raised.value.output == "kernels.cu(3): error: BROKEN is undefined"
    assert str(bad) in raised.value.command
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert not (bad / "_C.so").exists()
    assert not list((workshop.root / "generated/.build").glob("*/work-*"))

    # What failed is compiled again, and was not kept. So are bindings, whose ops have the digest of all sources.
    workshop.forget()
    (bad / "kernels.cu").write_text("mended\n")
    first, second = build(workshop.package, bad)
    assert not first.built and second.built
    assert sorted(line.split()[0] for line in workshop.started()) == ["g++", "g++", "nvcc"]
    assert (bad / "_C.so").read_text() == "mended\nfine\n"


def test_the_same_package_twice_is_refused(workshop) -> None:
    with pytest.raises(BuildError, match="asked to build twice: .*chain"):
        build(workshop.package, workshop.package / ".." / "chain")
    assert workshop.started() == []


def test_builds_in_opposite_order_do_not_wait_for_each_other_forever(workshop) -> None:
    workshop.add("other", "other")
    names = ("chain", "other")
    processes = [workshop.start(*order, seconds=0.5) for order in (names, names[::-1])]
    answers = [process.communicate(timeout=60)[0].splitlines()[:2] for process in processes]
    assert sorted(answers) == [["built"] * 2, ["nothing to do"] * 2]
    assert len(workshop.started()) == 6


def test_guarded_source_is_compiled_in_parts(workshop) -> None:
    (workshop.package / "kernels.cu").write_text(GUARDED)
    workshop.build()
    compiled = [line for line in workshop.started() if line.startswith("nvcc")]
    assert len(compiled) == 2
    assert {part for part in PARTS for line in compiled if f"-D{part} " in line} == set(PARTS)
    assert workshop.output.read_text() == GUARDED * 2 + "bindings\n"
    assert len(list((workshop.root / "generated/.build/chain").glob("*.o"))) == 3

    workshop.forget()
    (workshop.package / "bindings.cpp").write_text("other\n")
    workshop.build()
    assert [line.split()[0] for line in workshop.started()] == ["g++", "g++"]


@pytest.mark.parametrize("part", PARTS)
def test_source_with_one_guard_is_compiled_whole(workshop, part: str) -> None:
    (workshop.package / "kernels.cu").write_text(f"#ifndef {part}\n#endif\n")
    workshop.build()
    assert not any(f"-D{part}" in line for line in workshop.started())
    assert len(workshop.started()) == 3


@pytest.mark.parametrize(
    "cores, targets, flags",
    [
        (1, ["sm_90"], []),
        (3, ["sm_90"], []),
        (4, ["sm_90"], ["--split-compile=2"]),
        (7, ["sm_90"], ["--split-compile=3"]),
        (3, ["sm_90", "sm_80"], []),
        (4, ["sm_90a"], ["--threads=2"]),  # for other GPUs there is PTX of the plain architecture
        (5, ["sm_90", "sm_80", "sm_100"], ["--threads=2"]),
        (7, ["sm_90", "sm_80", "sm_90"], ["--threads=2"]),
        (9, ["sm_90", "sm_80"], ["--threads=2", "--split-compile=2"]),
    ],
)
def test_sources_share_the_cores(workshop, monkeypatch, cores, targets, flags) -> None:
    """Each of the two parts has its targets at the same time, then its kernels."""
    (workshop.package / "kernels.cu").write_text(GUARDED)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    key = workshop.build(targets=targets).key
    assert core_flags(workshop) == [flags, flags]

    # Elsewhere there are other cores, and the same to build; what is left to compile has them all.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert not workshop.build(targets=targets).built
    left = next(path for path in (workshop.root / "generated" / ".build" / "chain").glob("kernels.*.o"))
    left.unlink()
    workshop.output.unlink()
    workshop.forget()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    assert workshop.build(targets=targets).key == key
    distinct = len(set(targets)) + ("sm_90a" in targets)
    at_once = [f"--threads={distinct}"] if distinct > 1 else []
    assert core_flags(workshop) == [[*at_once, f"--split-compile={6 // distinct}"]]


def core_flags(workshop) -> list[list[str]]:
    compiled = [line.split() for line in workshop.started() if line.startswith("nvcc")]
    return [[word for word in words if word.startswith(("--threads", "--split-compile"))] for words in compiled]


def test_what_takes_longest_is_compiled_first(workshop, monkeypatch) -> None:
    """On one core: kernels by the size of their source, the backward pass first; then bindings."""
    other = workshop.add("other", GUARDED)
    (workshop.package / "kernels.cu").write_text(GUARDED)
    (other / "bindings.cpp").write_text("many bindings\n" * 1000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert (other / "kernels.cu").stat().st_size > len(GUARDED)
    build(workshop.package, other)
    compiled = [line for line in workshop.started() if " -c " in line]
    parts = ("BACKWARD", "FORWARD", "bindings")
    assert [next(part for part in parts if part in line) for line in compiled] == [*parts[:2] * 2, *parts[2:] * 2]
    assert ["/other/" in line for line in compiled[:4]] == [True, True, False, False]


def test_no_more_compilers_run_than_there_are_cores(workshop, monkeypatch) -> None:
    started, popen = [], steps.subprocess.Popen

    def spy(command, **options):
        started.append(command)
        return popen(command, **options)

    monkeypatch.setattr(steps.subprocess, "Popen", spy)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)))
    workshop.build()
    [ninja] = [command for command in started if "-f" in command]
    assert ninja[1:3] == ["-j", "5"]
