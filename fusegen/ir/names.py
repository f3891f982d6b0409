"""Words that emitted code uses itself, where names of a spec could stand beside them."""

from __future__ import annotations

# What kernels call things: a value of that name gets a number behind it.
KERNEL_NAMES = frozenset(
    """
    cluster_arrive cluster_wait exchange in_cluster vectors kMostCluster moments_over_cluster sum_over_cluster a
    active at b base block blocks channels column columns correct count end first group_length groups i inner
    inner_groups inner_length inverse_length item kItems kStaged kVec kept lane lanes last length mine offset one own
    part partials row
    rows rows_per_block seen segment shared slot step u v valid Acc Accumulate AccumulateFor Column Columns Finalise
    Loaded Moments Out Pack Param PilotSums Row Scratch Stream T Word WordOf kAllLanes kAhead kBatch kColumnBlocks
    kColumnThreads kPacked kRowsInFlight kSegmentThreads kStreamThreads kStridedColumns kTotalThreads kVectorOf
    add_value add_values ceil_div launch load_pack load_row load_values moments_of moments_over_segment moments_over_y
    lacks line line_columns lines lines_per_block part_of period segments total turn turns whole apart by_segment
    counted all_rows full full_lines more packed take is_first turn_of_begin wait segment_columns store_partials
    all most at_step item_step wait_for_earlier_kernels exponential kAddsBias kKeepsLane size Division Line Ragged
    SegmentColumns narrow row_blocks row_threads shared_memory store_pack store_values sum_of sum_over_block
    sum_in_warp sum_over_lanes sum_over_warps sum_over_y thread_index warp_count widen average_factor behind bounded_exp
    columns_of clamp clamp_backward clamp_max clamp_max_backward clamp_min clamp_min_backward erf exp gelu_slope
    gelu_tanh gelu_tanh_backward hardswish hardswish_backward hardtanh hardtanh_backward leaky_relu
    leaky_relu_backward log1p maximum maximum_backward minimum minimum_backward mish mish_slope normal_cdf
    exponential_beside_one inverse logistic kShowsTiny reciprocal relu relu_backward rsqrt sigmoid sigmoid_backward
    silu_slope softplus softplus_backward square tanh tanh_backward across again height seat seat_of sum_over_rows Seat
    begin fetch here next take end_row wait_for_rows
    Incoming Place kCopied kRowsAhead kWarps inverse_part left moments_of_parts moments_over_warps sum_in_lanes
    warp_counts Values first_values kEarly of_first values values_of kVectorsAtOnce one_of widen_values
    kLarge kRowWarps load_constants loaded place places kHasRuns kRuns Run RowColumns row_columns Crossing RowLoad
    bits_before ask_row arrived Exchange kCluster kRowExchange rank kSegmentSums kSegmentTurn
    kSegmentExchange sum_over_segment PanelPartials PanelTurn PanelWork count_part counter counters kHeight kPanelBytes
    kPanelRows kPanelThreads kWidth lag leave_moments leave_sums load_last load_rows load_to_keep panel_turn panels
    slices store_last wait_for_parts
    absolute_backward elu elu_backward expm1 fabs hardsigmoid hardsigmoid_backward log logsigmoid logsigmoid_backward
    pow real_power real_power_backward prelu_weight_backward reciprocal_backward rsqrt_backward softsign
    softsign_backward sqrt
    """.split()
)

# A kernel's locals that belong to a value `x`: `x_in` what was loaded of it, and so on.
_LOCAL_ENDINGS = (
    "_in",
    "_next",
    "_out",
    "_tile",
    "_held",
    "_kept",
    "_staged",
    "_ptr",
    "_all",
    "_parts",
    "_total",
    "_moments_sums",
    "_moments_count",
    "_moments_distances",
    "_moments_m2",
    "_moments_mean",
    "_moments_of",
    "_moments_rest",
    "_moments_squares",
)

_TYPE_ENDING = "In"  # of an input's type

# Arguments and locals of the generated ops and methods, beside which a tensor or constant of the spec would stand.
OP_NAMES = frozenset(
    """
    accumulator activation aligned all any args arguments batch bias_in_product came channels ctx dtype_mode
    dtypes expected
    gradients groups launch make makers mode modes need needs operand output parameter reference rows
    forced scratch shapes elements vectors
    in_features needs_input needs_weight stream workspace y zip
    Aligned aligned_to_16 forward_dispatch backward_dispatch train_forward_dispatch train_backward_dispatch
    eval_forward_dispatch eval_backward_dispatch ForwardArguments BackwardArguments TrainForwardArguments
    TrainBackwardArguments EvalForwardArguments EvalBackwardArguments
    Dtypes F OptionalTensor Path Scratch ScalarType Shapes Tensor check_launch glue int64_t kChosen kModes size_t
    kForwardShapes kBackwardShapes kTrainForwardShapes kTrainBackwardShapes kEvalForwardShapes kEvalBackwardShapes
    tuned_shapes is_near
    """.split()
)

# What the eager form of a chain calls besides its own values.
REFERENCE_NAMES = frozenset({"F"})


def is_kernels_own(name: str) -> bool:
    """Whether a kernel may use the name for something of its own."""
    return name in KERNEL_NAMES or name.endswith((*_LOCAL_ENDINGS, _TYPE_ENDING))


def type_name(name: str) -> str:
    """A name as emitted C++ has it for types: `TrainForward` of `train_forward`."""
    return "".join(part.capitalize() for part in name.split("_"))


def input_type(name: str) -> str:
    """The template parameter that is the type of an input: `XIn` of `x`."""
    return type_name(name) + _TYPE_ENDING
