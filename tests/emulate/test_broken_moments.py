"""Statistics of broken kernels are seen to be wrong, by the cases that are hard on what is broken."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.emulate.moment_cases import CASES, SPECIAL, fits  # noqa: E402
from tests.emulate.moments import built, comparisons  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.emulate.mutants.statistics import STATISTICS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

_OUTLIERS = [case for case in CASES if "first" in case.kind]
_FAR = [case for case in CASES if case.kind.startswith("far")]
_CONSTANT = [case for case in CASES if case.kind == "constant"]
_SPECIAL = [case for case in CASES if case.kind in SPECIAL]
_LARGE = [case for case in CASES if case.kind in ("1e20", "1e30")]
_FEW = [case for case in CASES if case.kind == "plain" and case.values in (1, 2, 3, 5)]
_WITHOUT_ROWS = {"persistent": "tile", "clusters of 4": "tile", "l2": "slice", "two_pass": "block"}

# The chain and the schedule that are broken, how, and the cases that have to see it.
BROKEN = [
    *(
        ("batch", schedule, name, cases)
        for schedule, part in _WITHOUT_ROWS.items()
        for name, cases in (
            # The threads of a cluster have so few values each that sums of equal ones are exact.
            ("no shift", [c for c in (*_FAR, *(_CONSTANT if schedule != "clusters of 4" else ())) if c.values > 5]),
            ("a mean that is a little off", [c for c in (*_FAR, *_CONSTANT) if c.values <= 5]),
            ("a shift that is not subtracted from the squares", _OUTLIERS),
            ("infinity less infinity", _LARGE),
            ("sums that are not finite count as none", _SPECIAL),
            (f"a thread of a {part} without rows counts", _FEW),
        )
    ),
    *(
        (chain, schedule, name, cases)
        for chain in ("group", "layer")
        for schedule, name, cases in (
            ("persistent", "a difference of squares", _FAR),
            ("persistent", "half of a row's squares", [*_OUTLIERS, *_FEW[2:]]),
            ("persistent", "a row's mean that is a little off", _CONSTANT),
            # Of 257 values warps have 128, 128 and one: their means are exact.
            ("persistent", "the rest of the distances stays", [c for c in _CONSTANT if 3 < c.values < 257]),
            ("two_pass", "half of a segment's squares", [*_OUTLIERS, *_FEW[2:]]),
            ("persistent", "a variance that is not finite is none", _SPECIAL),
            ("two_pass", "a variance that is not finite is none", _SPECIAL),
        )
    ),
]


@pytest.mark.parametrize(
    ("chain", "schedule", "name", "case"),
    [
        pytest.param(chain, schedule, name, case, id=f"{chain}-{schedule}-{name}-{case.id}".replace(" ", "_"))
        for chain, schedule, name, cases in BROKEN
        for case in cases
        if fits(schedule, case)
    ],
)
def test_broken_kernels_are_seen(chain, schedule, name, case, emulation_cache):
    library = built(chain, emulation_cache).library
    choose(library, list(STATISTICS).index(name) + 1)
    try:
        found = comparisons(chain, case, schedule, emulation_cache)
    finally:
        choose(library, 0)
    assert not all(each.ok for each in found)
