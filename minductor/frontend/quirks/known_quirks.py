"""The table of torch's quirks: what torch does otherwise than eager, or than its other versions, and what we do then.

Takes nothing. Gives `QUIRKS`, one row for each quirk that minductor works around. Refuses nothing.

Each row has a function of its name in `tests/frontend/torch_quirks.py` that shows the quirk in torch alone. The test of
a row fails once torch has changed: the row, its function and the code that `handled_by` names are to be deleted then.

>>> QUIRKS[0].name, QUIRKS[0].handled_by
('dropout_is_copied', 'frontend.quirks.replaced_functions:_dropout')
"""

from __future__ import annotations

from itertools import starmap
from typing import NamedTuple

ALL = "2.11 2.12 2.13"


class Quirk(NamedTuple):
    """A quirk of torch."""

    name: str
    torch: str  # what torch does
    minductor: str  # what minductor does about it
    handled_by: str  # "module:function" below the package minductor
    versions: str = ALL  # the versions of torch in which the quirk was seen, separated by blanks


# The formatter would make seven lines of each row.
# fmt: off
QUIRKS = tuple(starmap(Quirk, (
    # Dynamo's graph: functions that AOTAutograd traces otherwise than eager runs them.
    ("dropout_is_copied", "traces a copy of the argument where dropout drops nothing; eager gives the argument itself",
     "puts a function that gives the argument in its place", "frontend.quirks.replaced_functions:_dropout"),
    ("soft_margin_loss_is_promoted", "gives the promoted dtype of input and target; eager gives the input's dtype",
     "casts and expands the target first", "frontend.quirks.replaced_functions:_soft_margin_loss"),
    ("multi_margin_loss_keeps_a_dimension", "traces a result with one dimension for a target without dimensions",
     "computes the loss by pointwise operators", "frontend.quirks.replaced_functions:_multi_margin_loss"),
    ("multi_margin_loss_has_a_gradient_at_zero", "traces a gradient where the margin is met exactly; eager has none",
     "computes the loss by pointwise operators", "frontend.quirks.replaced_functions:_multi_margin_loss"),
    ("multilabel_margin_loss_counts_padding", "traces the label -1, which ends a row of labels, as class 0",
     "computes the loss by masked pointwise operators", "frontend.quirks.replaced_functions:_multilabel_margin_loss"),
    ("resized_bytes_are_rounded_once", "traces bilinear and bicubic resizing of bytes in float32; eager rounds more",
     "calls ATen's operator below autograd", "frontend.quirks.replaced_functions:_resize_bytes"),
    ("encoder_layers_forget_autocast", "traces the operator of a transformer encoder layer without autocast",
     "takes the layer apart in Dynamo's graph", "frontend.quirks.replaced_functions:_encoder_layer"),
    # Fake tensors and torch's formulas: results that have other strides than those of eager.
    ("strides_of_pointwise_results", "computes other strides for dimensions of size 1 of pointwise results",
     "computes eager's strides and lays the result out anew", "frontend.quirks.eager_strides:broadcast_result_strides"),
    ("strides_of_pairs", "gives some operators of two tensors the wrong one's strides (`WRONG_IN_FAKE_TENSORS`)",
     "computes eager's strides and lays the result out anew", "frontend.quirks.eager_strides:broadcast_result_strides"),
    ("strides_like_the_first_argument", "gives dimensions of size 1 strides of its own (`LIKE_FIRST_ARGUMENT`)",
     "gives the result the strides of a copy of the argument", "frontend.quirks.eager_strides:eager_strides"),
    ("strides_of_row_major_results", "keeps the argument's layout where eager gives a contiguous result (`ROW_MAJOR`)",
     "gives the result contiguous strides", "frontend.quirks.eager_strides:eager_strides"),
    ("strides_by_memory_format", "suggests another memory format than eager does (`BY_MEMORY_FORMAT`, `BY_CONTIGUITY`)",
     "computes eager's suggestion", "frontend.quirks.eager_strides:_memory_format_strides"),
    ("strides_of_indexed_tensors", "orders the dimensions of an indexed tensor otherwise than eager",
     "computes eager's order", "frontend.quirks.eager_strides:_index_operands"),
    ("strides_of_rolled_tensors", "gives a rolled tensor other strides in dimensions of size 1",
     "computes the strides of eager's concatenations", "frontend.quirks.eager_strides:_roll_strides"),
    ("strides_of_gated_halves", "gives the result of glu other strides in dimensions of size 1",
     "computes the strides of a product of both halves", "frontend.quirks.eager_strides:eager_strides"),
    ("strides_of_views", "gives a view other strides in dimensions of size 1",
     "notes the view with eager's strides", "frontend.quirks.eager_strides:view_strides"),
    ("sizes_of_views", "notes a quotient of other sizes where a view is given a number",
     "reads the quotient as that number", "frontend.capture.symbolic_sizes:SizeReader.assume"),
    ("strides_of_transforms", "gives Fourier transforms on the CPU strides that the library (MKL) does not give",
     "notes the call with the library's strides", "frontend.quirks.eager_strides:transform_strides", "2.11"),
    ("strides_of_log_sigmoid", "keeps the argument's layout; eager's result is contiguous",
     "applies the formula to a contiguous argument", "frontend.torch_graph.decompositions:decompositions"),
    ("strides_of_padding_that_cuts", "makes a cut contiguous if one of the numbers is 0; eager clones a slice",
     "takes it apart into a slice and a clone", "frontend.torch_graph.decompositions:_negative_pad"),
    ("scatters_keep_zero_strides", "gives a scatter into an expanded tensor the zero strides of that tensor",
     "copies the expanded tensor first", "frontend.torch_graph.decompositions:_scatter_into_copy", "2.11"),
    # Fake tensors and torch's formulas: other differences from eager.
    ("norms_keep_a_negative_dimension", "keeps a dimension of size 1 that is reduced if it is counted from the end",
     "counts the dimensions from the front", "frontend.torch_graph.decompositions:_norm_of_positive_dims", "2.11 2.12"),
    ("unique_has_one_element", "runs _unique on a tensor of zeros and so traces one element, however many there are",
     "calls _unique2 in its place", "frontend.torch_graph.decompositions:decompositions", "2.11 2.12"),
    ("bfloat16_bags_have_places", "traces an `offset2bag` of embedding bags in bfloat16, which the CPU leaves empty",
     "notes an empty one; the backward counts anew", "frontend.torch_graph.decompositions:_bfloat16_bags"),
    ("view_copy_is_refused", "has a formula of view_copy that fails where only a copy can be viewed",
     "reshapes and clones", "frontend.torch_graph.decompositions:_view_copy"),
    ("norm_statistics_are_narrow", "traces the mean and rstd of a norm in 16 bits where the CPU gives them in float32",
     "notes them as float32 for the backward of the norm", "frontend.quirks.wide_statistics:widen_statistics"),
    ("integers_are_not_refused", "traces operators on integers and bools that eager computes of floats only",
     "calls the whole operator, which raises (`FLOAT_ONLY`)", "frontend.torch_graph.decompositions:_refuse_integers"),
    ("kinds_are_not_refused", "traces operators for kinds of numbers that eager refuses",
     "refuses a rule for these kinds, so that the call raises eager's error", "frontend.capture.schemas:REFUSED_KINDS"),
    ("dimensions_are_not_refused", "traces some operators with a dimension that their argument does not have",
     "runs the graph in eager, which raises", "frontend.lowering_context.values:wrap_dim"),
    ("probabilities_are_not_checked", "does not check that binary_cross_entropy gets probabilities",
     "has a rule for the whole operator, with the check", "frontend.rules.loss:binary_cross_entropy"),
    ("window_writes_copy_no_gaps", "copies a tensor to write a window; eager copies the memory between elements too",
     "runs a graph in eager that makes windows on these gaps", "frontend.rules.views:as_strided"),
    ("loss_gradients_divide_by_a_float_of_the_graph", "makes an element's share a float of the graph in its formulas",
     "has rules for the whole gradients, which divide in float64 as eager does", "frontend.rules.loss:share"),
    ("flash_attention_counts_as_random", "tags flash attention of the CPU as random, although it refuses dropout",
     "takes it for what is not random", "frontend.capture.schemas:NOT_RANDOM"),
    ("written_views_have_no_dtype", "notes size, stride and offset of a view that an operator writes, no dtype",
     "refuses writes to real parts that reach behind the complex memory", "frontend.rules.higher_order:_argument_view"),
    # AOTAutograd: memory that inputs share, and the partitioner.
    ("inputs_traced_apart_are_not_guarded", "does not guard that inputs are apart where the graph writes to one",
     "runs a call with inputs that overlap in eager", "frontend.torch_graph.shared_inputs:with_overlap_check"),
    ("overlapping_inputs_are_not_guarded", "does not guard how inputs overlap, although the graph depends on it",
     "runs such a graph in eager", "frontend.torch_graph.shared_inputs:unguarded_input"),
    ("overlapping_matrices_are_missed", "takes some matrices that overlap in one memory for columns side by side",
     "finds them and runs the graph in eager", "frontend.torch_graph.shared_inputs:is_overlap_missed"),
    ("offsets_of_inputs_are_not_guarded", "does not guard where an input begins, although as_strided depends on it",
     "runs a call with inputs at other offsets in eager", "frontend.torch_graph.shared_inputs:with_offset_check"),
    ("written_inputs_are_copied_without_gaps", "traces a written input without gaps: as_strided finds other elements",
     "runs such a program in eager", "frontend.torch_graph.shared_inputs:copy_has_same_windows"),
    ("writes_to_expanded_inputs_are_refused", "copies a written input back as a whole, and raises if elements overlap",
     "runs such a program in eager", "frontend.torch_graph.shared_inputs:is_overlap_error"),
    ("donated_inputs_share_memory", "lets the backward overwrite a saved tensor of which it was given a view too",
     "takes neither for donated", "frontend.capture.capture:_Reader._unshared"),
    ("detach_is_kept_for_the_backward", "takes detach for neither a view nor recomputable, so it saves the result",
     "removes calls of detach before the partitioner runs", "frontend.torch_graph.split_joint_graph:remove_detach"),
    ("merging_equal_nodes_imports_inductor", "imports TorchInductor to merge equal nodes, which takes 0.9 s of CPU",
     "merges equal nodes itself", "frontend.torch_graph.split_joint_graph:merge_equal_nodes"),
    ("random_calls_have_no_value", "notes no value of calls that save or restore the generator's state",
     "takes the value from the users of the call", "frontend.capture.capture:_value_by_use"),
    # Dynamo, torch.export and the dispatcher.
    ("disabled_callables_lose_attributes", "wraps callables without their class's attributes in torch._dynamo.disable",
     "sets `_boxed_call` on the wrapper", "driver:Compiler._compile_backward"),
    ("zero_tensors_become_plain_fakes", "makes fake tensors like any other of zeros that have no memory",
     "runs a graph with such an input in eager", "driver_tasks.eager_fallback:unreadable_kind"),
    ("operators_of_a_name_replace_each_other", "replaces a higher-order operator by another of its name, silently",
     "registers its operator once, and refuses a name that is taken", "frontend.torch_graph.control_deps:operator"),
    ("exceptions_with_keywords_end_dynamo", "fails in Dynamo at an exception class with arguments of its own",
     "raises outside of what Dynamo traces", "frontend.torch_graph.control_deps:_refuse", "2.11"),
    ("export_orders_keywords_by_the_call", "takes the order of the call's keywords for that of the parameters",
     "puts the keywords in the order of the function first", "frontend.exported.exported_program:export_program"),
    ("export_refuses_operators", "exports only what has Python code and a signature: no operators or partials",
     "wraps them in a function that has both", "frontend.exported.exported_program:_function"),
    ("export_refuses_tied_buffers", "fails to decompose a program that changes a tensor which has two names",
     "gives each tensor one name", "frontend.exported.tied_weights:merge_tied_weights"),
    # What eager itself does in some versions only.
    ("clamp_ignores_a_bound_that_is_nan", "leaves elements alone where the only bound of clamp is the number NaN",
     "asks eager once", "frontend.quirks.torch_versions:ignores_nan_bound", "2.11"),
    ("float8_saturates", "makes the largest float8_e4m3fn of what is too large for it; older versions make NaN",
     "asks eager once", "frontend.quirks.torch_versions:saturates_fp8", "2.13"),
    ("no_operator_says_that_it_only_writes", "has no tag for operators that only write results they are given",
     "takes none for such an operator", "frontend.quirks.torch_versions:only_writes", "2.11 2.12"),
)))
# fmt: on
