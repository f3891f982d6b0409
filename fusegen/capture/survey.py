"""The chains in a model that is not run: their specs, and their packages, before any training."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.nn.parameter import is_lazy

from fusegen.capture.layouts import in_channels_last
from fusegen.capture.linear_losses import Chunk
from fusegen.capture.lower import NotLowered, lower
from fusegen.capture.packages import GENERATED, SPECS, locked, make, planned_target
from fusegen.capture.products import Precision
from fusegen.capture.report import Report
from fusegen.capture.rewrite import Found, Wanted, chains_in, left_whole, place_in, taken
from fusegen.capture.specs import Specs
from fusegen.errors import Diagnostic, SpecError
from fusegen.importing.traces.source_locations import of_error, refusal
from fusegen.paths import DEFAULT_FUSED
from fusegen.plan.launches.devices import is_known, remedy
from fusegen.progress import tell


def survey(
    model: nn.Module,
    examples: Sequence[Tensor],
    directory: Path,
    *,
    targets: Sequence[str] = (),
    autocast: torch.dtype | None = None,
    precision: Precision = "ieee",
    loss_chunk: Chunk = None,
    dry_run: bool,
    compile: bool,
) -> Report:
    """What a training step of a model under torch.compile would have as packages, which are written if it is no
    `dry_run`.

    model: its tensors are replaced by fakes, which have sizes and no values: nothing is computed. examples: of its
    inputs. Fakes are on a GPU if PyTorch is built for one, whose autocast differs from that of a CPU. targets: GPUs of
    new specs; none: the one at hand. precision, loss_chunk: Backend's. Raises SpecError and BuildError.
    """
    for target in targets:
        if not is_known(target):
            message = f"there is no GPU {target!r} that kernels are planned for"
            raise SpecError([Diagnostic("FG212", message, hint=remedy(target))])
    report = Report(directory / SPECS)
    tell("tracing the model")
    found = _chains(model, examples, autocast, Wanted(precision=precision, chunk=loss_chunk), report)
    wanted = list(targets) or [planned_target()]
    if dry_run:
        specs = Specs(directory / SPECS, wanted)
        _tell(specs, found, report)
        return report
    output = directory / GENERATED
    with locked(output):
        specs = Specs(directory / SPECS, wanted)
        names = _tell(specs, found, report)
        specs.write()
        if names:
            make(output, specs, names, compile=compile)
    return report


def survey_of(
    model: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    directory: str | Path = DEFAULT_FUSED,
    targets: Sequence[str] = (),
    autocast: torch.dtype | None = None,
    precision: Precision = "ieee",
    loss_chunk: Chunk = None,
) -> Report:
    """What `fusegen fuse --dry-run` says of a model, which is left as it is: nothing is computed or written.

    directory: has the specs that are there already. The other arguments are survey()'s. Raises SpecError.
    """
    tensors = {id(each): each for each in (*model.parameters(), *model.buffers())}
    shell = copy.deepcopy(model, dict(tensors))  # modules of its own, and the model's tensors
    options: dict[str, Any] = {"autocast": autocast, "precision": precision, "loss_chunk": loss_chunk}
    return survey(shell, example_inputs, Path(directory), targets=targets, **options, dry_run=True, compile=False)


def _tell(specs: Specs, found: Sequence[Found], report: Report) -> list[str]:
    """Puts chains into specs, tells the report, and returns the names of the specs."""
    placed = place_in(specs, found, report)
    report.taken += map(taken, placed)
    return list(dict.fromkeys(each.spec for each in placed))


def _chains(
    model: nn.Module, examples: Sequence[Tensor], autocast: torch.dtype | None, wanted: Wanted, report: Report
) -> list[Found]:
    device = "cuda" if torch.backends.cuda.is_built() else "cpu"
    found: list[Found] = []

    def look(module: fx.GraphModule, _: Sequence[Any]) -> Any:
        report.graphs += 1
        try:
            found.extend(chains_in(in_channels_last(lower(module), {}), report, wanted))
        except NotLowered as why:
            report.left.append(left_whole(module, why))
        return module.forward

    fakes = _Fakes(device)
    torch._dynamo.reset()
    try:
        fakes.put_into(model)
        with fakes.mode, _autocast(device, autocast):
            torch.compile(model, backend=look)(*map(fakes.of, examples))
    except SpecError:
        raise
    except Exception as error:  # what the user's forward raises, or what cannot be known without values
        message = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        raise refusal("FG701", f"the model cannot be run without values: {message}", of_error(error)) from None
    finally:
        torch._dynamo.reset()
    return found


@contextmanager
def _autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """torch.autocast, which is off for GPUs where none is."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, dtype is not None)
    torch.set_autocast_dtype(device, dtype or before[1])
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


class _Fakes:
    """Tensors without values, each in the place of one that is there."""

    def __init__(self, device: str) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)  # tensors that are attributes alone stay
        self._device = device
        self._made: dict[Tensor, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        if is_lazy(tensor):
            raise refusal("FG701", "the model has parameters without a size", hint="give sizes to its lazy modules")
        if tensor not in self._made:
            with self.mode:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self._device)
            is_parameter = isinstance(tensor, nn.Parameter)
            self._made[tensor] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
        return self._made[tensor]

    def put_into(self, model: nn.Module) -> None:
        for part in model.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        tensors[name] = self.of(tensor)  # type: ignore[assignment]
