"""Built packages in one process: imported twice, beside another of the same name, and with a library of other sources.

Each in a process of its own, since what is registered stays so. The library is the emulated one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.render.files.manifest import digest, manifest_text  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: twice
about: one activation
dims: {batch: 8, features: 16}
inputs: {x: [batch, features]}
dtypes: [float32]
chain: [{op: ACTIVATION}]
"""
PRELUDE = """
import importlib, sys, torch
def imported(name, path):
    sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(path)
x = torch.linspace(-2, 2, 32).view(2, 16)
"""
# The kernels of the copies, compiled in the process that calls them.
KERNELS = """
from pathlib import Path
from fusegen.emulate.launchers import Kernels
cache, *sources = (Path(sys.argv.pop(1)) for _ in range(3))
for source in sources:
    Kernels(source, source.parents[1], cache, [], checked=False).register()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    """By activation: a directory `generated` with the built package `twice` and its `support`."""
    found = {}
    for activation in ("relu", "tanh"):
        root = tmp_path_factory.mktemp(activation)
        plan = write("twice", SPEC.replace("ACTIVATION", activation), root)
        package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
        place = root / "built" / "generated"
        shutil.copytree(Path(package.__file__).parent, place / "twice")
        shutil.copytree(emulation_cache / "support", place / "support")
        _list(place, json.loads((root / "manifest.json").read_bytes())["sources"])
        found[activation] = place
    return found


def _list(place: Path, sources: dict[str, str]) -> None:
    """Writes a manifest of the package as it is there."""
    path = "twice/__init__.py"
    (place / "manifest.json").write_text(manifest_text({path: digest((place / path).read_bytes())}, sources))


@pytest.fixture(scope="module")
def run(built, emulation_cache):
    sources = [place.parents[1] / "twice" / "kernels.cu" for place in built.values()]

    def run_(code: str, *arguments: object) -> str:
        return in_process(KERNELS + code, emulation_cache, *sources, *arguments)

    return run_


def in_process(code: str, *arguments: object) -> str:
    done = subprocess.run([sys.executable, "-c", PRELUDE + code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("knows", ["nothing", "another package's kernels"])
def test_a_process_that_cannot_compile_the_kernels_is_told(built, emulation_cache, knows) -> None:
    """Whether it has nothing that compiles kernels, or only that of another package."""
    code = """
try:
    imported("twice", sys.argv[-1]).Twice()(x)
except RuntimeError as error:
    print(error)
"""
    arguments: list[object] = [built["relu"]]
    if knows != "nothing":
        source = built["tanh"].parents[1] / "twice" / "kernels.cu"
        code, arguments = KERNELS + code, [emulation_cache, source, source, *arguments]
    said = in_process(code, *arguments)
    assert "are compiled by a process that has called emulate_package()" in said


def test_a_second_name_for_the_same_file_is_refused(built, run) -> None:
    """A second class of one file would be another one, and its ops are registered already."""
    code = """
first = imported("twice", sys.argv[1])
try:
    imported("generated.twice", sys.argv[1] + "/..")
except ImportError as error:
    print(error)
assert torch.equal(first.Twice()(x), x.relu())
sys.path.insert(0, sys.argv[1])
assert importlib.reload(first).Twice()(x).equal(x.relu())
"""
    said = run(code, built["relu"])
    assert "was imported as 'twice' before: import it by that name, not as 'generated.twice'" in said


def test_two_libraries_have_a_package_of_one_name(built, run, tmp_path) -> None:
    """With the same chain in both, whose ops they share, and with another one."""
    places = {}
    for library, activation in (("one", "relu"), ("two", "relu"), ("three", "tanh")):
        places[library] = tmp_path / library
        shutil.copytree(built[activation], places[library] / library / "generated")
    code = """
modules = [imported(f"{name}.generated.twice", path) for name, path in zip(("one", "two", "three"), sys.argv[1:])]
a, b, c = (module.Twice() for module in modules)
assert len({type(each) for each in (a, b, c)}) == 3
assert all(module._package.built for module in modules)
assert [torch.equal(m(x), y) for m, y in ((a, x.relu()), (b, x.relu()))] == [True, True]
torch.testing.assert_close(c(x), x.tanh())
assert a.fusegen_kernels(x) and b.fusegen_kernels(x) and c.fusegen_kernels(x)
print("lived together")
"""
    assert run(code, *places.values()) == "lived together\n"


def test_a_library_of_other_sources_is_refused(built, run, tmp_path) -> None:
    """As after `git pull`, or `fusegen build --no-compile`: the module would compute the former chain."""
    shutil.copytree(built["tanh"], tmp_path / "generated")
    shutil.copy(built["relu"] / "twice" / "_C.so", tmp_path / "generated" / "twice" / "_C.so")
    code = """
try:
    imported("generated.twice", sys.argv[1])
except ImportError as error:
    print(error)
assert "generated.twice" not in sys.modules
"""
    said = run(code, tmp_path)
    assert "_C.so was built from other sources than these: run `fusegen build specs/twice.yaml`" in said


def test_a_module_of_another_text_than_the_manifest_lists_is_refused(built, run, tmp_path) -> None:
    """As of another rendering than the library: PyTorch's operators would compute another chain than kernels do."""
    shutil.copytree(built["tanh"], tmp_path / "generated")
    file = tmp_path / "generated" / "twice" / "__init__.py"
    text = file.read_bytes()
    code = """
try:
    imported("generated.twice", sys.argv[1])
except ImportError as error:
    print(error)
"""
    file.write_bytes((built["relu"] / "twice" / "__init__.py").read_bytes())
    assert "manifest.json lists: run `fusegen build specs/twice.yaml`" in run(code, tmp_path)
    file.write_bytes(text.replace(b"\n", b"\r\n"))
    assert run(code, tmp_path) == ""


def test_an_autograd_library_of_another_source_is_told_and_not_used(built, run, tmp_path) -> None:
    shutil.copytree(built["relu"], tmp_path / "generated")
    with (tmp_path / "generated" / "support" / "autograd.cpp").open("a") as file:
        file.write("// changed\n")
    code = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    module = imported("generated.twice", sys.argv[1])
print(*(each.message for each in told))
x.requires_grad_()
y = module.Twice()(x)
assert type(y.grad_fn).__name__ == "DifferentiatedBackward" and torch.equal(y, x.relu())
"""
    assert "is of another source: `fusegen build` makes it again" in run(code, tmp_path)


def test_the_digest_is_in_the_library(built) -> None:
    digest = json.loads((built["relu"] / "manifest.json").read_bytes())["sources"]["twice"]
    assert f"fusegen sources twice {digest}".encode() in (built["relu"] / "twice" / "_C.so").read_bytes()


@pytest.mark.parametrize("manifest", [None, "<<<<<<< HEAD", "{}", '{"sources": {"other": "0"}}'])
def test_a_library_of_nobody_knows_what_is_refused(built, run, tmp_path, manifest: str | None) -> None:
    shutil.copytree(built["relu"], tmp_path / "generated")
    (tmp_path / "generated" / "manifest.json").unlink()
    if manifest is not None:
        (tmp_path / "generated" / "manifest.json").write_text(manifest)
    code = """
try:
    imported("generated.twice", sys.argv[1])
except ImportError as error:
    print(error)
"""
    assert "twice/_C.so is to be built from: run `fusegen build specs/twice.yaml`" in run(code, tmp_path)
