"""What generated Python calls something of its own begins with an underscore, or no spec may call anything so.

Its own words are found by rendering each chain twice, once with all its names changed.
"""

from __future__ import annotations

import ast
import builtins

import pytest

from fusegen.plan.load import planned_document
from fusegen.render.package import render_package
from fusegen.spec.reserved import CONSTRUCTOR_ARGUMENTS, MODULE_ATTRIBUTES, MODULE_GLOBALS, PYTHON_NAMES
from fusegen.spec.yaml import parse_yaml
from tests.chains.names import renamed
from tests.emulate.other_chains import HAND_PICKED
from tests.fuzz.mutations import as_text
from tests.render.rendering import rendered

CHAINS = ("every_norm", "two_inputs", "two_batch_norms", "rms_without_eps", "full_parameter", "layer_norm_of_input")


def module(name: str, mark: str) -> ast.Module:
    data = parse_yaml(HAND_PICKED[name].spec(name), f"{name}.yaml").data
    text = as_text(renamed(data, lambda word: mark + word, name) | {"class": "Chain"})
    return ast.parse(render_package(planned_document(parse_yaml(text, f"{name}.yaml")))[f"{name}/__init__.py"])


def methods(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Of the module's class, without annotations, which nobody evaluates."""
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    functions = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        function.returns = None
        for argument in ast.walk(function):
            if isinstance(argument, ast.arg):
                argument.annotation = None
    return functions


def names(tree: ast.AST) -> set[str]:
    """Arguments and variables, read or written."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def attributes(tree: ast.AST) -> set[str]:
    """What is read or written of `self`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {node.attr for node in found if node.value.id == "self"}


@pytest.mark.parametrize("name", CHAINS)
def test_beside_the_names_of_a_spec(name: str) -> None:
    own, twin = methods(module(name, "")), methods(module(name, "zq"))
    assert own.keys() == twin.keys() >= {"__init__", "forward"}
    for function in own:
        both = names(own[function]) & names(twin[function])
        if function == "fusegen_reference":
            both -= {"v"}  # the running value, which keeps clear of the spec's names by another name
        refused = PYTHON_NAMES | (CONSTRUCTOR_ARGUMENTS if function == "__init__" else set())
        assert {word for word in both if not word.startswith("_")} <= refused, function
        held = attributes(own[function]) & attributes(twin[function])
        free = {word for word in held if not word.startswith(("_", "fusegen_"))}
        assert free <= MODULE_ATTRIBUTES, function


def test_what_a_class_may_not_hide() -> None:
    """Only the module's own names begin with an underscore; what it imports or reads of Python's does not."""
    # The second has an argument that is a shape, and imports a type for that.
    trees = [module("every_norm", ""), ast.parse(rendered()["matmul_bn_bias_div_swish/__init__.py"])]
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    read = {name for tree in trees for name in names(tree)} & set(dir(builtins))
    free = {word for word in imported | read if not word.startswith("_")}
    assert free <= PYTHON_NAMES | MODULE_GLOBALS
    assert MODULE_GLOBALS <= free, "listed, and not there"
