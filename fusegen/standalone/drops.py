"""Dropouts in a call of a standalone module: what each drops, and the seed that they draw, as a package does."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.chain.model import Chain
from fusegen.render.launchers_header import SAMPLE_ROWS

SAMPLES = f"_{SAMPLE_ROWS}"
"""Python: the rows that one index of the first dimension has."""


class Drops:
    """Prints the statements of all dropouts of a chain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.shares = {dropout.name: f"_{dropout.name}_p" for dropout in chain.dropouts}

    @property
    def by_sample(self) -> bool:
        return any(dropout.by_sample for dropout in self.chain.dropouts)

    def reads(self) -> list[str]:
        """Statements that find the share of each, which is 0 in evaluation."""
        lines = []
        for name, share in self.shares.items():
            lines += [
                f"{share} = self.{name}.p if self.{name}.training else 0.0",
                f"_require_numbers({share})",
                f"if not 0 <= {share} <= 1:",
                f'    raise ValueError("{name}.p must be between 0 and 1")',
            ]
        return lines

    def all_kept(self) -> str:
        """An expression that tells whether nothing is dropped."""
        return " and ".join(f"{share} == 0" for share in self.shares.values())

    def draws(self, first: str) -> list[str]:
        """Statements that draw, once nothing can refuse the call any more. first: the first input."""
        if not self.shares:
            return []
        return [f"_seed = torch.randint(2**63 - 1, (), dtype=torch.int64, device={first}.device)"]

    def sources(self) -> Iterator[tuple[str, str]]:
        """Where the arguments of the ops come from."""
        if self.shares:
            yield from ((dropout.p, self.shares[dropout.name]) for dropout in self.chain.dropouts)
            yield from ((self.chain.seed, "_seed"), (SAMPLES, SAMPLES))
