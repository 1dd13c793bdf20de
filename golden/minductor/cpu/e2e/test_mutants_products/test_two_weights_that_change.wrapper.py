# golden  tests/e2e/test_mutants_products.py::test_two_weights_that_change   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
mul_0 = kernels('mul_0')


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((16, 48), (48, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg0_1, arg1_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg1_1
    events.append(('free', 'arg1_1'))
    buf1 = empty_strided((16, 48), (48, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: mm_1
    torch.mm(arg0_1, arg2_1, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1, arg2_1
    events.append(('free', 'arg0_1'))
    events.append(('free', 'arg2_1'))
    # 3: mul
    mul_0(buf0, buf1, n_threads)
    events.append(('launch', 'mul_0'))
    buf2 = buf0
    del buf0
    events.append(('reuse', 'buf2'))
    del buf1
    events.append(('free', 'buf1'))
    return (buf2,)

# end of golden
