"""Which kernel of which program a profiler's event or a line of Nsight Compute is about, and its place in plan.json.

A kernel is `row_kernel<(anonymous namespace)::Forward<float, float, float>, 0, 4, true, 1, false, false>(...)`: a kind
over the struct of a program, and, but for three kinds, over the pass over the elements with which it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusegen.plan.launches.kinds import KERNELS

KINDS = tuple(KERNELS)
WITHOUT_PASS = ("l2", "sample_reduction", "scalar_reduction")
# Demanglers differ in what they call a namespace without a name, and in whether they give integers their type.
_NAMESPACE = r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})"
_KERNEL = re.compile(rf"\b({'|'.join(KINDS)})(?:_of_tiles)?_kernel<{_NAMESPACE}::(\w+)<")
_PASS = re.compile(r",\s*(?:\(int\))?(\d+)")


@dataclass(frozen=True)
class KernelName:
    """program: as the plan calls it. number: of the pass; None for kinds that have none."""

    program: str
    kind: str
    number: int | None

    def __str__(self) -> str:
        """As tables have it."""
        return f"{self.program} {self.kind}" + ("" if self.number is None else f" {self.number}")


def kernel_name(text: str) -> KernelName | None:
    """What a demangled name says; None for a kernel that is not one of ours."""
    found = _KERNEL.search(text)
    if found is None:
        return None
    kind, struct = found.groups()
    number = None
    if kind not in WITHOUT_PASS:
        match = _PASS.match(text, _behind_bracket(text, found.end()))
        if match is None:
            return None
        number = int(match.group(1))
    return KernelName(re.sub(r"(?<!^)(?=[A-Z])", "_", struct).lower(), kind, number)


def _behind_bracket(text: str, at: int) -> int:
    """Behind the `>` that closes a `<` before `at`."""
    depth = 1
    while depth and at < len(text):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        at += 1
    return at


def planned_bytes(plan: Mapping[str, Any]) -> dict[KernelName, int]:
    """Bytes that each kernel of a plan.json moves at the typical sizes in its first dtype."""
    found = {}
    for variant in plan["variants"]:
        for program in variant["programs"]:
            *_, last = program["schedules"]
            passes = sum(kernel["kind"] in ("pointwise", "row_reduction") for kernel in last["kernels"])
            for schedule in program["schedules"]:
                for kernel, number in _numbered(schedule["kernels"], passes):
                    kind = kernel["kind"]
                    name = KernelName(program["name"], kind, None if kind in WITHOUT_PASS else number)
                    found[name] = kernel["bytes"]
    return found


def _numbered(kernels: list[dict[str, Any]], passes: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Each kernel of a schedule with the pass that it begins with, or whose sums it combines."""
    done = 0
    for kernel in kernels:
        if kernel["kind"] in ("final_reduction", "sample_reduction"):
            yield kernel, done - 1
            continue
        yield kernel, done
        # A persistent kernel does all passes that are left, as the L2-resident one does.
        done = done + 1 if kernel["kind"] in ("pointwise", "row_reduction") else passes
