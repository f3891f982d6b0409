"""One generated package in, its `_C.so` out: key, lock, compile, move into place."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusegen.build.commands import Commands
from fusegen.build.errors import BuildError
from fusegen.build.key import KEY_FILE, OUTPUT, Inputs, collect_inputs, key_text, why_stale
from fusegen.build.libraries import find_libraries
from fusegen.build.steps import run_steps
from fusegen.build.toolchain import find_ninja, find_toolchain
from fusegen.paths import BUILD_STORE

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from rich.console import Console

    from fusegen.build.progress import BuildProgress

# Somebody who waits longer than this is told what for.
_SILENT_SECONDS = 1.0


@dataclass(frozen=True)
class BuildResult:
    """What a build did. `reason` says why it compiled; None if there was nothing to do."""

    path: Path
    key: str
    reason: str | None
    seconds: float

    @property
    def built(self) -> bool:
        return self.reason is not None


def build_extension(
    package: Path,
    *,
    targets: Sequence[str],
    verification: bool = False,
    console: Console | None = None,
    force: bool = False,
) -> BuildResult:
    """Compiles `generated/<name>` into its `_C.so`, unless it is there already and made of the same.

    `targets` are GPU architectures such as `sm_90`; `verification` adds the double kernels; `force` compiles
    all of it again. Safe to call from several processes at once, and to interrupt: `_C.so` is replaced in one
    step, and only by a complete one. A BuildError names the command that failed and its message.
    """
    started = time.monotonic()
    package = Path(package).resolve()
    toolchain, libraries = find_toolchain(), find_libraries()

    def collect() -> Inputs:
        return collect_inputs(
            package, targets=targets, verification=verification, toolchain=toolchain, libraries=libraries
        )

    def result(reason: str | None, inputs: Inputs) -> BuildResult:
        return BuildResult(package / OUTPUT, inputs.key, reason, time.monotonic() - started)

    inputs = collect()
    if not force and why_stale(inputs) is None:
        return result(None, inputs)

    # Imported here: neither is needed when there is nothing to do, and that has to be quick.
    from filelock import FileLock

    from fusegen.build.progress import BuildProgress

    store = package.parent / BUILD_STORE / package.name
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = FileLock(package.parent / BUILD_STORE / f"{package.name}.lock")
        with BuildProgress(package.name, console) as progress, _held(lock, progress):
            # Who held the lock may have built just this, or the sources may have changed while we waited.
            inputs = collect()
            reason = "forced" if force else why_stale(inputs)
            if reason is not None:
                commands = Commands(inputs, toolchain, libraries, targets, verification)
                _compile(commands, store, reason, force, progress)
                progress.finish()
    except OSError as error:
        raise BuildError(f"cannot build in {package}: {error}") from error
    return result(reason, inputs)


@contextmanager
def _held(lock: BaseFileLock, progress: BuildProgress) -> Iterator[None]:
    """Holds the lock, saying so when it takes a while to get."""
    try:
        lock.acquire(timeout=_SILENT_SECONDS)
    except TimeoutError:  # filelock's Timeout is one
        progress.waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _compile(commands: Commands, store: Path, reason: str, force: bool, progress: BuildProgress) -> None:
    """Compiles what is missing in a directory of this build's own, then moves everything into place.

    Nothing is ever written where another build, or the one after an interrupted one, could see it half done:
    objects enter the store by a rename, under a name that says their content, and so does the output.
    """
    inputs = commands.inputs
    # We hold the lock, so whatever is still lying there is of a build that was killed.
    for left in store.glob("work-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=store))
    try:
        names = {source: inputs.object_name(source) for source in (*inputs.cuda, *inputs.cxx)}
        missing = [source for source, name in names.items() if force or not (store / name).is_file()]
        steps = [commands.compile_step(source, work / names[source]) for source in missing]
        objects = [(work if source in missing else store) / name for source, name in names.items()]
        steps.append(commands.link_step(objects, work / OUTPUT))
        progress.begin(reason, len(steps))
        run_steps(find_ninja(), steps, work=work, cwd=inputs.package, finished=progress.step)
        # Only now: after a failure an object may be half written (a compiler that was killed, a full disk).
        for source in missing:
            os.replace(work / names[source], store / names[source])
        text = key_text(inputs, work / OUTPUT)
        (work / KEY_FILE).write_text(text, encoding="utf-8")
        # The old key goes first: stopped between these lines, the next build finds no key and builds again.
        (inputs.package / KEY_FILE).unlink(missing_ok=True)
        os.replace(work / OUTPUT, inputs.package / OUTPUT)
        os.replace(work / KEY_FILE, inputs.package / KEY_FILE)
        for old in store.glob("*.o"):
            if old.name not in names.values():
                old.unlink(missing_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
