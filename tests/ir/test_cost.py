"""Bytes by one rule: each distinct element once."""

from minductor.ir.program.nodes import Kernel
from minductor.ir.program.parser import parse_program
from minductor.ir.report.counted_cost import distinct_elements, element_set, kernel_cost


def test_equal_regions_count_once_and_never_more_than_the_buffer() -> None:
    rows, all_of_it = element_set(0, [(64, 4), (1, 64)]), element_set(0, [(1, 256)])
    assert rows == all_of_it
    assert distinct_elements([rows, all_of_it], 1000) == 256
    assert distinct_elements([rows, element_set(256, [(1, 256)])], 1000) == 512
    assert distinct_elements([rows, element_set(1, [(1, 256)])], 300) == 300


def test_columns_and_windows() -> None:
    assert element_set(0, [(64, 4), (1, 8)]).count == 32
    assert element_set(0, [(1, 5), (1, 3)]).count == 7
    assert element_set(3, [(-1, 4)]) == element_set(0, [(1, 4)])
    assert element_set(0, [(0, 100), (1, 4)]).count == 4


def test_a_kernel_reads_an_element_once_however_it_is_named() -> None:
    program = parse_program("""
program p
  input x: f32[8, 64] stride [64, 1] cpu
  buffer y: f32[8, 32] stride [32, 1] cpu
  kernel k (i0: 8, i1: 32)
    %0 = load x@0[64*i0 + i1] : f32 {i0 i1}
    %1 = load x@0[64*i0 - i1 + 31] : f32 {i0 i1}
    %2 = add %0 %1 : f32 {i0 i1}
    %3 = store y@0[32*i0 + i1] %2 {i0 i1}
  return (y@0 f32[8, 32] stride [32, 1] offset 0)
""")
    [kernel] = program.nodes
    assert isinstance(kernel, Kernel)
    cost = kernel_cost(kernel, program.buffer_table(), ())
    assert (cost.read, cost.written) == (8 * 32 * 4, 8 * 32 * 4)


def test_what_is_empty_moves_nothing() -> None:
    program = parse_program("""
program p
  input x: f32[8, 0] stride [1, 1] cpu
  buffer y: f32[8, 0] stride [1, 1] cpu
  kernel k (i0: 8, i1: 0)
    %0 = load x@0[i0 + i1] : f32 {i0 i1}
    %1 = store y@0[i0 + i1] %0 {i0 i1}
  return (y@0 f32[8, 0] stride [1, 1] offset 0)
""")
    [kernel] = program.nodes
    assert isinstance(kernel, Kernel)
    assert kernel_cost(kernel, program.buffer_table(), ()).bytes == 0
