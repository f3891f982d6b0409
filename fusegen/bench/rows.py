"""The CSV: one row for each spec, shape, dtype, mode and subject.

Rows are appended configuration by configuration, so that a run that is killed keeps what it has. A configuration that
is measured again counts as it was measured last, with all its subjects: figures of different runs do not compare.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from fusegen.bench.names import MODES, PRECISIONS, SUBJECTS
from fusegen.errors import Diagnostic, SpecError


@dataclass(frozen=True)
class Row:
    """One subject of one configuration. None where there is nothing to tell.

    run: when it began, in UTC. shape: rows x input features x channels. *_q1, *_q3: quartiles. device_ms: device time
    of a call from a flushed L2. wall_us: host time of a call in a synchronised loop. peak_bytes: of one call, beyond
    its inputs and parameters. device_ratio, wall_ratio: time over that of the fastest peer. tail_bytes: the fewest
    that the tail moves, with the steps in it that PyTorch calls. floor_ms: a copy of that many. contraction_ms: the
    same library calls alone. tail_ms: device_ms - contraction_ms. copy_gb_s, contraction_tflop_s: the ceilings of the
    GPU. targets: what the kernels were compiled for. schedule: what the launchers of the fused module ran: the forward
    direction's, and behind a slash the backward direction's; "none" where PyTorch's operators ran. launches: the
    kernels with their grids and blocks, or why there are none. Both are empty for other subjects, and in rows from
    before launchers could tell.
    """

    run: str
    gpu: str
    torch: str
    cuda: str
    fusegen: str
    spec: str
    shape: str
    dtype: str
    mode: str
    subject: str
    device_ms: float | None = None
    device_ms_q1: float | None = None
    device_ms_q3: float | None = None
    device_samples: int | None = None
    wall_us: float | None = None
    wall_us_q1: float | None = None
    wall_us_q3: float | None = None
    wall_samples: int | None = None
    peak_bytes: int | None = None
    device_ratio: float | None = None
    wall_ratio: float | None = None
    tail_bytes: int | None = None
    floor_ms: float | None = None
    contraction_ms: float | None = None
    tail_ms: float | None = None
    tail_over_floor: float | None = None
    copy_gb_s: float | None = None
    contraction_tflop_s: float | None = None
    targets: str = ""
    seed: int | None = None
    command: str = ""
    schedule: str = ""
    launches: str = ""

    @property
    def configuration(self) -> tuple[str, str, str, str, str]:
        """What rows that compare with each other have in common."""
        return self.gpu, self.spec, self.shape, self.dtype, self.mode


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
_KINDS = get_type_hints(Row)


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows at the end of the CSV, which is made if it is not there. Raises SpecError where that fails."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or not path.stat().st_size:
            writer.writerow(COLUMNS)
        writer.writerows([_text(getattr(row, name)) for name in COLUMNS] for row in rows)
        # In one piece: a run that is killed leaves no half a row.
        with path.open("ab", buffering=0) as file:
            file.write(text.getvalue().encode("utf-8", "backslashreplace"))
    except OSError as error:
        message = f"{path.as_posix()} cannot be written: {error.strerror}"
        raise SpecError([Diagnostic("FG502", message)]) from None


def read_rows(path: Path) -> list[Row]:
    """Every row, in the order of the file. Raises SpecError for a file that is no such CSV."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _refused(f"{path.as_posix()} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not lines or tuple(lines[0]) != COLUMNS:
        raise _refused(f"{path.as_posix()} does not have the columns of `fusegen bench`")
    rows = []
    for number, cells in enumerate(lines[1:], start=2):
        try:
            rows.append(Row(**{name: _value(name, text) for name, text in zip(COLUMNS, cells, strict=True)}))
        except ValueError as error:
            raise _refused(f"{path.as_posix()}:{number}: {error}") from None
    return rows


def latest(rows: Iterable[Row]) -> list[Row]:
    """Of each configuration the rows of its last run; specs and shapes as they come, the rest in a fixed order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        group = groups.setdefault(row.configuration, [])
        if group and group[0].run < row.run:  # ISO 8601: the order of time
            group.clear()
        if not group or group[0].run == row.run:
            group.append(row)
    places = {place: index for index, place in enumerate(dict.fromkeys(key[:3] for key in groups))}
    order = [list(names) for names in (PRECISIONS, MODES, SUBJECTS)]

    def position(row: Row) -> tuple[int, ...]:
        values = (row.dtype, row.mode, row.subject)
        ranks = (n.index(value) if value in n else len(n) for n, value in zip(order, values, strict=True))
        return places[row.configuration[:3]], *ranks

    return sorted((row for group in groups.values() for row in group), key=position)


def by_configuration(rows: Iterable[Row]) -> Iterator[tuple[Row, dict[str, Row]]]:
    """The latest rows of each configuration by subject, with one of them to tell which it is."""
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in latest(rows):
        groups.setdefault(row.configuration, {})[row.subject] = row
    for subjects in groups.values():
        yield next(iter(subjects.values())), subjects


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value(name: str, text: str) -> Any:
    kind = _KINDS[name]
    if kind is str:
        return text
    if not text:
        return None
    return int(text) if kind == int | None else float(text)


def _refused(message: str) -> SpecError:
    return SpecError([Diagnostic("FG507", message)])
