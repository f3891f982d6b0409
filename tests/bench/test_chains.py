"""What benchmarks/chains.py writes, how it takes turns, and what the page says of it; without a GPU."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tests.bench.test_page import listed, script  # noqa: E402
from tests.chains.collection import BUILT  # noqa: E402

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def chains(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("benchmarks_chains", BENCHMARKS / "chains.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def subject(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import chains_subject

    return chains_subject


class Device:
    """A clock of calls that take as long as they say; the second one more in its first two rounds."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def issue_us(self, call) -> float:
        return 5.0

    def enqueue(self, call, delay_us: float):
        assert delay_us == 10.0
        name, taken = call()
        self.order.append(name)
        return lambda: taken + (100.0 if self.order.count(name) <= 2 else 0.0)

    def synchronise(self) -> None:
        pass


def test_subjects_take_turns_and_rest_in_proportion(subject) -> None:
    clock, rests = Device(), []
    found = subject.times(clock, {"fused": lambda: ("fused", 10.0), "eager": lambda: ("eager", 20.0)}, rests.append)
    assert {name: spread.median for name, spread in found.items()} == {"fused": 10.0, "eager": 20.0}
    assert found["fused"].count == found["eager"].count == 5
    rounds = [set(clock.order[index : index + 2]) for index in range(0, len(clock.order), 2)]
    assert set(map(frozenset, rounds)) == {frozenset({"fused", "eager"})} and len(rounds) == 7
    assert clock.order[0::2] != clock.order[1::2] and len(set(clock.order[4::2])) == 2
    assert max(rests) == 0.1 and min(rests) == pytest.approx(0.02)


def test_ratio_is_to_the_fastest_peer(subject) -> None:
    assert subject.ratio({"fused": 2.0, "eager": 8.0, "compile": 4.0}) == 0.5
    assert subject.ratio({"fused": 2.0, "eager": 8.0, "max-autotune": 1.0}) == 2.0
    assert subject.ratio({"fused": 2.0}) is None and subject.ratio({"eager": 2.0}) is None


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, []), (1.02, ["result 0", "gradient 0", "gradient 1"])])
def test_far_from_eager_at_full_size(subject, factor: float, wrong: list[str]) -> None:
    torch.manual_seed(1)
    eager = torch.nn.Linear(6, 4)

    class Fused(torch.nn.Linear):
        def forward(self, x):
            return factor * super().forward(x)

    fused = Fused(6, 4)
    fused.load_state_dict(eager.state_dict())
    pair = subject.Pair(fused, eager, [torch.randn(3, 6).requires_grad_()], [torch.randn(3, 4)])
    assert [each.partition(" at ")[0] for each in pair.differences()] == wrong


def test_both_as_far_from_float32(subject) -> None:
    """Rounding that eager has, too, is no finding; nor is a gradient of zeros."""
    torch.manual_seed(1)
    eager = torch.nn.Linear(64, 8).bfloat16()
    with torch.no_grad():
        eager.weight.zero_()

    class Rounds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = eager

        def forward(self, x):
            far = 0.2 if x.dtype == torch.bfloat16 else 0.0
            return self.linear(x) * (1 + far)

    inputs = [torch.randn(3, 64).bfloat16().requires_grad_()]
    assert not subject.Pair(Rounds(), Rounds(), inputs, [torch.randn(3, 8).bfloat16()]).differences()


def test_full_sizes_are_those_of_the_dims(subject, tmp_path) -> None:
    """Of one region and of several."""
    for name, first in (("kb33", (1024, 8192)), ("swiglu_mlp", (16384, 2048)), ("film", (64, 64, 56, 56))):
        (tmp_path / f"{name}.yaml").write_text(BUILT[name].text())
        plan = subject.planned_file(tmp_path / f"{name}.yaml")
        sizes = subject.sizes_of(plan, subject.TYPICAL)
        assert tuple(map(sizes.number, plan.spec.inputs["x"])) == first
        assert [mode.name for mode in subject.modes_of(plan)] == ["float32", "bfloat16"]


def test_rows_are_appended_and_shards_are_all_chains(chains, tmp_path) -> None:
    path = tmp_path / "chains.csv"
    line = chains.Line("GPU", "2.13", "kb33", "kernelbench", "linear", "8x9", "float32", "step", fused_ms=1 / 3)
    chains.append(path, [line])
    chains.append(path, [line])
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 2 and rows[1]["fused_ms"] == "0.33333" and rows[0]["ratio"] == ""
    shards = [chains.chosen(SimpleNamespace(only="", shard=f"{index}/3")) for index in (1, 2, 3)]
    assert Counter(name for shard in shards for name in shard) == Counter(list(BUILT))
    assert chains.chosen(SimpleNamespace(only="kb33,kb39", shard="2/2")) == ["kb39"]


def test_a_chain_that_is_not_there_has_rows_with_the_reason(chains, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    monkeypatch.setattr("fusegen.bench.clock.CudaClock", lambda: None)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "kb33.yaml").write_text(BUILT["kb33"].text())
    chains.measure("kb33", tmp_path, "BrokenProcessPool: gone", tmp_path / "chains.csv", ["eager"])
    rows = list(csv.DictReader((tmp_path / "chains.csv").open()))
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"]
    assert all("is not there: run `fusegen build`" in row["problem"] and row["fused_ms"] == "" for row in rows)


def lines() -> list[dict[str, str]]:
    common = {
        "gpu": "NVIDIA Test",
        "torch": "2.13.0+cu130",
        "kind": "convolution",
        "file": "kernelbench",
        "size": "8x9",
    }
    common |= {"comparisons": "30", "failed": "0", "problem": "", "dtype": "bfloat16", "autotune_ms": ""}

    def line(chain: str, mode: str, ratio: str, **more: str) -> dict[str, str]:
        return {**common, "chain": chain, "mode": mode, "fused_ms": "1.5", "ratio": ratio, **more}

    return [
        line("kb1", "step", "0.9"),
        line("kb1", "step", "0.5"),
        line("kb1", "forward", "0.8", autotune_ms="1.875"),
        line("kb2", "step", "1.25", failed="2", problem="33x70 output"),
        line("film", "step", "", file="training", kind="FiLM", fused_ms=""),
    ]


def test_the_part_of_the_page() -> None:
    text = script("performance_chains").chains_section(lines(), listed)
    assert "The chains that people write, NVIDIA Test" in text and "torch 2.13.0:" in text
    assert "Of 90\ncomparisons with double precision at small sizes 2 failed." in text
    assert "with `mode=max-autotune-no-cudagraphs` for convolution.\n" in text
    group = "'chains': 'KernelBench, convolution', 'dtype': 'bfloat16'"
    assert f"{group}, 'mode': 'step', 'number': '2', 'geometric mean': '1.26', 'least': '0.80', " in text
    assert "'below 0.97': 'kb2'" in text and "'step, bfloat16': '2.00 (1.5 ms)'" in text
    assert "- kb2, bfloat16: 33x70 output\n" in text and "'chain': 'film'" in text
    assert script("performance_chains").chains_section([], listed) == ""
