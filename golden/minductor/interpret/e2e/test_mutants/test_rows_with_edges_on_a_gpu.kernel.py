# golden  tests/e2e/test_mutants.py::test_rows_with_edges_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=21672  peak=10836

# aten.exp.default: exp
# aten.sum.dim_IntList: sum_1
# aten.div.Tensor: div
@triton.jit
def fused_exp_sum_div_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    # the bulk of a row starts at a multiple of 4 elements; its edges are the elements around it
    i1_head = (4 - 301 * i0 % 4) % 4
    i1_bulk = (301 - i1_head) // 4 * 4
    i1_first = tl.multiple_of(301 * i0 + i1_head, 4)
    i1_lanes = tl.arange(0, R0_BLOCK)
    i1_mask = i1_lanes < i1_bulk
    i1_edge_lanes = tl.arange(0, 8)
    i1_edge = tl.where(i1_edge_lanes < i1_head, i1_edge_lanes, i1_bulk + i1_edge_lanes)
    i1_edge_mask = i1_edge < 301
    x0 = tl.load(in0 + i1_first + i1_lanes, i1_mask)
    x0_edge = tl.load(in0 + 301 * i0 + i1_edge, i1_edge_mask)
    x1 = libdevice.exp(x0)
    x1_edge = libdevice.exp(x0_edge)
    x2 = tl.sum(tl.where(i1_mask, x1, 0.0), 0)
    x2_edge = tl.sum(tl.where(i1_edge_mask, x1_edge, 0.0), 0)
    x3 = x2 + x2_edge
    x4 = tl.div_rn(x0, x3)
    x4_edge = tl.div_rn(x0_edge, x3)
    tl.store(out1 + i1_first + i1_lanes, x4, i1_mask)
    tl.store(out1 + 301 * i0 + i1_edge, x4_edge, i1_edge_mask)

# end of golden
