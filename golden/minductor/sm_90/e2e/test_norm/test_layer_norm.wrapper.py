# golden  tests/e2e/test_norm.py::test_layer_norm   target=sm_90  view=wrapper  level=skeleton  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch.launch import empty_strided_cuda
from minductor.runtime.launch.launch import raw_stream

f32 = torch.float32
layer_norm_0 = kernels('layer_norm_0')


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    # partition 0: can be captured
    with torch.cuda.device(0):
        buf6 = empty_strided_cuda((32, 256), (256, 1), f32)
        events.append(('allocate', 'buf6'))
        stream = raw_stream(0)
        # 1: native_layer_norm
        layer_norm_0(arg0_1, arg1_1, arg2_1, buf6, stream)
        events.append(('launch', 'layer_norm_0'))
        del arg0_1, arg1_1, arg2_1
        events.append(('free', 'arg0_1'))
        events.append(('free', 'arg1_1'))
        events.append(('free', 'arg2_1'))
    return (buf6,)

# end of golden
