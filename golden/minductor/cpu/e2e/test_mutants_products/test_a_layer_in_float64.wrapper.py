# golden  tests/e2e/test_mutants_products.py::test_a_layer_in_float64   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f64 = torch.float64


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    arg0_1_view1 = reinterpret(arg0_1, (768, 800), (1, 768), 0)
    buf0 = empty_strided((32, 800), (800, 1), f64)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg1_1, arg0_1_view1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1_view1
    events.append(('free', 'arg0_1_view1'))
    del arg1_1, arg0_1
    events.append(('free', 'arg1_1'))
    events.append(('free', 'arg0_1'))
    return (buf0,)

# end of golden
