"""The GPUs that a spec may name, as a table: planning never asks the GPU at hand.

templates/support/devices.cuh has what launch shapes follow from, for the same compute capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusegen.spec.gpu_names import suggestion


@dataclass(frozen=True)
class Device:
    """One compute capability.

    name, multiprocessors: of the part that the launch shapes are made for. most_cluster: the most blocks that a cluster
    may have. bandwidth: GB/s of device memory that a copy reaches, for `fusegen plan`'s floor; about nine tenths of the
    data sheet's where no copy was measured.
    """

    target: str
    name: str
    multiprocessors: int
    most_cluster: int
    bandwidth: float


# What nvcc 13.0 knows, but for sm_88, of which no part is public.
DEVICES = {
    device.target: device
    for device in (
        Device("sm_75", "T4", 40, 1, 290),
        Device("sm_80", "A100", 108, 1, 1400),
        Device("sm_86", "RTX A6000", 84, 1, 690),
        Device("sm_87", "Jetson AGX Orin", 16, 1, 180),
        Device("sm_89", "L40S", 142, 1, 780),
        Device("sm_90", "H100", 132, 8, 3000),
        Device("sm_100", "B200", 148, 8, 7000),
        Device("sm_103", "B300", 148, 8, 7000),
        Device("sm_110", "Jetson T5000", 20, 1, 240),
        Device("sm_120", "RTX 5090", 170, 1, 1600),
        Device("sm_121", "GB10", 48, 1, 240),
    )
}
# From here on nvcc has code for one architecture alone: sm_90a.
_FIRST_ALONE = 90


def is_known(target: str) -> bool:
    """Whether the table has a compute capability; `a` stands for code that runs on that one alone."""
    plain = target.removesuffix("a")
    return plain in DEVICES and (plain == target or int(plain.removeprefix("sm_")) >= _FIRST_ALONE)


def all_targets() -> list[str]:
    """Every target that a spec may have."""
    return [name for target in DEVICES for name in (target, f"{target}a") if is_known(name)]


def fastest(targets: Iterable[str]) -> Device:
    """The GPU of the target with the most bandwidth."""
    return max((DEVICES[target.removesuffix("a")] for target in targets), key=lambda device: device.bandwidth)


def remedy(target: str) -> str:
    """What to write in the place of a target that is not known."""
    return suggestion(target) or f"supported: {', '.join(f'{each} ({DEVICES[each].name})' for each in DEVICES)}"


def unknown_targets(targets: Iterable[str] | None) -> list[str]:
    """Why code cannot be built for some of the targets: a sentence for each."""
    return [f"unsupported target '{target}' ({remedy(target)})" for target in targets or () if not is_known(target)]
