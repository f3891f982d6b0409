"""Ways in which generated/ and the specs get out of step, and what a check is to call each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.render.files.manifest import digest
from fusegen.render.package import render_all

A, B = "gemm_add_relu", "gemm_scale_bn"
FILES = ("__init__.py", "bindings.cpp", "kernels.cu", "launchers.h", "plan.json", "py.typed")
KERNELS, BINDINGS, PLAN = f"{A}/kernels.cu", f"{A}/bindings.cpp", f"{A}/plan.json"
HEADER = "support/launch.cuh"
IGNORE = ".gitignore"


def shared(*names: str) -> set[str]:
    """The files that packages share, of specs without their tunings, as the project has them."""
    plans = [module_of(replace(plan_file(ROOT / "specs" / f"{name}.yaml"), tuning=())) for name in names]
    return {path for path in render_all(plans) if path.partition("/")[0] not in names}


ROOT = Path(__file__).resolve().parents[2]
SHARED = shared(A, B)
OF_B_ALONE = {path: "orphaned" for path in sorted(SHARED - shared(A))}
MANIFEST = "manifest.json"

# name -> what happens to a project, and the kind of each finding by its path
DRIFTS: dict[str, tuple[Callable, dict[str, str]]] = {}


def drift(findings: Mapping[str, str]) -> Callable[[Callable], Callable]:
    def register(change: Callable) -> Callable:
        DRIFTS[change.__name__] = (change, dict(findings))
        return change

    return register


def package(name: str, kind: str) -> dict[str, str]:
    return {f"{name}/{file}": kind for file in FILES}


def rewrite(project, path: str, change: Callable[[bytes], bytes]) -> None:
    file = project.generated / path
    file.write_bytes(change(file.read_bytes()))


def conflict(data: bytes) -> bytes:
    """As git leaves it: one of the lines is different on the two sides."""
    lines = data.splitlines(keepends=True)
    theirs = re.sub(rb"[0-9a-f]{40}|the", b"5" * 40, lines[4])
    lines[4:5] = [b"<<<<<<< HEAD\n", lines[4], b"=======\n", theirs, b">>>>>>> other\n"]
    return b"".join(lines)


# Edited


@drift({KERNELS: "edited"})
def a_line_more(project) -> None:
    rewrite(project, KERNELS, lambda data: data.replace(b"namespace {", b"// by hand\nnamespace {", 1))


@drift({KERNELS: "edited", HEADER: "edited"})
def no_newline_at_the_end(project) -> None:
    rewrite(project, KERNELS, lambda data: data.rstrip(b"\n"))
    rewrite(project, HEADER, lambda data: data.rstrip(b"\n") + b"// by hand")


@drift({KERNELS: "edited", PLAN: "edited"})
def no_text_any_more(project) -> None:
    rewrite(project, KERNELS, lambda data: data.replace(b"//", b"\0\xff\xfe\r\x0c", 3))
    rewrite(project, PLAN, lambda data: b"\x85\xe2\x80\xa8\x1c" + data)


@drift({KERNELS: "edited"})
def emptied(project) -> None:
    rewrite(project, KERNELS, lambda data: b"")


@drift({IGNORE: "edited"})
def git_told_otherwise(project) -> None:
    rewrite(project, IGNORE, lambda data: data.replace(b"_C.so\n", b""))


@drift({KERNELS: "edited", MANIFEST: "manifest"})
def edited_and_stale(project) -> None:
    project.rendered_before(KERNELS, "// old\n")
    rewrite(project, KERNELS, lambda data: data + b"// by hand\n")


# Stale


def without_digests_of_specs(project) -> None:
    rewrite(project, MANIFEST, lambda data: re.sub(rb',\n  "specs": {.*?}', b"", data, flags=re.DOTALL))


# No manifest tells whether it is the spec that has changed.
@drift({KERNELS: "stale", HEADER: "stale", MANIFEST: "manifest"})
def something_changed(project) -> None:
    project.rendered_before(KERNELS, "// old\n")
    project.rendered_before(HEADER, "// old\n")
    without_digests_of_specs(project)


# A comment, which the digest leaves out: what is compiled is the same.
@drift({f"{A}/__init__.py": "stale", KERNELS: "stale", MANIFEST: "manifest"})
def spec_changed_beside_the_plan(project) -> None:
    project.edit_spec(A, "about: ", "about: Now a ")


@drift({BINDINGS: "stale", PLAN: "stale_plan", MANIFEST: "manifest"})
def spec_changed(project) -> None:
    project.edit_spec(A, "targets: [sm_90]", "targets: [sm_80]")


@drift({KERNELS: "stale", PLAN: "stale_plan", "support/tuning.cuh": "missing", MANIFEST: "manifest"})
def tuned_since(project) -> None:
    tune(project, 16)


@drift({KERNELS: "stale", PLAN: "stale_plan", MANIFEST: "manifest"})
def tuned_again_since(project) -> None:
    tune(project, 16)
    assert project.fusegen("build", "--no-compile", "specs").returncode == 0 and project.kinds() == {}
    tune(project, 32)


def tune(project, pointwise_blocks: int) -> None:
    """A tuning of the spec's backward program."""
    entry = {"dtype": "float32", "rows": 64, "channels": 48, "pointwise_blocks": pointwise_blocks}
    entry |= {"microseconds": 1.0, "default_microseconds": 2.0}
    machine = {"gpu": "NVIDIA Test", "torch": "2.10.0", "cuda": "13.0", "programs": {"backward": [entry]}}
    text = json.dumps({"fusegen_tuning": 1, "architectures": {"sm_90": machine}})
    project.spec(A).with_suffix(".tuning.json").write_text(text)


# Rendered by another version


def upgrade(project) -> None:
    rewrite(project, MANIFEST, lambda data: re.sub(rb'"version": ".*"', b'"version": "0.0.9"', data))


@drift({MANIFEST: "version"})
def upgraded(project) -> None:
    upgrade(project)


@drift({KERNELS: "version", PLAN: "version", HEADER: "version", IGNORE: "version", MANIFEST: "version"})
def upgraded_with_other_text(project) -> None:
    for path in (KERNELS, PLAN, HEADER, IGNORE):
        project.rendered_before(path, "old\n")
    upgrade(project)


@drift({KERNELS: "version", MANIFEST: "version"})
def upgraded_before_specs_had_digests(project) -> None:
    project.rendered_before(KERNELS, "old\n")
    without_digests_of_specs(project)
    upgrade(project)


@drift({BINDINGS: "stale", PLAN: "stale_plan", HEADER: "version", MANIFEST: "version"})
def upgraded_and_a_spec_changed(project) -> None:
    project.rendered_before(HEADER, "// old\n")
    spec_changed(project)
    upgrade(project)


@drift({KERNELS: "version", HEADER: "version", MANIFEST: "version"})
def templates_changed(project) -> None:
    """Another commit of the same version."""
    project.rendered_before(KERNELS, "// old\n")
    project.rendered_before(HEADER, "// old\n")


@drift({HEADER: "version", f"{B}/launchers.h": "version", MANIFEST: "version"})
def another_commit_has_files_more(project) -> None:
    for path in (HEADER, f"{B}/launchers.h"):
        (project.generated / path).unlink()
        project.list(path, None)


@drift({BINDINGS: "stale", PLAN: "stale_plan", HEADER: "missing", MANIFEST: "manifest"})
def a_changed_spec_may_need_a_file_more(project) -> None:
    (project.generated / HEADER).unlink()
    project.list(HEADER, None)
    spec_changed(project)


@drift({BINDINGS: "stale", PLAN: "stale_plan", f"{B}/kernels.cu": "version", MANIFEST: "version"})
def templates_changed_and_a_spec(project) -> None:
    project.rendered_before(f"{B}/kernels.cu", "// old\n")
    spec_changed(project)


@drift({KERNELS: "version", f"{A}/bindings.cpp": "edited", f"{B}/kernels.cu": "missing", MANIFEST: "version"})
def upgraded_among_others(project) -> None:
    project.rendered_before(KERNELS, "old\n")
    rewrite(project, f"{A}/bindings.cpp", lambda data: data + b"// by hand\n")
    (project.generated / B / "kernels.cu").unlink()
    upgrade(project)


# Missing


@drift({KERNELS: "missing", PLAN: "missing"})
def removed(project) -> None:
    (project.generated / KERNELS).unlink()
    (project.generated / PLAN).unlink()


@drift({**package("third", "missing"), MANIFEST: "manifest"})
def never_rendered(project) -> None:
    text = project.spec(A).read_text().replace(f"name: {A}", "name: third")
    project.spec("third").write_text(text)


# Orphaned


@drift({**package(B, "orphaned"), **OF_B_ALONE, MANIFEST: "manifest"})
def spec_gone(project) -> None:
    project.spec(B).unlink()


@drift({**package(B, "orphaned"), **OF_B_ALONE, MANIFEST: "manifest"})
def spec_gone_and_a_file_edited(project) -> None:
    project.spec(B).unlink()
    rewrite(project, f"{B}/kernels.cu", lambda data: data + b"// by hand\n")


@drift({f"{A}/more.cuh": "orphaned", "support/old.cuh": "orphaned", MANIFEST: "manifest"})
def no_longer_rendered(project) -> None:
    project.rendered_before(f"{A}/more.cuh", "// @generated by fusegen\n")
    project.rendered_before("support/old.cuh", "// @generated by fusegen\n")


@drift({f"{A}/notes.txt": "orphaned", f'{A}/two words "\té.txt': "orphaned", f"{A}/a b.txt": "orphaned"})
def files_of_somebody_else(project) -> None:
    (project.generated / A / "notes.txt").write_text("mine")
    (project.generated / A / 'two words "\té.txt').write_text("mine\n")
    (project.generated / A / "a b.txt").write_text("mine\n")


@drift({"other/deep/empty": "orphaned", "other/x.cu": "orphaned", "README.md": "orphaned"})
def a_directory_of_somebody_else(project) -> None:
    (project.generated / "other" / "deep").mkdir(parents=True)
    (project.generated / "other" / "deep" / "empty").touch()
    (project.generated / "other" / "x.cu").write_text("// mine\n")
    (project.generated / "README.md").write_text("mine\n")


# Line endings and merges


@drift({KERNELS: "line_endings", PLAN: "line_endings", MANIFEST: "line_endings"})
def a_checkout_with_crlf(project) -> None:
    for path in (KERNELS, PLAN, MANIFEST):
        rewrite(project, path, lambda data: data.replace(b"\n", b"\r\n"))


@drift({KERNELS: "version", HEADER: "line_endings", MANIFEST: "version"})
def upgraded_with_crlf(project) -> None:
    project.rendered_before(KERNELS, "// old\n")
    for path in (KERNELS, HEADER, MANIFEST):
        rewrite(project, path, lambda data: data.replace(b"\n", b"\r\n"))


@drift({KERNELS: "conflict", PLAN: "conflict", MANIFEST: "conflict"})
def merge_conflicts(project) -> None:
    for path in (KERNELS, PLAN, MANIFEST):
        rewrite(project, path, conflict)


@drift({KERNELS: "stale", MANIFEST: "conflict"})
def stale_on_one_side_of_a_conflict(project) -> None:
    current = (project.generated / KERNELS).read_bytes()
    theirs = f'    "{KERNELS}": "{digest(current)}",\n'.encode()
    ours = f'    "{KERNELS}": "{digest(b"// old")}",\n'.encode()
    sides = b"<<<<<<< HEAD\n" + ours + b"=======\n" + theirs + b">>>>>>> other\n"
    rewrite(project, KERNELS, lambda data: b"// old")
    rewrite(project, MANIFEST, lambda data: data.replace(theirs, sides))


# The manifest


@drift({MANIFEST: "manifest"})
def no_manifest(project) -> None:
    (project.generated / MANIFEST).unlink()


@drift({MANIFEST: "manifest"})
def another_digest_of_what_a_library_is_compiled_from(project) -> None:
    rewrite(project, MANIFEST, lambda data: re.sub(rf'("{A}": )"[0-9a-f]{{12}}"'.encode(), rb'\1"000000000000"', data))


@drift({MANIFEST: "manifest"})
def no_digests_of_specs(project) -> None:
    without_digests_of_specs(project)


@drift({MANIFEST: "manifest"})
def a_spec_that_says_the_same_in_more_words(project) -> None:
    project.edit_spec(A, "{op: linear, ", "{op: linear, precision: ieee, ")


@drift({MANIFEST: "manifest", KERNELS: "changed"})
def no_manifest_and_a_difference(project) -> None:
    (project.generated / MANIFEST).unlink()
    rewrite(project, KERNELS, lambda data: data + b"// old or by hand?\n")


@drift({MANIFEST: "manifest", **package(A, "changed")})
def no_manifest_and_a_package_of_differences(project) -> None:
    (project.generated / MANIFEST).unlink()
    for file in FILES:
        rewrite(project, f"{A}/{file}", lambda data: data + b"\n")


@drift({MANIFEST: "manifest", KERNELS: "changed", **package(B, "orphaned"), **OF_B_ALONE})
def a_damaged_manifest(project) -> None:
    rewrite(project, MANIFEST, lambda data: data[:100])
    rewrite(project, KERNELS, lambda data: data + b"// old or by hand?\n")
    project.spec(B).unlink()


@drift({MANIFEST: "manifest"})
def a_manifest_in_another_form(project) -> None:
    rewrite(project, MANIFEST, lambda data: json.dumps(json.loads(data)).encode())


@drift({MANIFEST: "manifest"})
def a_wrong_hash(project) -> None:
    project.list(KERNELS, "0" * 64)


@drift({MANIFEST: "manifest"})
def an_entry_without_a_file(project) -> None:
    project.list("gone/kernels.cu", "0" * 64)


@drift({MANIFEST: "manifest"})
def a_file_without_an_entry(project) -> None:
    project.list(KERNELS, None)


@drift(
    {**package(A, "missing"), **package(B, "missing"), MANIFEST: "manifest", HEADER: "missing"},
)
def nothing_there(project) -> None:
    shutil.rmtree(project.generated)
