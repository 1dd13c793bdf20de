# golden  tests/e2e/test_mutants.py::test_texts_and_bits_are_the_same_everywhere   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
sin_0 = kernels('sin_0')
fused_add_sum_1 = kernels('fused_add_sum_1')


def call(args):
    arg0_1, arg1_1, arg2_1, arg3_1, arg4_1, arg5_1, arg6_1, arg7_1 = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((64, 64), (64, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg0_1, arg1_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1, arg1_1
    events.append(('free', 'arg0_1'))
    events.append(('free', 'arg1_1'))
    # 2: sin
    sin_0(buf0, n_threads)
    events.append(('launch', 'sin_0'))
    buf1 = buf0
    del buf0
    events.append(('reuse', 'buf1'))
    buf8 = empty_strided((64,), (1,), f32)
    events.append(('allocate', 'buf8'))
    # 3: add, add_1, add_2, add_3, add_4, add_5, sum_1
    fused_add_sum_1(arg2_1, arg3_1, arg4_1, arg5_1, arg6_1, arg7_1, buf8, n_threads)
    events.append(('launch', 'fused_add_sum_1'))
    del arg2_1, arg3_1, arg4_1, arg5_1, arg6_1, arg7_1
    events.append(('free', 'arg2_1'))
    events.append(('free', 'arg3_1'))
    events.append(('free', 'arg4_1'))
    events.append(('free', 'arg5_1'))
    events.append(('free', 'arg6_1'))
    events.append(('free', 'arg7_1'))
    return (buf1, buf8)

# end of golden
