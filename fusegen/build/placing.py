"""How what a build made gets into place: from a directory of its own, in one step, with its key file after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from fusegen.build.key import digest_of_file, key_text

FINISHED = "finished"


class Workplace(Protocol):
    """What each job of a build has: a directory of its own, and one for what is finished."""

    work: Path
    finished: Path


def work_directory(store: Path) -> Path:
    """A new directory in `store`, whose lock the caller holds."""
    # We hold the lock, so whatever is still lying there is of a build that was killed.
    for left in store.glob("work-*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="work-", dir=store))


def finished_directory(store: Path) -> Path:
    """Where builds leave what is finished until the whole build is, in `store`: that of one that was killed, too."""
    path = store / FINISHED
    path.mkdir(exist_ok=True)
    return path


def leave(job: Workplace) -> None:
    """Removes what the build of a job needs no more. What is finished stays: it is there after an interruption alone,
    for the next build."""
    shutil.rmtree(job.work, ignore_errors=True)
    with suppress(OSError):
        job.finished.rmdir()


def stored_object(store: Path, name: str) -> Path | None:
    """The object of that name in a store; None if it is not there. The name of its file has a digest of its content
    besides: what is not that, such as a file that a loss of power has left empty, is removed."""
    for found in store.glob(f"{name.removesuffix('.o')}.*.o"):
        try:
            if found.name == _stored_name(name, found):
                return found
            found.unlink(missing_ok=True)
        except OSError:  # another build removed it meanwhile
            continue
    return None


def _stored_name(name: str, content: Path) -> str:
    return f"{name.removesuffix('.o')}.{digest_of_file(content)[:16]}.o"


def keep(made: Path, name: str, store: Path) -> Path:
    """Moves a finished object of that name into `store`, in one step, and says where it is."""
    place = store / _stored_name(name, made)
    os.replace(made, place)
    return place


def keep_copy(made: Path, name: str, store: Path, work: Path) -> Path | None:
    """Puts a copy of an object that packages share into `store`, in one step, and says where it is; None if it could
    not.

    If not, because another build removed it meanwhile or the disk is full, there is no harm: who needs it compiles it.
    """
    part = work / f"{name}.part"
    try:
        shutil.copyfile(made, part)
        return keep(part, name, store)
    except OSError:
        return None


def put_in_place(made: Path | None, output: Path, key_file: Path, parts: Mapping[str, str], work: Path) -> None:
    """Moves `made`, of `parts`, to `output` and its key file, written in `work`, to `key_file`.

    None says that `parts` cannot give an output: what is there goes, and the key file remembers it.
    """
    written = work / key_file.name
    written.write_text(key_text(parts, made), encoding="utf-8")
    # The old key goes first: stopped between these lines, the next build finds no key and builds again.
    key_file.unlink(missing_ok=True)
    if made is None:
        output.unlink(missing_ok=True)
    else:
        os.replace(made, output)
    os.replace(written, key_file)
