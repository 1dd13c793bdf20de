"""The faults of minductor that its tests must notice: a table of functions and of replacements in their text.

Takes nothing. Gives Mutants. Refuses nothing. Each fault is a plausible slip of a programmer; none makes a program
access memory far from its own buffers.
"""

from __future__ import annotations

from pytest_plugin.adapters.protocol import Mutant

NEST = "minductor.codegen.cpp.cpp_nest"
VALUES = "minductor.codegen.cpp.cpp_values"
EDGES = "minductor.codegen.triton.triton_edges"
TILE = "minductor.codegen.triton.triton_tile"
WRAPPER = "minductor.codegen.wrapper.wrapper_python"
NAN_ASSERTS = "minductor.codegen.wrapper.wrapper_nan_asserts"
REUSE = "minductor.passes.memory.reuse"
MEMORY = "minductor.passes.memory.memory"
TUNE, TUNE_MEMORY = "minductor.runtime.tune.tune", "minductor.runtime.tune.tune_memory"
CPU_PLACE = "minductor.passes.schedule.cpu_place"
GPU_PLACE = "minductor.passes.schedule.gpu_place"
GPU_STEPS = "minductor.passes.schedule.gpu_steps"
ORDERED = "minductor.passes.schedule.ordered_axes"
CHOICES = "minductor.ir.program.choices"
LEARNED = "minductor.heuristics.learned"
WAYS = "minductor.passes.schedule.ways"
JOIN = "minductor.passes.rewriting.join_kernels"
REWRITES = "minductor.frontend.rewrites"
LAYOUT_SECONDS = f"{REWRITES}.convolution_seconds"
CHANNELS_LAST = f"{REWRITES}.channels_last"
PACK_CONVOLUTION = f"{REWRITES}.pack_convolution"
POST_OPS = f"{REWRITES}.convolution_post_ops"
FOLD_BATCH_NORM = f"{REWRITES}.fold_batch_norm"
PACK, JOINED = f"{REWRITES}.pack_linear", f"{REWRITES}.join_products"
PAD, INT8 = f"{REWRITES}.pad_products", f"{REWRITES}.int8_linear"
PRODUCT_CALLS, LARGE_LINEAR = f"{REWRITES}.product_calls", f"{REWRITES}.large_linear"
ADDED_TERMS = f"{REWRITES}.added_terms"
ADDED_PRODUCTS, ADDED_PARTS = f"{REWRITES}.join_added_products", f"{REWRITES}.join_added_parts"
APPLY_REWRITES = "minductor.frontend.rewrites.apply_rewrites"
VALUE_LAYOUTS = "minductor.frontend.rewrites.value_layouts"
LAYOUT_CHANGES = "minductor.frontend.rewrites.layout_changes"
FROZEN_CALL = "minductor.runtime.launch.frozen_call"
SPLIT_FROZEN = "minductor.frontend.freezing.split_frozen_graph"
FOLDED_SIZES = "minductor.frontend.rewrites.folded_sizes"
GRAPHS = "minductor.runtime.graphs"
GRAPH_PARTITION, GRAPH_POOL = f"{GRAPHS}.graph_partition", f"{GRAPHS}.graph_pool"
GRAPH_CHAIN, GRAPH_RESULTS = f"{GRAPHS}.graph_chain", f"{GRAPHS}.graph_results"
RECORDING = f"{GRAPHS}.graph_recording"
PARTITIONS = "minductor.codegen.wrapper.wrapper_partitions"
CPP_CALLS = "minductor.codegen.wrapper.wrapper_cpp_calls"
CPP_WRAPPER = "minductor.runtime.launch.cuda_cpp_wrapper"
CPP_TEXT = "minductor.codegen.wrapper.wrapper_cpp"
GPU_ATTENTION = "minductor.frontend.graph_passes.gpu_attention"
PACKAGE, PACKAGE_GPU = "minductor.runtime.package.package", "minductor.runtime.package.package_gpu"
ATTENTION = "minductor.frontend.rewrites.attention"
ATTENTION_MASK = "minductor.frontend.rewrites.attention_mask"
RESIZED = "minductor.frontend.rewrites.resized_images"
RESIZING, PHASES = "minductor.frontend.rewrites.repeat_elements", "minductor.frontend.rewrites.add_phases"

MUTANTS: tuple[Mutant, ...] = (
    # --- kernels
    Mutant("mask-dropped", VALUES, "Values.masked", 'f"if ({args[0]})"', '"if (true)"'),
    Mutant("wrong-padding", VALUES, "Values.masked", "literal(other, dtype)", "literal(0, dtype)"),
    Mutant(
        "wrong-identity",
        "minductor.codegen.cpp.cpp_arrays",
        "Carry.identities",
        "literal(value, dtype)",
        "literal(1, dtype)",
    ),
    Mutant("last-element-dropped", NEST, "NestPrinter.open", "{axis} < {last}; ++", "{axis} < {last} - 1; ++"),
    Mutant("lanes-not-joined", NEST, "NestPrinter.finish", "if carry.lanes > 1:", "if carry.lanes > 1 << 20:"),
    Mutant("wrong-lane", NEST, "NestPrinter.finish", "{array.name}[0]", "{array.name}[1]"),
    Mutant("scan-backwards", NEST, "NestPrinter.is_reversed", "scan.reverse and", "not scan.reverse and"),
    Mutant("accumulator-kept", NEST, "NestPrinter.add_block", 'block.at("j")', 'total.at("j")'),
    Mutant("parts-not-joined", NEST, "NestPrinter.join_parts", "step = 1; step <", "step = {count}; step <"),
    Mutant("index-not-wrapped", VALUES, "Values.wrapped", "+ {index_text(attrs.size)} : {value}", ": {value}"),
    Mutant("bound-off-by-one", VALUES, "Values.outside", "({label} >= {", "({label} > {"),
    Mutant("sum-as-assignment", VALUES, "Values.atomic", 'if kind == "set":', "if kind:"),
    Mutant(
        "sums-in-16-bits",
        "minductor.frontend.rules.scatter",
        "rounds_each_step",
        "dtype.itemsize > 2",
        "dtype.itemsize > 1",
    ),
    Mutant(
        "constant-cut-short", "minductor.codegen.cpp.cpp_text", "_shortest", "== value:", "== value or digits == 3:"
    ),
    Mutant("operands-turned", VALUES, "Values.expression", "dtypes[-1], *args)", "dtypes[-1], *reversed(args))"),
    # --- variants
    Mutant("nearest-by-difference", CHOICES, "nearest", "abs(log - log2(at))", "abs(2**log - at)"),
    Mutant(
        "other-dispatches-share",
        MEMORY,
        "_Planner._dispatch",
        "_alike(groups, tensors, self.kernel_digests())",
        "len(groups)",
    ),
    Mutant("first-point-for-all", WAYS, "by_size", "taken[point] = same", "taken[point] = next(iter(kept))"),
    # --- kernels of GPUs
    Mutant("gpu-lanes-not-masked", TILE, "TilePrinter.full", "if wanted else wide", "if False else wide"),
    Mutant("gpu-wrong-axis", TILE, "TilePrinter.numbers", "if dim.axis in wanted", "if dim.axis not in wanted"),
    Mutant("gpu-wrong-identity", TILE, "TilePrinter.declare", "literal(identity, dtype)", "literal(1, dtype)"),
    Mutant("gpu-blocks-overlap", TILE, "TilePrinter.add_axis", "{place} * {dim.parameter} +", "{place} +"),
    Mutant("gpu-wrong-end", TILE, "TilePrinter.keep_end", "'0' if scan.reverse", "'0' if not scan.reverse"),
    Mutant("gpu-index-not-wrapped", TILE, "TilePrinter.check", "if attrs.wrap:", "if False:"),
    Mutant("gpu-not-atomic", TILE, "TilePrinter.atomic", 'if kind == "set":', "if kind:"),
    Mutant("gpu-edge-twice", EDGES, "AlignedPrinter.add_row", "_lanes < {row}_head,", "_lanes <= {row}_head,"),
    Mutant("gpu-edge-missing", EDGES, "AlignedPrinter.add_row", "{edge} < {length}", "{edge} < {row}_head"),
    Mutant("gpu-edges-not-joined", EDGES, "AlignedPrinter.combined", " + {theirs[0]}", ""),
    Mutant(
        "gpu-finished-early",
        "minductor.codegen.triton.triton_kernels",
        "_if_last",
        "{count} - 1:",
        "{count} - 2:",
    ),
    Mutant(
        "gpu-blocks-counted-together",
        "minductor.codegen.triton.triton_kernels",
        "_if_last",
        'f"{COUNTER} + {block}" if block',
        "COUNTER if block",
    ),
    Mutant(
        "gpu-counter-kept",
        "minductor.codegen.triton.triton_kernels",
        "_if_last",
        "tl.store({counter}, 0)",
        "tl.store({counter}, 1)",
    ),
    # --- wrapper
    Mutant("wrong-layout", WRAPPER, "_Emitter.allocate", "{self.sizes(line.stride)}", "{self.sizes(line.size)}"),
    Mutant("offset-dropped", WRAPPER, "_Emitter.line", "{self.sizes(stride)}, {offset})", "{self.sizes(stride)}, 0)"),
    Mutant("outputs-turned", MEMORY, "_Planner.finish", "tuple(values)", "tuple(reversed(values))"),
    Mutant("nan-not-tested", NAN_ASSERTS, "NanAsserts.tested", "if n in about.written)", "if n in about.overwritten)"),
    Mutant(
        "nan-reads-forgotten", NAN_ASSERTS, "NanAsserts.tested", "n not in about.written or", "n in about.written and"
    ),
    # --- memory
    Mutant("freed-early", MEMORY, "_Planner.node", "freed_after.get(number, ())", "freed_after.get(number + 1, ())"),
    Mutant("freed-never", MEMORY, "_Planner._free", "if gone:", "if False:"),
    Mutant("taken-while-alive", REUSE, "_StorageFacts.can_be_taken_over", "name not in self.reusable or", "False or"),
    Mutant("hazard-in-place", REUSE, "_is_elementwise", "and at != index", "and at != at"),
    Mutant("peak-forgotten", REUSE, "_MemoryProfile.keep", "> self.limit", "> self.limit + (1 << 40)"),
    Mutant(
        "order-of-a-set",
        REUSE,
        "_StorageFacts.__init__",
        "touched = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))",
        "touched = {ref.storage for ref in (*reads(node), *writes(node))}",
    ),
    # --- choices by measure
    Mutant(
        "target-not-put-back",
        TUNE_MEMORY,
        "TrialMemory.restore",
        "copy_(span.before)",
        "copy_(span.memory)",
    ),
    Mutant("wrong-candidate-wins", TUNE, "Tuner._right", "{} if reason else {name: run}", "{name: run}"),
    Mutant("tie-wins", TUNE, "_is_clearly_faster", "< GAIN * least", "< least"),
    Mutant("clock-believed", TUNE, "Tuner.seconds", "if not 0 < found < math.inf:", "if False:"),
    Mutant("half-of-a-tensor-put-back", TUNE_MEMORY, "reach", "(n - 1) * step", "(n - 1)"),
    # --- loop nests
    Mutant("nest-scatter-in-any-order", ORDERED, "ordered_axes", "free &= {", "free |= {"),
    Mutant("nest-scan-in-vectors", CPU_PLACE, "_Placer.loop", 'kind = "serial"', 'kind = "vector"'),
    Mutant("nest-half-a-row", GPU_STEPS, "Hold.__call__", "block=power_of_two(e))", "block=power_of_two(e) // 2)"),
    Mutant("nest-partial-sum", GPU_PLACE, "_Phases.loop", "not self.is_carried(a)", "True"),
    Mutant(
        "nest-part-of-a-product",
        "minductor.passes.schedule.product_tiles",
        "product_tiles",
        "extent is not None and extent <= inner",
        "extent is not None",
    ),
    Mutant("nest-scan-begins-anew", GPU_PLACE, "_Phases.loop", "isinstance(self.ops[p].attrs, Scan)", "False"),
    # --- scheduling
    Mutant("fusion-off", "minductor.passes.fuse.fuse", "fuse", "if env.options.fuse", "if not env.options.fuse"),
    Mutant("over-fusion", JOIN, "_overwriting_objection", "if load.index != write.index:", "if False:"),
    Mutant(
        "war-edge-dropped",
        "minductor.analysis.dependencies",
        "dependencies",
        '"war", old, readers.get(old, ())',
        '"war", old, ()',
    ),
    Mutant(
        "mutation-dropped",
        "minductor.passes.rewriting.prune",
        "live_nodes",
        'if buffer.kind != "local"',
        'if buffer.kind == "constant"',
    ),
    Mutant("block-access-lost", "minductor.passes.access.access", "_cpu_access", "if count == 1:", "if count == 0:"),
    Mutant(
        "learned-bits-not-kept",
        LEARNED,
        "_refusal",
        "env.options.deterministic and",
        "not env.options.deterministic and",
    ),
    Mutant("learned-elsewhere", "minductor.heuristics.metadata", "Metadata.elsewhere", "if not env", "if env"),
    Mutant("learned-not-asked", LEARNED, "learned", "if not set(options) <=", "if set(options) <="),
    Mutant(
        "learned-cut-turned",
        "minductor.passes.split.split",
        "_Splitter.decision",
        "answer.option == CUT",
        "answer.option != CUT",
    ),
    Mutant(
        "learned-product-to-library",
        "minductor.frontend.rules.matmul",
        "why_native",
        "answer.option == NATIVE",
        "answer.option == EXTERN",
    ),
    Mutant(
        "concat-seam-moved",
        "minductor.passes.loop_order.whole_concat",
        "_whole_kernel",
        'b.op("where", b.op("lt", at',
        'b.op("where", b.op("le", at',
    ),
    Mutant("part-shift-dropped", "minductor.passes.split.pieces", "_Piece.softmax", 'b.op("sub", x, shift)', "x"),
    # --- rewrites of products
    Mutant("pack-changing-weight", PACK, "has_frozen_weight", "site.is_frozen(right)", "right"),
    Mutant("pack-small", PACK, "pays", "sums >= LEAST_ALONE", "sums >= 0"),
    Mutant("pack-float64", PACK, "takes_dtype", "(dtype, False)", "(dtype, True)"),
    Mutant("large-few-rows", LARGE_LINEAR, "has_some_rows", "FEWEST_ROWS <= rows", "0 <= rows"),
    Mutant("large-frozen", LARGE_LINEAR, "has_weight_of_each_call", "if site.is_frozen(match.weight)", "if False"),
    Mutant("large-few-columns", LARGE_LINEAR, "has_many_columns", "columns >= LEAST_COLUMNS", "True"),
    Mutant("bias-any-matrix", PRODUCT_CALLS, "bias_of", 'return "" if is_row', 'return "" if bias is not None'),
    Mutant("bias-scaled", PRODUCT_CALLS, "bias_of", "if not call.is_plain:", "if False:"),
    Mutant("join-changing-weight", JOINED, "has_frozen_weights", 'if changing else ""', 'if False else ""'),
    Mutant("join-weight-from-behind", JOINED, "begins_behind_weights", "if late:", "if False:"),
    Mutant("join-copied", JOINED, "readers_take_views", "return why", "continue"),
    Mutant("join-large", JOINED, "saves_time", "if is_small or is_packed", "if True"),
    Mutant("join-wrong-columns", JOINED, "replace", "start = end", "start = 0"),
    Mutant("widen-few-rows", f"{REWRITES}.widen_products", "has_several_rows", "rows >= least", "rows >= 0"),
    Mutant("vectors-in-few-rows", f"{REWRITES}.vector_products", "is_read_in_order", "rows >= LEAST_ROWS", "rows > 0"),
    Mutant("int8-biased", INT8, "adds_nothing", "match.product.base is None", "True"),
    Mutant("int8-any-scale", INT8, "scales_columns", 'return "" if is_row', 'return "" if scale is not None'),
    Mutant("int8-strided", INT8, "reads_plain_memory", ".is_contiguous()", ".numel()"),
    Mutant("pad-without-unit", PAD, "uses_matrix_unit", '!= "tf32"', '== "tf32"'),
    Mutant("pad-generated", PAD, "is_left_to_library", "inner <= SHORT_SUM", "inner <= 0"),
    Mutant("pad-at-any-price", PAD, "saves_time", 'return "" if after < before', 'return "" if before'),
    Mutant("pad-wrong-part", PAD, "replace", "dim, 0, size)", "dim, pad, size + pad)"),
    Mutant(
        "one-byte-weights-copied",
        FOLDED_SIZES,
        "_is_widened_bytes",
        "return is_widened and",
        "return False and",
    ),
    # --- attention
    Mutant("attention-along-any-axis", ATTENTION, "sums_over_keys", "if not isinstance(dim, int) or", "if False and"),
    Mutant("attention-sums-queries", ATTENTION, "sums_over_keys", "if not is_straight or", "if False and"),
    Mutant("attention-of-other-axes", ATTENTION, "has_axes_of_product", "if not is_right:", "if False:"),
    Mutant("attention-of-five-axes", ATTENTION, "has_four_axes", "if dims > 4:", "if dims > 5:"),
    Mutant(
        "attention-of-two-dtypes", ATTENTION, "has_one_dtype", "if value is None or not", "if value is None and not"
    ),
    Mutant("attention-skips-rounding", ATTENTION, "has_one_dtype", "- {dtype, torch.float32}", "& set()"),
    Mutant("attention-of-two-batches", ATTENTION, "has_equal_batches", "type(wide[0]) is not int", "False"),
    Mutant("attention-of-two-head-sizes", ATTENTION, "has_fused_head_size", "is_equal(size, other)", "True"),
    Mutant("attention-forgets-dropout", ATTENTION, "_mixing", "call if is_dropout and draws(call) else", ""),
    Mutant("attention-scales-keys", ATTENTION, "has_known_scale", "not is_equal(value.shape[-1], 1)", "False"),
    Mutant("attention-scales-fills", ATTENTION, "has_known_scale", "if filled and", "if False and"),
    Mutant("attention-fill-is-seen", ATTENTION, "has_hiding_fill", "if not value <= HIDING:", "if not value <= 0:"),
    Mutant("attention-fill-beside-mask", ATTENTION, "has_hiding_fill", "if weak and", "if False and"),
    Mutant("attention-mask-of-queries", ATTENTION, "has_mask_of_scores", "value.shape[-1], count", "count, count"),
    Mutant(
        "attention-mask-is-learned",
        ATTENTION,
        "has_mask_of_scores",
        "if value.requires_grad:",
        "if False:",
    ),
    Mutant("attention-at-any-size", ATTENTION, "pays", "queries < FEWEST_FLOAT32 or", "False and"),
    Mutant("attention-of-few-keys", ATTENTION, "pays", "keys < FEWEST_KEYS", "keys < 8"),
    Mutant("attention-of-one-query", ATTENTION, "pays", "queries == 1", "queries == 0"),
    Mutant("attention-trains-slowly", ATTENTION, "pays", "if result.requires_grad:", "if False:"),
    Mutant("attention-row-masked-whole", ATTENTION_MASK, "mask_of", "math.nan, mask", "-math.inf, mask"),
    Mutant("attention-row-not-shifted", ATTENTION_MASK, "mask_of", "SHIFTED), shifted", "-math.inf), shifted"),
    Mutant("attention-hidden-queries", ATTENTION_MASK, "mask_of", "FLOOR), 0.0, q", "-math.inf), 0.0, q"),
    Mutant("attention-weak-fill", ATTENTION_MASK, "_with_step", "value = FLOOR if", "value = step.value if"),
    Mutant(
        "attention-keeps-turned",
        ATTENTION_MASK,
        "_with_step",
        "if step.keeps else hidden",
        "if not step.keeps else hidden",
    ),
    # --- sums
    Mutant("added-scaled", ADDED_TERMS, "_operands", 'call.get("alpha", 1) != 1', "False"),
    Mutant("added-large-factors", ADDED_PRODUCTS, "moves_less", "LEAST_GAIN * after <= before", "True"),
    Mutant("added-few-parts", ADDED_PARTS, "has_several", "len(match.parts) >= FEWEST", "True"),
    Mutant("added-parts-that-overlap", ADDED_PARTS, "lie_apart", "other.start < one.end", "False"),
    # --- resizing
    Mutant("resizing-of-fractions", RESIZED, "_factor", "0 if rest else factor", "factor"),
    Mutant("resizing-to-other-places", RESIZING, "has_eager_places", "if not _is_exact(", "if False and _is_exact("),
    Mutant("phases-of-aligned-corners", PHASES, "has_centres", 'match.call.get("align_corners")', "False"),
    Mutant("phases-antialiased", PHASES, "has_centres", 'match.call.get("antialias")', "False"),
    Mutant("phases-of-any-factor", PHASES, "has_few_phases", "most <= MOST_PHASES", "True"),
    Mutant("phases-of-bytes", PHASES, "has_padded_dims", "not x.dtype.is_floating_point", "False"),
    Mutant("phases-of-volumes", PHASES, "has_padded_dims", "is_last and x.dim() == 5", "False"),
    # --- where texts come from
    Mutant(
        "origin-lost",
        "minductor.ir.program.build",
        "Builder.splice",
        "self.node = op.node or outer",
        "self.node = outer",
    ),
    Mutant(
        "handle-lost",
        "minductor.codegen.wrapper.handle_comments",
        "handle_comment",
        "if mark:",
        "if mark and handle > 2:",
    ),
    # --- the store
    Mutant("stale-key", "minductor.driver", "Compiler.key", "graph.text()", "graph.text()[:0]"),
    # --- rewrites of convolutions
    Mutant("layout-copies-free", LAYOUT_SECONDS, "copy_seconds", "2 * nbytes / _COPY_RATE", "0.0"),
    Mutant(
        "layout-weights-free",
        LAYOUT_SECONDS,
        "_unpacked_seconds",
        "each.weight_bytes / _WEIGHT_RATE_LAST",
        "0.0",
    ),
    Mutant(
        "layout-windows-alike",
        LAYOUT_SECONDS,
        "_contiguous_seconds",
        "each.window >= LARGE_WINDOW",
        "each.window >= 1000",
    ),
    Mutant("layout-results-alike", LAYOUT_SECONDS, "is_head", "each.outputs <= FEW_OUTPUTS", "each.outputs <= 0"),
    Mutant(
        "layout-of-float64",
        LAYOUT_SECONDS,
        "has_layouts",
        "(dtype == torch.float32 and torch.backends",
        "(dtype.is_floating_point and torch.backends",
    ),
    Mutant(
        "layout-saved-operands",
        f"{REWRITES}.convolution_layouts",
        "is_in_training",
        '"partitioner_tag" in node.meta',
        '"partitioner_tag" in ()',
    ),
    Mutant(
        "train-weights-to-the-library",
        f"{REWRITES}.convolution_layouts",
        "is_shared_weight",
        ">= SHARED_WEIGHT",
        "< 0",
    ),
    Mutant(
        "train-gradients-of-weights-free",
        LAYOUT_SECONDS,
        "_cpu_gradient_seconds",
        "weights * copy_seconds(each.weight_bytes, is_gpu=False)",
        "0.0",
    ),
    Mutant(
        "train-group-norms-free",
        LAYOUT_SECONDS,
        "group_norm_seconds",
        "0 < channels < FULL_PIXEL",
        "0 < channels < 0",
    ),
    Mutant("train-marks-lost", f"{REWRITES}.rewrite_row", "Site.write", ", *OF_TRAINING", ""),
    Mutant("pack-any-weight", LAYOUT_SECONDS, "can_pack", "not site.is_frozen(weight)", "False"),
    Mutant("pack-contiguous", PACK_CONVOLUTION, "has_channels_last_images", "if is_channels_last(x)", "if True"),
    Mutant("pack-few-results", PACK_CONVOLUTION, "has_many_results", "if is_head(each)", "if False"),
    Mutant("pack-numbers-turned", PACK_CONVOLUTION, "replace", "(padding, stride, dil", "(stride, padding, dil"),
    Mutant("post-op-wrong-slope", POST_OPS, "_leaky_relu", "0.01", "0.02"),
    Mutant("norm-of-changing-weights", FOLD_BATCH_NORM, "has_frozen_weights", "not site.is_frozen(node)", "False"),
    Mutant("norm-of-two-axes", FOLD_BATCH_NORM, "has_one_channel_axis", 'get("groups") != 1', 'get("groups") == 0'),
    Mutant("norm-without-eps", FOLD_BATCH_NORM, "replace", 'norm.get("eps")', "0.0"),
    # --- rewrites of the graph, and frozen weights
    Mutant("rewrite-reader-forgotten", APPLY_REWRITES, "general_objection", "user not in own", "user not in own and 0"),
    Mutant("rewrite-moves-reads", APPLY_REWRITES, "_write_between", "and writes_memory(node)", "and not node.name"),
    Mutant("rewrite-loses-write", APPLY_REWRITES, "general_objection", "if writes_memory(node) and", "if False and"),
    Mutant("rewrite-mixes-modes", APPLY_REWRITES, "general_objection", "in own}) > 1", "in own}) > 2"),
    Mutant("rewrite-at-any-price", APPLY_REWRITES, "_Walk._objection", "if not after < before", "if after < before"),
    Mutant("rewrite-alias-unseen", APPLY_REWRITES, "_Walk._wrong_value", "if was != now:", "if was and not now:"),
    Mutant("rewrite-dtype-unseen", VALUE_LAYOUTS, "difference", "if (keeps", 'if fact != "dtype" and (keeps'),
    Mutant(
        "rewrite-size-unseen", VALUE_LAYOUTS, "difference", "if (keeps", 'if fact not in ("size", "strides") and (keeps'
    ),
    Mutant("rewrite-strides-unseen", VALUE_LAYOUTS, "difference", "keeps_strides or fact", "fact"),
    Mutant("rewrite-strides-returned", LAYOUT_CHANGES, "LayoutChanges._restore", "self._has_moved", "lambda _: False"),
    Mutant(
        "frozen-version-ignored",
        FROZEN_CALL,
        "FrozenCall.__call__",
        "if versions != folded.versions:",
        "if versions and not folded.versions:",
    ),
    Mutant(
        "frozen-identity-ignored",
        FROZEN_CALL,
        "FrozenCall.__call__",
        "latest is not None and latest[0] == key",
        "latest",
    ),
    Mutant("frozen-results-kept", SPLIT_FROZEN, "_folded_nodes", "in returned", "in ()"),
    Mutant("frozen-views-kept", SPLIT_FROZEN, "_stays", "_is_view(node) or", ""),
    Mutant("frozen-weights-kept", FROZEN_CALL, "_Drop.__call__", "owner.drop(self.key)", "owner.drop(())"),
    # --- CUDA graphs
    Mutant(
        "graph-not-replayed",
        GRAPH_PARTITION,
        "CapturedPartition._replayed",
        "step) if recording is not None else None",
        "step) if False else None",
    ),
    Mutant("graph-inputs-not-copied", RECORDING, "Recording.replay", "[args[number] for number in numbers]", "buffers"),
    Mutant("graph-moved-input-unseen", RECORDING, "Recording.moved", "if self._lie", "if True or self._lie"),
    Mutant(
        "graph-moves-not-counted",
        GRAPH_PARTITION,
        "CapturedPartition._may_record_again",
        "number] += 1",
        "number] += 0",
    ),
    Mutant(
        "graph-cold-thread-records", GRAPH_PARTITION, "CapturedPartition._replayed", "if not case.ran.value", "if False"
    ),
    Mutant(
        "graph-weights-copied",
        GRAPH_PARTITION,
        "CapturedPartition._is_set_apart",
        "number in self.about.static or ",
        "",
    ),
    Mutant("graph-weights-alike", GRAPH_PARTITION, "_Case.fitting", "if moved and", "if False and"),
    Mutant("graph-writes-lost", RECORDING, "Recording.replay", "if number in self.buffers])", "if number in ()])"),
    Mutant("graph-results-not-copied", GRAPH_CHAIN, "WrapperGraphs.given", "step() and not", "step() or not"),
    Mutant("graph-saved-copied", GRAPH_CHAIN, "WrapperGraphs.given", "if self.results is None", "if True"),
    Mutant("graph-pool-for-each", GRAPH_POOL, "Pool.handle", "self._handle is None or", "True or"),
    Mutant("graph-held-overwritten", GRAPH_POOL, "all_held", "> lent.unheld", "> 1 << 20"),
    Mutant("graph-later-overwritten", GRAPH_POOL, "Pool._list_results", "[place:]", "[place : place + 1]"),
    Mutant(
        "graph-old-results-silent",
        GRAPH_PARTITION,
        "CapturedPartition._is_held",
        "if lent.step < step:",
        "if lent.step > step:",
    ),
    Mutant("graph-own-result-overwritten", RECORDING, "Recording.take_again", "if not held", "if True"),
    Mutant("graph-usual-call-moved", RECORDING, "Recording.take_again", "if not self._lie_there(*args)", "if False"),
    Mutant("graph-old-take-kept", RECORDING, "Recording.take_again", "lent.step < step", "lent.step > step"),
    Mutant("graph-third-take-lent", RECORDING, "Recording.replay", "== MOST_TAKES", "== 1 << 20"),
    Mutant("graph-saved-outside", GRAPH_CHAIN, "WrapperGraphs.empty_result", "last >= self.results", "False"),
    Mutant("graph-gradient-taken-back", GRAPH_POOL, "Lent.lend", "FOREVER if self._keeps else step", "step"),
    Mutant("graph-result-in-pool", GRAPH_RESULTS, "ResultMemory.empty", "if stream is None", "if True"),
    Mutant("graph-take-by-a-cold-thread", GRAPH_PARTITION, "CapturedPartition._take", " or not case.ran.value", ""),
    Mutant(
        "graph-sizes-alike", GRAPH_PARTITION, "CapturedPartition.__call__", "*args[self.about.tensors :]", "*args[:0]"
    ),
    Mutant("graph-streams-alike", GRAPH_PARTITION, "CapturedPartition.__call__", "key = (stream,", "key = (0,"),
    Mutant("partition-write-forgotten", PARTITIONS, "_kept_roots", "not given.is_donated", "given.is_donated"),
    Mutant(
        "partition-takes-read-inputs", PARTITIONS, "_function", "order.keys().isdisjoint(", "set[str]().isdisjoint("
    ),
    Mutant("partition-view-of-copy", PARTITIONS, "_function", "roots[line.name] not in made", "not made"),
    # --- wrappers in C++ for GPUs
    Mutant("native-devices-mixed", MEMORY, "_Planner._device_of", "if len(devices) == 1", "if devices"),
    Mutant("native-wrong-function", CPP_CALLS, "call", 'line.device.partition(":")[0]', '"cpu"'),
    Mutant("native-result-in-pool", CPP_TEXT, "_Function.allocate", "self.kept.get(line.name)", "None"),
    Mutant("native-winner-untold", CPP_WRAPPER, "GpuParts._until_known", "self._tell(row, taken[0])", "pass"),
    Mutant("package-oldest-code", PACKAGE_GPU, "gpu_package", "max(found,", "min(manifest.gpus,"),
    Mutant("gpu-mask-not-expanded", GPU_ATTENTION, "_whole_mask", "if meta.size == size:", "if meta.size:"),
    Mutant("gpu-result-laid-out-wrongly", GPU_ATTENTION, "_lie_alike", "size == 1 or", "True or"),
    Mutant("gpu-mask-unaligned", GPU_ATTENTION, "_whole_mask", "or not is_aligned:", "or not meta.size:"),
    Mutant("gpu-heads-scaled-wide", GPU_ATTENTION, "_scale", "if given is None and", "if False and"),
    Mutant("gpu-heads-too-wide", GPU_ATTENTION, "_is_flash", "width <= WIDEST_FLASH", "width > 0"),
    Mutant("package-for-one-processor", "minductor.api.export_gpu", "_files", "toolchain.portable()", "toolchain"),
    Mutant("package-driver-unseen", PACKAGE_GPU, "_check_driver", "// 1000 <", "// 1000 < 0 *"),
    Mutant("package-any-pointers-aligned", PACKAGE_GPU, "GpuPackage._kernels", "files(ANY, ", "files(ALIGNED, "),
    Mutant("package-gpu-state-shared", PACKAGE, "load", "copied(value, value.shape, value.stride())", "value"),
    Mutant("native-scratch-untold", CPP_WRAPPER, "GpuParts._tell", "kernel.scratch, kernel", "0, kernel"),
)
