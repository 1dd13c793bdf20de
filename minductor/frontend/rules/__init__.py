"""The lowering rules: how each ATen operator becomes kernels.

`lower` (frontend/lower) walks the captured ATen graph and looks each node's operator up in `table.RULES`, or in
`complex.RULES` if one of the node's tensors is complex. A rule is a function `rule(ctx, *args, **kwargs)` with the
parameters of the operator's schema. It returns a View for a tensor, a tuple for several results, None for a result that
nobody uses, or NotImplemented: then the operator becomes an extern call, that is, a call of ATen, with a note why.
`ctx` is the `Lowering` (frontend/lowering_context). A rule makes kernels in one of these ways, the simplest first:

    ctx.pointwise(fn, x, y)                  one kernel over the result; fn gets the operands' elements, broadcast
    ctx.map(lambda loop: ...)                the same, where fn loads what it needs at the coordinates loop.coords
    ctx.fill(out, lambda loop: ...)          as ctx.map, into a buffer or view of the rule's own; ctx.copy_of(x) copies
    store_reduction(ctx, out, extents, dims, value, "sum")    a reduction of value(loop, coords) over dims
    loop = KernelBuilder(extents); ...; ctx.store(loop, out, coords, value)    any other kernel with one store

The files, simplest first (each opens with the operators that it has):

- pointwise, formulas (activations), special (special functions), loss, create (constants, ranges), views, random
- reduce, norm (layer and rms norm), batch (batch and group norm), scan, search, matmul
- concat (also constant padding, flip, roll), pad, window (pooling), grid_sample
- index (gathers), scatter, window_write (slice_scatter and its kin)
- foreach, complex, scalars (item() and assertions), higher_order, collectives; table joins the families' tables

Laws that every rule keeps:

- Results have the traced size, strides and dtype: `ctx.result(meta)` allocates them. Values agree with eager.
- Kernels compute in `compute_dtype(dtype)`: float32 for 16-bit floats, else the dtype itself; the store rounds. A
  discontinuous function rounds its arguments to their dtype first (`pointwise.as_stored`).
- NaN, infinities and signed zeros are eager's. Tensors without elements make no kernel.
- A call that raises in eager raises with us. If that is known when compiling, the rule returns NotImplemented; if only
  the call knows, the rule adds a check (index.checked_index, size_requirements, KernelBuilder.b.assertion).
- A functional write (scatter, slice_scatter) may overwrite its argument only if that is dead (`overwriting.is_dead`).

To add an operator:

1. Choose the family file and copy its nearest rule. Write the rule with the schema's parameters in their order; the
   docstring says which operators it lowers, what kernel it makes, and which law of eager is hard here.
2. Add a row "aten.name.overload" to the file's RULES; `rules_for` makes the rows of several overloads. A new file goes
   into `table.FAMILIES`.
3. If torch decomposes the operator for us, delete its name in `torch_graph/decompositions.py` (`DECOMPOSED`). If it was
   meant to be an extern call, delete its name in `capture/schemas.py` (`REASONS`). test_table.py fails until then.
4. Layout: if eager's strides differ from those of torch's fake tensors, add the operator to a table of
   `quirks/eager_strides.py` and a case to tests/frontend/test_layouts.py.
5. Test: add a case to tests/frontend/rules/test_<family>.py. `lowered(fn, *tensors)` there holds the program against
   eager; assert that it has no `externs`. Cover the dtypes, a permuted tensor, sizes 0 and 1, NaN, and (`compiled(...,
   dynamic=True)`) symbolic sizes. A core operator also needs a call in tests/frontend/test_core_coverage.py.
6. Run torch's operator database: `python -m tests.opinfo --ops name --dtype all --mode all`.
"""
