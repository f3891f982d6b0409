"""What one does in this tree, each by a name: `nox -l` lists them. All run in the environment that nox is in."""

from __future__ import annotations

import sys

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "fast"]

QUICK = ("tests/spec", "tests/ir", "tests/plan", "tests/render")
PARALLEL = ("-n", "auto", "--dist", "loadfile")


@nox.session
def lint(session: nox.Session) -> None:
    """Style and common mistakes."""
    session.run(sys.executable, "-m", "ruff", "check", ".")
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy."""
    session.run(sys.executable, "-m", "mypy")


@nox.session
def site(session: nox.Session) -> None:
    """docs/ as a site in build/site; a broken link or anchor is an error. It needs the extra `site`."""
    session.run(sys.executable, "-m", "mkdocs", "build", "--strict")


@nox.session
def fast(session: nox.Session) -> None:
    """The tests of specs, plans and rendering."""
    session.run(sys.executable, "-m", "pytest", *PARALLEL, *QUICK, *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """The tests that CI runs; `nox -s test -- tests/capture` runs some."""
    session.run(sys.executable, "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """All tests, those marked `slow` as well: after a change of the kernels' headers or of the emulator."""
    session.run(sys.executable, "-m", "pytest", *PARALLEL, "-m", "", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The branches that tests run: all tests, or those behind `--`."""
    report = ("--cov=fusegen", "--cov-branch", "--cov-report=term:skip-covered")
    session.run(sys.executable, "-m", "pytest", *PARALLEL, *report, *session.posargs)


@nox.session
def format(session: nox.Session) -> None:
    """Writes Python as `lint` wants it."""
    session.run(sys.executable, "-m", "ruff", "check", "--fix", ".")
    session.run(sys.executable, "-m", "ruff", "format", ".")


@nox.session
def regenerate(session: nox.Session) -> None:
    """generated/, from specs and templates."""
    session.run(sys.executable, "-m", "fusegen", "build", "--no-compile", "--overwrite", "--prune", "specs")


@nox.session
def docs(session: nox.Session) -> None:
    """The pages that scripts write, and the texts that tests compare: review the difference."""
    session.run(sys.executable, "benchmarks/performance_page.py", env={"PYTHONPATH": "."})
    findings = "benchmarks/results/numerics_h200.csv"
    session.run(sys.executable, "benchmarks/numerics.py", "--render", findings, env={"PYTHONPATH": "."})
    accept = {"FUSEGEN_ACCEPT": "1"}
    session.run(sys.executable, "-m", "pytest", *PARALLEL, "tests/reference", "tests/plan", env=accept)
    session.run(sys.executable, "-m", "pytest", "tests/test_docs.py")
