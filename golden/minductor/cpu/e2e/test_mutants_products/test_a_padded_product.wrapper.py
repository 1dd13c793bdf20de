# golden  tests/e2e/test_mutants_products.py::test_a_padded_product   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
constant_pad_nd_0 = kernels('constant_pad_nd_0')
constant_pad_nd_1 = kernels('constant_pad_nd_1')
cos_2 = kernels('cos_2')


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((33, 40), (40, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: constant_pad_nd_default
    constant_pad_nd_0(arg0_1, buf0, n_threads)
    events.append(('launch', 'constant_pad_nd_0'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    buf1 = empty_strided((40, 36), (36, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: constant_pad_nd_default_1
    constant_pad_nd_1(arg1_1, buf1, n_threads)
    events.append(('launch', 'constant_pad_nd_1'))
    del arg1_1
    events.append(('free', 'arg1_1'))
    buf2 = empty_strided((33, 36), (36, 1), f32)
    events.append(('allocate', 'buf2'))
    # 3: mm_default
    torch.mm(buf0, buf1, out=buf2)
    events.append(('extern', 'aten.mm.out'))
    del buf0, buf1
    events.append(('free', 'buf0'))
    events.append(('free', 'buf1'))
    buf3 = empty_strided((33, 35), (35, 1), f32)
    events.append(('allocate', 'buf3'))
    # 4: cos
    cos_2(buf2, buf3, n_threads)
    events.append(('launch', 'cos_2'))
    del buf2
    events.append(('free', 'buf2'))
    return (buf3,)

# end of golden
