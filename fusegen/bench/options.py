"""The options of `fusegen bench`, read and checked before anything is measured."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from fusegen.bench.names import DEFAULT_PRECISIONS, MODES, PEERS, PRECISIONS, TYPICAL

_SHAPE = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*){1,4}")


@dataclass(frozen=True)
class Options:
    """What is measured. limit: seconds after which compiled peers are left out; None for as long as it takes."""

    against: tuple[str, ...] = PEERS
    dtypes: tuple[str, ...] = DEFAULT_PRECISIONS
    shapes: tuple[str, ...] = (TYPICAL,)
    modes: tuple[str, ...] = tuple(MODES)
    seed: int = 0
    limit: float | None = None

    def command(self, specs: Sequence[Path]) -> str:
        """The command that measures the same again. Where it writes to is left out: it changes no figure."""
        words = ["fusegen", "bench", *(path.as_posix() for path in specs)]
        default = Options()
        for name in ("against", "dtypes", "shapes", "modes"):
            if getattr(self, name) != getattr(default, name):
                words += [f"--{name}", ",".join(getattr(self, name))]
        if self.seed != default.seed:
            words += ["--seed", str(self.seed)]
        if self.limit is not None:
            words += ["--limit", f"{self.limit:g}"]
        return shlex.join(words)


def names(text: str, known: Iterable[str], option: str) -> tuple[str, ...]:
    """The comma-separated names in `text`, each once. Raises BadParameter with the list of those that there are."""
    known = tuple(known)
    chosen = _split(text)
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        what = f"unknown: {', '.join(unknown)}" if unknown else "nothing given"
        raise typer.BadParameter(f"{what}; there are {', '.join(known)}", param_hint=option)
    return chosen


def shapes(text: str, option: str) -> tuple[str, ...]:
    """The comma-separated shapes in `text`: rows x input features x channels, rows x channels, or batch x channels x
    positions in front of a convolution. Raises BadParameter."""
    chosen = _split(text)
    wrong = [shape for shape in chosen if shape != TYPICAL and not _SHAPE.fullmatch(shape)]
    if wrong or not chosen:
        what = f"no shape: {', '.join(wrong)}" if wrong else "nothing given"
        hint = f"give 1024x8192x8192 (rows, input features, channels), 1024x8192 without a linear layer, or {TYPICAL}"
        raise typer.BadParameter(f"{what}; {hint}", param_hint=option)
    return chosen


def read(against: str, dtypes: str, shapes_: str, modes: str, seed: int, limit: float | None) -> Options:
    """The options as typed, where lists are separated by commas. Raises BadParameter."""
    return Options(
        against=names(against, PEERS, "--against"),
        dtypes=names(dtypes, PRECISIONS, "--dtypes"),
        shapes=shapes(shapes_, "--shapes"),
        modes=names(modes, MODES, "--modes"),
        seed=seed,
        limit=limit,
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
