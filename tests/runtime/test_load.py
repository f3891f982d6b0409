"""One package, one class object, however it is reached."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import shutil
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

import fusegen
from fusegen.runtime import LoadError

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "__all__ = ['Chain']\n\n\nclass Chain:\n    where = __file__\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch):
    """Writes a package and returns its directory. What tests import is forgotten afterwards."""
    before = set(sys.modules)

    def write(name: str, directory: str = "made", text: str = PACKAGE) -> Path:
        package = tmp_path / directory / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        (package / "bindings.cpp").write_text("")
        return package.parent

    yield write
    for name in set(sys.modules) - before:
        if name.split(".")[0] in {"made", "chain"} or name.startswith("_fusegen_"):
            del sys.modules[name]


def test_same_class_every_time(write) -> None:
    directory = write("chain")
    first = fusegen.load("chain", directory)
    assert first.__name__ == "Chain" and first.where == str(directory / "chain" / "__init__.py")
    assert fusegen.load("chain", str(directory)) is first
    assert str(directory) not in sys.path and str(directory.parent) not in sys.path


def test_default_directory(write, tmp_path: Path, monkeypatch) -> None:
    write("default_chain", "generated")
    monkeypatch.chdir(tmp_path)
    found = fusegen.load("default_chain")
    assert found.where == str(tmp_path / "generated" / "default_chain" / "__init__.py")


def test_load_then_import(write, monkeypatch) -> None:
    directory = write("chain")
    loaded = fusegen.load("chain", directory)
    monkeypatch.syspath_prepend(directory.parent)
    assert importlib.import_module("made.chain").Chain is loaded


def test_import_then_load(write, monkeypatch) -> None:
    directory = write("chain")
    monkeypatch.syspath_prepend(directory.parent)
    imported = importlib.import_module("made.chain").Chain
    assert fusegen.load("chain", directory) is imported


def test_importable_but_loaded_first(write, monkeypatch) -> None:
    directory = write("chain")
    monkeypatch.syspath_prepend(directory.parent)
    loaded = fusegen.load("chain", directory)
    assert importlib.import_module("made.chain").Chain is loaded


def test_imported_under_another_name(write, monkeypatch) -> None:
    directory = write("chain")
    monkeypatch.syspath_prepend(directory)
    imported = importlib.import_module("chain").Chain
    assert fusegen.load("chain", directory) is imported


def test_through_a_link(write, tmp_path: Path) -> None:
    directory = write("chain")
    (tmp_path / "link").symlink_to(directory)
    assert fusegen.load("chain", tmp_path / "link") is fusegen.load("chain", directory)


def test_two_directories_of_one_name(write, monkeypatch, tmp_path: Path) -> None:
    first, second = write("chain", "one/made"), write("chain", "two/made")
    monkeypatch.syspath_prepend(tmp_path / "one")
    from_second = fusegen.load("chain", second)
    from_first = fusegen.load("chain", first)
    assert from_first is not from_second
    assert from_second.where.startswith(str(second)) and from_first.where.startswith(str(first))
    # The name belongs to the directory that a plain import finds.
    assert importlib.import_module("made.chain").Chain is from_first
    assert fusegen.load("chain", second) is from_second


def test_package_written_after_the_first_load(write) -> None:
    directory = write("chain")
    fusegen.load("chain", directory)
    write("later")
    assert fusegen.load("later", directory).where == str(directory / "later" / "__init__.py")


def test_class_can_be_pickled(write) -> None:
    loaded = fusegen.load("chain", write("chain"))
    assert pickle.loads(pickle.dumps(loaded)) is loaded


def test_near_names_are_offered(write) -> None:
    directory = write("matmul_bn_swish")
    (directory / "support").mkdir()
    with pytest.raises(LoadError, match="did you mean 'matmul_bn_swish'"):
        fusegen.load("matmul_bn_swich", directory)
    with pytest.raises(LoadError, match="which has: matmul_bn_swish$"):
        fusegen.load("conv", directory)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../made/chain", "chain.sub", "no-name"])
def test_what_is_no_name(write, name: str) -> None:
    with pytest.raises(LoadError, match="no generated package"):
        fusegen.load(name, write("chain"))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="fusegen build SPEC"):
        fusegen.load("chain", tmp_path)
    with pytest.raises(LoadError, match="no directory"):
        fusegen.load("chain", tmp_path / "absent")


def test_package_of_somebody_else(write) -> None:
    with pytest.raises(LoadError, match="exports no class"):
        fusegen.load("chain", write("chain", text="value = 1\n"))


def test_failed_import_is_told_and_may_be_repeated(write) -> None:
    directory = write("chain", text="raise RuntimeError('first')\n")
    with pytest.raises(RuntimeError, match="first"):
        fusegen.load("chain", directory)
    (directory / "chain" / "__init__.py").write_text(PACKAGE + "# longer, so that no cached bytecode fits\n")
    assert fusegen.load("chain", directory).__name__ == "Chain"


def test_importing_fusegen_leaves_torch_alone() -> None:
    code = "import sys, fusegen; fusegen.load; assert 'torch' not in sys.modules; print(fusegen.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == fusegen.__version__, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        fusegen.lod  # noqa: B018


WORKERS = """\
import fusegen
import torch
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    def __init__(self, module):
        self.module = module

    def __len__(self):
        return 4

    def __getitem__(self, index):
        with torch.no_grad():
            return self.module(torch.full((1, 8), float(index)))[0]


if __name__ == "__main__":
    torch.manual_seed(0)
    module = fusegen.load("gemm_add_relu")(8, 16, [16])
    expected = torch.stack([Features(module)[index] for index in range(4)])
    loader = DataLoader(Features(module), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert torch.equal(next(iter(loader)), expected)
    print("the same")
"""


@pytest.mark.torch
def test_workers_that_are_spawned(tmp_path: Path) -> None:
    """The script's directory is where Python looks for modules; the generated packages are below the current one."""
    for name in ("gemm_add_relu", "support"):
        shutil.copytree(
            ROOT / "generated" / name, tmp_path / "generated" / name, ignore=shutil.ignore_patterns("_*.so")
        )
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(WORKERS)
    command = [sys.executable, "scripts/train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr


def test_other_pickles_and_copies_are_as_of_any_class(write) -> None:
    chain = fusegen.load("chain", write("chain"))()
    chain.state = [1]
    assert b"_new" not in pickle.dumps(chain) and pickle.loads(pickle.dumps(chain)).state == [1]
    assert type(copy.deepcopy(chain)) is type(chain)
    sent = pickle.loads(ForkingPickler.dumps(chain))
    assert type(sent) is type(chain) and sent.state == [1]
