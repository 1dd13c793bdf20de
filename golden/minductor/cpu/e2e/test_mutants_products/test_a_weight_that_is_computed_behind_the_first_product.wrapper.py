# golden  tests/e2e/test_mutants_products.py::test_a_weight_that_is_computed_behind_the_first_product   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
mul_0 = kernels('mul_0')


def call(args):
    arg0_1, arg1_1, arg2_1, mul_folded = args
    args.clear()
    n_threads = threads.count()
    del arg1_1
    events.append(('free', 'arg1_1'))
    buf0 = empty_strided((16, 48), (48, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg2_1, arg0_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    buf1 = empty_strided((16, 48), (48, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: mm_1
    torch.mm(arg2_1, mul_folded, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    del arg2_1, mul_folded
    events.append(('free', 'arg2_1'))
    events.append(('free', 'mul_folded'))
    # 3: mul_1
    mul_0(buf0, buf1, n_threads)
    events.append(('launch', 'mul_0'))
    buf2 = buf0
    del buf0
    events.append(('reuse', 'buf2'))
    del buf1
    events.append(('free', 'buf1'))
    return (buf2,)

# end of golden
