"""What `fusegen ops` says, and the spec that `fusegen init` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import LACKING, OTHER_NAMES, unknown_op
from fusegen.plan.load import plan_file, planned_document
from fusegen.reference.init import write_spec
from fusegen.reference.ops import details, example, known_ops, listing
from fusegen.spec.yaml import parse_yaml

SPEC = """\
fusegen: 1
name: demo
dims: {{batch: 16{hidden}}}
{arguments}inputs: {{x: [batch, {width}]{inputs}}}
chain: [{chain}]
"""


def test_every_op_has_a_line() -> None:
    lines = listing().splitlines()
    assert [line.split()[0] for line in lines[: len(known_ops())]] == list(known_ops())
    assert any(
        re.fullmatch(r"leaky_relu +x above 0, else negative_slope x +negative_slope=0\.01", line) for line in lines
    )


@pytest.mark.parametrize("op", known_ops())
def test_the_example_of_an_op_can_be_planned(op: str) -> None:
    text = example(op)
    assert text in details(op)
    sizes, inner = "hidden" in text, "features" in text.replace("_features", "")
    width = "hidden" if sizes and op != "linear" else "32"
    is_called = not known_ops()[op].has_kernels
    of_images = dict.fromkeys(("flatten", "upsample", "pixel_shuffle", "pixel_unshuffle"), 2) | {"unsqueeze": 0}
    spatial = of_images.get(op, int(op[-2]) if op.startswith("conv") or "pool" in op else 0)
    positions = ("depth", "height", "width")[3 - spatial :]
    spec = SPEC.format(
        hidden=", hidden: 32" * sizes + ", features: 32" * inner + "".join(f", {name}: 8" for name in positions),
        arguments=f"arguments: {{hidden: {{type: dim}}{', features: {type: dim}' * inner}}}\n" if sizes else "",
        inputs=", padding: [1]" * ("mask" in text) + ", target: [batch]" * ("target: target" in text),
        width=", ".join(["features" if inner else "32" if positions else width, *positions]),
        # What is left of a row is put together with all of it again.
        chain=f"{text}, {{op: add, input: x}}"
        if "keepdim" in text
        else "{op: tanh}, " * is_called + text,  # PyTorch calls it: the kernels are those of another step
    )
    if op == "bmm":
        inputs = "x: [batch, 32, hidden], keys: [batch, 16, hidden]"
        spec = spec.replace(", hidden: 32" * sizes, "").replace("dims: {", "dims: {hidden: 32, ")
        spec = re.sub(r"inputs: \{.*\}", f"inputs: {{{inputs}}}", spec)
    planned_document(parse_yaml(spec, "demo.yaml"))


def test_an_op_that_is_not_there() -> None:
    with pytest.raises(SpecError, match="the op 'rrelu' is not supported"):
        details("rrelu")


def test_lacking_ops_are_lacking() -> None:
    """An op that was added is no longer refused; other names are those of ops."""
    plain = {op.replace("_", "") for step in STEPS for op in step.ops()}
    assert not plain & (LACKING.keys() | OTHER_NAMES.keys()) and not LACKING.keys() & OTHER_NAMES.keys()
    assert {name.split(",")[0] for name in OTHER_NAMES.values()} <= known_ops().keys()


@pytest.mark.parametrize(
    ("op", "hint"),
    [
        ("layernrm", "did you mean 'layer_norm'?"),
        ("relux", "did you mean 'relu'?"),
        ("nn.LeakyReLU", "did you mean 'leaky_relu'?"),
        ("torch.sigmoid", "did you mean 'sigmoid'?"),
        ("swich", "did you mean 'swish'?"),
        ("expit", "it is called 'sigmoid' here"),
        ("nn.InstanceNorm2d", "it is called 'instance_norm' here"),
        ("qwertz", "`fusegen ops` lists those that there are; one of a plugin needs the plugin installed"),
    ],
)
def test_what_may_be_meant(op: str, hint: str) -> None:
    assert unknown_op(op, list(known_ops())) == (f"unknown op '{op}'", hint)


@pytest.mark.parametrize("op", ["prod", "cumsum", "argmax", "lerp", "unfold", "MaxUnpool2d", "Dropout2d",
                                "mm", "baddbmm", "local_response_norm", "F.gumbel_softmax"])  # fmt: skip
def test_what_is_lacking(op: str) -> None:
    message, hint = unknown_op(op, list(known_ops()))
    assert message.startswith(f"the op '{op}' is not supported: ") and hint and "did you mean" not in hint


def test_a_spec_to_start_from(tmp_path: Path) -> None:
    spec, schema = write_spec("first", tmp_path / "specs")
    text = spec.read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={schema.name}\n") and schema.parent == spec.parent
    assert plan_file(spec).spec.name == "first"
    assert max(map(len, text.splitlines())) <= 120
    with pytest.raises(SpecError, match=r"FG502.*first\.yaml is there already"):
        write_spec("first", tmp_path / "specs")
    assert spec.read_text(encoding="utf-8") == text
    assert write_spec("second", tmp_path / "specs") == [tmp_path / "specs" / "second.yaml"]


@pytest.mark.parametrize("name", ["class", "a-b", "../up", "support", ""])
def test_a_name_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="FG206"):
        write_spec(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "specs").write_text("a file")
    with pytest.raises(SpecError, match=r"FG502.*specs.*: (File exists|Not a directory)"):
        write_spec("first", tmp_path / "specs")
