"""Dropouts in a call: with which p each drops, which variant runs, and what is drawn."""

from __future__ import annotations

from fusegen.render.python.call_names import CallNames, refuse


class Dropouts:
    """Prints the statements of all of them."""

    def __init__(self, call: CallNames) -> None:
        self.call, self.chain = call, call.chain
        self.shares = {dropout.name: f"_{dropout.name}_p" for dropout in self.chain.dropouts}

    def reads(self) -> list[str]:
        """Statements that find the p of each."""
        names, local = self.shares, self.call.local
        if not names:
            return []
        lines = [f"{share} = _support.share({local[name]})" for name, share in names.items()]
        checks = [f"_support.not_numbers({', '.join(names.values())})"]
        checks += [f"_support.refused(_support.is_no_share({share}))" for share in names.values()]
        return [*lines, *refuse(checks)]

    def all_kept(self) -> str:
        """An expression that tells whether nothing is dropped."""
        return " and ".join(f"{share} == 0" for share in self.shares.values())

    def arguments(self) -> dict[str, str]:
        """By argument of the ops: what is passed for it."""
        if not self.shares:
            return {}
        found = {dropout.p: self.shares[dropout.name] for dropout in self.chain.dropouts}
        end = -(len(self.chain.trailing) or 1)
        rows = "_shape[2:]" if self.chain.spatial else f"{self.call.first}.shape[1:{end}]"
        return {**found, self.chain.seed: "_seed", "_sample_rows": f"_support.sample_rows({rows})"}

    def draws(self) -> list[str]:
        """Statements that draw, once nothing can refuse the call any more."""
        if not self.shares:
            return []
        return [f"_seed = _support.draw_seed({self.call.first}.device) if _count else None"]
