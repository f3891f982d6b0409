"""Specs of chains in a directory: one for each kind of chain, however often it occurs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusegen.capture.chain import Chain, NotAChain
from fusegen.errors import SpecError
from fusegen.files import write, writing
from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import unknown_op
from fusegen.plan.load import planned_document
from fusegen.spec.model import DTYPES, FORMAT_VERSION, spec_model
from fusegen.spec.names import MAX_NAME_LENGTH, free_name, is_spec_name
from fusegen.spec.text import spec_text
from fusegen.spec.validate import validate
from fusegen.spec.yaml import parse_yaml, read_yaml

# What a spec may have otherwise, and it still is that of the same chain.
_FREE = ("fusegen", "name", "about", "class", "targets", "dtypes", "modes", "dims")


class Specs:
    """The specs of one directory. Raises SpecError for a file that is none. targets: the GPUs of new ones."""

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        self.directory = directory
        self._targets = list(targets)
        self._known = {path.stem: read_spec(path) for path in sorted(directory.glob("*.yaml"))}
        self.new: list[str] = []

    def place(self, chain: Chain, dtypes: set[str]) -> str:
        """The name of the chain's spec, which write() writes if there is none. dtypes: of the tensors, some of DTYPES,
        all of which the spec has. It has the mode of the call as well; a spec that is not written yet takes a further
        one. Raises NotAChain for a chain that cannot be planned."""
        kind, mode = _kind(chain.data), chain.mode
        fits = {
            name: known
            for name, known in self._known.items()
            if _kind(known) == kind and dtypes <= set(known.get("dtypes", DTYPES))
        }
        for name, known in fits.items():
            if any(each.items() <= mode.items() for each in known.get("modes", [{}])):
                return name
        listed, modes = [each for each in DTYPES if each in dtypes], [mode]
        extended = next((name for name in fits if name in self.new), None)
        if extended is not None:
            listed, modes = fits[extended]["dtypes"], [*fits[extended]["modes"], mode]
        name = extended or free_name(_wanted(chain.data, dtypes), {known.lower() for known in self._known})
        data = _data(chain, name, listed, modes, self._targets)
        _check(spec_text(data), self.path(name))
        self._known[name] = data
        if extended is None:
            self.new.append(name)
        return name

    def at_place(self, name: str, chain: Chain, dtypes: set[str]) -> str | None:
        """The text of the chain's spec with the sizes and the mode of its place alone; None where a size changes."""
        sizes = chain.sizes
        if sizes is None:
            return None
        listed = [each for each in DTYPES if each in dtypes]
        return spec_text(_data(chain, name, listed, [chain.mode], self.targets(name)) | {"dims": sizes})

    def targets(self, name: str) -> list[str]:
        """The GPUs that a spec's kernels are compiled for."""
        return self._known[name].get("targets", ["sm_90"])

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    def write(self) -> None:
        """Writes the new ones; no other file is touched."""
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for name in self.new:
            with writing(self.path(name)):
                write(self.path(name), spec_text(self._known[name], _head(self._known[name])))
        self.new.clear()


def _data(
    chain: Chain, name: str, dtypes: Sequence[str], modes: Sequence[dict[str, str]], targets: Sequence[str]
) -> dict[str, Any]:
    """A whole spec, with the sizes of the chain's `dims`."""
    around = {key: chain.data[key] for key in ("dims", "arguments", "inputs")}
    data: dict[str, Any] = {"fusegen": FORMAT_VERSION, "name": name, **around, "dtypes": [*dtypes]}
    if len(dtypes) > 1:
        data["modes"] = [*modes]
    return data | {"targets": [*targets], **chain.data}


def _head(data: dict[str, Any]) -> list[str]:
    """What a reader of a new spec cannot know: which of its sizes are anybody's, and what fixes one."""
    ours, theirs = ([name for name in data["dims"] if (name in data["arguments"]) == given] for given in (False, True))
    lines = ["Written by fusegen for a model that torch.compile runs. The kernels run at any sizes: those in dims are"]
    lines.append("examples, which plans, checks and benchmarks take, and may be changed.")
    lines.append(f"{_are(ours)} made up, {_are(theirs)} from one place in the model.")
    lines.append("A size would be fixed by a number in the place of its name in inputs (1 is one that is broadcast),")
    lines.append("and a name of dims frees it again.")
    return lines


def _are(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _check(text: str, path: Path) -> None:
    """Raises NotAChain for a spec that would be no package of one region."""
    try:
        planned = planned_document(parse_yaml(text, path.as_posix()))
    except SpecError as error:
        first = error.diagnostics[0]
        what = "there are no kernels" if first.code == "FG211" else "it is no chain"
        raise NotAChain(f"{what}: {first.message}") from None
    if not planned.single:
        raise NotAChain("the chain is planned as several regions")


def _kind(data: dict[str, Any]) -> dict[str, Any]:
    """What the chain computes."""
    return {key: value for key, value in data.items() if key not in _FREE} | {"dims": sorted(data["dims"])}


def read_spec(path: Path) -> dict[str, Any]:
    """What a file says that is a spec. Raises SpecError."""
    document = read_yaml(path)
    validate(spec_model(STEPS, unknown_op), document)
    return document.data


def _wanted(data: dict[str, Any], dtypes: set[str]) -> str:
    """A name that says the first ops, and the dtypes but float32 alone."""
    narrow = "".join(f"_{each.replace('float', 'f')}" for each in DTYPES if each in dtypes - {"float32"})
    suffix = f"_mixed{narrow}" if narrow and "float32" in dtypes else narrow
    most = MAX_NAME_LENGTH - len(suffix) - len("_chain_99")
    name = "_".join(step["op"] for step in data["chain"])[:most].rstrip("_")
    return f"{name if is_spec_name(name + suffix) else f'{name}_chain'}{suffix}"
