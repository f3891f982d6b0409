"""What large blocks of row kernels keep of their columns in shared memory: each thread in places of its own."""

from __future__ import annotations

from tests.emulate.mutants.mutant import RACE, UNWRITTEN_SHARED, Mutant, wrong

_BIAS = "group_norm_bias_staged[place] = load_constants(columns[i], group_norm_bias_ptr);"
_WEIGHT = "widen_values(group_norm_weight_staged[place], true, group_norm_weight_v[0]);"
_TAKE = "widen_values(d_gemm_sum_staged[place], true, d_gemm_sum_v[0]);"
_GIVE = "d_gemm_sum_staged[place] = loaded(d_gemm_sum_v[0]);"

_RUNS = {"forward_row": "longest rows", "backward_row": "longest rows, large blocks"}

STAGED = [
    Mutant(f"{kernel}: {name}", _RUNS[kernel], old, new, caught, within=kernel, nth=nth, of=of)
    for name, kernel, old, new, caught, nth, of in (
        ("a constant is nowhere", "forward_row", _BIAS, "", UNWRITTEN_SHARED, 0, 1),
        ("constants of the first vector for all", "forward_row", _WEIGHT, _WEIGHT.replace("place", "threadIdx.x"),
         wrong("y"), 0, 1),
        ("constants that overlap", "forward_row", "behind<Loaded<Param, kVec>>(gemm_bias_staged, places)",
         "behind<Loaded<Param, kVec>>(gemm_bias_staged, places - blockDim.x)", f"{RACE}|{wrong('y')}", 0, 1),
        ("a sum begins with anything", "backward_row", _GIVE, "", UNWRITTEN_SHARED, 0, 2),
        ("a sum is not given back", "backward_row", _GIVE, "", wrong("grad_gemm_bias"), 1, 2),
        ("a sum is not taken", "backward_row", _TAKE, "", wrong("grad_gemm_bias"), 0, 2),
        ("the sum of the last vector for all", "backward_row", _TAKE, "", wrong("grad_gemm_bias"), 1, 2),
        ("a sum where another one is", "backward_row", "behind<Loaded<Acc, kVec>>(d_group_norm_sum_staged, places)",
         "behind<Loaded<Acc, kVec>>(d_group_norm_sum_staged, 0)", wrong("grad_group_norm_bias"), 0, 1),
    )
]  # fmt: skip
