# golden  tests/e2e/test_pointwise.py::test_chain   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
fused_mul_add_gelu_sub_0 = kernels('fused_mul_add_gelu_sub_0')


def call(args):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    buf3 = empty_strided((64, 128), (128, 1), f32)
    events.append(('allocate', 'buf3'))
    # 1: mul, add, gelu, sub
    fused_mul_add_gelu_sub_0(arg0_1, buf3, n_threads)
    events.append(('launch', 'fused_mul_add_gelu_sub_0'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    return (buf3,)

# end of golden
