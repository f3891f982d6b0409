"""Rendered files beside those on disk: a pure function, and what each difference means."""

from __future__ import annotations

from collections.abc import Mapping

from fusegen.check.disk import Disk
from fusegen.check.findings import Finding, Kind, Repair
from fusegen.paths import SUPPORT
from fusegen.render.files.manifest import (
    MANIFEST,
    digest,
    has_conflict,
    is_as_listed,
    is_generated,
    listed_sources,
    listed_specs,
    manifest_entries,
    manifest_text,
    manifest_version,
)
from fusegen.render.files.support import library_digests
from fusegen.render.package import Files
from fusegen.version import __version__

PLAN = "plan.json"
FOLLOWS = "It changes with the files above."  # what is wrong with a manifest where nothing else is


def compare(
    rendered: Files, disk: Disk, specs: Mapping[str, str], digests: Mapping[str, str], *, complete: bool
) -> list[Finding]:
    """Every difference, by path, that of the manifest last.

    specs: for each package what its spec file is called. digests: of these specs, by the same. complete: `rendered` is
    all that there should be, so that the manifest may list nothing else.
    """
    comparison = _Comparison(rendered, disk, specs, digests)
    findings = [comparison.file(path) for path in sorted({*rendered, *disk.files})]
    findings.append(comparison.manifest(complete))
    return [finding for finding in findings if finding is not None]


class _Comparison:
    def __init__(self, rendered: Files, disk: Disk, specs: Mapping[str, str], digests: Mapping[str, str]) -> None:
        self.wanted = {path: text.encode() for path, text in rendered.items()}
        self.disk = disk
        self.specs = specs
        self.digests = digests
        self.listed_specs = listed_specs(disk.manifest)
        self.upgraded = False  # whether what this version gave from the same specs is another text now
        self.sources = library_digests(rendered)
        self.listed: dict[str, set[str]] = {}
        self.damage: str | None = None
        try:
            for path, listed in manifest_entries(disk.manifest) if disk.manifest is not None else ():
                self.listed.setdefault(path, set()).add(listed)
        except ValueError as error:
            self.damage = str(error)
        # The version that wrote the files, if it was another one.
        self.other: str | None = None
        if disk.manifest is not None and self.damage is None:
            rendered_by = manifest_version(disk.manifest)
            self.other = rendered_by if rendered_by != __version__ else None

    # Files

    def file(self, path: str) -> Finding | None:
        old, new = self.disk.files.get(path), self.wanted.get(path)
        if old == new:
            return None
        if old is None and path not in self.listed and self._is_new(path):
            self.upgraded = True
            meaning = f"{_versions(self.other)}." if self.other is not None else _OTHER_COMMIT
            return Finding(path, "version", f"It is a file more. {meaning}", old, new, "build")
        if old is None:
            meaning = f"{self._source(path)} gives this file, and it is not there: it was removed or never committed."
            return Finding(path, "missing", meaning, old, new, "build")
        if new is None:
            return self._orphan(path, old)
        kind, meaning = self._difference(path, old, new)
        repair: Repair = "overwrite" if kind == "edited" else "build" if path in self.listed else "remove"
        return Finding(path, kind, meaning, old, new, repair)

    def _difference(self, path: str, old: bytes, new: bytes) -> tuple[Kind, str]:
        source = self._source(path)
        if has_conflict(old):
            return "conflict", (
                "A merge left its conflict markers in it: there is nothing to choose from, resolve the specs and the "
                "templates and render it again."
            )
        unix = old.replace(b"\r\n", b"\n")
        if unix == new:
            return "line_endings", _LINE_ENDINGS
        listed = self.listed.get(path)
        if listed is None:
            return "changed", (
                f"It differs from what {source} gives, and without an entry in the manifest nobody can tell whether it "
                f"was edited by hand or is stale."
            )
        if is_as_listed(old, listed):
            same_spec = self._is_spec_the_same(path)
            if self.other is not None and same_spec is not False:
                may_differ = same_spec is None and path.partition("/")[0] in self.specs
                unless = f", unless {source} has changed since" if may_differ else ""
                return "version", f"{_versions(self.other)}, which gives other text{unless}."
            if self.other is None and same_spec:
                self.upgraded = True
                return "version", self._stale(path, same_spec)
            return ("stale_plan" if path.endswith(f"/{PLAN}") else "stale"), self._stale(path, same_spec)
        also = "" if digest(new) in listed else f" What {source} gives has changed since, too."
        return "edited", (
            f"It was edited by hand, or merged: `fusegen build` refuses to replace it without --overwrite, and the "
            f"change belongs into {self._owner(path)}.{also}"
        )

    def _is_new(self, path: str) -> bool:
        """Whether a file that the manifest does not list is one more of the same specs: what packages share is so where
        all of them are as they were."""
        package = path.partition("/")[0]
        return all(self._is_spec_the_same(each) for each in ([package] if package in self.specs else self.specs))

    def _is_spec_the_same(self, path: str) -> bool | None:
        """Whether what the file was rendered from, besides fusegen, is as it was; None where no manifest tells."""
        package = path.partition("/")[0]
        if package not in self.specs:
            return True if self.listed_specs else None
        listed = self.listed_specs.get(package)
        return None if listed is None else listed == self.digests[package]

    def _stale(self, path: str, same_spec: bool | None) -> str:
        """Why a file that is as it was written is not what is given now."""
        package, _, name = path.partition("/")
        source = self._source(path)
        if package not in self.specs:
            return f"{source} has changed since it was {'copied' if name else 'written'}."
        if same_spec:
            return (
                f"{source} and its tuning are as they were when it was rendered: templates, the planner or a plugin "
                "have changed since."
            )
        cause = f"{source} or its tuning" if same_spec is False else f"{source}, its tuning or the planner"
        also = f" {_versions(self.other)}." if self.other is not None else ""
        if name == PLAN:
            return f"{cause} has changed since: the kernels that are committed follow an old plan.{also}"
        plan = f"{package}/{PLAN}"
        if self.disk.files.get(plan) != self.wanted.get(plan):
            return f"{cause} has changed since it was rendered, and with it the plan.{also}"
        if same_spec is None:
            return f"The templates, or what {source} says beside the plan, have changed since it was rendered."
        return f"What {source} says beside the plan has changed since it was rendered.{also}"

    def _orphan(self, path: str, old: bytes) -> Finding:
        package = path.partition("/")[0]
        if "/" not in path:
            why = "No such file is rendered"
        elif package == SUPPORT:
            why = "No package uses this file"
        elif package in self.specs:
            why = f"{self.specs[package]} does not give this file"
        else:
            why = f"No spec gives the package {package}"
        listed = self.listed.get(path)
        if listed is None:
            meaning = f"{why}, and the manifest does not list it: what is not fusegen's belongs elsewhere."
        elif not is_generated(path, old):
            meaning = f"{why}, and it is not what fusegen writes, though the manifest lists it: it belongs elsewhere."
        elif digest(old) in listed:
            return Finding(path, "orphaned", f"{why} any more.", old, None, "prune")
        else:
            meaning = f"{why} any more, and it was edited by hand: the edit is lost with it."
        return Finding(path, "orphaned", meaning, old, None, "remove")

    def _source(self, path: str) -> str:
        """What a file comes from."""
        package, _, name = path.partition("/")
        if not name:
            return "fusegen"
        return f"templates/support/{name}" if package == SUPPORT else self.specs[package]

    def _owner(self, path: str) -> str:
        package, _, name = path.partition("/")
        if not name:
            return f"a {path} further up"
        source = self._source(path)
        return source if package == SUPPORT else f"{source} or the templates"

    # The manifest

    def manifest(self, complete: bool) -> Finding | None:
        old = self.disk.manifest
        kept = {} if complete else {path: sorted(listed)[-1] for path, listed in self.listed.items()}
        digests = {path: digest(data) for path, data in self.wanted.items()}
        sources = {} if complete else listed_sources(old)
        specs = {} if complete else self.listed_specs
        new = manifest_text({**kept, **digests}, {**sources, **self.sources}, {**specs, **self.digests}).encode()
        if old == new:
            return None
        if old is None:
            meaning = "There is no manifest: nobody can tell which files are fusegen's, or were edited by hand."
            return Finding(MANIFEST, "manifest", meaning, old, new, "build")
        if self.damage is not None:
            meaning = f"It is not a manifest of fusegen: {self.damage}."
            return Finding(MANIFEST, "manifest", meaning, old, new, "remove")
        if has_conflict(old):
            meaning = "A merge left its conflict markers in it: the build reads both sides and writes it again."
            return Finding(MANIFEST, "conflict", meaning, old, new, "build")
        if old.replace(b"\r\n", b"\n") == new:
            return Finding(MANIFEST, "line_endings", _LINE_ENDINGS, old, new, "build")
        if self.other is not None:
            return Finding(MANIFEST, "version", f"{_versions(self.other)}.", old, new, "build")
        if self.upgraded:
            return Finding(MANIFEST, "version", _OTHER_COMMIT, old, new, "build")
        return Finding(MANIFEST, "manifest", self._disagreement(complete), old, new, "build")

    def _disagreement(self, complete: bool) -> str:
        """What a readable manifest has wrong."""
        there = self.disk.files
        current = [path for path, data in self.wanted.items() if there.get(path) == data]
        wrong = [path for path in current if self.listed.get(path, set()) != {digest(there[path])}]
        gone = [path for path in self.listed if path not in there and path not in self.wanted] if complete else []
        if self.listed == {path: {digest(data)} for path, data in self.wanted.items()}:
            listed = listed_sources(self.disk.manifest)
            unknown = [name for name, found in self.sources.items() if listed.get(name) != found]
            if unknown:
                return f"It has no digest, or a wrong one, of what these libraries are compiled from: {some(unknown)}."
            changed = {
                name: spec for name, spec in self.specs.items() if self.listed_specs.get(name) != self.digests[name]
            }
            if not self.listed_specs:
                return "It has no digests of the specs: an older fusegen wrote it."
            if changed:
                names = some(list(dict.fromkeys(changed.values())))
                return f"It has no digest, or another one, of specs that give the text that is there: {names}."
            return "It lists what it should in another form: it was edited by hand."
        parts = []
        if gone:
            parts.append(f"lists what is neither there nor rendered: {some(gone)}")
        if wrong:
            parts.append(f"has no entry, or a wrong one, for files that are as they should be: {some(wrong)}")
        if not parts:
            return FOLLOWS
        return f"It {' and '.join(parts)}."


_LINE_ENDINGS = (
    "Its lines end in CRLF, where LF is rendered: git converted them, which the .gitattributes that `fusegen build` "
    "writes keeps it from."
)


_OTHER_COMMIT = f"Another commit of fusegen {__version__} rendered it, which gave other text of the same specs."


def _versions(other: str) -> str:
    return f"fusegen {other} rendered it, and this is fusegen {__version__}"


def some(paths: list[str]) -> str:
    """The first of the paths, and how many there are more."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{', '.join(sorted(paths)[:3])}{more}"
