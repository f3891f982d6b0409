"""The models of a spec's top level. What a step of the chain may be is supplied by the catalogue."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, WithJsonSchema, create_model

from fusegen.errors import Diagnostic, quote
from fusegen.spec import checks
from fusegen.spec.annotations import fields, tags
from fusegen.spec.arguments import Argument, InputShape
from fusegen.spec.base import Given, Listing, Plain, PositiveInt, SpecPart, meaning, problem
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.gpu_names import suggestion
from fusegen.spec.names import ArgumentName, AttributeName, ClassName, Identifier, SpecName, camel_case
from fusegen.spec.numbers import GIVEN, Numbers
from fusegen.spec.state_paths import StatePath
from fusegen.spec.validate import mistakes
from fusegen.spec.wording import suggest

FORMAT_VERSION = 1
DTYPES = ("float32", "bfloat16", "float16")
MAX_STEPS = 256
MAX_NAMES = 64
MAX_OUTPUTS = 8
RESULT = "result"
"""What `outputs` calls the running value at the end."""
TWICE = "'{}' and '{}' are the same value, that of the last step"
MAX_ABOUT_LENGTH = 200

_TARGET = re.compile(r"sm_[0-9]{2,3}a?")


def _version(value: int) -> int:
    if value != FORMAT_VERSION:
        raise problem("FG213", f"format version {value} is not known; this fusegen reads {FORMAT_VERSION}")
    return value


def _dtype(value: str) -> str:
    if value not in DTYPES:
        raise problem("FG211", f"unsupported dtype {quote(value)}", suggest(value, DTYPES, among="supported"))
    return value


def _target(value: str) -> str:
    if not _TARGET.fullmatch(value):
        hint = suggestion(value) or "a target is such as sm_90 or sm_90a"
        raise problem("FG212", f"unsupported target {quote(value)}", hint)
    return value


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise problem("FG208", f"{quote(value) if isinstance(value, str) else 'this'} is listed twice")
    return values


Dtype = Annotated[str, AfterValidator(_dtype), Plain("a dtype"), WithJsonSchema({"enum": list(DTYPES)})]


def _about(value: str) -> str:
    """A line that may stand in a comment or docstring of either language without ending it."""
    if not value.isprintable():
        raise problem("FG205", "'about' must be one line of printable text")
    # `??/` is a backslash to compilers that still know trigraphs.
    for refused in ("\\", '"', "*/", "/*", "??/"):
        if refused in value:
            raise problem("FG205", f"'about' may not contain {refused}")
    return value.strip()


_CHAIN = "the steps, which apply in order to the running value; the first one takes the first input"
UnknownOp = Callable[[str, Sequence[str]], tuple[str, str | None]]


class Rewrites(SpecPart):
    """Which rewrites the planner may make."""

    affine: Annotated[bool, meaning("additions and multiplications in a row are one multiply-add", False)] = True
    moments: Annotated[bool, meaning("statistics are taken without an offset in front of them", False)] = True
    sums: Annotated[bool, meaning("factors that are the same for all terms leave a sum", False)] = True
    norms: Annotated[bool, meaning("an offset in front of a norm is taken into its mean", False)] = True
    norm_gradients: Annotated[bool, meaning("a norm's gradient is a multiply-add of each element", False)] = True


class SpecModel(SpecPart):
    """A whole spec. Use spec_model() for one whose chain is typed."""

    fusegen: Annotated[
        int,
        AfterValidator(_version),
        Plain("the number of the format version"),
        WithJsonSchema({"const": FORMAT_VERSION}),
        meaning("the version of the format", FORMAT_VERSION),
    ]
    name: Annotated[SpecName, meaning("names the package, the ops and the file NAME.yaml", "my_chain")]
    about_: Annotated[
        Given[Annotated[str, Field(max_length=MAX_ABOUT_LENGTH), AfterValidator(_about)]],
        meaning("a line for those who read the generated files; without it they name the ops", "A chain to start from"),
    ] = Field(default=None, alias="about")
    class_: Annotated[
        Given[ClassName], meaning("the name of the nn.Module; without it, the name in CamelCase", "MyChain")
    ] = Field(default=None, alias="class")
    dims: Annotated[
        dict[Identifier, PositiveInt],
        meaning(
            "symbols of sizes that stay dynamic, with the size that planning and benchmarks assume",
            {"batch": 1024, "features": 512, "hidden": 256},
        ),
    ] = Field(default_factory=dict, max_length=MAX_NAMES)
    arguments: Annotated[
        dict[ArgumentName, Argument],
        meaning(
            "of the module's constructor, in order",
            {"features": {"type": "dim"}, "hidden": {"type": "dim"}, "factor": {"type": "float", "default": 0.5}},
        ),
    ] = Field(default_factory=dict, max_length=MAX_NAMES)
    inputs: Annotated[
        dict[Identifier, InputShape],
        Field(min_length=1, max_length=MAX_NAMES),
        meaning(
            "of the module's forward, in order; sizes are symbols, or numbers that the generated code relies on",
            {"x": ["batch", "features"]},
        ),
    ]
    dtypes: Annotated[
        Listing[Dtype],
        Field(min_length=1),
        AfterValidator(_distinct),
        meaning("what kernels are compiled for; autocast needs float32 and one of 16 bits", ["float32", "bfloat16"]),
    ] = DTYPES
    modes: Annotated[
        Given[Annotated[Listing[dict[Identifier, Dtype]], Field(min_length=1), AfterValidator(_distinct)]],
        meaning(
            "the combinations of dtypes that kernels are compiled for; without it all that calls can have",
            [{"x": "bfloat16", "parameters": "float32"}],
        ),
    ] = None
    rewrites: Annotated[
        Given[Rewrites], meaning("algebra of the planner, each of which may be switched off", {"sums": False})
    ] = None
    invariant: Annotated[
        Given[Literal["rows"]],
        meaning(
            "rows: a row's results and gradients have the same bits whatever other rows there are, at a price that "
            "`fusegen plan` tells",
            "rows",
        ),
    ] = None
    targets: Annotated[
        Listing[Annotated[str, AfterValidator(_target), Plain("a target")]],
        Field(min_length=1),
        AfterValidator(_distinct),
        meaning("the GPUs that are compiled for, as nvcc calls them", ["sm_90"]),
    ] = ("sm_90",)
    chain: Annotated[
        Listing[Any],
        Field(min_length=1, max_length=MAX_STEPS),
        meaning(_CHAIN, [{"op": "relu"}]),
    ]

    outputs: Annotated[
        Given[Annotated[Listing[Identifier], Field(min_length=1, max_length=MAX_OUTPUTS), AfterValidator(_distinct)]],
        meaning(
            "what forward returns, as a tuple: saved values, and `result`, the running value at the end; without it "
            "the latter alone",
            ["result", "total"],
        ),
    ] = None

    state_dict: Annotated[
        dict[AttributeName, StatePath],
        meaning(
            "where the original's state_dict has another name for a layer or a parameter: its path there",
            {"mlp_up": "mlp.up"},
        ),
    ] = Field(default_factory=dict, max_length=MAX_NAMES)

    # For validate(): the message and the hint for an op that is not one of the given known ones.
    unknown_op: ClassVar[UnknownOp | None] = None
    # The models of steps, by their ops.
    steps: ClassVar[dict[str, type[BaseModel]]] = {}

    _written_in: str | None = PrivateAttr(default=None)
    _spatial: int = PrivateAttr(default=0)
    _made_by: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    def written_in(self, name: str, spatial: int, made_by: Mapping[str, Any]) -> None:
        """Says that this is a region of another spec, in whose file it stands. spatial: how many dimensions of
        positions its values have. made_by: as `made_by`."""
        self._written_in, self._spatial, self._made_by = name, spatial, made_by

    @property
    def made_by(self) -> Mapping[str, Any]:
        """The step between regions that makes the size of a symbol, of those that the file does not have."""
        return self._made_by

    @property
    def spatial_of_region(self) -> int:
        """How many dimensions of positions the values of a region of another spec have."""
        return self._spatial

    @property
    def is_region(self) -> bool:
        """Whether it is a region of another spec."""
        return self._written_in is not None

    @property
    def file_stem(self) -> str:
        """The name of the file that it stands in, without .yaml."""
        return self._written_in or self.name

    @property
    def about(self) -> str:
        """The line about the chain: `about`, or its ops."""
        return self.about_ or ", ".join(step.op for step in self.chain)

    @property
    def class_name(self) -> str:
        """The nn.Module's name: `class`, or the spec's name in CamelCase."""
        return self.class_ or camel_case(self.name)

    @property
    def without_rewrites(self) -> tuple[str, ...]:
        """The rewrites that are switched off."""
        return tuple(name for name, is_on in self.rewrites or () if not is_on)

    @property
    def running_input(self) -> str:
        """The name of the input that the chain's first step takes."""
        return next(iter(self.inputs))

    @property
    def unreadable(self) -> frozenset[DocumentPath]:
        """As in PartialSpec: nothing is."""
        return frozenset()

    @classmethod
    def keys(cls) -> frozenset[str]:
        """What may be written at the top level."""
        return frozenset(fields(cls))

    @classmethod
    def cross_check(cls, document: Document) -> Iterable[Diagnostic]:
        """For validate(): what must agree between the parts."""
        yield from checks.cross_check(document, cls.keys())
        for key in GIVEN:
            numbers = Numbers(document, cls.steps, key)
            if numbers.names:
                # A number of another type is an argument of another type, which the chain refuses.
                found = (each for each in mistakes(cls, numbers.document) if each.code != "FG204")
                yield from numbers.among(found)


@functools.cache
def spec_model(step_types: tuple[type[BaseModel], ...], unknown_op: UnknownOp | None = None) -> type[SpecModel]:
    """The spec's model for a catalogue: `chain` is a union of the step models, told apart by `op`."""
    if len(step_types) == 1:
        step: Any = step_types[0]  # pydantic has no discriminated union of one
    else:
        step = Annotated[Union[step_types], Field(discriminator="op")]  # noqa: UP007
    chain = Annotated[Listing[step], Field(min_length=1, max_length=MAX_STEPS), meaning(_CHAIN, [{"op": "relu"}])]
    model = create_model("SpecModel", __base__=SpecModel, chain=(chain, ...))
    model.steps = {op: step for step in step_types for op in tags(step, "op")}
    if unknown_op is not None:
        model.unknown_op = staticmethod(unknown_op)
    return model
