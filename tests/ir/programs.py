"""Small programs, as text that a person can read, for the tests of ir/, passes/memory and codegen/wrapper."""

SOFTMAX = """program inference
  input arg0: f32[4, 8] stride [8, 1] cpu
  buffer buf0: f32[4, 8] stride [8, 1] cpu
  kernel k0 (i0: 4, i1: 8) from softmax = aten._softmax.default
    %0 = load arg0@0[8*i0 + i1] : f32 {i0 i1}
    %1 = reduce max over i1 of %0 : f32 {i0}
    %2 = sub %0 %1 : f32 {i0 i1}
    %3 = exp %2 : f32 {i0 i1}
    %4 = reduce sum over i1 of %3 : f32 {i0}
    %5 = div %3 %4 : f32 {i0 i1}
    %6 = store buf0@0[8*i0 + i1] %5 {i0 i1}
  return (buf0@0 f32[4, 8] stride [8, 1] offset 0)
"""

# two kernels and a product between them, in an order that was asked for too; arg0 is changed by the last one
CHAIN = """program forward
  symbol s0 [2, 1099511627776] hint 100
  input s0 = s0
  input arg0: f32[s0, 8] stride [8, 1] cpu
  input arg1: f32[8, 8] stride [8, 1] cpu static
  constant c0: f32[8] stride [1] cpu
  buffer buf0: f32[s0, 8] stride [8, 1] cpu
  buffer buf1: f32[s0, 8] stride [8, 1] cpu
  buffer buf2: f32[s0, 8] stride [8, 1] cpu
  guard 8*s0 < 2147483648 because "offsets in int32"
  note lower mm "aten.mm.default: a matrix product"
  note fuse k0 | k1 "a product stands between"
  note fuse k2 into k1
  kernel k0 (i0: s0, i1: 8) from add = aten.add.Tensor
    %0 = load arg0@0[8*i0 + i1] : f32 {i0 i1}
    %1 = load c0@0[i1] : f32 {i1}
    %2 = add %0 %1 : f32 {i0 i1}
    %3 = store buf0@0[8*i0 + i1] %2 {i0 i1}
  extern x0 out aten.mm.out(buf0@0 f32[s0, 8] stride [8, 1] offset 0, arg1@0 f32[8, 8] stride [1, 8] offset 0) \
-> (buf1@0 f32[s0, 8] stride [8, 1] offset 0) after buf0@0 from mm = aten.mm.default because "a matrix product"
  kernel k1 (i0: s0, i1: 8) after buf0@0, buf1@0 from relu = aten.relu.default
    %0 = load buf1@0[8*i0 + i1] : f32 {i0 i1}
    %1 = relu %0 : f32 {i0 i1}
    %2 = store buf2@0[8*i0 + i1] %1 {i0 i1}
    %3 = store arg0@1[8*i0 + i1] %1 {i0 i1}
  return (buf2@0 f32[s0, 8] stride [8, 1] offset 0, <8*s0>, none)
"""

# a checked index, a masked region, two carried values and a custom way to combine
REGIONS = """program inference
  input arg0: f32[4, 8] stride [8, 1] cpu
  input arg1: i64[4] stride [1] cpu
  buffer buf0: f32[4] stride [1] cpu
  buffer buf1: i64[4] stride [1] cpu
  kernel k0 (i0: 4, i1: 8) from gather = aten.gather.default
    %0 = load arg1@0[i0] : i64 {i0}
    %1 = check %0 as v1 < 8 wrap raises RuntimeError in "aten.take.default" dim 1 : i64 {i0}
    %2 = load arg0@0[8*i0 + v1] %1 : f32 {i0}
    %3 = load arg0@0[8*i0 + i1] : f32 {i0 i1}
    %4 = index <i1> : i64 {i1}
    %5 = constant 0 : i64 {}
    %6 = gt %4 %5 : bool {i1}
    %7 = masked %6 %2 else -0.0 : f32 {i0 i1} {
      %0 = parameter 0 : f32 {i0}
      %1 = load arg0@0[8*i0 + i1 - 1] : f32 {i0 i1}
      %2 = add %0 %1 : f32 {i0 i1}
      yield %2
    }
    %8 = reduce furthest(0.0) over i1 of %7 : f32 {i0} {
      %0 = parameter 0 : f32 {}
      %1 = parameter 1 : f32 {}
      %2 = abs %0 : f32 {}
      %3 = abs %1 : f32 {}
      %4 = maximum %2 %3 : f32 {}
      yield %4
    }
    %9 = reduce argmax over i1 of %3 %4 : f32 {i0}
    %10 = project 1 %9 : i64 {i0}
    %11 = constant nan : f32 {}
    %12 = isnan %11 : bool {}
    %13 = assert %12 "not \\"a\\" number"
    %14 = store buf0@0[i0] %8 {i0}
    %15 = store buf1@0[i0] %10 {i0}
  return (buf0@0 f32[4] stride [1] offset 0, buf1@0 i64[4] stride [1] offset 0, buf0@0 f32[4] stride [1] offset 0) \
distinct (2) fixed_strides (0)
""".replace('number"\n', 'number" {}\n')

# numbers: given, read from a tensor, told by a result's size, computed, and required
NUMBERS = """program inference
  symbol s0 [2, inf]
  made u0 [-inf, inf]
  made f0 [-inf, inf] real
  made t0 [0, 1] truth
  made u1 [0, 12]
  input s0 = s0
  input arg0: f32[s0] stride [1] cpu
  input arg1: i64[] stride [] cpu
  buffer buf0: i64[2*u1 + 1, 1] stride [1, 1] cpu
  buffer buf1: f32[u0] stride [1] cpu
  extern x0 return aten._local_scalar_dense.default(arg1@0 i64[] stride [] offset 0) -> (symbol u0) from item = aten._local_scalar_dense.default because "a number"
  require "not \\"below\\" the size" from assert_1 = aten._assert_scalar.default
    %0 = index <u0> : i64 {}
    %1 = index <s0> : i64 {}
    %2 = lt %0 %1 : bool {}
    yield %2
  define f0 from truediv = truediv
    %0 = index <u0> : i64 {}
    %1 = cast %0 : f64 {}
    %2 = constant 3.0 : f64 {}
    %3 = div %1 %2 : f64 {}
    yield %3
  define t0 from le = le
    %0 = index <f0> : f64 {}
    %1 = constant 0.5 : f64 {}
    %2 = le %0 %1 : bool {}
    yield %2
  extern x1 return aten.nonzero.default(arg0@0 f32[s0] stride [1] offset 0) -> (buf0@0 i64[2*u1 + 1, 1] stride [1, 1] offset 0) defines u1 from nonzero = aten.nonzero.default because "data"
  kernel k0 (i0: u0) from mul = aten.mul.Tensor
    %0 = load arg0@0[i0] : f32 {i0}
    %1 = index <f0> : f64 {}
    %2 = cast %1 : f32 {}
    %3 = mul %0 %2 : f32 {i0}
    %4 = store buf1@0[i0] %3 {i0}
  return (buf1@0 f32[u0] stride [1] offset 0, <u1>, <t0>, <f0>)
"""  # noqa: E501  a line a node

# a program that calls one of its own with a size of its, and waits for what a call has started
CALLS = """program inference
  symbol s0 [2, inf] hint 100
  input s0 = s0
  input arg0: f32[s0] stride [1] cpu
  buffer buf0: f32[s0] stride [1] cpu
  buffer buf1: f32[s0] stride [1] cpu
  region {
    program region_0
      symbol s0 [2, inf] hint 100
      input s0 = s0
      input arg0: f32[s0] stride [1] cpu
      buffer buf0: f32[s0] stride [1] cpu
      kernel k0 (i0: s0) from neg = aten.neg.default
        %0 = load arg0@0[i0] : f32 {i0}
        %1 = neg %0 : f32 {i0}
        %2 = store buf0@0[i0] %1 {i0}
      return (buf0@0 f32[s0] stride [1] offset 0)
  }
  extern x0 return higher_order.invoke_subgraph(region region_0 [s0], "region_0", \
arg0@0 f32[s0] stride [1] offset 0) -> (buf0@0 f32[s0] stride [1] offset 0) \
from invoke_subgraph = higher_order.invoke_subgraph because "its graphs are compiled"
  extern x1 return aten.exp.default(buf0@0 f32[s0] stride [1] offset 0) -> (buf1@0 f32[s0] stride [1] offset 0) effect \
from exp = aten.exp.default because "a call that goes on"
  extern x2 inplace aten.relu_.default(buf1@0 f32[s0] stride [1] offset 0) -> () writes buf1@1 holds buf0@0 effect \
from relu_ = aten.relu_.default because "its end"
  return (buf1@1 f32[s0] stride [1] offset 0)
"""

ALL = {"calls": CALLS, "softmax": SOFTMAX, "chain": CHAIN, "regions": REGIONS, "numbers": NUMBERS}
