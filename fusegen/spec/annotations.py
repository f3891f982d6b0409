"""Follows a pydantic error location through the models' annotations, back to a path of the document.

Pydantic puts the tag of a discriminated union, and a label for the member of a plain one, into its
locations: ('chain', 2, 'batch_norm', 'eps', 'float') is the document's ('chain', 2, 'eps'). A key may have
the same text as a tag, so only the annotations can tell which is which.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fusegen.spec.base import NOT_NULL, Plain
from fusegen.spec.document import DocumentPath
from fusegen.spec.wording import alternatives


@dataclass(frozen=True)
class Target:
    """What an error location points at."""

    path: DocumentPath
    annotation: Any  # of the value at the path, unions not yet narrowed
    at_key: bool  # the error is about the key of the path, not the value
    in_union: bool  # one member of a plain union complains; another may fit better
    model: type[BaseModel] | None  # the innermost model around the place, for what keys it has
    tag: str | None  # the tag that chose this model
    discriminator: str | None  # of the union at the path, if it is a discriminated one


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields under the keys that a spec uses."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def field_type(info: FieldInfo) -> Any:
    """A field's annotation with the metadata that pydantic has split off."""
    parts = (info.annotation, *info.metadata, *([info] if info.discriminator else []))
    return Annotated[parts] if len(parts) > 1 else info.annotation


def resolve_location(model: type[BaseModel], location: Sequence[str | int], data: Any) -> Target:
    """Where in the document an error at this pydantic location is."""
    annotation: Any = model
    arrived: Any = model
    path: DocumentPath = ()
    rest = list(location)
    value = data
    at_key = in_union = False
    owner: type[BaseModel] | None = None
    tag: str | None = None
    next_tag: str | None = None
    discriminator: str | None = None
    while True:
        inner, discriminator = _unwrap(annotation)
        members = _members(inner)
        if len(members) > 1 and rest:
            label = str(rest.pop(0))
            if discriminator is None:
                in_union = True
                annotation = _fitting(members, value)
            else:
                next_tag = label
                annotation = _tagged(members, discriminator, label)
            continue
        if len(members) == 1 and members[0] is not inner:
            annotation = members[0]
            continue
        if not rest:
            break
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            owner, tag, next_tag = inner, next_tag, None
            key = rest.pop(0)
            info = fields(inner).get(str(key))
            annotation = field_type(info) if info else Any
        elif get_origin(inner) is dict:
            key = rest.pop(0)
            at_key = rest == ["[key]"]
            annotation = get_args(inner)[0 if at_key else 1]
            rest = [] if at_key else rest
        elif get_origin(inner) in (tuple, list) and isinstance(rest[0], int):
            key = rest.pop(0)
            annotation = get_args(inner)[0]
        else:
            break  # labels of wrappers, which have no place of their own
        path = (*path, key)
        arrived = annotation
        value = _child(value, key)
    return Target(path, arrived, at_key, in_union, owner, tag, discriminator)


def describe(annotation: Any) -> str:
    """What messages call a value of the type: `a number or a name`."""
    extras = getattr(annotation, "__metadata__", ())
    for extra in reversed(extras):
        if isinstance(extra, Plain):
            return extra.text
    inner, _ = _unwrap(annotation)
    members = _members(inner)
    if len(members) > 1 or members[0] is not inner:
        null = ["null"] if type(None) in get_args(inner) and NOT_NULL not in extras else []
        return alternatives([*(describe(member) for member in members), *null])
    if get_origin(inner) is Literal:
        choices = get_args(inner)
        return alternatives(f"'{choice}'" if isinstance(choice, str) else str(choice) for choice in choices)
    if get_origin(inner) in (tuple, list):
        return "a list"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return words.get(inner, "a mapping")


def literals(annotation: Any) -> list[str]:
    """The texts that a type lists as possible values."""
    inner, _ = _unwrap(annotation)
    if get_origin(inner) is Literal:
        return [choice for choice in get_args(inner) if isinstance(choice, str)]
    members = _members(inner)
    return [text for member in members if member is not inner for text in literals(member)]


def tags(annotation: Any, discriminator: str) -> list[str]:
    """The tags that a discriminated union knows, in order."""
    inner, _ = _unwrap(annotation)
    return [tag for member in _members(inner) for tag in _tags_of(member, discriminator)]


def _unwrap(annotation: Any) -> tuple[Any, str | None]:
    """The type without Annotated, and the discriminator that was named on the way."""
    discriminator = None
    while get_origin(annotation) is Annotated:
        for extra in annotation.__metadata__:
            if isinstance(extra, FieldInfo) and isinstance(extra.discriminator, str):
                discriminator = extra.discriminator
        annotation = annotation.__origin__
    return annotation, discriminator


def _members(annotation: Any) -> list[Any]:
    """The members of a union without null; any other type is its own only member."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for member in get_args(annotation) if member is not type(None)]
    return [annotation]


def _tagged(members: list[Any], discriminator: str, tag: str) -> Any:
    for member in members:
        if tag in _tags_of(member, discriminator):
            return member
    return Any


def _tags_of(member: Any, discriminator: str) -> list[str]:
    model, _ = _unwrap(member)
    return literals(field_type(fields(model)[discriminator]))


def _fitting(members: list[Any], value: Any) -> Any:
    """The member of a plain union that a value of this shape was meant for."""
    for member in members:
        inner, _ = _unwrap(member)
        is_list = get_origin(inner) in (tuple, list)
        is_mapping = get_origin(inner) is dict or (isinstance(inner, type) and issubclass(inner, BaseModel))
        if isinstance(value, list) == is_list and isinstance(value, Mapping) == is_mapping:
            return member
    return members[0]


def _child(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return None
