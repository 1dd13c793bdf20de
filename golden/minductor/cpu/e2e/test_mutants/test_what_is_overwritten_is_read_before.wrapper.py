# golden  tests/e2e/test_mutants.py::test_what_is_overwritten_is_read_before   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
fused_mul_flip_add_copy_mul_0 = kernels('fused_mul_flip_add_copy_mul_0')
copy_1 = kernels('copy_1')


def call(args):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((8, 8), (8, 1), f32)
    events.append(('allocate', 'buf0'))
    buf3 = empty_strided((8, 8), (8, 1), f32)
    events.append(('allocate', 'buf3'))
    buf4 = empty_strided((8, 8), (8, 1), f32)
    events.append(('allocate', 'buf4'))
    # 1: mul, flip, add, copy, mul_1
    fused_mul_flip_add_copy_mul_0(arg0_1, buf0, buf3, buf4, n_threads)
    events.append(('launch', 'fused_mul_flip_add_copy_mul_0'))
    # 2: copy_
    copy_1(buf3, arg0_1, n_threads)
    events.append(('launch', 'copy_1'))
    del arg0_1, buf3
    events.append(('free', 'arg0_1'))
    events.append(('free', 'buf3'))
    return (buf0, buf4)

# end of golden
