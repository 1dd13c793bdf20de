"""The table of faults of the steps that choose loops.

Takes nothing. Gives `FAULTS`: wrong code of a step, which its rows in `step_cases.py` must notice. `test_steps.py` runs
them, and fails if a step has no fault. Refuses nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Fault(NamedTuple):
    """Wrong code of a step, which the rows of the step notice.

    `by`: whether a nest is wrong, or a kernel is no longer refused. `old` becomes `new` in the step, or in the function
    `where` that it calls (file:name, or package.file:name below minductor.passes).
    """

    step: str
    by: Literal["nest", "refusal"]
    old: str
    new: str
    where: str = ""


FAULTS = (
    Fault("elements", "nest", "_parallel(draft, draft.vector)", "_parallel(draft, *draft.kept)"),
    Fault("blocks", "nest", "_parallel(draft, draft.vector)", "_parallel(draft)"),
    Fault("blocks", "nest", "*_parallel(draft, draft.vector), ", ""),
    Fault("blocks", "refusal", "2 * POINTWISE_BLOCK", "POINTWISE_BLOCK // 8"),
    Fault("transpose", "nest", '        draft.level(crossing, "serial"),\n', ""),
    Fault("transpose", "refusal", "(0, 1, None)", "(1, None)", "cpu_steps:_jumping"),
    Fault("share_indices", "nest", "_parallel(draft, shared, vector)", "_parallel(draft, vector)"),
    Fault("share_indices", "nest", "*_parallel(draft, shared, vector)", "*()"),
    Fault("share_indices", "refusal", "or not _gathers(draft)", ""),
    Fault("share_indices", "refusal", "and name not in op.axes", "", "cpu_steps:_shared"),
    Fault("gathers_first", "nest", "if a in inside)", "if a not in inside)", "gathers:places_of"),
    Fault("gathers_first", "nest", "gathers=gathers", "gathers=frozenset()"),
    Fault("gathers_first", "refusal", "not gathers or", ""),
    Fault("gathers_first", "refusal", "Masked | Atomic", "Atomic"),
    Fault("gathers_first", "refusal", "all(ops[p].is_effect", "all(not ops[p].axes"),
    Fault("scatter", "nest", '"serial") for', '"parallel") for', "cpu_steps:_scatter"),
    Fault("scatter", "nest", "vector is None or", "", "cpu_steps:_scatter"),
    Fault("scatter", "nest", "len(axes) != 1 or", "", "ordered_axes:_own_axis"),
    Fault("scatter", "nest", "(*outer, *in_order))", "in_order)", "cpu_steps:_scatter"),
    Fault("scatter_blocks", "nest", "if name in draft.ordered]", "if name not in draft.ordered]", "cpu_steps:_scatter"),
    Fault("scatter_blocks", "refusal", "any(level.block for", "any(level.axis for"),
    Fault("scalar", "nest", '"vector" else each', '"vector" else each._replace(kind="vector")'),
    Fault("scalar", "nest", 'each._replace(kind="scalar") if', "each if"),
    Fault("scalar", "refusal", "draft.joined or", ""),
    Fault("scalar", "refusal", "or not _gathers(draft)", ""),
    Fault("rows", "nest", "_inner(draft, _joined(draft))", "_inner(draft, ())"),
    Fault("rows", "refusal", "None if _both_ways(draft)", "None if draft.staged"),
    Fault("across_rows", "nest", "max(draft.kept, key=draft.size)", "row"),
    Fault("across_rows", "refusal", "not in IN_ANY_ORDER", "is None"),
    Fault("across_rows", "refusal", "short > ACROSS", "short < 1"),
    Fault("across_rows", "refusal", "not draft.kept or", ""),
    Fault("rows_and_columns", "nest", "for n in inner)", "for n in down)"),
    Fault("rows_and_columns", "refusal", "ways) is not None", 'ways) == ""', "cpu_steps:_both_ways"),
    Fault("rows_side_by_side", "nest", '        draft.level(beside, "vector"),\n', ""),
    Fault("rows_side_by_side", "nest", "for name in draft.kept if name != beside", "for name in ()"),
    Fault("rows_side_by_side", "refusal", "length <= SHORT_ROW", "length"),
    Fault("rows_side_by_side", "refusal", "< FEW_ROWS", "< 1"),
    Fault("rows_side_by_side", "refusal", "touch.dtype == F32 and", "", "side_by_side:_staged"),
    Fault("rows_side_by_side", "refusal", "touch.dtype not in (F32, BF16)", "not touch.dtype", "side_by_side:_staged"),
    Fault("rows_side_by_side", "refusal", 'kind in ("float", "bool")', "kind", "side_by_side:_is_simple"),
    Fault("rows_side_by_side", "refusal", "draft.joined != (row,)", "row not in draft.joined"),
    Fault("rows_side_by_side", "refusal", "and {row, beside} <= {*ops[op.args[0]].axes}", "", "side_by_side:_staged"),
    Fault("rows_side_by_side", "refusal", "len(op.args) == 1 and", "", "side_by_side:_is_simple"),
    Fault("rows_side_by_side", "refusal", "default=0) +", "default=1) +", "side_by_side:_reductions_in_turn"),
    Fault("parts", "nest", "all(name not in over for over in rows)", "name", "cpu_steps:_split_axes"),
    Fault("parts", "nest", "part, *inner", "*inner"),
    Fault("parts", "refusal", "if count < 2:", "if count < 0:"),
    Fault("parts", "refusal", "or draft.touches.scanned", ""),
    Fault("two_steps", "nest", "if axis != vector", "if axis", "narrow:in_two_steps"),
    Fault("two_steps", "nest", "*_parallel(draft, beside)", "*()"),
    Fault("two_steps", "refusal", "< NARROW", "< 2 * NARROW", "narrow:narrow"),
    Fault("two_steps", "refusal", "any(isinstance(op.attrs, Check) for op in ops) or", "", "narrow:narrow"),
    Fault("two_steps", "refusal", "and name not in touches.reduced", "", "narrow:narrow"),
    Fault("two_steps", "refusal", "<= MOST", "", "narrow:narrow"),
    Fault("two_steps", "refusal", "len(op.args) == 1 and", "", "narrow:_is_wide"),
    Fault("two_steps", "refusal", "takes_each and", "", "narrow:_is_wide"),
    Fault("two_steps", "refusal", "len(op.attrs.axes) > 1", "op.attrs.axes", "narrow:_is_wide"),
    Fault("columns", "nest", "_inner(draft, _joined(draft))", "_inner(draft, ())", "cpu_steps:_columns"),
    Fault("wide_columns", "nest", "(draft, draft.vector)", "(draft, *draft.kept)", "cpu_steps:_columns"),
    Fault("scan", "nest", "(*_parallel(draft), ", "("),
    Fault("scan", "nest", "*inner, ", ""),
    Fault("settle", "nest", '"serial") if each.kind == "parallel"', '"parallel") if each.kind == "serial"'),
    # GPUs
    Fault("Spread", "nest", "dict.fromkeys(draft.kept, 1)", "dict.fromkeys(order[:AXES], 1)"),
    Fault("Spread", "refusal", "len(contiguous) < 2 or", ""),
    Fault("Spread", "refusal", "or draft.joined)", ")"),
    Fault("Hold", "nest", "block=power_of_two(e))", "block=power_of_two(e) // 2)"),
    Fault("Hold", "refusal", "else target.max_persistent_row", "else 1 << 30"),
    Fault("Hold", "refusal", "or len(known) < len(extents)", ""),
    Fault("Hold", "refusal", "OUTER_PERSISTENT if draft.is_outer else", ""),
    Fault("Hold", "refusal", "or threads > target.max_threads", ""),
    Fault("Hold", "refusal", "FEWEST_HELD * threads <=", "0 <="),
    Fault("Hold", "refusal", "min(LONGEST_HELD, MOST_HELD * threads)", "LONGEST_HELD"),
    Fault("Hold", "refusal", "elif draft.is_outer or", "elif"),
    Fault("Walk", "nest", "for name in order)", "for name in order[:-1])"),
    Fault("Walk", "nest", "is_one and Hold()(draft) is not None", "is_one"),
    Fault("Walk", "nest", "*(name for name in draft.joined if name != last), ", ""),
    Fault("Walk", "refusal", "if is_one and", "if not is_one and"),
    Fault("Walk", "refusal", "if not draft.joined:", "if draft.staged:"),
    Fault(
        "one_walk",
        "nest",
        "softmax_total(b, place[tops[position]])",
        "place[tops[position]]",
        "rewriting.online:online",
    ),
    Fault("one_walk", "nest", "draft._replace(kernel=kernel)", "draft"),
    Fault("one_walk", "refusal", "None if kernel is draft.kernel", "None if not kernel"),
    Fault("rows_beside_columns", "nest", "(*grid, *held, *walked)", "(*grid, *held)"),
    Fault("rows_beside_columns", "nest", "block=known[name])", "block=1)"),
    Fault("rows_beside_columns", "nest", "for name in draft.kept)", "for name in ())"),
    Fault("rows_beside_columns", "refusal", "if ways is None:", "if draft.staged:"),
    Fault("rows_beside_columns", "refusal", "if len(known) < len(extents):", "if draft.staged:"),
    Fault("unroll", "nest", "Walk(1)", "Walk(3)"),
    Fault("unroll", "refusal", "len(known) == len(extents) and", ""),
    Fault("unroll", "refusal", "<= LONGEST_UNROLLED", "> 0"),
    Fault("unroll", "refusal", "and draft.is_outer", ""),
    Fault("product", "nest", "not None and extent <= inner", "not None", "product_tiles:product_tiles"),
    Fault("product", "nest", "len(joined) == 1 and", "", "product_tiles:product_tiles"),
    Fault(
        "product", "nest", "(*kept, dots.row, dots.column)", "(dots.row, dots.column)", "product_tiles:product_tiles"
    ),
    Fault("product", "nest", '"serial", block=blocks[name]', '"serial"', "product_tiles:product_tiles"),
    Fault("product", "refusal", "if draft.dots is None:", "if draft.staged:"),
    # steps that are no part of a recipe
    Fault("group", "nest", "(*(p for p in inside if p not in terms), tree)", "(tree,)", "group:_Grouper.grouped"),
    Fault("group", "refusal", "how.name not in GROUPED", "how.name in GROUPED", "group:_stays"),
    Fault("group", "refusal", "len(op.args) > 1 or", "", "group:_stays"),
    Fault(
        "group", "refusal", "or self.ops[p].is_effect for p in scalars", "for p in scalars", "group:_Grouper.is_simple"
    ),
    Fault("short_sums", "nest", "made.append(level._replace(is_partial=True))", "pass"),
    Fault("short_sums", "refusal", "if count > most:", "if count:"),
    Fault("gather_first", "nest", "if a in first)", "if a not in first)"),
    Fault("unmask", "nest", "unmasked=tuple(masks)", "unmasked=tuple(asked)", "unmask:_unmasked"),
    Fault("unmask", "refusal", "varies = any(", "varies = not masks and any(", "unmask:_unmasked"),
    Fault("unmask", "refusal", "or loop.axis in body.ops[p].axes", "", "unmask:_unmasked"),
    Fault("cut", "nest", "[*before, at, *", "[at, *before, *", "cut:_between"),
    Fault("cut", "refusal", "loop.lanes or", "", "cut:_cut"),
    Fault("stage", "nest", ", *_copies(staged, stores)", "", "stage:_staged"),
    Fault("stage", "nest", "extent is None or", "", "stage:_staged"),
    Fault("stage", "nest", "op.is_effect or", "", "stage:_whole"),
    Fault("stage", "nest", "or (isinstance(op.attrs, Load) and axis in op.axes)", "", "stage:_whole"),
    Fault("stage", "nest", "*staged.loads, ", ""),
    Fault("stage", "nest", "_copies(staged, loads), *body", "body", "stage:_staged"),
    Fault("cut", "refusal", "or any(s.kind not in CALL_SYMBOL_KINDS for s in free_symbols(split[1]))", "", "cut:_line"),
    Fault("unblock", "nest", "carries=loop.carries", "carries=()", "unblock:_plain"),
    Fault("unblock", "refusal", 'loop.kind == "serial" and', "", "unblock:_plain"),
    Fault("unblock", "refusal", "or inner.carries", "", "unblock:_plain"),
    Fault("divide_once", "nest", '"mul", x, inverse', '"mul", x, x'),
    Fault("divide_once", "refusal", "dtype.itemsize == 2", "dtype.itemsize", "reciprocal:_is_short_store"),
    Fault("divide_with_rest", "nest", 'b.op("neg", quotient)', "quotient", "reciprocal:_corrected"),
    Fault("divide_with_rest", "refusal", "ops[n].args[0] in ops[ops[n].args[1]].args", "True"),
    Fault("fetch_rows", "nest", "replace(loop, fetched", "replace(loop, body=(), fetched"),
    Fault("fetch_rows", "refusal", "or not axes", "", "fetch:_reads_a_row"),
    Fault("fetch_rows", "refusal", "or along in axes", "", "fetch:_reads_a_row"),
    Fault("fetch_rows", "refusal", "LINE * count // 2", "LARGEST", "fetch:_reads_a_row"),
    Fault("keep_in_results", "nest", "pairs[row] = store", "pairs[row] = store + 1"),
    Fault("keep_in_results", "refusal", "row in op.args", "store in op.args", "rows_in_results:_is_read_before"),
    Fault("keep_in_results", "refusal", "<= SHORT", "<= 0", "rows_in_results:_fits"),
    Fault("keep_in_results", "refusal", "and touch.dtype ==", "or touch.dtype ==", "rows_in_results:_stores"),
    Fault("keep_in_results", "refusal", " and storage not in loaded", "", "rows_in_results:_stores"),
    Fault("keep_in_results", "refusal", "not reloads and", "", "rows_in_results:_is_read_before"),
    Fault("keep_in_results", "refusal", "<= before", "<= inside[stored]", "rows_in_results:_is_read_before"),
)
