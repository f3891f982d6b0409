"""Each kind of drift is told apart, and both the patch and the command that a check gives repair it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fusegen import __version__
from fusegen.check.run import check, write_patch
from tests.check.drifts import (
    BINDINGS,
    DRIFTS,
    FILES,
    HEADER,
    IGNORE,
    KERNELS,
    MANIFEST,
    OF_B_ALONE,
    PLAN,
    SHARED,
    A,
    B,
)

EACH = pytest.mark.parametrize("name", DRIFTS)


def cause(name: str, project) -> None:
    DRIFTS[name][0](project)


@EACH
def test_kinds(name: str, project) -> None:
    """A check tells them, and writes nothing."""
    cause(name, project)
    before = project.contents()
    found, expected = project.kinds(), DRIFTS[name][1]
    assert project.contents() == before
    if name == "nothing_there":  # the other headers
        found = {path: kind for path, kind in found.items() if path in expected}
    assert found == expected


def test_no_drift(project) -> None:
    report = project.check()
    assert report.ok and report.findings == () and report.repair is None and report.patch() == b""
    assert (report.packages, report.files) == (2, 2 * len(FILES) + len(SHARED))


@EACH
@pytest.mark.parametrize("command", ["git apply", pytest.param("patch -p1 --binary -i", marks=pytest.mark.slow)])
def test_the_patch_repairs(name: str, command: str, repository, tmp_path: Path) -> None:
    tool, *options = command.split()
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    cause(name, repository)
    write_patch(repository.check(), tmp_path / "drift.patch")
    done = repository.run(tool, *options, str(tmp_path / "drift.patch"))
    assert done.returncode == 0, done.stderr
    assert repository.kinds() == {}


@EACH
def test_the_command_repairs(name: str, project) -> None:
    cause(name, project)
    command = project.check().repair
    assert command is not None
    if name == "nothing_there":  # it builds: here the sources alone
        command = command.replace("fusegen build", "fusegen build --no-compile")
    done = project.repair(command)
    assert done.returncode == 0, (command, done.stderr)
    assert project.kinds() == {}
    assert not list(project.generated.glob("**/.*.tmp"))


COMMANDS = {
    "a_line_more": "fusegen build --no-compile --overwrite specs",
    "merge_conflicts": "fusegen build --no-compile specs",
    "a_checkout_with_crlf": "fusegen build --no-compile specs",
    "upgraded_with_other_text": "fusegen build --no-compile specs",
    "nothing_there": "fusegen build specs",
    "spec_gone": "fusegen build --no-compile --prune specs",
    "spec_gone_and_a_file_edited": (
        f"rm generated/{B}/kernels.cu && fusegen build --no-compile --prune specs"
    ),
    "a_directory_of_somebody_else": "rm -r generated/README.md generated/other",
    "no_manifest": "fusegen build --no-compile specs",
    "no_manifest_and_a_difference": f"rm generated/{KERNELS} && fusegen build --no-compile specs",
    "no_manifest_and_a_package_of_differences": (  # but for what a build left there
        f"rm {' '.join(f'generated/{A}/{file}' for file in FILES)} && fusegen build --no-compile specs"
    ),
    "a_damaged_manifest": (
        f"rm -r generated/{KERNELS} generated/{B} {' '.join(f'generated/{path}' for path in OF_B_ALONE)} "
        f"generated/{MANIFEST} && fusegen build --no-compile specs"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command(name: str, project) -> None:
    cause(name, project)
    assert project.check().repair == COMMANDS[name]


def test_the_command_quotes_for_the_shell(project) -> None:
    cause("files_of_somebody_else", project)
    assert f"'generated/{A}/a b.txt'" in project.check().repair


MEANINGS = {
    "a_line_more": {KERNELS: f"without --overwrite, and the change belongs into specs/{A}.yaml or the templates."},
    "git_told_otherwise": {IGNORE: "and the change belongs into a .gitignore further up."},
    "upgraded_with_other_text": {
        KERNELS: f"and this is fusegen {__version__}, which gives other text.",
        HEADER: "which gives other text.",
        MANIFEST: f"fusegen 0.0.9 rendered it, and this is fusegen {__version__}.",
    },
    "upgraded_before_specs_had_digests": {KERNELS: f"other text, unless specs/{A}.yaml has changed since."},
    "upgraded_and_a_spec_changed": {
        BINDINGS: "has changed since it was rendered, and with it the plan. fusegen 0.0.9 rendered it, and",
    },
    "no_newline_at_the_end": {HEADER: "the change belongs into templates/support/launch.cuh."},
    "edited_and_stale": {KERNELS: f"What specs/{A}.yaml gives has changed since, too."},
    "templates_changed": {
        KERNELS: f"specs/{A}.yaml and its tuning are as they were when it was rendered: templates, the planner or",
        HEADER: "templates/support/launch.cuh has changed since it was copied",
        MANIFEST: f"Another commit of fusegen {__version__} rendered it",
    },
    "another_commit_has_files_more": {
        HEADER: f"It is a file more. Another commit of fusegen {__version__} rendered it"
    },
    "something_changed": {
        KERNELS: f"The templates, or what specs/{A}.yaml says beside the plan, have changed",
        HEADER: "templates/support/launch.cuh has changed since it was copied",
        MANIFEST: "It changes with the files above.",
    },
    "tuned_since": {PLAN: "its tuning", KERNELS: "its tuning"},
    "spec_changed": {PLAN: f"specs/{A}.yaml or its tuning has changed", BINDINGS: "and with it the plan"},
    "spec_changed_beside_the_plan": {KERNELS: f"What specs/{A}.yaml says beside the plan has changed"},
    "no_digests_of_specs": {MANIFEST: "It has no digests of the specs: an older fusegen wrote it."},
    "a_spec_that_says_the_same_in_more_words": {
        MANIFEST: f"of specs that give the text that is there: specs/{A}.yaml",
    },
    "spec_gone": {f"{B}/plan.json": f"No spec gives the package {B} any more."},
    "spec_gone_and_a_file_edited": {f"{B}/kernels.cu": "the edit is lost"},
    "no_longer_rendered": {
        f"{A}/more.cuh": f"specs/{A}.yaml does not give this file any more.",
        "support/old.cuh": "No package uses this file any more.",
    },
    "files_of_somebody_else": {f"{A}/notes.txt": "the manifest does not list it"},
    "a_checkout_with_crlf": {KERNELS: ".gitattributes"},
    "merge_conflicts": {KERNELS: "conflict markers", MANIFEST: "reads both sides"},
    "no_manifest_and_a_difference": {KERNELS: "nobody can tell whether it was edited by hand or is stale"},
    "a_damaged_manifest": {MANIFEST: "It is not a manifest of fusegen: it is not JSON."},
    "a_wrong_hash": {MANIFEST: f"has no entry, or a wrong one, for files that are as they should be: {KERNELS}"},
    "an_entry_without_a_file": {MANIFEST: "lists what is neither there nor rendered: gone/kernels.cu"},
    "a_manifest_in_another_form": {MANIFEST: "in another form"},
}


@pytest.mark.parametrize("name", MEANINGS)
def test_the_meaning(name: str, project) -> None:
    cause(name, project)
    for path, part in MEANINGS[name].items():
        assert part in project.meaning(path)


def test_a_remark_in_a_spec_and_the_order_of_its_keys_are_no_drift(project) -> None:
    project.edit_spec(A, "name: ", "# a remark\nname: ")
    project.edit_spec(A, "dtypes: [float32, bfloat16, float16]\ntargets: [sm_90]\n", "")
    project.edit_spec(A, "chain:\n", "targets: [sm_90]\ndtypes: [float32, bfloat16, float16]\nchain:\n")
    assert project.kinds() == {}


def test_what_a_build_leaves_is_no_drift(project) -> None:
    for path in (f"{A}/_C.key", f"{A}/__pycache__/x.pyc", f".build/{A}.lock", f".build/{A}/x.o"):
        (project.generated / path).parent.mkdir(parents=True, exist_ok=True)
        (project.generated / path).write_bytes(b"\0")
    assert project.kinds() == {}


# What is judged


def test_a_spec_file_judges_its_package_alone(project) -> None:
    for name in ("a_line_more", "files_of_somebody_else", "no_longer_rendered", "an_entry_without_a_file"):
        cause(name, project)
    (project.generated / B / "kernels.cu").unlink()
    assert project.kinds(f"specs/{A}.yaml") == {KERNELS: "edited"}
    assert project.kinds(f"specs/{B}.yaml") == {f"{B}/kernels.cu": "missing"}
    assert project.check(f"specs/{B}.yaml").repair == f"fusegen build --no-compile specs/{B}.yaml"


def test_only_the_spec_files_with_findings_are_rendered_again(project) -> None:
    cause("a_line_more", project)
    both = (f"specs/{A}.yaml", f"./specs/{B}.yaml")
    assert project.check(*both).repair == f"fusegen build --no-compile --overwrite specs/{A}.yaml"
    (project.generated / HEADER).unlink()
    assert project.check(*reversed(both)).repair == f"fusegen build --no-compile --overwrite specs/{A}.yaml"


def test_a_spec_file_judges_its_entries_in_the_manifest(project) -> None:
    project.list(KERNELS, "0" * 64)
    assert project.kinds(f"specs/{A}.yaml") == {MANIFEST: "manifest"}
    assert project.kinds(f"specs/{B}.yaml") == {}


@pytest.mark.parametrize("name", ["spec_changed", "templates_changed", "removed", "a_wrong_hash"])
def test_a_patch_of_one_package_repairs_it(name: str, repository, tmp_path: Path) -> None:
    cause(name, repository)
    (repository.generated / B / "kernels.cu").unlink()
    write_patch(repository.check(f"specs/{A}.yaml"), tmp_path / "drift.patch")
    assert repository.run("git", "apply", str(tmp_path / "drift.patch")).returncode == 0
    assert repository.kinds() == {f"{B}/kernels.cu": "missing"}


def test_another_output_directory(project) -> None:
    project.generated.rename(project.root / "my output")
    (project.root / "my output" / KERNELS).unlink()
    report = check([Path("specs")], Path("my output"))
    assert report.repair == "fusegen build --no-compile --output 'my output' specs"
    assert project.run("sh", "-c", report.repair).returncode == 0
    assert check([Path("specs")], Path("my output")).ok


@pytest.mark.parametrize("where", [".", "specs", "/"])
def test_a_patch_is_made_for_the_root_of_the_repository(where: str, repository, tmp_path: Path, monkeypatch) -> None:
    """From wherever the check runs."""
    cause("a_line_more", repository)
    monkeypatch.chdir(repository.root / where)
    write_patch(check([repository.root / "specs"], repository.generated), tmp_path / "drift.patch")
    assert b"--- a/generated/" in (tmp_path / "drift.patch").read_bytes()
    assert repository.run("git", "apply", str(tmp_path / "drift.patch")).returncode == 0
    monkeypatch.chdir(repository.root)
    assert repository.kinds() == {}
