"""Processes of models.py that prepare side by side, and are timed one after another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY = "ready to be timed"
STACKS = signal.SIGUSR1
"""Has a process write the stacks of its threads, and go on."""


def descendants(pid: int) -> list[int]:
    """A process and those that it began, such as a compiler's, which may have sessions of their own."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def send(number: signal.Signals, pids: Sequence[int]) -> None:
    """A signal to processes, of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Children:
    """Processes that prepare side by side, and are timed alone."""

    def __init__(self, script: Path, jobs: Sequence[tuple[str, str]], out: Path, count: int) -> None:
        """script: what a process runs, with `--child MODEL ROUTE --out DIR`. count: of processes at a time."""
        self._script, self._waiting, self._out, self._count = script, list(jobs), out, count
        self._running: dict[tuple[str, str], subprocess.Popen[str]] = {}

    def rows(self, until: float) -> list[dict[str, Any]]:
        """Of all jobs that are done before a time."""
        found = []
        while (self._waiting or self._running) and time.monotonic() < until:
            while self._waiting and len(self._running) < self._count:
                self._start(*self._waiting.pop(0))
            for job, process in list(self._running.items()):
                if self._is_ready(job) or process.poll() is not None:
                    row = self._timed(job)
                    found.append(row)
                    print(json.dumps(row), flush=True)
                    break
            else:
                time.sleep(0.2)
        send(STACKS, [process.pid for process in self._running.values()])
        time.sleep(1)
        for job, process in self._running.items():
            send(signal.SIGKILL, descendants(process.pid))
            found.append({"model": job[0], "route": job[1], "problem": "not ready in time; its log has its stacks"})
        found += [{"model": name, "route": route, "problem": "not begun in time"} for name, route in self._waiting]
        return found

    def _start(self, name: str, route: str) -> None:
        command = [sys.executable, str(self._script), "--child", name, route, "--out", str(self._out)]
        log = (self._out / f"{name}.{route}.log").open("w", encoding="utf-8")
        self._running[name, route] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True
        )

    def _log(self, job: tuple[str, str]) -> str:
        return (self._out / "{}.{}.log".format(*job)).read_text(encoding="utf-8", errors="replace")

    def _is_ready(self, job: tuple[str, str]) -> bool:
        return f"{READY}\n" in self._log(job)

    def _timed(self, job: tuple[str, str]) -> dict[str, Any]:
        process = self._running.pop(job)
        others = [pid for each in self._running.values() for pid in descendants(each.pid)]
        send(signal.SIGSTOP, others)
        try:
            process.communicate("go\n", timeout=60)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            send(signal.SIGKILL, descendants(process.pid))
        finally:
            send(signal.SIGCONT, others)
        lines = self._log(job).strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (ValueError, IndexError):
            return {"model": job[0], "route": job[1], "problem": f"it ended: {lines[-1] if lines else ''}"[:300]}
