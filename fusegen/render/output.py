"""Writing rendered files below an output directory, and removing those that nothing renders any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fusegen.errors import Diagnostic, SpecError
from fusegen.files import remove_left_over, write
from fusegen.paths import SUPPORT
from fusegen.render.files.manifest import (
    MANIFEST,
    digest,
    has_conflict,
    is_as_listed,
    is_generated,
    listed_digests,
    listed_specs,
    manifest_text,
    read_manifest,
)
from fusegen.render.files.support import library_digests, read_compiled, support_files
from fusegen.render.package import Files


def write_files(
    files: Files,
    directory: Path,
    *,
    specs: Mapping[str, str] = MappingProxyType({}),
    remove: Sequence[str] = (),
    overwrite: bool = False,
) -> list[str]:
    """Writes what differs and returns those paths; removes what orphans() gave. Other packages stay as they are; shared
    files that these alone use are written, too, so that all are of one version.

    specs: for the manifest, the digests of the specs that gave the files, by the names of packages.
    overwrite: replace files that were edited by hand, too. Raises SpecError, and leaves everything as it was, where
    there are such files without it, where the directory holds other people's files under the same names, and where it
    cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        known = read_manifest(directory)
        shared = {path: text for path, text in support_files().items() if path in known and path not in remove}
        files = {**files, **{path: text for path, text in shared.items() if path not in files}}
        for folder in {(directory / path).parent for path in (MANIFEST, *files, *known)}:
            remove_left_over(folder)
        _refuse_foreign(files, directory, known)
        if not overwrite:
            _refuse_edited(files, directory)
        changed = [path for path, text in files.items() if _write(directory / path, text)]
        for path in remove:
            _remove(directory / path)
        remaining = {path: listed for path, listed in known.items() if (directory / path).exists()}
        written = {path: digest(text.encode()) for path, text in files.items()}
        listed = {**remaining, **written}
        sources = library_digests(read_compiled(directory, listed))
        _write(directory / MANIFEST, manifest_text(listed, sources, {**_kept_specs(directory, listed, files), **specs}))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Diagnostic("FG502", f"cannot write the files below {directory}: {reason}")]) from error
    return changed


def _kept_specs(directory: Path, listed: Collection[str], files: Files) -> dict[str, str]:
    """What the manifest says of the specs of packages that are there and are not rendered now."""
    manifest = directory / MANIFEST
    known = listed_specs(manifest.read_bytes() if manifest.is_file() else None)
    there = {path.partition("/")[0] for path in listed} - {path.partition("/")[0] for path in files}
    return {name: found for name, found in known.items() if name in there}


def orphans(files: Files, directory: Path, others: Collection[str] = ()) -> list[str]:
    """The paths that the manifest lists and `files`, all that is rendered, has not: what may be removed.

    others: packages of other specs, which stay with all that packages share. Raises SpecError where one of the files is
    not what fusegen wrote: somebody may miss it.
    """
    found: list[str] = []
    edited: list[str] = []
    foreign: list[str] = []
    theirs = {*others, SUPPORT} if others else set()
    for path, listed in read_manifest(directory).items():
        file = directory / path
        if path in files or not file.is_file() or path.partition("/")[0] in theirs:
            continue
        # A link may lead out of the directory, and what it leads to is not ours to judge.
        inside = file.resolve() == directory.resolve() / path
        data = file.read_bytes()
        if not is_generated(path, data):
            foreign.append(path)
        else:
            (found if inside and digest(data) == listed else edited).append(path)
    if foreign:
        names = ", ".join(str(directory / path) for path in foreign)
        message = f"the manifest lists what fusegen does not write: {names}"
        raise SpecError([Diagnostic("FG501", message, hint="keep it elsewhere, or remove it")])
    if edited:
        names = ", ".join(str(directory / path) for path in edited)
        message = f"edited by hand, and nothing renders it any more: {names}"
        raise SpecError(
            [Diagnostic("FG506", message, hint="save the edit elsewhere if you want it, and remove the file")]
        )
    return found


def _refuse_foreign(files: Files, directory: Path, known: dict[str, str]) -> None:
    """What the manifest does not list may be somebody else's; with the very text that would be written it is ours."""
    unlisted = [path for path in files if path not in known and (directory / path).exists()]
    foreign = [path for path in unlisted if not _holds(directory / path, files[path].encode())]
    if foreign:
        found = ", ".join(foreign[:3])
        message = f"{directory} has files that fusegen did not write: {found}"
        raise SpecError([Diagnostic("FG501", message, hint="remove them or choose another --output")])


def _refuse_edited(files: Files, directory: Path) -> None:
    """What differs both from the manifest and from what is to be written was edited by hand, or merged.

    As `fusegen check` has it, neither other line endings nor the markers of a merge conflict are somebody's work.
    """
    edited = []
    for path, listed in listed_digests(directory).items():
        file = directory / path
        if path not in files or not file.is_file():
            continue
        data = file.read_bytes()
        is_new = data.replace(b"\r\n", b"\n") == files[path].encode()
        if not (is_new or is_as_listed(data, listed) or has_conflict(data)):
            edited.append(str(file))
    if edited:
        shown = ", ".join(edited[:3]) + (f" and {len(edited) - 3} more" if len(edited) > 3 else "")
        hint = "`fusegen check` shows the edits; move them into the spec, or drop them with `fusegen build --overwrite`"
        raise SpecError([Diagnostic("FG508", f"edited by hand: {shown}", hint=hint)])


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def _write(path: Path, text: str) -> bool:
    """Whether the file was another one, and had to be written."""
    data = text.encode("utf-8")
    if _holds(path, data):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, data, mode=0o644)
    return True


def _remove(path: Path) -> None:
    """Removes the file, and its directory if that leaves it empty; what a build left there stays."""
    path.unlink(missing_ok=True)
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
