"""What a chain cannot express is refused with its reason and the line, and never guessed."""

from __future__ import annotations

import re

import pytest

from fusegen.errors import CODES, SpecError
from tests.importing.modules import ROWS, WIDTH, Source, imported
from tests.importing.test_unseen import REFUSED as UNSEEN

# Each with the code, words of the message, and words of the line that it names; none where it is about the whole.
REFUSED = {
    "an input changed": (Source("", "x.add_(1)\nreturn y"), "FG704", "the input 'x' in place", "x.add_"),
    "an input changed by a name": (Source("", "x += 1\nreturn y"), "FG704", "the input 'x' in place", "x += 1"),
    "a view of an input changed": (
        Source("", "x.view(-1, 16).mul_(2)\nreturn y"),
        "FG704",
        "the input 'x' in place",
        "x.view",
    ),
    "a parameter changed": (
        Source("self.p = nn.Parameter(torch.ones(m), requires_grad=False)", "self.p.mul_(2)\nreturn y * self.p"),
        "FG704",
        "the parameter 'p' in place",
        "self.p.mul_",
    ),
    "a buffer changed": (
        Source("self.register_buffer('seen', torch.zeros(()))", "self.seen.add_(1)\nreturn y"),
        "FG704",
        "the buffer 'seen' in place",
        "self.seen.add_",
    ),
    "a view of what was changed": (
        Source("", "z = y.unsqueeze(0)\ny.mul_(2)\nreturn y + z.squeeze(0)"),
        "FG704",
        "a view of a value that was changed",
        "z.squeeze",
    ),
    "a mapping": (Source("", "return {'y': y}"), "FG705", "something else than tensors", "def forward"),
    "the input": (Source("", "return x"), "FG705", "the result is the input 'x'", "def forward"),
    "a view of the input": (Source("", "return x.view(-1, 16)"), "FG705", "the result is the input 'x'", "x.view"),
    "a parameter": (
        Source("self.p = nn.Parameter(torch.ones(m))", "return self.p"),
        "FG705",
        "the result is the parameter 'p'",
        "def forward",
    ),
    "rows as channels": (Source("", "return y.sum(-1).unsqueeze(0)"), "FG705", "shape: [1, rows]", "unsqueeze"),
    "another shape": (Source("", "return y.tanh().unsqueeze(1)"), "FG705", "another shape", "unsqueeze"),
    "control flow": (
        Source("", "if y.sum() > 0:\n    return y\nreturn -y"),
        "FG702",
        "control flow that depends on values",
        "if y.sum() > 0",
    ),
    "a loop": (
        Source("", "while y.sum() > 0:\n    y = y - 1\nreturn y"),
        "FG702",
        "control flow that depends on values",
        "while y.sum() > 0",
    ),
    "a number of the data": (Source("", "return y * x[0, 0].item()"), "FG703", "", "item()"),
    "the largest of all": (Source("", "return y - y.max()"), "FG703", "no max that is called like this", "y.max()"),
    "over the rows": (Source("", "return y - y.mean(0, keepdim=True)"), "FG703", "over other dimensions", "y.mean"),
    "over everything": (Source("", "return y - y.mean()"), "FG703", "no mean that is called like this", "y.mean"),
    "an op that is lacking": (
        Source("", "return torch.erfinv(y)"),
        "FG703",
        "'erfinv' is not supported",
        "torch.erfinv",
    ),
    "a variance over n - 2": (Source("", "return y / y.var(-1, correction=2, keepdim=True)"), "FG703", "of 2", "y.var"),
    "a norm of order 3": (Source("", "return y / y.norm(3, -1, keepdim=True)"), "FG703", "of order 3", "y.norm"),
    "a convolution": (
        Source("self.c = nn.Conv1d(1, 1, 1)", "return self.c(y.unsqueeze(1)).squeeze(1)"),
        "FG707",
        "the module has a convolution, and the first example input has the shape",
        "self.c(y",
    ),
    "a result that is expanded": (Source("", "return y.amax(-1, keepdim=True).expand_as(y)"), "FG705", "shape", "amax"),
    "a sum of what is expanded": (
        Source("", "z = y.amax(-1, keepdim=True).expand_as(y)\nreturn y + z.sum(-1, keepdim=True)"),
        "FG703",
        "sum over other dimensions",
        "z.sum",
    ),
    "dropout": (Source("", "return F.dropout(y, 0.5)"), "FG709", "dropout in evaluation", "F.dropout"),
    "noise": (Source("", "return y + torch.randn_like(y)"), "FG703", "randn_like", "randn_like"),
    "a transposition": (Source("", "return y.t().contiguous().t() + 1"), "FG703", "", "y.t()"),
    "a product of transposed rows": (Source("", "return y @ y.T"), "FG703", "'transpose' is not supported", "y.T"),
    "more parts than fit": (Source("", "a, b, c, d, e = y.chunk(5, -1)\nreturn a"), "FG703", "24 channels", "y.chunk"),
    "halves of the rows": (Source("", "a, b = y.chunk(2)\nreturn a * b"), "FG703", "other dimensions", "y.chunk"),
    "halves and thirds": (
        Source("", "a, b = y.chunk(2, -1)\nc, d, e = y.chunk(3, -1)\nreturn a * b + (c * d * e).sum(-1, keepdim=True)"),
        "FG707",
        "divided twice",
        "y.chunk(3",
    ),
    "a half that is changed in place": (
        Source("", "a, b = y.chunk(2, -1)\nb.relu_()\nreturn a * b"),  # PyTorch has no gradient of that
        "FG701",
        "Output 1 of Split",
        "b.relu_",
    ),
    "a cast": (Source("", "return y.double().tanh().float()"), "FG703", "a cast", "y.double"),
    "a tensor made in forward": (
        Source("", "return y * torch.tensor([2.0] * 24)"),
        "FG703",
        "made in forward",
        "tensor(",
    ),
    "no gradient": (
        Source("", "with torch.no_grad():\n    z = y * 2\nreturn z + y"),
        "FG703",
        "no gradient",
        "z = y * 2",
    ),
    "the number of rows": (Source("", "return y / x.shape[0]"), "FG703", "a size that changes", "x.shape[0]"),
    "infinity": (Source("", "return y.clamp(max=float('inf')) * 2"), "FG703", "inf", "y.clamp"),
    "a buffer": (
        Source("self.register_buffer('b', torch.ones(m), persistent=False)", "return y * self.b"),
        "FG706",
        "the buffer 'b' is part",
        "y * self.b",
    ),
    "a parameter in another shape": (
        Source("self.p = nn.Parameter(torch.ones(m, 1))", "return y * self.p.view(-1)"),
        "FG706",
        "of shape [24, 1] is used in another shape",
        "self.p.view",
    ),
    "a functional layer": (
        Source("self.w = nn.Parameter(torch.ones(m, n))", "return F.linear(x, self.w * 2).tanh()"),
        "FG706",
        "linear of tensors that no nn.Linear holds",
        "F.linear",
    ),
    "a parameter that is not used": (
        Source("self.p = nn.Parameter(torch.ones(m))", "return y.tanh()"),
        "FG706",
        "does not use 'p'",
        "def forward",
    ),
    "a norm that is not used": (
        Source("self.n = nn.LayerNorm(m)", "return y.tanh()"),
        "FG706",
        "'n.weight'",
        "def forward",
    ),
    "an input that is not used": (Source("", "return y.tanh()", "x, r"), "FG706", "the input 'r'", "def forward"),
    "tied parameters": (
        Source("self.p = nn.Parameter(torch.ones(m))\nself.q = self.p", "return y * self.p"),
        "FG706",
        "one parameter has several names: 'p' and 'q'",
        "def forward",
    ),
    "tied layers": (
        Source("self.o = nn.Linear(m, n)\nself.o.weight = self.fc.weight", "return self.o(y)", more="k=1"),
        "FG706",
        "one parameter has several names: 'fc.weight' and 'o.weight'",
        "def forward",
    ),
    "a frozen layer": (
        Source("self.fc.requires_grad_(False)", "return y.tanh()"),
        "FG706",
        "'fc.weight' wants no gradient",
        "def forward",
    ),
    "a hook on a gradient": (
        Source("self.fc.weight.register_hook(lambda g: g / 2)", "return y.tanh()"),
        "FG706",
        "'fc.weight' has a hook on its gradient",
        "def forward",
    ),
    "parameters alone": (
        Source("self.p = nn.Parameter(torch.ones(m))", "return y * self.p.log()"),
        "FG707",
        "computed from parameters alone",
        "self.p.log",
    ),
    "a detached gate": (
        Source("", "return y * torch.sigmoid(y.detach())"),
        "FG707",
        "sigmoid goes on from a detached value",
        "y.detach()",
    ),
    "the second input first": (
        Source("", "return self.fc(r) + x.sum()", "x, r"),
        "FG703",
        "",
        "x.sum()",
    ),
    "a norm over two dimensions": (
        Source("self.n = nn.LayerNorm((1, 24))", "return self.n(y.unsqueeze(1)).squeeze(1)"),
        "FG707",
        "layer_norm over the last 2 dimensions",
        "self.n(y",
    ),
    "a norm over part of the channels": (
        Source("", "return F.layer_norm(y.view(-1, 2, 12), (12,)).view(-1, 24)"),
        "FG703",
        "",
        "F.layer_norm",
    ),
    "another chain in evaluation": (
        Source("", "return y * 2 if self.training else y * 3"),
        "FG709",
        "something else in evaluation",
        "y * 2 if",
    ),
    "more in evaluation": (
        Source("", "y = y.tanh()\nreturn y if self.training else y.exp()"),
        "FG709",
        "more in evaluation",
        "y.exp()",
    ),
    "a batch norm with its own mode": (
        Source("self.n = nn.BatchNorm1d(m)", "self.n.training = False\nreturn self.n(y)"),
        "FG709",
        "a mode of its own",
        "self.n(y)",
    ),
    "an error of the module": (Source("", "return self.missing(y)"), "FG701", "no attribute 'missing'", "self.missing"),
    "another gradient": (
        Source(
            """
            class Through(torch.autograd.Function):
                forward = staticmethod(lambda context, y: y * 2)
                backward = staticmethod(lambda context, gradient: gradient)
            self.through = Through.apply
            """,
            "return self.through(y)",
        ),
        "FG708",
        "gradient of input 0 is another one",
        "def forward",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    source, code, words, line = REFUSED[name]
    shapes = [(ROWS, WIDTH)] * len(source.inputs.split(","))
    with pytest.raises(SpecError) as raised:
        imported(source, *shapes)
    (found,) = raised.value.diagnostics
    assert (found.code, found.location is None) == (code, line is None), raised.value
    assert words in found.message
    if line is not None:
        assert found.location is not None and found.source is not None
        assert (found.location.file, found.location.line) == ("model.py", source.line(line))
        assert line in found.source


def test_every_code_of_imports_is_shown() -> None:
    shown = {code for _, code, _, _ in (*REFUSED.values(), *UNSEEN.values())}
    assert {code for code in CODES if re.match("FG7", code)} == shown


def test_what_the_planner_refuses_has_the_users_line() -> None:
    """It has a limit on the norms of a chain."""
    made = "\n".join(f"self.n{i} = nn.LayerNorm(m)" for i in range(40))
    source = Source(made, "\n".join(f"y = self.n{i}(y)" for i in range(40)) + "\nreturn y")
    with pytest.raises(SpecError) as raised:
        imported(source)
    (found,) = raised.value.diagnostics
    assert found.code.startswith("FG4")
    assert found.location is not None and found.source is not None and "y = self.n" in found.source
