"""Builds in processes of their own: two at once, one that is killed, one with nothing to do."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fusegen.build.signals import unwinding


def finish(process) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def wait_until(condition) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_two_at_once_compile_once(workshop) -> None:
    processes = [workshop.start(seconds=0.8) for _ in range(2)]
    answers = sorted(finish(process).splitlines()[0] for process in processes)
    assert answers == ["built", "nothing to do"]
    assert len(workshop.started()) == 3
    assert workshop.output.read_text() == "kernels\nbindings\n"


def test_who_waits_says_so(workshop) -> None:
    first = workshop.start(seconds=1.5)
    wait_until(lambda: workshop.started())
    second = workshop.start()
    _, err = second.communicate(timeout=60)
    assert "chain: waiting for another build to finish" in err
    finish(first)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_build_leaves_the_former_output(workshop, how: signal.Signals) -> None:
    finish(workshop.start())
    content = workshop.output.read_bytes()
    (workshop.package / "kernels.cu").write_text("new\n")
    workshop.forget()
    slow = workshop.start(seconds=3)
    wait_until(lambda: workshop.started())
    slow.send_signal(how)
    slow.communicate(timeout=60)
    assert slow.returncode != 0
    assert workshop.output.read_bytes() == content
    # While the killed build's compilers may still be writing.
    assert finish(workshop.start()).startswith("built")
    assert workshop.output.read_text() == "new\nbindings\n"
    assert not list((workshop.root / "generated/.build/chain").glob("work-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_an_interrupted_build_finished_is_not_compiled_again(workshop, how: signal.Signals) -> None:
    """And what it did not is."""
    stores = workshop.root / "generated/.build"
    (workshop.root / "generated/support/autograd.cpp").write_text("autograd\n")
    slow = workshop.start(seconds=3, slow="bindings.cpp")
    wait_until(lambda: len(list(stores.glob("*/finished/*"))) == 2)
    # ninja removes what a step has made whose end it has not noted.
    wait_until(lambda: any(len(log.read_text().splitlines()) > 3 for log in stores.glob("*/work-*/.ninja_log")))
    slow.send_signal(how)
    slow.communicate(timeout=60)
    assert slow.returncode != 0 and not workshop.output.exists()
    workshop.forget()
    assert finish(workshop.start()).startswith("built")
    compiled = [line for line in workshop.started() if " -c " in line or "autograd" in line]
    assert ["bindings.cpp" in line for line in compiled] == [True]
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert (workshop.root / "generated/support/_autograd.2.13.0.so").read_text() == "autograd\n"
    assert not [path for path in stores.glob("*/*") if path.is_dir()]


def test_what_was_finished_of_other_sources_is_not_used(workshop) -> None:
    store = workshop.root / "generated/.build/chain"
    slow = workshop.start(seconds=3, slow="bindings.cpp")
    wait_until(lambda: list(store.glob("finished/kernels.*.o")))
    slow.send_signal(signal.SIGINT)
    slow.communicate(timeout=60)
    (workshop.package / "kernels.cu").write_text("new\n")
    assert finish(workshop.start()).startswith("built")
    assert workshop.output.read_text() == "new\nbindings\n"


def processes_with(argument: str) -> list[str]:
    """Command lines of running processes that have the argument."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if argument in arguments:
            found.append(" ".join(arguments))
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_build_that_is_told_to_end_cleans_up(workshop, how: signal.Signals) -> None:
    seconds = f"600.{os.getpid()}{how.value}"  # names the compilers of this test among all processes
    former = signal.signal(how, signal.SIG_DFL)  # a signal that is ignored here, as by nohup, is so in the build
    try:
        slow = workshop.start(seconds=seconds)
    finally:
        signal.signal(how, former)
    wait_until(lambda: processes_with(seconds))
    slow.send_signal(how)
    slow.communicate(timeout=60)
    assert slow.returncode == (-how if how == signal.SIGINT else 128 + how)
    assert processes_with(seconds) == []
    assert not list((workshop.root / "generated/.build/chain").iterdir())
    assert not (workshop.package / "_C.so").exists()
    assert finish(workshop.start()).startswith("built")


def test_other_handlers_stay() -> None:
    def theirs(number: int, frame: object) -> None: ...

    former = [signal.signal(signal.SIGTERM, theirs), signal.signal(signal.SIGHUP, signal.SIG_IGN)]
    try:
        with unwinding():
            assert signal.getsignal(signal.SIGTERM) is theirs and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is theirs and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(SystemExit, match="143"), unwinding():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, former[0])
        signal.signal(signal.SIGHUP, former[1])


def test_builds_in_a_thread(workshop) -> None:
    with ThreadPoolExecutor() as pool:
        assert pool.submit(workshop.build).result(timeout=60).built


def test_nothing_to_do_is_quick(workshop) -> None:
    finish(workshop.start())
    workshop.forget()
    started = time.monotonic()
    out = finish(workshop.start())
    seconds = time.monotonic() - started
    assert out.splitlines() == ["nothing to do", "imported"]
    assert workshop.started() == []
    assert seconds < 1.0


def test_key_file_says_what_went_in(workshop) -> None:
    (workshop.package / "kernels.cu").write_text('#include "../support/launch.cuh"\n')
    result = workshop.build()
    stored = json.loads((workshop.package / "_C.key").read_text())
    assert stored["key"] == result.key
    assert {"source kernels.cu", "support launch.cuh", "nvcc", "torch"} <= stored["parts"].keys()
