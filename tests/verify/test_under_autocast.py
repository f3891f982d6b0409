"""Under autocast, too, `fusegen verify` compares the kernels with eager, and not eager with itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.verify.suite import Suite  # noqa: E402
from tests.verify.chains import AUTOCAST, emulated  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


def test_kernels_that_are_wrong_under_autocast_are_caught(tmp_path, emulation_cache, monkeypatch) -> None:
    subject = emulated(tmp_path, emulation_cache, "cast", text=AUTOCAST)
    (mode,) = (mode for mode in subject.plan.modes if not mode.plain)
    assert all(finding.item.ok for finding in Suite(subject, full=False).numerics(mode))

    operator = subject.package._fused
    plain = operator.forward
    monkeypatch.setattr(operator, "in_cpp", False)
    monkeypatch.setattr(operator, "forward", lambda *arguments: (plain(*arguments)[0] + 1, *plain(*arguments)[1:]))
    found = [finding for finding in Suite(subject, full=False).numerics(mode) if finding.item.name == "output"]
    assert found and not any(finding.item.ok for finding in found)
