"""Words that a spec may not use as names, because they mean something where the name will be written."""

from __future__ import annotations

# Of Python 3; written out so that the answer does not depend on the Python that runs.
# `match`, `case`, `type` and `_` are keywords only in their own statements, and stay free.
PYTHON_KEYWORDS = frozenset(
    """
    False None True and as assert async await break class continue def del elif else except finally for
    from global if import in is lambda nonlocal not or pass raise return try while with yield
    """.split()
)

# What generated Python calls by these names where those of a spec stand beside them. Everything else that is its own
# begins with an underscore, which no name of a spec does.
PYTHON_NAMES = frozenset(
    """
    self cls super torch nn F
    all any getattr isinstance len tuple list dict int float bool str object type ValueError TypeError RuntimeError
    """.split()
)

# Arguments that generated constructors have: two as PyTorch's modules, and `precision` where a product is float32.
CONSTRUCTOR_ARGUMENTS = frozenset({"device", "dtype", "precision"})

# What a generated module imports, or looks up among Python's built-ins, besides; its class must not hide it.
MODULE_GLOBALS = frozenset("ModuleType Path Sequence TYPE_CHECKING Tensor annotations hashlib importlib sys".split())

# Files of these names cannot exist on Windows, with or without a suffix: no one there could check out the repository.
WINDOWS_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))]
)

# The public attributes of generated modules: those of torch.nn.Module as of 2.13, and reset_parameters. Written out
# since nothing here may import torch. A test compares the list with a module and the torch at hand.
MODULE_ATTRIBUTES = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double
    dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half
    ipu load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters
    register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook
    register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to
    to_empty train training type xpu zero_grad
    reset_parameters
    """.split()
)

# What generated modules have besides begins so.
MODULE_PREFIX = "fusegen_"
