# golden  tests/e2e/test_mutants_products.py::test_a_small_product_whose_factors_would_be_copied   target=interpret  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

bf16 = torch.bfloat16


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    buf0 = empty_strided((16, 40), (40, 1), bf16)
    events.append(('allocate', 'buf0'))
    # 1: mm
    torch.mm(arg0_1, arg1_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1, arg1_1
    events.append(('free', 'arg0_1'))
    events.append(('free', 'arg1_1'))
    return (buf0,)

# end of golden
