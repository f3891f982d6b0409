"""Data that is hard on statistics, and the tensors [rows, channels] that have it as columns, groups or rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

SCHEDULES = {
    "batch": ("persistent", "clusters of 4", "l2", "two_pass"),
    "group": ("persistent", "two_pass", "two_pass, segments in 4 blocks"),
    "layer": ("persistent", "two_pass", "two_pass, segments in 4 blocks"),
}
GROUPS = 4
FAR = 1e4  # deviations

# Where squares of distances, or sums of them, leave the range of float32: 1 / deviation is zero then.
LARGE = {"1e18": 1e18, "1e19": 1e19, "1e20": 1e20, "1e30": 1e30}
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class Case:
    """Data [values, sets]: each column is one set of values that has a mean and a variance.

    A thread's first values are those that it has a shift of: the first 32 of the column kernel's, in this shape, and
    the first 8 of each 24 of the pointwise kernels'.
    """

    kind: str
    values: int = 70
    sets: int = 132

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.values}x{self.sets}"

    @property
    def data(self) -> torch.Tensor:
        torch.manual_seed(self.values)
        x = torch.randn(self.values, self.sets)
        index = torch.arange(self.values)
        if self.kind == "far":
            x += FAR
        elif self.kind == "far, each its own":
            x += FAR * torch.linspace(-1, 1, self.sets)
        elif self.kind == "first value an outlier":
            x[0] += FAR
        elif self.kind == "first of each thread an outlier":
            x[(index < 32) | (index % 24 < 8)] += FAR
        elif self.kind == "first of each thread of a block an outlier":
            x[index % 24 < 8] -= FAR
        elif self.kind == "all but the first far away":
            x[1:] += FAR
        elif self.kind == "constant":
            x = (10 ** torch.linspace(-3, 4, self.sets)).expand(self.values, -1) * 1.1
        elif self.kind in LARGE:
            x *= LARGE[self.kind]
        elif self.kind in SPECIAL:
            x[0, ::3] = SPECIAL[self.kind]
            x[-1, 1::12] = SPECIAL[self.kind]
        else:
            assert self.kind == "plain"
        return x.contiguous()


CASES = [
    *(
        Case(kind)
        for kind in (
            "far",
            "far, each its own",
            "first value an outlier",
            "first of each thread an outlier",
            "first of each thread of a block an outlier",
            "all but the first far away",
            "constant",
            *LARGE,
            *SPECIAL,
        )
    ),
    # One value, fewer of them than threads, one more than an iteration; columns in vectors and without.
    *(Case("plain", values, sets) for values in (1, 2, 3, 5, 33, 257) for sets in (12, 7)),
    *(Case(kind, values, 12) for kind in ("far", "constant", "inf") for values in (2, 5, 257)),
]


def fits(schedule: str, case: Case) -> bool:
    """L2-resident tiles want rows that begin at multiples of a vector."""
    return schedule != "l2" or case.sets % 4 == 0


def by_rows(chain: str, case: Case) -> torch.Tensor:
    """The tensor [rows, channels] that has these sets of values as its columns, its groups or its rows."""
    data = case.data
    if chain == "group":
        return data[:, : case.sets // GROUPS * GROUPS].T.reshape(-1, GROUPS * case.values)
    return data if chain == "batch" else data.T.contiguous()


def sets_of(chain: str, x: torch.Tensor) -> torch.Tensor:
    """[values, sets] again."""
    if chain == "group":
        return x.reshape(-1, x.shape[1] // GROUPS).T
    return x if chain == "batch" else x.T


def unset(chain: str, sets: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return sets if chain == "batch" else sets.T.reshape(x.shape)


def spread(chain: str, parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value of the channel's parameter for each of the sets' values."""
    return sets_of(chain, parameter.expand(x.shape))
