# golden  tests/e2e/test_pointwise.py::test_chain   target=sm_90  view=wrapper  level=skeleton  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch.launch import empty_strided_cuda
from minductor.runtime.launch.launch import raw_stream

f32 = torch.float32
fused_mul_add_gelu_sub_0 = kernels('fused_mul_add_gelu_sub_0')


def call(args):
    arg0_1, = args
    args.clear()
    # partition 0: can be captured
    with torch.cuda.device(0):
        buf3 = empty_strided_cuda((64, 128), (128, 1), f32)
        events.append(('allocate', 'buf3'))
        stream = raw_stream(0)
        # 1: mul, add, gelu, sub
        fused_mul_add_gelu_sub_0(arg0_1, buf3, stream)
        events.append(('launch', 'fused_mul_add_gelu_sub_0'))
        del arg0_1
        events.append(('free', 'arg0_1'))
    return (buf3,)

# end of golden
