"""The dtype combinations that are compiled, and the dtype that eager PyTorch gives the result in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from fusegen.chain.model import Chain
from fusegen.errors import Diagnostic, quote
from fusegen.ops.step import Dtypes
from fusegen.plan.programs.model import Mode, Role
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel

VERIFICATION_DTYPE = "float64"
NARROW = "narrow"
"""In the place of a dtype: that of autocast, one of 16 bits."""


def modes(spec: SpecModel, chain: Chain, known: Mapping[str, str] = MappingProxyType({})) -> list[Mode]:
    """Plain modes (everything in one dtype), then autocast modes: activations in 16 bits, parameters in float32.

    Under autocast a further input may come in float32 or already in the autocast dtype; each is a mode of its
    own. Without an anchor autocast casts nothing, so the first input may be in float32 as well, and then others may be
    in any of the dtypes. The last
    mode is float64, which only verification builds compile.

    known: the inputs that have one dtype in every call under autocast: float32, or NARROW for its own. Where the spec
    lists modes there are these alone, and the last: an entry that says the dtype of every input may have further ones
    in both.
    """
    found = [_mode(spec, chain, dtype, dtype, dtype, False) for dtype in spec.dtypes]
    for mode in _autocast_modes(spec, chain, known) if "float32" in spec.dtypes else ():
        same = next((i for i, other in enumerate(found) if other.roles == mode.roles), None)
        if same is None:
            found.append(mode)
        else:
            found[same] = replace(found[same], autocast=True)
    if spec.modes is not None:
        found += [made for each in spec.modes if (made := _listed(spec, chain, known, each, found)) is not None]
        found = [mode for mode in found if any(_is(mode, chain, each) for each in spec.modes)]
    found.append(_mode(spec, chain, VERIFICATION_DTYPE, VERIFICATION_DTYPE, VERIFICATION_DTYPE, False))
    return [replace(mode, index=index) for index, mode in enumerate(found)]


def modes_of_regions(spec: SpecModel) -> list[Mode]:
    """The dtype configurations of a module of several regions: plain ones, then those under autocast with every input
    in float32, and last float64 for verification, as in modes()."""

    def mode(index: int, dtype: str, autocast: bool) -> Mode:
        other = "float32" if autocast else dtype
        name = f"autocast {dtype}" if autocast else dtype
        return Mode(index, name, {"activation": dtype, "parameter": other}, autocast, plain=not autocast)

    found = [(dtype, False) for dtype in spec.dtypes]
    if "float32" in spec.dtypes:
        found += [(dtype, True) for dtype in spec.dtypes if dtype != "float32"]
    found.append((VERIFICATION_DTYPE, False))
    return [mode(index, *each) for index, each in enumerate(found)]


def mode_of(found: Iterable[Mode], dtype: str) -> Mode | None:
    """The mode that stands for all with activations in a dtype: a plain one, if there is one."""
    fits = [mode for mode in found if mode.roles["activation"] == dtype]
    return next((mode for mode in fits if mode.plain), next(iter(fits), None))


PARAMETERS = "parameters"
"""What an entry of the spec's `modes` calls them."""


def refused_modes(
    spec: SpecModel, document: Document, chain: Chain, known: Mapping[str, str] = MappingProxyType({})
) -> list[Diagnostic]:
    """The entries of the spec's `modes` that no call of the chain can have."""
    if spec.modes is None:
        return []
    others = spec.model_copy(update={"modes": None})
    possible = [*modes(others, chain, known)[:-1], *modes(spec, chain, known)[:-1]]
    names = [chain.inputs[0].name, *chain.further, *([PARAMETERS] if PARAMETERS not in spec.inputs else [])]
    found = []
    for index, each in enumerate(spec.modes):
        unknown = [name for name in each if name not in names]
        if unknown:
            message = f"{quote(unknown[0])} has no dtype that a mode may say"
            hint = f"an entry has some of: {', '.join(names)}"
            found.append(document.diagnostic("FG211", message, ("modes", index, unknown[0]), key=True, hint=hint))
        elif not any(_is(mode, chain, each) for mode in possible):
            rows = dict.fromkeys(", ".join(f"{n}: {mode.roles[_role(chain, n)]}" for n in names) for mode in possible)
            message = "no call has tensors of these dtypes"
            hint = f"there are: {'; '.join(rows)}"
            found.append(document.diagnostic("FG211", message, ("modes", index), hint=hint))
    return found


def _listed(
    spec: SpecModel, chain: Chain, known: Mapping[str, str], entry: Mapping[str, str], found: Iterable[Mode]
) -> Mode | None:
    """The mode of an entry that says the dtype of every input, with some further ones in float32 and some in 16 bits;
    None where `found` has it, or where no call has such tensors."""
    names = (chain.source.name, *chain.further)
    fixed = {name: entry[name] for name in names if name in entry}
    narrow = set(fixed.values()) - {"float32"}
    if len(fixed) < len(names) or len(narrow) != 1 or not {"float32", *narrow} <= set(spec.dtypes):
        return None
    rest = {name: dtype for name, dtype in entry.items() if name not in chain.further}
    like = next((mode for mode in found if mode.autocast and _is(mode, chain, rest)), None)
    if like is None or any(_is(mode, chain, entry) for mode in found) or any(name in known for name in names):
        return None
    return _mode(spec, chain, like.roles["activation"], like.roles["parameter"], "float32", True, fixed)


def _is(mode: Mode, chain: Chain, entry: Mapping[str, str]) -> bool:
    """Whether an entry of the spec's `modes` is this one."""
    return all(mode.roles[_role(chain, name)] == dtype for name, dtype in entry.items())


def _role(chain: Chain, name: str) -> Role:
    if name in chain.further:
        return f"input {name}"
    return "parameter" if name == PARAMETERS else "activation"


def _autocast_modes(spec: SpecModel, chain: Chain, known: Mapping[str, str]) -> Iterator[Mode]:
    if chain.anchor is None and any(step.autocast == "16 bits" for step in spec.chain):
        return  # the result has autocast's own dtype, which no tensor at hand tells
    named = {name: known[name] for name in chain.further if name in known}
    free = [name for name in chain.further if name not in named]
    for dtype in spec.dtypes:
        if _never(chain, known, dtype):
            continue
        parameter = "float32" if chain.has_weight or chain.parameters or chain.buffers else dtype
        # A residual in float32 meets what a layer has made in 16 bits.
        narrow = [each for each in spec.dtypes if each != "float32"] if dtype == "float32" else [dtype]
        if NARROW not in named.values():
            for other in dict.fromkeys(("float32", *narrow)) if free else ("float32",):
                yield _mode(spec, chain, dtype, parameter, other, True, named)
            continue
        for own in narrow:
            fixed = {name: own if each == NARROW else each for name, each in named.items()}
            for other in ("float32", own) if free else ("float32",):
                yield _mode(spec, chain, dtype, parameter, other, True, fixed)


def _never(chain: Chain, known: Mapping[str, str], dtype: str) -> bool:
    """Whether no call under autocast has activations in this dtype."""
    if chain.anchor is not None:
        return dtype == "float32"
    return known.get(chain.source.name, dtype) not in (dtype, NARROW if dtype != "float32" else dtype)


def _mode(
    spec: SpecModel,
    chain: Chain,
    activation: str,
    parameter: str,
    other: str,
    autocast: bool,
    fixed: Mapping[str, str] = MappingProxyType({}),
) -> Mode:
    """other: the dtype of further inputs, but for those that are fixed."""
    roles: dict[Role, str] = {"activation": activation, "parameter": parameter}
    roles |= {f"input {name}": fixed.get(name, other) for name in chain.further}
    given = {name: fixed.get(name, other) for name in chain.tail_inputs}
    running, saved = _dtypes(spec, chain, activation, parameter, given, autocast)
    roles["output"] = running[-1]
    roles |= {f"output {name}": saved[name] for name in chain.result.further if name in saved}
    name = f"autocast {activation}" if autocast else activation
    if autocast and chain.further:
        dtypes = [roles[f"input {each}"] for each in chain.further]
        each = ", ".join(f"{input_} in {dtype}" for input_, dtype in zip(chain.further, dtypes, strict=True))
        name += f", inputs {dtypes[0]}" if len(set(dtypes)) == 1 else f", {each}"
    return Mode(0, name, roles, autocast, plain=not autocast)


def eager_dtypes(spec: SpecModel, chain: Chain, mode: Mode, step: int) -> set[str]:
    """The dtypes in which eager PyTorch has the value in front of a step in calls of this mode: one, or two where
    autocast makes a difference."""
    activation, parameter = mode.roles["activation"], mode.roles["parameter"]
    given = {name: mode.roles.get(f"input {name}", activation) for name in chain.tail_inputs}
    calls = [autocast for autocast, made in ((False, mode.plain), (True, mode.autocast)) if made]
    return {_dtypes(spec, chain, activation, parameter, given, autocast)[0][step] for autocast in calls}


def values_under_autocast(
    spec: SpecModel, chain: Chain, activation: str, given: Mapping[str, str], names: Iterable[str]
) -> dict[str, str]:
    """The dtypes of values that a chain makes. given: those of its inputs. A name that no step saves is the result's.

    What is in float32 without any parameter in it stays so: parameters are in float32 under autocast.
    """
    parameter = "float32" if chain.anchor is not None or chain.parameters or chain.buffers else activation
    running, named = _dtypes(spec, chain, activation, parameter, given, True)
    saved = {name for step in spec.chain for name in step.saved}  # the source may have the name of the result
    return {name: named[name] if name in saved else running[-1] for name in names}


def alike(found: Iterable[Mode], names: Iterable[str]) -> list[list[str]]:
    """Further inputs in groups, which have one dtype each in every mode."""
    modes_, groups = list(found), dict[tuple[str, ...], list[str]]()
    for name in names:
        groups.setdefault(tuple(mode.roles[f"input {name}"] for mode in modes_), []).append(name)
    return list(groups.values())


def _dtypes(
    spec: SpecModel, chain: Chain, activation: str, parameter: str, given: Mapping[str, str], autocast: bool
) -> tuple[list[str], dict[str, str]]:
    """Of the value before each step, and of the result; of each value that has a name. given: of further inputs."""
    named = {**given, chain.source.name: activation}
    shapes = {each.name: each.shape for each in chain.inputs if each.name in chain.further}
    shapes |= {p.name: p.shape for p in chain.parameters.values()}
    named |= {f"rank of {name}": str(len(shape)) for name, shape in shapes.items()}
    found = [activation]
    for step in spec.chain:
        if step.from_ is not None:
            found[-1] = named[step.from_]
        found.append(step.result_dtype(found[-1], Dtypes(activation, parameter, autocast, named)))
        named |= dict.fromkeys(step.saved, found[-1])
    return found, named
