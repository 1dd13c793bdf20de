# golden  tests/e2e/test_norm.py::test_layer_norm   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
layer_norm_0 = kernels('layer_norm_0')


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    n_threads = threads.count()
    buf6 = empty_strided((32, 256), (256, 1), f32)
    events.append(('allocate', 'buf6'))
    # 1: native_layer_norm
    layer_norm_0(arg0_1, arg1_1, arg2_1, buf6, n_threads)
    events.append(('launch', 'layer_norm_0'))
    del arg0_1, arg1_1, arg2_1
    events.append(('free', 'arg0_1'))
    events.append(('free', 'arg1_1'))
    events.append(('free', 'arg2_1'))
    return (buf6,)

# end of golden
