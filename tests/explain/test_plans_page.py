"""docs/plans.md: its commands run, and what it shows of them is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fusegen.commands import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"(?ms)^```sh\n(.*?)^```", PAGE) for line in block.splitlines()]


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each command prints; what follows `>` is left to the shell."""
    found = {}
    for line in COMMANDS:
        words = line.partition(" > ")[0].split()
        arguments = [str(ROOT / word) if word.startswith("specs/") else word for word in words[1:]]
        done = CliRunner().invoke(app, arguments)
        assert (words[0], done.exit_code) == ("fusegen", 0), (line, done.output)
        found[line] = done.stdout
    return found


def test_the_commands_print_what_they_say(printed: dict[str, str]) -> None:
    begins = {".html": "<!DOCTYPE html>", ".svg": "<svg ", ".json": '{\n  "fusegen_plan": 1,'}
    written = {Path(line.partition(" > ")[2]).suffix: text for line, text in printed.items() if " > " in line}
    assert written.keys() == begins.keys()
    assert all(written[suffix].startswith(begin) and written[suffix].endswith("\n") for suffix, begin in begins.items())


def test_what_the_page_shows_is_what_they_print(printed: dict[str, str]) -> None:
    lines = {line for text in printed.values() for line in text.splitlines()}
    shown = [line for block in re.findall(r"(?ms)^```text\n(.*?)^```", PAGE) for line in block.splitlines()]
    assert len(shown) > 10 and not [line for line in shown if line not in lines]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "svg"], "a picture is of one spec, not of 2"),
        (["--json", "--format", "json"], "plan.json has one format, and neither sizes nor times"),
        (["--full", "--rows", "4"], "other formats, and text of one size, have all there is"),
        (["--full", "--format", "json"], "other formats, and text of one size, have all there is"),
        (["--full", "--json"], "other formats, and text of one size, have all there is"),
        (["--json", "--rows", "4"], "plan.json has one format, and neither sizes nor times"),
        (["--json", "--target", "sm_90"], "plan.json has one format, and neither sizes nor times"),
        (["--target", "sm_80"], "gemm_add_relu has no target 'sm_80'"),
        (["--target", "sm_90aa"], "gemm_add_relu has no target 'sm_90aa'"),
        (["--dtype", ""], "gemm_add_relu has no dtype ''"),
        (["--groups", "7"], "gemm_add_relu cannot have 7 groups"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str) -> None:
    specs = [str(ROOT / "specs" / f"{name}.yaml") for name in ("gemm_add_relu", "gemm_scale_bn")]
    done = CliRunner().invoke(app, ["plan", *specs, *arguments])
    said = f"{done.output} {done.exception}".replace("│", " ")
    assert done.exit_code != 0 and message in " ".join(said.split())


@pytest.mark.parametrize("format_", ["text", "json", "html", "svg"])
def test_it_is_utf_8_whatever_the_locale_is(tmp_path: Path, format_: str) -> None:
    text = (ROOT / "specs" / "gemm_add_relu.yaml").read_text(encoding="utf-8")
    spec = tmp_path / "gemm_add_relu.yaml"
    spec.write_text(re.sub(r"(?m)^about: .*", "about: Gr\u00f6\u00dfe, \u6f22\u5b57", text), encoding="utf-8")
    done = CliRunner(charset="latin-1").invoke(app, ["plan", str(spec), "--format", format_])
    assert done.exit_code == 0, done.exception
    said = done.stdout_bytes.decode("utf-8")
    assert ("Gr\u00f6\u00dfe, \u6f22\u5b57" in said) == (format_ != "svg")


def test_json_of_several_specs_is_one_document_after_the_other() -> None:
    specs = [str(ROOT / "specs" / f"{name}.yaml") for name in ("gemm_add_relu", "gemm_scale_bn")]
    done = CliRunner().invoke(app, ["plan", *specs, "--format", "json"])
    assert done.exit_code == 0 and done.stdout.count('\n}\n{\n  "fusegen_plan": 1') == 1
