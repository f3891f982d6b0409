"""Every launch shape that a tuning may choose, run on the CPU beside double precision, and seen to be another one."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.plan.launches.shapes import Shapes  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.modules.plan import Plan  # noqa: E402
from fusegen.plan.sizes.chain_sizes import sizes  # noqa: E402
from fusegen.plan.tunings.tuning_space import schedule_names, tunable_names, tuning_space  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.runtime.importing import import_package  # noqa: E402
from fusegen.tune.launchers import DOES_NOT_FIT  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from fusegen.verify.subjects.subject import Subject, spread_out  # noqa: E402
from tests.emulate.building import kernels_of, on_another_device  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
# Multiprocessors of a device so small that each tunable makes another grid; rows, channels, groups. The second size has
# no vectors, the last one of the row kernels short segments.
MULTIPROCESSORS = {"matmul_bn_bias_div_swish": 2, "gemm_bias_hardtanh_mish_groupnorm": 2}
SIZES = {
    "matmul_bn_bias_div_swish": ((700, 140, 1), (67, 131, 1)),  # column, two-pass; in evaluation pointwise
    "gemm_bias_hardtanh_mish_groupnorm": ((85, 1480, 1), (67, 131, 1), (37, 48, 4)),  # row, two-pass
}
LIMIT = 1e-11
WITHOUT_EFFECT = {"l2_lag"}
"""Tunables that change when something is done, and no sum."""


def small(name: str, root: Path) -> Plan:
    """The spec's plan for a small device, and its package below `root`."""
    plan = replace(plan_file(ROOT / "specs" / f"{name}.yaml"), tuning=())
    write_files(render_all([module_of(plan)]), root)
    on_another_device(root, MULTIPROCESSORS[name])
    return plan


@pytest.mark.parametrize("name", SIZES)
def test_every_candidate_against_double_precision(name: str, tmp_path: Path, emulation_cache: Path) -> None:
    plan = small(name, tmp_path)
    subject = Subject(module_of(plan), import_package(tmp_path, name), "cpu")
    mode = next(mode for mode in plan.modes if mode.roles["activation"] == "float64")
    library = kernels_of(tmp_path / name, mode, emulation_cache, checked=False)
    for variant in plan.variants:
        compared: set[str] = set()
        differing: set[str] = set()
        for rows, channels, groups in SIZES[name]:
            size = sizes(plan, rows, 1, channels, groups)
            torch.manual_seed(rows)
            module = subject.made(subject.fused_class, size, 1).double()
            spread_out(module)
            tensors = {plan.chain.source.name: torch.randn(rows, channels), "grad_y": torch.randn(rows, channels)}
            tensors = {key: value.double() for key, value in tensors.items()}
            expected = tail_reference(plan, module, tensors, mode, variant.chain.training)
            results: dict[Shapes, tuple[bytes, ...]] = {}
            shapes = dict.fromkeys((*tuning_space(variant.forward), *tuning_space(variant.backward)))
            for seed, each in enumerate(shapes):
                tail = EmulatedTail(plan, variant, library, module)
                try:
                    found = tail.run(tensors, mode, shapes=each, seed=seed).values
                except EmulationError as problem:
                    assert each.schedule in ("persistent", "l2") and str(problem).endswith(f"CUDA error {DOES_NOT_FIT}")
                    continue
                for key in expected.keys() & found.keys():
                    exact = expected[key]
                    error = (found[key].reshape(exact.shape) - exact).abs().max()
                    assert error <= LIMIT * max(1.0, float(exact.abs().max())), f"{variant.name} {each}: {key}"
                results[each] = tuple(value.numpy().tobytes() for value in found.values())
            # Another shape adds up in another order, which the last bits tell.
            for field in (each.name for each in fields(Shapes)):
                pairs = [(a, b) for a, b in combinations(results, 2) if a == replace(b, **{field: getattr(a, field)})]
                compared |= {field} if pairs else set()
                differing |= {field} if any(results[a] != results[b] for a, b in pairs) else set()
        read = {
            tunable
            for program in (variant.forward, variant.backward)
            for schedule in schedule_names(program) or (None,)
            for tunable in tunable_names(program, schedule)
        }
        assert compared >= read, f"{variant.name}: what fits leaves tunables out"
        assert compared - WITHOUT_EFFECT == differing, variant.name
