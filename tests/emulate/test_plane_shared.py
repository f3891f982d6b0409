"""Which contiguous images stay in shared memory from their sums to their results, and why others do not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.runtime.choice import Choice, choice  # noqa: E402
from fusegen.runtime.launchers import Call, Launcher  # noqa: E402
from fusegen.tune.launchers import EmulatedLaunchers  # noqa: E402
from tests.emulate.building import kernels_of, write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    "groups": "{op: group_norm, name: norm, num_groups: groups}",
    "instances": "{op: instance_norm, name: norm, affine: true}",
    "channels": "{op: batch_norm, name: norm}",
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory, emulation_cache):
    """What the forward or the backward program of a chain runs for [samples, channels, positions] in float32."""
    root, known = tmp_path_factory.mktemp("planes"), {}

    def found(name: str, samples: int, channels: int, positions: int, groups: int = 1, *, backward: bool = False):
        if name not in known:
            groups_of = ", groups: {type: int, typical: 4}" if "groups" in CHAINS[name] else ""
            spec = (
                f"fusegen: 1\nname: planes_{name}\ndims: {{n: 2, c: 16, h: 8, w: 8}}\n"
                f"arguments: {{c: {{type: dim}}{groups_of}}}\ninputs: {{x: [n, c, h, w]}}\ndtypes: [float32]\n"
                f"chain:\n  - {CHAINS[name]}\n  - {{op: relu}}\n"
            )
            plan = write(f"planes_{name}", spec, root)
            kernels = kernels_of(root / plan.spec.name, plan.modes[0], emulation_cache, checked=False)
            known[name] = plan, EmulatedLaunchers(kernels)
        plan, launchers = known[name]
        variant = plan.variants[0]
        symbol = Launcher(plan, variant.backward if backward else variant.forward).symbol
        call = Call(0, samples * positions, channels, groups, positions=positions, samples=samples)
        return choice(launchers.explain(symbol, call))

    return found


def kernels(found: Choice) -> list[str]:
    return [launch.kernel for launch in found.launches]


@pytest.mark.parametrize(("name", "groups"), [("groups", 4), ("instances", 1)])
def test_the_memory_is_read_once(ask, name, groups) -> None:
    forward = ask(name, 3, 32, 1024, groups)
    assert kernels(forward) == ["plane_shared"]
    assert kernels(ask(name, 3, 32, 1024, groups, backward=True)) == ["plane_shared", "final_reduction"]
    length = 32 // groups if name == "groups" else 1
    (launch,) = forward.launches
    assert launch.grid == (3 * 32 // length, 1, 1) and launch.shared_bytes >= length * 1024 * 4


@pytest.mark.parametrize(
    ("name", "sizes", "why"),
    [
        ("instances", (3, 32, 1023), "no whole vectors"),
        ("instances", (3, 32, 40), "idle"),
        ("instances", (3, 2, 64 * 1024), "do not fit"),
        ("groups", (3, 32, 1024, 1), "do not fit"),  # more channels than a block has warps
        ("groups", (3, 16, 8192, 2), "do not fit"),
    ],
)
def test_others_are_read_again(ask, name, sizes, why) -> None:
    found = ask(name, *sizes)
    assert kernels(found) == ["plane", "sample_reduction", "plane"]
    reasons = {each.schedule: each.reason for each in found.considered}
    assert why in reasons["plane_shared"]


def test_moments_of_all_samples_are_no_sums_of_planes(ask) -> None:
    assert "plane_shared" not in kernels(ask("channels", 3, 32, 1024))
