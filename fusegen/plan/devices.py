"""What launch shapes need to know of a GPU, as a table: rendering never asks the GPU at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Device:
    """One compute capability.

    multiprocessors: of the part that the launch shapes are made for. shared_bytes: the most dynamic shared memory
    that one block may have (CUDA C++ Programming Guide, table of technical specifications). l2_bytes: of the L2.
    most_cluster: the most blocks that a cluster may have on every such GPU; 1 where there are no clusters. bandwidth:
    GB/s of device memory that a copy reaches, for `fusegen plan`'s floor.
    """

    target: str
    name: str
    multiprocessors: int
    shared_bytes: int
    l2_bytes: int
    most_cluster: int
    bandwidth: float


DEVICES = {
    device.target: device
    for device in (
        Device("sm_80", "A100", 108, 163 * 1024, 40 << 20, 1, 1400),
        Device("sm_90", "H100", 132, 227 * 1024, 50 << 20, 8, 3000),
        Device("sm_100", "B200", 148, 227 * 1024, 126 << 20, 8, 7000),
    )
}


def is_known(target: str) -> bool:
    """Whether the table has a compute capability; `a` stands for code that runs on that one alone."""
    return target in DEVICES or (target.endswith("a") and target != "sm_80a" and target[:-1] in DEVICES)


def planning_device(targets: list[str]) -> Device:
    """One device that launch shapes of all targets respect: the newest target's size, the least memory on chip and the
    smallest clusters of all."""
    known = [DEVICES[target.rstrip("af")] for target in targets]
    newest = max(known, key=lambda device: device.multiprocessors)
    shared = min(device.shared_bytes for device in known)
    cluster = min(device.most_cluster for device in known)
    l2 = min(device.l2_bytes for device in known)
    return replace(newest, shared_bytes=shared, l2_bytes=l2, most_cluster=cluster)
