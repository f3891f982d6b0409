"""Every command that reads specs refuses one that is in a file of another name, and writes nothing then."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from fusegen.cli import main  # noqa: E402

pytestmark = pytest.mark.torch
SPEC = Path(__file__).resolve().parents[2] / "specs" / "gemm_add_relu.yaml"


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "--no-compile"],
        ["check"],
        ["plan"],
        ["plan", "--format", "html"],
        ["plan", "--json"],
        ["export", "-o", "fused.py"],
        ["verify", "--emulate"],
        ["bench", "--csv", "figures.csv"],
        ["tune"],
        ["wheel", "--name", "kernels"],
    ],
    ids=" ".join,
)
def test_a_spec_in_a_file_of_another_name(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.yaml").write_bytes(SPEC.read_bytes())
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "other.yaml"])
    out, err = capsys.readouterr()
    assert ended.value.code == 2, err
    assert "other.yaml:2:7: error[FG504]: the spec 'gemm_add_relu' is in the file 'other.yaml'" in " ".join(err.split())
    assert not out or arguments[0] == "check"
    assert [path.name for path in tmp_path.iterdir()] == ["other.yaml"]
