# golden  tests/e2e/test_mutants_products.py::test_a_matrix_is_added   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    buf0 = empty_strided((32, 800), (800, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: addmm
    torch.addmm(arg1_1, arg2_1, arg0_1, out=buf0)
    events.append(('extern', 'aten.addmm.out'))
    del arg1_1, arg2_1, arg0_1
    events.append(('free', 'arg1_1'))
    events.append(('free', 'arg2_1'))
    events.append(('free', 'arg0_1'))
    return (buf0,)

# end of golden
