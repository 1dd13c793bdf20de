"""The table of torch's quirks: what torch does otherwise than eager, or than its other versions, and what we do then.

Takes nothing. Gives `QUIRKS`, one row for each quirk that minductor works around. Refuses nothing.

Each row has a function of its name in `tests/frontend/torch_quirks.py` that shows the quirk in torch alone. The test of
a row fails once torch has changed: the row, its function and the code that `handled_by` names are to be deleted then.

>>> QUIRKS[0].name, QUIRKS[0].handled_by
('dropout_is_copied', 'frontend.quirks.replaced_functions:_dropout')
"""

from __future__ import annotations

from typing import NamedTuple


class Quirk(NamedTuple):
    """A quirk of torch."""

    name: str
    versions: str  # the versions of torch in which the quirk was seen, separated by blanks
    handled_by: str  # "module:function" below the package minductor
    torch: str  # what torch does
    minductor: str  # what minductor does about it


# A row is three lines here; the formatter would make it seven.
# fmt: off
ALL = "2.11 2.12 2.13"

# Dynamo's graph: functions that AOTAutograd traces otherwise than eager runs them.
FUNCTIONS = (
    Quirk("dropout_is_copied", ALL, "frontend.quirks.replaced_functions:_dropout",
          "traces a copy of the argument where dropout drops nothing; eager gives the argument itself",
          "puts a function that gives the argument in its place"),
    Quirk("soft_margin_loss_is_promoted", ALL, "frontend.quirks.replaced_functions:_soft_margin_loss",
          "traces a result of the dtype of input and target together; eager gives the input's dtype",
          "casts and expands the target first"),
    Quirk("multi_margin_loss_keeps_a_dimension", ALL, "frontend.quirks.replaced_functions:_multi_margin_loss",
          "traces a result with one dimension for a target without dimensions",
          "computes the loss by pointwise operators"),
    Quirk("multi_margin_loss_has_a_gradient_at_zero", ALL, "frontend.quirks.replaced_functions:_multi_margin_loss",
          "traces a gradient where the margin is exactly met; eager has none there",
          "computes the loss by pointwise operators"),
    Quirk("multilabel_margin_loss_counts_padding", ALL, "frontend.quirks.replaced_functions:_multilabel_margin_loss",
          "traces labels of -1, which end a row of labels, as labels of class 0",
          "computes the loss by pointwise operators, with a mask"),
)

# Fake tensors and torch's formulas: results that have other strides than those of eager.
STRIDES = (
    Quirk("strides_of_pointwise_results", ALL, "frontend.quirks.eager_strides:broadcast_result_strides",
          "computes strides of pointwise results in Python, with others for dimensions of size 1",
          "computes eager's strides and lays the result out anew"),
    Quirk("strides_of_pairs", ALL, "frontend.quirks.eager_strides:broadcast_result_strides",
          "gives some pointwise operators of two tensors the strides of the wrong argument (`WRONG_IN_FAKE_TENSORS`)",
          "computes eager's strides and lays the result out anew"),
    Quirk("strides_like_the_first_argument", ALL, "frontend.quirks.eager_strides:eager_strides",
          "gives dimensions of size 1 other strides than the argument has (`LIKE_FIRST_ARGUMENT`)",
          "gives the result the strides of a copy of the argument"),
    Quirk("strides_of_row_major_results", ALL, "frontend.quirks.eager_strides:eager_strides",
          "keeps the argument's layout where eager gives a contiguous result (`ROW_MAJOR`)",
          "gives the result contiguous strides"),
    Quirk("strides_by_memory_format", ALL, "frontend.quirks.eager_strides:_memory_format_strides",
          "suggests another memory format than eager does (`BY_MEMORY_FORMAT`, `BY_CONTIGUITY`)",
          "computes eager's suggestion"),
    Quirk("strides_of_indexed_tensors", ALL, "frontend.quirks.eager_strides:_index_operands",
          "orders the dimensions of an indexed tensor otherwise than eager",
          "computes eager's order"),
    Quirk("strides_of_rolled_tensors", ALL, "frontend.quirks.eager_strides:_roll_strides",
          "gives a rolled tensor other strides in dimensions of size 1",
          "computes the strides of eager's concatenations"),
    Quirk("strides_of_gated_halves", ALL, "frontend.quirks.eager_strides:eager_strides",
          "gives the result of glu other strides in dimensions of size 1",
          "computes the strides of a product of both halves"),
    Quirk("strides_of_views", ALL, "frontend.quirks.eager_strides:view_strides",
          "gives a view other strides in dimensions of size 1",
          "notes the view with eager's strides"),
    Quirk("strides_of_transforms", "2.11", "frontend.quirks.eager_strides:transform_strides",
          "gives Fourier transforms on the CPU strides that the library (MKL) does not give",
          "notes the call with the library's strides"),
    Quirk("strides_of_log_sigmoid", ALL, "frontend.torch_graph.decompositions:decompositions",
          "keeps the argument's layout; eager's result is contiguous",
          "applies the formula to a contiguous argument"),
    Quirk("strides_of_padding_that_cuts", ALL, "frontend.torch_graph.decompositions:_negative_pad",
          "makes padding that only cuts contiguous if one of the numbers is 0; eager clones a slice",
          "takes it apart into a slice and a clone"),
    Quirk("scatters_keep_zero_strides", "2.11", "frontend.torch_graph.decompositions:_scatter_into_copy",
          "gives the result of a scatter into an expanded tensor the zero strides of that tensor",
          "copies the expanded tensor first"),
)

# Fake tensors and torch's formulas: other differences from eager.
FAKE_TENSORS = (
    Quirk("norms_keep_a_negative_dimension", "2.11 2.12", "frontend.torch_graph.decompositions:_norm_of_positive_dims",
          "keeps a dimension of size 1 that is reduced if it is counted from the end",
          "counts the dimensions from the front"),
    Quirk("unique_has_one_element", "2.11 2.12", "frontend.torch_graph.decompositions:decompositions",
          "runs _unique on a tensor of zeros and so traces one element, however many there are",
          "calls _unique2 in its place"),
    Quirk("bfloat16_bags_have_places", ALL, "frontend.torch_graph.decompositions:_bfloat16_bags",
          "traces an `offset2bag` of embedding bags in bfloat16, which the CPU leaves empty",
          "notes an empty one; the backward counts anew"),
    Quirk("view_copy_is_refused", ALL, "frontend.torch_graph.decompositions:_view_copy",
          "has a formula of view_copy that fails where only a copy can be viewed",
          "reshapes and clones"),
    Quirk("norm_statistics_are_narrow", ALL, "frontend.quirks.wide_statistics:widen_statistics",
          "traces the mean and rstd of a norm in 16 bits where the CPU gives them in float32",
          "notes them as float32 for the backward of the norm"),
    Quirk("integers_are_not_refused", ALL, "frontend.torch_graph.decompositions:_refuse_integers",
          "traces operators on integers and bools that eager computes of floats only",
          "keeps the operator whole and calls it, so that the call raises eager's error (`FLOAT_ONLY`)"),
    Quirk("kinds_are_not_refused", ALL, "frontend.capture.schemas:REFUSED_KINDS",
          "traces operators for kinds of numbers that eager refuses",
          "refuses a rule for these kinds, so that the call raises eager's error"),
    Quirk("dimensions_are_not_refused", ALL, "frontend.lowering_context.values:wrap_dim",
          "traces some operators with a dimension that their argument does not have",
          "runs the graph in eager, which raises"),
    Quirk("probabilities_are_not_checked", ALL, "frontend.rules.loss:binary_cross_entropy",
          "has a formula of binary_cross_entropy that does not check that its arguments are probabilities",
          "has a rule for the whole operator, with the check"),
    Quirk("window_writes_copy_no_gaps", ALL, "frontend.rules.views:as_strided",
          "traces a write to a window as a copy of the tensor; eager copies the memory between its elements too",
          "runs a graph in eager that makes windows on these gaps"),
    Quirk("loss_gradients_divide_by_a_float_of_the_graph", ALL, "frontend.rules.loss:share",
          "has formulas of losses' gradients in which the share of an element is a float of the graph",
          "has rules for the whole gradients, which divide in float64 as eager does"),
    Quirk("flash_attention_counts_as_random", ALL, "frontend.capture.schemas:NOT_RANDOM",
          "tags flash attention for the CPU as random, although that refuses a probability of dropout",
          "takes it for what is not random"),
    Quirk("written_views_have_no_dtype", ALL, "frontend.rules.higher_order:_argument_view",
          "notes size, stride and offset of a view that an operator writes, and not its dtype",
          "refuses a write to real parts of complex numbers that reaches behind their memory"),
)

# AOTAutograd: memory that inputs share, and the partitioner.
AOT_AUTOGRAD = (
    Quirk("inputs_traced_apart_are_not_guarded", ALL, "frontend.torch_graph.shared_inputs:with_overlap_check",
          "guards nothing that keeps inputs apart in memory, where the graph writes to one of them",
          "asks at each call, and runs inputs that overlap in eager"),
    Quirk("overlapping_inputs_are_not_guarded", ALL, "frontend.torch_graph.shared_inputs:unguarded_input",
          "does not guard how inputs in one memory overlap, although the graph depends on it",
          "runs such a graph in eager"),
    Quirk("overlapping_matrices_are_missed", ALL, "frontend.torch_graph.shared_inputs:is_overlap_missed",
          "takes some matrices that overlap in one memory for columns side by side",
          "finds them and runs the graph in eager"),
    Quirk("offsets_of_inputs_are_not_guarded", ALL, "frontend.torch_graph.shared_inputs:with_offset_check",
          "does not guard where an input begins in its memory, although as_strided counts from there",
          "asks at each call, and runs inputs that begin elsewhere in eager"),
    Quirk("written_inputs_are_copied_without_gaps", ALL, "frontend.torch_graph.shared_inputs:copy_has_same_windows",
          "traces an input that is written as new memory without gaps, on which as_strided finds other elements",
          "runs such a program in eager"),
    Quirk("writes_to_expanded_inputs_are_refused", ALL, "frontend.torch_graph.shared_inputs:is_overlap_error",
          "copies a whole input back that was written in part, and raises if its elements share memory",
          "runs such a program in eager"),
    Quirk("donated_inputs_share_memory", ALL, "frontend.capture.capture:_Reader._unshared",
          "lets the backward overwrite a saved tensor of which it was given a view too",
          "takes neither for donated"),
    Quirk("detach_is_kept_for_the_backward", ALL, "frontend.torch_graph.split_joint_graph:remove_detach",
          "knows detach neither as a view nor as something to compute again, so that its result is saved",
          "takes the calls of detach out before the partitioner runs"),
    Quirk("merging_equal_nodes_imports_inductor", ALL, "frontend.torch_graph.split_joint_graph:merge_equal_nodes",
          "imports TorchInductor's pattern matcher to merge equal nodes: 0.9 s of CPU time",
          "merges equal nodes itself"),
    Quirk("random_calls_have_no_value", ALL, "frontend.capture.capture:_value_by_use",
          "notes no value of calls that save or restore the generator's state",
          "takes the value from the users of the call"),
)

# Dynamo, torch.export and the dispatcher.
TRACERS = (
    Quirk("disabled_callables_lose_attributes", ALL, "driver:Compiler._compile_backward",
          "wraps a callable in torch._dynamo.disable without the attributes of its class",
          "sets `_boxed_call` on the wrapper"),
    Quirk("zero_tensors_become_plain_fakes", ALL, "driver_tasks.eager_fallback:unreadable_kind",
          "makes fake tensors like any other of zeros that have no memory",
          "runs a graph with such an input in eager"),
    Quirk("operators_of_a_name_replace_each_other", ALL, "frontend.torch_graph.control_deps:operator",
          "lets a higher-order operator replace another one of its name without a word",
          "registers its operator once, and refuses a name that is taken"),
    Quirk("exceptions_with_keywords_end_dynamo", "2.11", "frontend.torch_graph.control_deps:_refuse",
          "fails in Dynamo at an exception class with arguments of its own",
          "raises outside of what Dynamo traces"),
    Quirk("export_orders_keywords_by_the_call", ALL, "frontend.exported.exported_program:export_program",
          "takes the order of a call's keywords for the order of the function's parameters",
          "puts the keywords in the order of the function first"),
    Quirk("export_refuses_operators", ALL, "frontend.exported.exported_program:_function",
          "exports nothing without Python code and a signature, as operators and partial functions are",
          "wraps them in a function that has both"),
    Quirk("export_refuses_tied_buffers", ALL, "frontend.exported.tied_weights:merge_tied_weights",
          "fails to decompose a program that changes a tensor which has two names",
          "gives each tensor one name"),
)

# What eager itself does in some versions only.
VERSIONS = (
    Quirk("clamp_ignores_a_bound_that_is_nan", "2.11", "frontend.quirks.torch_versions:ignores_nan_bound",
          "leaves elements alone where the only bound of clamp is the number NaN",
          "asks eager once"),
    Quirk("float8_saturates", "2.13", "frontend.quirks.torch_versions:saturates_fp8",
          "makes the largest float8_e4m3fn of what is too large for it; older versions make NaN",
          "asks eager once"),
    Quirk("no_operator_says_that_it_only_writes", "2.11 2.12", "frontend.quirks.torch_versions:only_writes",
          "has no tag for operators that only write results they are given",
          "takes none for such an operator"),
)
# fmt: on

QUIRKS = (*FUNCTIONS, *STRIDES, *FAKE_TENSORS, *AOT_AUTOGRAD, *TRACERS, *VERSIONS)
