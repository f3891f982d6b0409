"""What results of one value a row, and norms of blocks, cannot be combined with."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from tests.plan.planning import planned

BN = "op: batch_norm, name: bn, sync: true"
REFUSED = {
    "rows over ranks": ((BN, "op: sum, keepdim: false"), "FG401.*over ranks cannot have one value for each row"),
    "blocks over ranks": ((BN, "op: rms_norm, name: n, width: 8"), "FG401.*over ranks can have no norm of blocks"),
    "dropped elements": (("op: sum, keepdim: false", "op: dropout"), r"FG309.*dropout needs .* value is \[rows\]"),
    "parts of rows": (("op: sum, keepdim: true", "op: chunk, parts: [a, b]"), "FG303.*no 2 equal parts"),
    "a gate of rows": (("op: sum, keepdim: false", "op: swiglu"), "FG309|FG308"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path) -> None:
    chain, message = REFUSED[case]
    with pytest.raises(SpecError, match=message):
        planned(tmp_path, *chain)
