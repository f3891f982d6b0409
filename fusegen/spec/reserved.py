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

# Of C++17, with the alternative operators, and those of C++20 that compilers already warn about.
CPP_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
    compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    char8_t concept consteval constinit co_await co_return co_yield requires
    """.split()
)

CUDA_BUILTINS = frozenset(
    """
    threadIdx blockIdx blockDim gridDim warpSize clusterDim clusterIdx
    clusterRelativeBlockIdx clusterGridDimInBlocks
    dim3 uint3 half half2 nv_half nv_half2 nv_bfloat16 nv_bfloat162 nv_bfloat162_raw
    char1 char2 char3 char4 uchar1 uchar2 uchar3 uchar4 short1 short2 short3 short4 ushort1 ushort2 ushort3
    ushort4 int1 int2 int3 int4 uint1 uint2 uint4 long1 long2 long3 long4 ulong1 ulong2 ulong3 ulong4
    longlong1 longlong2 ulonglong1 ulonglong2 float1 float2 float3 float4 double1 double2 double3 double4
    cudaStream_t cudaError_t cudaSuccess cuda nvcuda cooperative_groups
    """.split()
)

# Macros of the C library and of GNU compilers replace a word wherever it stands, whatever its scope.
CPP_MACROS = frozenset(
    """
    NULL NAN INFINITY EOF HUGE_VAL HUGE_VALF errno assert offsetof stdin stdout stderr linux unix i386
    major minor makedev I SEEK_SET SEEK_CUR SEEK_END INT_MAX INT_MIN UINT_MAX LONG_MAX LONG_MIN CHAR_BIT
    FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_MIN DBL_EPSILON M_PI M_E M_SQRT2 M_SQRT1_2 RAND_MAX BUFSIZ
    math_errhandling sched_priority st_atime st_ctime st_mtime
    """.split()
)
CPP_MACRO_PREFIXES = ("AT_", "C10_", "CUDA_", "FUSEGEN_", "M_", "PRI", "PYBIND11_", "Py_", "PyBUF_", "SCN", "TORCH_")

# Names that the generated code itself uses where a spec's names are in scope.
GENERATED_NAMES = frozenset(
    """
    self cls super torch nn fusegen std at c10 none
    isinstance len tuple list dict int float bool str object ValueError TypeError RuntimeError
    """.split()
)

# What a generated module looks up in its own globals or among Python's built-ins; its class must not hide it.
MODULE_GLOBALS = frozenset(
    "F ImportError OSError Path all any ctypes forward_ad getattr iter next sorted staticmethod type zip".split()
)

# Files of these names cannot exist on Windows, with or without a suffix: no one there could check out the repository.
WINDOWS_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))]
)

# The public attributes of torch.nn.Module as of 2.13; written out since nothing here may import
# torch. A test compares the list with the torch at hand.
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
    """.split()
)
