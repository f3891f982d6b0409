"""Samples in rounds: their order, what is dropped, and what happens to a subject that raises."""

from __future__ import annotations

import gc

import pytest

from fusegen.bench.rounds import WALL_ROUNDS, Spread, measure
from fusegen.bench.work import Work
from tests.bench.standins import ScriptedClock

pytestmark = pytest.mark.torch


def works(*names: str, **replaced) -> dict[str, Work]:
    return {name: replaced.get(name, Work(lambda: None)) for name in names}


def no_failure(name: str, problem: Exception) -> None:
    raise AssertionError(name) from problem


def test_subjects_take_turns_in_device_and_wall_rounds() -> None:
    clock = ScriptedClock([1.0, 2.0, 3.0])
    subjects = works("a", "b", "c")
    names = {work.call: name for name, work in subjects.items()}
    found = measure(clock, subjects, no_failure)
    order = [(what, names.get(call)) for what, call in clock.calls]
    queued = [name for what, name in order if what == "enqueue"]
    assert queued == ["a", "b", "c"] * (len(queued) // 3) and len(queued) > 30
    # The device waits once a round, not between the subjects of one.
    first = order.index(("enqueue", "a"))
    one_round = [("enqueue", "a"), ("enqueue", "b"), ("enqueue", "c"), ("synchronise", None)]
    assert order[first : first + 8] == one_round * 2
    # Two loops of a subject in turn: one that warms up, and the sample.
    walls = [name for what, name in order if what == "wall"][-6 * WALL_ROUNDS :]
    assert walls == ["a", "a", "b", "b", "c", "c"] * WALL_ROUNDS
    assert [found[name].device.median for name in "abc"] == [1.0, 2.0, 3.0]


def test_everything_is_warm_before_the_first_sample() -> None:
    clock = ScriptedClock()
    subjects = works("a", "b")
    measure(clock, subjects, no_failure)
    whats = [what for what, _ in clock.calls]
    before = clock.calls[: whats.index("enqueue")]
    for work in subjects.values():
        assert sum(call is work.call for _, call in before) >= 4
    assert "wall" not in whats[whats.index("enqueue") : len(whats) - whats[::-1].index("enqueue")]


def test_wall_loops_take_as_long_whatever_a_call_takes(monkeypatch) -> None:
    clock, loops = ScriptedClock(), []
    took = {"quick": 10.0, "usual": 100.0, "slow": 50_000.0}
    subjects = works(*took)
    names = {work.call: name for name, work in subjects.items()}
    monkeypatch.setattr(clock, "wall_us", lambda call, calls: loops.append((names[call], calls)) or took[names[call]])
    found = measure(clock, subjects, no_failure)
    last = dict(zip(("quick", "usual", "slow"), zip(loops[-6::2], loops[-5::2], strict=True), strict=True))
    assert last == {
        "quick": (("quick", 250), ("quick", 1000)),
        "usual": (("usual", 100), ("usual", 400)),
        "slow": (("slow", 1), ("slow", 2)),
    }
    assert {name: each.wall.median for name, each in found.items()} == took


def test_the_delay_covers_what_the_host_needs() -> None:
    clock = ScriptedClock()
    measure(clock, works("a"), no_failure)
    assert clock.delay_us > 7.0


@pytest.mark.parametrize(("first", "dropped"), [(1000.0, 2), (10.0, 5), (0.1, 20)])
def test_the_first_rounds_are_dropped(first: float, dropped: int) -> None:
    clock = ScriptedClock([first], drift=-first / 1e6)
    found = measure(clock, works("a"), no_failure)
    kept = [first - first / 1e6 * i for i in range(clock.samples)][dropped:]
    assert found["a"].device.count == clock.samples - dropped
    assert found["a"].device.median == pytest.approx(Spread.of(kept).median, rel=1e-9)


def test_slow_subjects_get_fewer_samples() -> None:
    counts = []
    for slowest in (0.01, 20.0, 1000.0):
        found = measure(ScriptedClock([0.01, slowest]), works("a", "b"), no_failure)
        assert found["a"].device.count == found["b"].device.count
        counts.append(found["a"].device.count)
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[1] > counts[2] >= 10


@pytest.mark.parametrize("calls", [0, 3, 8, 20, 35])
def test_a_subject_that_raises_is_named_and_the_others_go_on(calls: int) -> None:
    left = [calls]

    def fragile() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("broken")

    failures = []
    found = measure(
        ScriptedClock(), works("a", "b", "c", b=Work(fragile)), lambda name, problem: failures.append((name, problem))
    )
    assert sorted(found) == ["a", "c"] and [name for name, _ in failures] == ["b"]
    assert str(failures[0][1]) == "broken"


def test_nothing_is_left_where_all_raise() -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    failures = []
    assert measure(ScriptedClock(), works("a", a=Work(broken)), lambda *what: failures.append(what)) == {}
    assert len(failures) == 1


def test_the_peak_of_cuda_graphs_is_not_told() -> None:
    found = measure(ScriptedClock(), works("a", "b", b=Work(lambda: None, graphs=True)), no_failure)
    assert found["a"].peak == 4096 and found["b"].peak is None


def test_garbage_is_collected_between_configurations_only() -> None:
    seen = []
    measure(ScriptedClock(), works("a", a=Work(lambda: seen.append(gc.isenabled()))), no_failure)
    assert gc.isenabled() and seen.count(False) > seen.count(True) > 0


def test_quartiles() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
