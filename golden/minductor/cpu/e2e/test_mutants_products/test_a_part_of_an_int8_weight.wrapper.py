# golden  tests/e2e/test_mutants_products.py::test_a_part_of_an_int8_weight   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

bf16 = torch.bfloat16
to_copy_0 = kernels('to_copy_0')
mul_1 = kernels('mul_1')


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((48, 64), (64, 1), bf16)
    events.append(('allocate', 'buf0'))
    # 1: _to_copy
    to_copy_0(arg0_1, buf0, n_threads)
    events.append(('launch', 'to_copy_0'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    buf0_view1 = reinterpret(buf0, (64, 48), (1, 64), 0)
    buf1 = empty_strided((4, 48), (48, 1), bf16)
    events.append(('allocate', 'buf1'))
    # 2: mm
    torch.mm(arg1_1, buf0_view1, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    del buf0_view1
    events.append(('free', 'buf0_view1'))
    del buf0, arg1_1
    events.append(('free', 'buf0'))
    events.append(('free', 'arg1_1'))
    # 3: mul
    mul_1(buf1, arg2_1, n_threads)
    events.append(('launch', 'mul_1'))
    buf2 = buf1
    del buf1
    events.append(('reuse', 'buf2'))
    del arg2_1
    events.append(('free', 'arg2_1'))
    return (buf2,)

# end of golden
