"""Batch norm over two ranks, as a single process trains the original on the rows of both."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.checks.compared import compare_runs  # noqa: E402
from fusegen.verify.references.reference import reference  # noqa: E402
from fusegen.verify.runs.run import Run, run  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402
from tests.emulate.sync_batch_norm import CASES, CHANNELS, MODES, WIDTH, Linear, fused, load  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Where the packages are."""
    root = tmp_path_factory.mktemp("ranks")
    for original in MODES:
        file = root / f"ranks_{original.__name__.lower()}.yaml"
        file.write_text(original.text)
        write_files(render_all([planned_file(file)]), root)
    return root


@pytest.fixture(scope="module")
def ranks(packages, emulation_cache):
    """What each of the two processes found."""
    root = packages
    with ThreadPoolExecutor() as threads:  # compiled here, once for both
        for original, modes in MODES.items():
            for source in root.glob(f"ranks_{original.__name__.lower()}*/kernels.cu"):
                for mode in modes:
                    flags = {"modes": [mode], "checked": False, "optimised": False}
                    threads.submit(compile_kernels, source, cache=emulation_cache, **flags)
    for original in MODES:
        load(original, root, emulation_cache)
    command = [sys.executable, "-m", "tests.emulate.sync_batch_norm", str(root), str(emulation_cache)]
    started = [
        subprocess.Popen([*command, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    try:
        told = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(told)
    return [torch.load(root / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def joined(case, runs) -> Run:
    """What one process would have: rows one after the other, gradients of parameters added, buffers of any rank."""
    (output, gradients, buffers), (other, others, _) = runs
    whole = {
        name: torch.cat((value, others[name])) if name.startswith("input") else value + others[name]
        for name, value in gradients.items()
    }
    return Run(torch.cat((output, other)), whole, buffers)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.alone])
def test_as_one_process_with_all_rows(ranks, name) -> None:
    """The result, all gradients and the running statistics."""
    case, runs = CASES[name], [rank["cases"][name]["run"] for rank in ranks]
    inputs, grad = case.tensors()
    eager = run(case.module(), inputs, grad, autocast_dtype=case.autocast)
    exact = reference(case.module(), inputs, grad, dtype=case.autocast)
    comparisons = compare_runs(joined(case, runs), eager, exact, case.autocast or torch.float32)
    assert len(comparisons) > 3 and not [each for each in comparisons if not each.ok]


@pytest.mark.parametrize("name", CASES)
def test_ranks_agree_and_repeat(ranks, name) -> None:
    """Running statistics are the same bits on all ranks, and the same call gives the same bits again."""
    found = [rank["cases"][name] for rank in ranks]
    for buffer, value in found[0]["run"][2].items():
        assert torch.equal(value, found[1]["run"][2][buffer]) != CASES[name].alone or "tracked" in buffer
    for each in found:
        torch.testing.assert_close(each["run"], each["again"], rtol=0, atol=0)


def test_a_group_of_one_takes_its_own_statistics(ranks) -> None:
    case = CASES["a group of its own"]
    inputs, grad = case.tensors()
    for index, rank in enumerate(ranks):
        part = case.part(index)
        own, own_grad = [each.detach()[part].requires_grad_() for each in inputs], grad[part]
        eager, exact = run(case.module(), own, own_grad), reference(case.module(), own, own_grad)
        comparisons = compare_runs(Run(*rank["cases"]["a group of its own"]["run"]), eager, exact, torch.float32)
        assert not [each for each in comparisons if not each.ok]


def test_writes_to_running_statistics_are_counted(ranks) -> None:
    """Autograd sees that a tensor which it saved was changed."""
    assert all(case["counted"] for rank in ranks for case in rank["cases"].values())


def test_what_is_left_to_pytorch(ranks) -> None:
    for rank in ranks:
        assert rank["reasons"] == [
            "float32 products are IEEE's where ranks exchange statistics",
            "torch.compile traces no exchange between ranks",
        ]


def test_what_regions_are_asked_exchanges_nothing(ranks) -> None:
    assert [rank["regions"] for rank in ranks] == ["", ""]


def test_without_a_process_group(packages, emulation_cache) -> None:
    """The programs of one process."""
    root = packages
    case = CASES["uneven"]
    module = fused(case, load(Linear, root, emulation_cache))
    inputs, grad = case.tensors()
    for train in (True, False):
        eager = run(case.module(), inputs, grad, train=train)
        exact = reference(case.module(), inputs, grad, train=train)
        comparisons = compare_runs(run(module, inputs, grad, train=train), eager, exact, torch.float32)
        assert module.fusegen_kernels(*inputs) and not [each for each in comparisons if not each.ok]


def test_a_package_without_it_leaves_a_converted_norm_to_pytorch(tmp_path) -> None:
    text = Linear.text.replace(", sync: true", "").replace("ranks_linear", "alone")
    cls = module_class(write("alone", text, tmp_path), tmp_path)
    module = nn.SyncBatchNorm.convert_sync_batchnorm(cls(WIDTH, CHANNELS))
    operator, why = module._fusegen_call(torch.randn(4, WIDTH), _device="cpu", _count=False)
    assert operator is None and why.reason == "bn is of type SyncBatchNorm, not BatchNorm1d"
