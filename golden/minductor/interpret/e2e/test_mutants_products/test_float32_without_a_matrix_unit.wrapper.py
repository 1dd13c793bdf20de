# golden  tests/e2e/test_mutants_products.py::test_float32_without_a_matrix_unit   target=interpret  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
sin_0 = kernels('sin_0')
cos_1 = kernels('cos_1')


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((16, 33), (33, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: sin
    sin_0(arg1_1, buf0, n_threads)
    events.append(('launch', 'sin_0'))
    del arg1_1
    events.append(('free', 'arg1_1'))
    buf1 = empty_strided((16, 40), (40, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: mm
    torch.mm(buf0, arg0_1, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    del buf0, arg0_1
    events.append(('free', 'buf0'))
    events.append(('free', 'arg0_1'))
    # 3: cos
    cos_1(buf1, n_threads)
    events.append(('launch', 'cos_1'))
    buf2 = buf1
    del buf1
    events.append(('reuse', 'buf2'))
    return (buf2,)

# end of golden
