# golden  tests/e2e/test_mutants_products.py::test_a_product_of_a_generated_kernel   target=interpret  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

bf16 = torch.bfloat16
fused_sin_mm_cos_0 = kernels('fused_sin_mm_cos_0')


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    n_threads = threads.count()
    buf2 = empty_strided((16, 40), (40, 1), bf16)
    events.append(('allocate', 'buf2'))
    # 1: sin, mm, cos
    fused_sin_mm_cos_0(arg1_1, arg0_1, buf2, n_threads)
    events.append(('launch', 'fused_sin_mm_cos_0'))
    del arg1_1, arg0_1
    events.append(('free', 'arg1_1'))
    events.append(('free', 'arg0_1'))
    return (buf2,)

# end of golden
