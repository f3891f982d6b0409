"""Results of one value a row: [rows, 1], and [rows] where the last reduction drops the dimension."""

from __future__ import annotations

import pytest

from tests.importing.modules import Source, chain, imported

pytestmark = pytest.mark.torch

WRITTEN = {
    "return y.sum(-1, keepdim=True)": [{"op": "sum", "keepdim": True}],
    "return y.sum(-1)": [{"op": "sum", "keepdim": False}],
    "return torch.tanh(torch.logsumexp(y, 1)) * 2": [
        *({"op": "logsumexp", "keepdim": False, "dim": 1}, {"op": "tanh"}, {"op": "mul", "constant": 2.0})
    ],
    # What is put together with the whole row keeps the dimension in the chain.
    "return (y - y.mean(-1).unsqueeze(1)).amax(-1)": [
        *({"op": "mean", "keepdim": True}, {"op": "sub", "swap": True}, {"op": "amax", "keepdim": False})
    ],
}


@pytest.mark.parametrize("body", WRITTEN)
def test_rows(body: str) -> None:
    found = chain(imported(Source("", body)))
    steps = [{key: value for key, value in step.items() if key not in ("save", "value", "name")} for step in found]
    assert [step for step in steps if step["op"] != "linear"] == WRITTEN[body]
