# golden  tests/e2e/test_mutants.py::test_the_nearest_size_is_that_of_the_nearest_power   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch.launch import on_huge_pages
from minductor.runtime.launch.by_size import by_size

f32 = torch.float32
fused_exp_sum_0 = kernels('fused_exp_sum_0')
fused_exp_sum_1 = kernels('fused_exp_sum_1')


def fused_exp_sum_0_3_columns(arg2_1, buf1, s0, s1, n_threads):
    # 1: exp, sum_1
    fused_exp_sum_0(arg2_1, buf1, s0, s1, n_threads)
    events.append(('launch', 'fused_exp_sum_0'))


def fused_exp_sum_0_3_columns_in_parts(arg2_1, buf1, s0, s1, n_threads):
    # 2: exp, sum_1
    fused_exp_sum_1(arg2_1, buf1, s0, s1, n_threads)
    events.append(('launch', 'fused_exp_sum_1'))


fused_exp_sum_0_3 = by_size((fused_exp_sum_0_3_columns, fused_exp_sum_0_3_columns_in_parts, ), ((64, 64), (1024, 1024)), (2, 3))


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    n_threads = threads.count()
    s0 = arg0_1
    s1 = arg1_1
    buf1 = empty_strided((s1,), (1,), f32)
    if 4*s1 >= 33554432: on_huge_pages(buf1)
    events.append(('allocate', 'buf1'))
    # 3: exp, sum_1
    fused_exp_sum_0_3(arg2_1, buf1, s0, s1, n_threads)
    del arg2_1
    events.append(('free', 'arg2_1'))
    return (buf1,)

# end of golden
