"""Generated packages in, their `_C.so` out: key, lock, compile, move into place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fusegen.build.autograd import AutogradLibrary
from fusegen.build.errors import BuildError
from fusegen.build.key import OUTPUT, Inputs, collect_inputs, why_stale
from fusegen.build.libraries import Libraries, find_libraries
from fusegen.build.lock import held
from fusegen.build.toolchain import Toolchain, find_ninja, find_toolchain
from fusegen.paths import BUILD_STORE, SUPPORT

if TYPE_CHECKING:
    from rich.console import Console

    from fusegen.build.autograd_job import AutogradJob
    from fusegen.build.job import Job
    from fusegen.build.progress import BuildProgress


@dataclass(frozen=True)
class Request:
    """A package, `generated/<name>`, and the GPU architectures to compile it for, such as `sm_90`."""

    package: Path
    targets: Sequence[str]


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
    portable: bool = False,
    console: Console | None = None,
    force: bool = False,
) -> BuildResult:
    """Builds one package, as `build_extensions` does."""
    request = Request(Path(package), targets)
    return build_extensions([request], verification=verification, portable=portable, console=console, force=force)[0]


def build_extensions(
    requests: Sequence[Request],
    *,
    verification: bool = False,
    portable: bool = False,
    console: Console | None = None,
    force: bool = False,
) -> list[BuildResult]:
    """Compiles each package into its `_C.so`, all at once, but for those that are made of the same already.

    `verification` adds the double kernels; `portable` leaves out what serves one Python or one torch alone: the
    Python module in `_C.so`, and the autograd library; `force` compiles all of it again. Safe to call from several
    processes at once, and to interrupt: `_C.so` is replaced in one step, and only by a complete one. A BuildError
    names the first command that failed and its message; packages that were finished by then are in place.
    """
    build = _Build(find_toolchain(), find_libraries(), verification, portable, force)
    requests = [Request(Path(request.package).resolve(), tuple(request.targets)) for request in requests]
    packages = [request.package for request in requests]
    if twice := sorted({str(package) for package in packages if packages.count(package) > 1}):
        raise BuildError(f"asked to build twice: {', '.join(twice)}")
    with _reported():
        results: dict[Path, BuildResult] = {}
        stale = []
        for request in requests:
            inputs = build.inputs(request)
            if build.reason(inputs) is None:
                results[request.package] = build.result(inputs, None)
            else:
                stale.append(request)
        outputs: set[Path] = set() if portable else {package.parent for package in packages}
        libraries = [build.autograd(directory) for directory in sorted(outputs)]
        stale_libraries = [each for each in libraries if build.why_stale(each) is not None]
        if stale or stale_libraries:
            results |= build.run(stale, stale_libraries, console)
    return [results[package] for package in packages]


@dataclass(frozen=True)
class _Build:
    """What all packages of one call share, and how they are built."""

    toolchain: Toolchain
    libraries: Libraries
    verification: bool
    portable: bool
    force: bool
    started: float = field(default_factory=time.monotonic)

    def inputs(self, request: Request) -> Inputs:
        return collect_inputs(
            request.package,
            targets=request.targets,
            verification=self.verification,
            toolchain=self.toolchain,
            libraries=self.libraries,
            portable=self.portable,
        )

    def reason(self, inputs: Inputs) -> str | None:
        return "forced" if self.force else why_stale(inputs)

    def autograd(self, directory: Path) -> AutogradLibrary:
        return AutogradLibrary(directory / SUPPORT, self.toolchain, self.libraries)

    def why_stale(self, library: AutogradLibrary) -> str | None:
        reason = library.why_stale()
        return "forced" if self.force and library.source.is_file() else reason

    def result(self, inputs: Inputs, reason: str | None) -> BuildResult:
        return BuildResult(inputs.package / OUTPUT, inputs.key, reason, time.monotonic() - self.started)

    def run(
        self, requests: Sequence[Request], libraries: Sequence[AutogradLibrary], console: Console | None
    ) -> dict[Path, BuildResult]:
        """Builds packages and autograd libraries that seemed stale, holding the locks of all."""
        # Imported here: none of it is needed when there is nothing to do, and that has to be quick.
        from fusegen.build.autograd_job import AutogradJob
        from fusegen.build.commands import Commands
        from fusegen.build.job import Job
        from fusegen.build.placing import leave
        from fusegen.build.progress import BuildProgress
        from fusegen.build.signals import unwinding

        results: dict[Path, BuildResult] = {}
        with unwinding(), BuildProgress(console) as progress, ExitStack() as cleanup:
            # Everybody takes locks in the same order, so no two builds wait for each other.
            locked = [*(request.package for request in requests), *(library.support for library in libraries)]
            for each in sorted(locked):
                _store(each).mkdir(parents=True, exist_ok=True)
                lock = _store(each).with_name(f"{each.name}.lock")
                cleanup.enter_context(held(lock, partial(progress.waiting, each.name)))
            jobs: list[Job | AutogradJob] = []

            def add(job: Job | AutogradJob) -> None:
                jobs.append(job)
                cleanup.callback(leave, job)

            for request in requests:
                # Who held the lock may have built just this, or the sources may have changed while we waited.
                inputs = self.inputs(request)
                reason = self.reason(inputs)
                if reason is None:
                    results[request.package] = self.result(inputs, None)
                    continue
                commands = Commands(inputs, self.toolchain, self.libraries, request.targets, self.verification)
                first = jobs[0].finished if jobs else None
                add(Job(commands, _store(request.package), reason, self.force, finished_for_all=first))
            for library in libraries:
                if (reason := self.why_stale(library)) is not None:
                    add(AutogradJob(library, _store(library.support), reason, self.force))
            if jobs:
                results |= self._compile(jobs, progress)
        return results

    def _compile(self, jobs: Sequence[Job | AutogradJob], progress: BuildProgress) -> dict[Path, BuildResult]:
        """Runs the steps of all jobs as one graph: a core that one package leaves idle works for another.

        A step that several want is there once. What takes longest comes first: were it last, it would be waited for
        while other cores are idle.
        """
        from fusegen.build.job import Job
        from fusegen.build.steps import Step, run_steps

        cores = len(os.sched_getaffinity(0))
        each = cores // max(1, sum(job.missing_kernels for job in jobs))
        by_step = {step.output: step for job in jobs for step in job.steps(each)}
        steps = sorted(by_step.values(), key=lambda step: -step.weight)
        by_output = {job.output: job for job in jobs}
        seconds: dict[Path, float] = {}

        def ended(step: Step, done: int) -> None:
            progress.step(step.what, done)
            if step.output in by_output:
                seconds[step.output] = time.monotonic() - self.started

        progress.begin({job.name: job.reason for job in jobs}, len(steps))
        outcome = run_steps(find_ninja(), steps, cores=cores, work=jobs[0].work, ended=ended)
        results: dict[Path, BuildResult] = {}
        for job in jobs:
            if not job.place(outcome.finished):
                continue
            progress.built(job.name, seconds[job.output], job.shortcoming)
            if isinstance(job, Job):
                inputs = job.commands.inputs
                results[inputs.package] = BuildResult(
                    inputs.package / OUTPUT, inputs.key, job.reason, seconds[job.output]
                )
        for job in jobs:  # only now: they share
            shutil.rmtree(job.finished, ignore_errors=True)
        if outcome.error is not None:
            raise outcome.error
        return results


def _store(package: Path) -> Path:
    return package.parent / BUILD_STORE / package.name


@contextmanager
def _reported() -> Iterator[None]:
    """What the file system refuses fails the build, and is no bug: a full disk, a directory without access."""
    try:
        yield
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        raise BuildError(f"cannot build: {place}{error.strerror or error}") from error
