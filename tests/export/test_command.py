"""`fusegen export`: its options, what it refuses, and the commands of its page."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import fusegen
from fusegen.cli import main
from fusegen.errors import SpecError
from tests.cli.test_cli import ROOT, SPEC, run

SPLIT = ROOT / "specs" / "gemm_multiply_leakyrelu_split.yaml"
PAIR = """\
fusegen: 1
name: pair
dims: {rows: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [rows, features]}
dtypes: [float32, bfloat16]
chain:
  - {op: linear, name: first, out_features: hidden}
  - {op: linear, name: second, out_features: features, bias: false}
  - {op: relu}
"""


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", (ROOT / "docs" / "exporting.md").read_text())
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 2
    sizes = []
    for line in lines:
        done = run(*shlex.split(line)[1:], cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "wrote fused.py\n", "")
        text = (tmp_path / "fused.py").read_text(encoding="ascii")
        compile(text, "fused.py", "exec")
        sizes.append(text.count("torch.float16"))
    assert sizes[0] > 0 and sizes[1] == 0


def test_without_a_file_it_prints(tmp_path: Path) -> None:
    done = run("export", SPEC)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == fusegen.export(SPEC)


def test_arguments_without_a_value_are_left_out() -> None:
    assert "def get_inputs" in fusegen.export(SPEC) and "def get_init_inputs" not in fusegen.export(SPEC)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([SPEC, "--dtypes", "float64"], "no kernels for 'float64'"),
        ([SPEC, "--precision", "tf32"], "ieee or fp32_split"),
        ([SPEC, "--inputs-from", "absent.py"], "cannot read absent.py"),
        ([SPEC, "--inputs-from", "empty.py"], "neither get_inputs() nor get_init_inputs()"),
        ([SPEC, "-o", "absent/fused.py"], "cannot write absent/fused.py"),
        (["absent.yaml"], "absent.yaml"),
    ],
)
def test_refusals(arguments: list[str | Path], text: str, tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["export", *map(str, arguments)])
    assert ended.value.code == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.py"]


def test_ranks(tmp_path: Path) -> None:
    spec = tmp_path / "matmul_bn_bias_div_swish.yaml"
    spec.write_text((ROOT / "specs" / spec.name).read_text().replace("bn_momentum}", "bn_momentum, sync: true}"))
    with pytest.raises(SpecError, match="an exported file exchanges nothing between ranks"):
        fusegen.export(spec)


def test_precisions(tmp_path: Path) -> None:
    """fp32_split brings code for sm_90a, ieee none of it; what rounds operands is refused where there is float32."""
    split, ieee = fusegen.export(SPLIT), fusegen.export(SPLIT, precision="ieee")
    assert "three products of fp16 pieces" in split and "stays the library's product" in ieee
    assert "sm_90a" in split and "multiply_pieces" in split
    assert "sm_90a" not in ieee and "multiply_pieces" not in ieee
    assert "multiply_pieces" in fusegen.export(SPEC, precision="fp32_split", dtypes=["float32"])
    assert "multiply_pieces" not in fusegen.export(SPLIT, dtypes=["float16"])
    rounding = tmp_path / SPLIT.name
    rounding.write_text(SPLIT.read_text().replace("precision: fp32_split", "precision: bf16"))
    with pytest.raises(SpecError, match="no float32 products by 'bf16'"):
        fusegen.export(rounding)
    assert "class ModelNew" in fusegen.export(rounding, precision="ieee")
    assert "class ModelNew" in fusegen.export(rounding, dtypes=["bfloat16"])


def test_precisions_of_regions(tmp_path: Path) -> None:
    """A layer alone is PyTorch's under ieee; its product is a kernel's under fp32_split."""
    spec = tmp_path / "pair.yaml"
    spec.write_text(PAIR)
    assert "self.first(x)" in fusegen.export(spec) and "_region_first" not in fusegen.export(spec)
    split = fusegen.export(spec, precision="fp32_split")
    assert "_run(_region_first, x)" in split and "multiply_pieces" in split
    spec.write_text(PAIR.replace("op: linear,", "op: linear, precision: bf16,"))
    with pytest.raises(SpecError, match="no float32 products by 'bf16'"):
        fusegen.export(spec)
    assert "self.first(x)" in fusegen.export(spec, precision="ieee")
