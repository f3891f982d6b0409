"""What launch shapes need to know of a GPU, as a table: rendering never asks the GPU at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Device:
    """One compute capability.

    multiprocessors: of the part that the launch shapes are made for. shared_bytes: the most dynamic shared memory
    that one block may have (CUDA C++ Programming Guide, table of technical specifications). l2_bytes: of the L2.
    most_cluster: the most blocks that a cluster may have on every such GPU; 1 where there are no clusters, or where
    nobody has seen these kernels run with them. bandwidth: GB/s of device memory that a copy reaches, for
    `fusegen plan`'s floor; about nine tenths of the data sheet's where no copy was measured.
    """

    target: str
    name: str
    multiprocessors: int
    shared_bytes: int
    l2_bytes: int
    most_cluster: int
    bandwidth: float


# What nvcc 13.0 knows, but for sm_88, of which no part is public.
DEVICES = {
    device.target: device
    for device in (
        Device("sm_75", "T4", 40, 64 * 1024, 4 << 20, 1, 290),
        Device("sm_80", "A100", 108, 163 * 1024, 40 << 20, 1, 1400),
        Device("sm_86", "RTX A6000", 84, 99 * 1024, 6 << 20, 1, 690),
        Device("sm_87", "Jetson AGX Orin", 16, 163 * 1024, 4 << 20, 1, 180),
        Device("sm_89", "L40S", 142, 99 * 1024, 96 << 20, 1, 780),
        Device("sm_90", "H100", 132, 227 * 1024, 50 << 20, 8, 3000),
        Device("sm_100", "B200", 148, 227 * 1024, 126 << 20, 8, 7000),
        Device("sm_103", "B300", 148, 227 * 1024, 126 << 20, 8, 7000),
        Device("sm_110", "Jetson T5000", 20, 227 * 1024, 32 << 20, 1, 240),
        Device("sm_120", "RTX 5090", 170, 99 * 1024, 96 << 20, 1, 1600),
        Device("sm_121", "GB10", 48, 99 * 1024, 24 << 20, 1, 240),
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


def planning_device(targets: Sequence[str]) -> Device:
    """One device that launch shapes of all targets respect: the fastest target's size, the least shared memory and the
    smallest clusters of all."""
    known = [DEVICES[target.rstrip("af")] for target in targets]
    fastest = max(known, key=lambda device: device.bandwidth)
    shared = min(device.shared_bytes for device in known)
    cluster = min(device.most_cluster for device in known)
    l2 = min(device.l2_bytes for device in known)
    return replace(fastest, shared_bytes=shared, l2_bytes=l2, most_cluster=cluster)


def misfit(device: Device, target: str) -> str | None:
    """Why code whose launch shapes are planned for `device` cannot be built for a target; None if it can be."""
    if not is_known(target):
        return f"unsupported target '{target}': there are {', '.join(DEVICES)}"
    have = DEVICES[target.removesuffix("a")].shared_bytes
    if have < device.shared_bytes:
        return (
            f"a block has {have >> 10} KiB of shared memory on {target}, and the spec's targets plan for "
            f"{device.shared_bytes >> 10}: add {target} to them"
        )
    return None


def misfits(devices: Iterable[Device], targets: Sequence[str] | None) -> list[str]:
    """As misfit, of each device and target that do not go together."""
    found = (misfit(device, target) for device in devices for target in targets or ())
    return [reason for reason in found if reason is not None]
