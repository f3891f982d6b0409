"""What tells git about an output directory: which files a build leaves there, and that the rendered ones are bytes."""

from __future__ import annotations

from fusegen.paths import AUTOGRAD, BUILD_STORE, EXTENSION

# An extension that somebody commits all the same is no text.
_ATTRIBUTES = """\
# Written by fusegen. What is rendered has the same bytes everywhere, and `fusegen check` compares bytes.
* text eol=lf linguist-generated=true
*.so binary
"""
_IGNORED = f"""\
# Written by fusegen: what building and importing leave here. Commit everything else.
{EXTENSION}.so
{EXTENSION}.key
{AUTOGRAD}.*
{BUILD_STORE}/
__pycache__/
.*.tmp
"""


def git_files() -> dict[str, str]:
    """`.gitignore` and `.gitattributes` of the output directory, so that a project needs no lines of its own for it."""
    return {".gitattributes": _ATTRIBUTES, ".gitignore": _IGNORED}
