# golden  tests/e2e/test_mutants.py::test_views_of_results   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
mul_0 = kernels('mul_0')


def call(args):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((6, 6), (6, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg0_1, arg0_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    buf1 = empty_strided((6, 6), (6, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: mul
    mul_0(arg0_1, buf1, n_threads)
    events.append(('launch', 'mul_0'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    buf0_view1 = reinterpret(buf0, (5, 4), (6, 1), 8)
    return (buf0_view1, buf1)

# end of golden
