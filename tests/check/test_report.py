"""What a report looks like: text, JSON, annotations."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from fusegen import __version__
from fusegen.check.report import SHOWN_LINES, SHOWN_LINES_OF_WHOLE_FILES, formatted, refused
from fusegen.errors import Diagnostic, Location, SpecError
from tests.check.drifts import BINDINGS, DRIFTS, FILES, IGNORE, KERNELS, MANIFEST, PLAN, SHARED, A, B, shared

ESCAPE = "\x1b["


def report(project, *names: str):
    for name in names:
        DRIFTS[name][0](project)
    return project.check()


# Text


def test_text_of_an_edit(project) -> None:
    lines = formatted(report(project, "a_line_more"), "text").splitlines()
    assert lines[0] == f"generated/{KERNELS}: edited by hand"
    assert lines[1].startswith("  It was edited by hand")
    assert lines[2] == f"diff --git a/generated/{KERNELS} b/generated/{KERNELS}"
    assert "-// by hand" in lines
    assert lines[-2:] == [
        "1 file is not what the specs and templates give. To repair:",
        "  fusegen build --no-compile --overwrite specs",
    ]


def test_text_without_drift(project) -> None:
    assert formatted(project.check(), "text") == (
        f"generated is what the specs and templates give: 2 packages, {2 * len(FILES) + len(SHARED)} files\n"
    )
    assert f"1 package, {len(FILES) + len(shared(A))} files" in formatted(project.check(f"specs/{A}.yaml"), "text")


def test_one_line_where_nothing_was_built(project) -> None:
    found = report(project, "nothing_there")
    line = "generated has nothing of fusegen's yet. To build it: fusegen build specs\n"
    assert formatted(found, "text") == line and not found.ok
    assert formatted(found, "github") == f"::error title=generated files%3A not there::{line}"
    assert len(json.loads(formatted(found, "json"))["findings"]) == len(found.findings) > 8
    (project.generated / "other").mkdir(parents=True)
    (project.generated / "other" / "notes.txt").touch()
    text = formatted(project.check(), "text")
    assert "generated/gemm_add_relu: missing\n  specs/gemm_add_relu.yaml gives this package, and nothing of it" in text
    shared = sum(path.startswith("support/") for path in SHARED)
    assert f"generated/support: {shared} files missing\n" in text and "\n+" not in text
    assert len(text.splitlines()) < 30


def test_a_package_that_is_absent_is_told_once_and_without_a_diff(project) -> None:
    found = report(project, "never_rendered")
    assert formatted(found, "text").splitlines() == [
        "generated/third: missing",
        "  specs/third.yaml gives this package, and nothing of it is there.",
        "",
        "generated/manifest.json: manifest",
        "  It changes with the files above.",
        "",
        "7 files are not what the specs and templates give. To repair:",
        "  fusegen build --no-compile specs",
    ]
    lines = formatted(found, "github").splitlines()
    assert [re.search("file=([^,]*)", line)[1] for line in lines] == ["generated/third", f"generated/{MANIFEST}"]
    assert "To repair all: fusegen build --no-compile specs" in lines[0] and not any("%0A+" in line for line in lines)
    assert f"+++ b/generated/third/{KERNELS.partition('/')[2]}" in found.patch().decode(), "it has all of the text"


def test_files_of_a_package_that_are_missing(project) -> None:
    text = formatted(report(project, "removed"), "text")
    assert text.startswith(f"generated/{A}: 2 files missing\n  They are not there: kernels.cu, plan.json.\n\n2 files")
    (project.generated / A / "kernels.cu").write_bytes(b"")
    text = formatted(project.check(), "text")
    assert f"generated/{A}/plan.json: missing\n  specs/{A}.yaml gives this file, and it is not there" in text


def test_another_version_is_told_once(project) -> None:
    found = report(project, "upgraded_with_other_text")
    lines = formatted(found, "text").splitlines()
    told = f"fusegen 0.0.9 rendered it, and this is fusegen {__version__}. Other text: {IGNORE}, {KERNELS}, "
    assert lines[:2] == ["generated: rendered by another version", f"  {told}{A}/plan.json and 1 more."]
    assert lines[2:] == ["", "5 files are not what the specs and templates give. To repair:", f"  {found.repair}"]
    head = f"::error file=generated/{MANIFEST},line=1,title=generated files%3A rendered by another version::"
    assert formatted(found, "github").startswith(head) and formatted(found, "github").count("\n") == 1


def test_another_commit_of_the_same_version_is_an_upgrade_and_no_drift_of_specs(project) -> None:
    found = report(project, "templates_changed_and_a_spec")
    lines = formatted(found, "text").splitlines()
    assert lines[:3] == [
        "generated: rendered by another version",
        f"  Another commit of fusegen {__version__} rendered it, which gave other text of the same specs. "
        f"Other text: {B}/kernels.cu.",
        "",
    ]
    told = [line for line in lines if line.startswith("generated/")]
    assert told == [f"generated/{BINDINGS}: stale", f"generated/{PLAN}: stale plan"]
    assert found.repair == "fusegen build --no-compile specs"


def test_another_version_that_renders_the_same(project) -> None:
    assert "Other text: none but this." in formatted(report(project, "upgraded"), "text")


def test_another_version_among_other_findings(project) -> None:
    text = formatted(report(project, "upgraded_among_others"), "text")
    assert text.count("another version") == 1 and ": edited by hand" in text and ": missing" in text
    assert formatted(project.check(), "github").count("::error ") == 3


def test_a_long_diff_is_cut(project) -> None:
    file = project.generated / KERNELS
    file.write_bytes(b"// by hand\n" * 500 + file.read_bytes())
    (project.generated / "gone").mkdir()
    (project.generated / "gone" / "notes.txt").write_text("a line\n" * 300)
    text = formatted(project.check(), "text")
    edited, orphaned, _ = text.split("\n\n")
    assert len(edited.splitlines()) == 2 + SHOWN_LINES + 1
    assert len(orphaned.splitlines()) == 2 + SHOWN_LINES_OF_WHOLE_FILES + 1
    # Five lines of header, one that begins the hunk.
    more = 300 + 6 - SHOWN_LINES_OF_WHOLE_FILES
    assert orphaned.splitlines()[-1] == f"... {more} more lines; --patch FILE writes all"


def test_colours_are_for_terminals(project) -> None:
    found = report(project, "a_line_more")
    plain, coloured = formatted(found, "text"), formatted(found, "text", colour=True)
    assert ESCAPE not in plain
    assert f"{ESCAPE}31m-// by hand" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_what_a_file_holds_cannot_reach_the_terminal(project) -> None:
    (project.generated / KERNELS).write_bytes(b"\x1b[2J\x07\xff\xe2\x80\xae[bold]\n")
    for format_ in ("text", "github", "json"):
        text = formatted(project.check(), format_)
        assert all(char.isprintable() or char in "\n\t" for char in text)
    assert r"-\x1b[2J\x07\xff\u202e[bold]" in formatted(project.check(), "text").splitlines()


# JSON


@pytest.mark.parametrize("name", DRIFTS)
def test_json(name: str, project) -> None:
    found = report(project, name)
    text = formatted(found, "json")
    content = json.loads(text)
    assert text.isascii() and text.endswith("}\n")
    assert list(content) == ["format", "ok", "findings", "errors", "repair"]
    assert (content["format"], content["ok"], content["errors"]) == (1, False, [])
    assert content["repair"] == found.repair
    assert [each["path"] for each in content["findings"]] == [f"generated/{each.path}" for each in found.findings]
    for each in content["findings"]:
        assert list(each) == ["path", "kind", "title", "meaning", "line", "diff"]
        assert each["line"] >= 1 and each["meaning"].endswith(".") and "\n" not in each["meaning"]
        assert each["diff"].startswith("diff --git ")
        assert each["kind"] in each["title"].replace(" ", "_")


def test_json_without_drift(project) -> None:
    content = json.loads(formatted(project.check(), "json"))
    assert content == {"format": 1, "ok": True, "findings": [], "errors": [], "repair": None}


# GitHub


def test_an_annotation_is_one_line_at_the_first_difference(project) -> None:
    DRIFTS["a_line_more"][0](project)
    DRIFTS["a_wrong_hash"][0](project)
    lines = formatted(project.check(), "github").splitlines()
    number = (project.generated / KERNELS).read_text().splitlines().index("// by hand") + 1
    assert len(lines) == 2
    head = f"::error file=generated/{KERNELS},line={number},title=generated file%3A edited by hand::It was edited"
    assert lines[0].startswith(head)
    assert "%0ATo repair all: fusegen build --no-compile --overwrite specs%0A" in lines[0]
    assert "%0A-// by hand" in lines[0]
    assert lines[1].startswith(f"::error file=generated/{MANIFEST},line=")


def test_an_annotation_is_escaped(project) -> None:
    (project.generated / "50%,a:b\n::warning::x.txt").write_bytes(b"100%\r\n::stop-commands::x\n")
    lines = formatted(project.check(), "github").splitlines()
    assert len(lines) == 1
    properties, message = re.fullmatch("::error (.*?)::(.*)", lines[0]).groups()
    assert properties == (
        "file=generated/50%25%2Ca%3Ab%0A%3A%3Awarning%3A%3Ax.txt,line=1,title=generated file%3A orphaned"
    )
    assert r"-100%25\r%0A-::stop-commands::x" in message


def test_annotations_belong_to_the_root_of_the_repository(project, monkeypatch) -> None:
    """Which may be above the project."""
    subprocess.run(["git", "init", "-q", ".."], check=True)
    found = report(project, "a_line_more")
    assert "file=project/generated/" in formatted(found, "github")
    assert formatted(found, "text").startswith("generated/")
    assert f"--- a/project/generated/{KERNELS}" in formatted(found, "text")


def test_github_without_drift_says_so(project) -> None:
    assert formatted(project.check(), "github") == formatted(project.check(), "text")


# Mistakes in specs

ERROR = SpecError(
    [
        Diagnostic("FG201", "100% wrong", Location("specs/x.yaml", 3, 5), "write it\nso", "  source"),
        Diagnostic("FG505", "no specs"),
    ]
)


def test_refused_as_json() -> None:
    content = json.loads(refused(ERROR, "json"))
    assert (content["ok"], content["findings"], content["repair"]) == (False, [], None)
    nowhere, somewhere = content["errors"]
    place = {"file": "specs/x.yaml", "line": 3, "column": 5}
    assert somewhere == {"code": "FG201", "message": "100% wrong", "hint": "write it\nso", **place}
    assert nowhere == {
        "code": "FG505", "message": "no specs", "hint": None, "file": None, "line": None, "column": None
    }  # fmt: skip


def test_refused_as_annotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    assert refused(ERROR, "github").splitlines() == [
        "::error title=spec%3A FG505::no specs",
        "::error file=specs/x.yaml,line=3,col=5,title=spec%3A FG201::100%25 wrong (write it%0Aso)",
    ]


def test_refused_as_text_is_left_to_the_error() -> None:
    assert refused(ERROR, "text") == ""
