"""A GPU's name in the place of a target is answered with the target."""

from __future__ import annotations

import pytest

from fusegen.plan.launches.devices import DEVICES, remedy, unknown_targets
from fusegen.spec.gpu_names import architecture, suggestion


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("h100", "sm_90"),
        ("H200", "sm_90"),
        ("NVIDIA H100 80GB HBM3", "sm_90"),
        ("a100", "sm_80"),
        ("NVIDIA A100-SXM4-80GB", "sm_80"),
        ("A100 80GB PCIe", "sm_80"),
        ("a10", "sm_86"),
        ("A10G", "sm_86"),
        ("l4", "sm_89"),
        ("L40S", "sm_89"),
        ("b200", "sm_100"),
        ("rtx 5090", "sm_120"),
        ("RTX-5090", "sm_120"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89"),
        ("3090", "sm_86"),
        ("Tesla T4", "sm_75"),
        ("sm90", "sm_90"),
        ("SM_90A", "sm_90a"),
        ("compute_80", "sm_80"),
        ("9.0", "sm_90"),
        ("120", "sm_120"),
        ("v1000", None),
        ("h1000", None),
        ("t400", None),
        ("sm_90x", None),
        ("sm_1", None),
        ("", None),
    ],
)
def test_architectures(name: str, target: str | None) -> None:
    assert architecture(name) == target


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.target)
def test_every_device_of_the_table_has_its_name(device) -> None:
    assert architecture(device.name) == device.target


def test_hints() -> None:
    assert suggestion("h100") == "write sm_90, nvcc's name for it" and suggestion("sm_70") is None
    assert remedy("v1000").startswith("supported: sm_75 (T4), sm_80 (A100), ")
    assert unknown_targets(["b200"]) == ["unsupported target 'b200' (write sm_100, nvcc's name for it)"]
