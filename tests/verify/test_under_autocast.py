"""Under autocast, too, `fusegen verify` compares the kernels with eager, and not eager with itself."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.verify.runs.cuda_autocast import _on_fakes, _result_dtype  # noqa: E402
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


RMS = """\
fusegen: 1
name: {name}
dims: {{batch: 32, features: 24}}
arguments: {{features: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [float32, bfloat16]
chain:
  - {{op: rms_norm, name: norm, eps: 1.0e-6}}
"""


def test_torch_before_2_12_has_rms_norm_in_its_inputs_dtype(tmp_path, emulation_cache, monkeypatch) -> None:
    """Whose result the kernels, which return float32, do not have: PyTorch's operators run in their place."""
    subject = emulated(tmp_path, emulation_cache, "rms", text=RMS)
    stand_in = sys.modules[f"{subject.package._support.__name__}.stand_in"]
    x, weight = torch.randn(8, 24).bfloat16(), torch.ones(24)
    result = _result_dtype(lambda: _on_fakes(F.rms_norm, (x, (24,), weight, 1e-6), {}), torch.bfloat16)
    assert stand_in._RMS_NORM_IN_FLOAT32 == (result == torch.float32)

    module = subject.fused_class(24)
    monkeypatch.setattr(stand_in, "_RMS_NORM_IN_FLOAT32", True)
    with torch.autocast("cpu", torch.bfloat16):
        assert module.fusegen_kernels(x).used
    monkeypatch.setattr(stand_in, "_RMS_NORM_IN_FLOAT32", False)
    with torch.autocast("cpu", torch.bfloat16):
        assert module.fusegen_kernels(x) == (False, str(stand_in.RMS_NORM_AS_IT_IS.reason), "")
    assert module.fusegen_kernels(x.float()).used

    monkeypatch.setattr(torch, "__version__", "2.11.0")
    suite = Suite(subject, full=False)
    assert {mode.name for mode in suite.modes() if list(suite.numerics(mode))} == {"float32", "bfloat16"}
    report = type("Report", (), {"skipped": {}})()
    suite._skip_autocast(report)
    assert "2.12" in report.skipped["autocast"]
