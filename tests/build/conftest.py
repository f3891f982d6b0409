"""A workshop whose compilers are shell scripts: they log how they were started, and may be slow or fail."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusegen.build import BuildResult, build_extension, builder, toolchain
from fusegen.build.libraries import Libraries

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_forced_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CI may force them, and then what is no terminal has no live line."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)


# "Compiles" by copying: the output holds every input's text. A source with BROKEN in it fails after some of
# its output was written, as a compiler does that is killed or finds the disk full.
COMPILER = """#!/bin/sh
echo "$(basename "$0") $*" >> "{log}"
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && out=$argument
  previous=$argument
done
[ -n "$out" ] || exit 3
echo half > "$out"
case "$*" in *"${{FAKE_SLOW:-}}"*) sleep "${{FAKE_SECONDS:-0}}" ;; esac
: > "$out"
for argument in "$@"; do
  case "$argument" in
    *.cu|*.cpp|*.o) if [ "$argument" != "$out" ]; then cat "$argument" >> "$out" || exit 4; fi ;;
  esac
done
if grep -q BROKEN "$out"; then
  echo "kernels.cu(3): error: BROKEN is undefined" >&2
  exit 2
fi
"""

DRIVER = """
import sys
from pathlib import Path
from fusegen.build import Request, build_extensions, builder
from fusegen.build.libraries import Libraries

root, *names = sys.argv[1:]
root = Path(root)
builder.find_libraries = lambda: Libraries("2.13.0", root / "torch", root, "cpython 3", root / "python")
requests = [Request(root / "generated" / name, ["sm_90"]) for name in names]
for result in build_extensions(requests):
    print("built" if result.built else "nothing to do")
print("imported", *sorted({"torch", "rich", "filelock", "pydantic"} & sys.modules.keys()))
"""


@dataclass
class Workshop:
    """A generated package, fake compilers, and ways to build with them."""

    root: Path
    environment: dict[str, str]
    libraries: Libraries

    @property
    def package(self) -> Path:
        return self.root / "generated" / "chain"

    @property
    def output(self) -> Path:
        return self.package / "_C.so"

    def build(self, **options: object) -> BuildResult:
        """Builds in this process."""
        return build_extension(self.package, **{"targets": ["sm_90"], **options})  # type: ignore[arg-type]

    def add(self, name: str, text: str) -> Path:
        """Another package, whose sources hold the text."""
        package = self.root / "generated" / name
        package.mkdir()
        (package / "kernels.cu").write_text(f"{text} kernels\n")
        (package / "bindings.cpp").write_text(f"{text} bindings\n")
        return package

    def start(self, *names: str, seconds: float | str = 0.0, slow: str = "") -> subprocess.Popen[str]:
        """Builds in a process of its own, with compilers that take this long: those whose command line has `slow`."""
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(self.root), *(names or ["chain"])],
            env={**self.environment, "FAKE_SECONDS": str(seconds), "FAKE_SLOW": slow},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def started(self) -> list[str]:
        """The command lines of the compilers started so far."""
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def forget(self) -> None:
        (self.root / "log").unlink(missing_ok=True)


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("nvcc", "g++"):
        executable(tools / name, COMPILER.format(log=tmp_path / "log"))
    package = tmp_path / "generated" / "chain"
    support = tmp_path / "generated" / "support"
    for directory in (package, support):
        directory.mkdir(parents=True)
    (package / "kernels.cu").write_text("kernels\n")
    (package / "bindings.cpp").write_text("bindings\n")
    (support / "launch.cuh").write_text("launch\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NVCC_", "CUDA_"))},
        "FUSEGEN_NVCC": str(tools / "nvcc"),
        "CXX": str(tools / "g++"),
        "PYTHONPATH": str(ROOT),
    }
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FUSEGEN_NVCC", environment["FUSEGEN_NVCC"])
    monkeypatch.setenv("CXX", environment["CXX"])
    libraries = Libraries("2.13.0", tmp_path / "torch", tmp_path, "cpython 3", tmp_path / "python")
    monkeypatch.setattr(builder, "find_libraries", lambda: libraries)
    return Workshop(tmp_path, environment, libraries)


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the environment had no CUDA wheels."""
    monkeypatch.setattr(toolchain, "_wheel_roots", lambda: [])


def executable(path: Path, text: str = "#!/bin/sh\nexit 9\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def make_executable():
    """The function that writes an executable script."""
    return executable
