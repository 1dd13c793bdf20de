# golden  tests/e2e/test_mutants_products.py::test_results_that_the_caller_gets   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
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
    torch.mm(arg2_1, arg1_1, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    del arg2_1, arg1_1
    events.append(('free', 'arg2_1'))
    events.append(('free', 'arg1_1'))
    return (buf0, buf1)

# end of golden
