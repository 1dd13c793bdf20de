# golden  tests/e2e/test_mutants_products.py::test_joined_products   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
fused_mul_sub_0 = kernels('fused_mul_sub_0')


def call(args):
    arg0_1, arg1_1, arg2_1, arg3_1, cat_default_folded = args
    args.clear()
    n_threads = threads.count()
    del arg0_1, arg1_1, arg2_1
    events.append(('free', 'arg0_1'))
    events.append(('free', 'arg1_1'))
    events.append(('free', 'arg2_1'))
    cat_default_folded_view1 = reinterpret(cat_default_folded, (64, 144), (1, 64), 0)
    buf0 = empty_strided((16, 144), (144, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: mm_default
    torch.mm(arg3_1, cat_default_folded_view1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del cat_default_folded_view1
    events.append(('free', 'cat_default_folded_view1'))
    del arg3_1, cat_default_folded
    events.append(('free', 'arg3_1'))
    events.append(('free', 'cat_default_folded'))
    buf2 = empty_strided((16, 48), (48, 1), f32)
    events.append(('allocate', 'buf2'))
    # 2: mul, sub
    fused_mul_sub_0(buf0, buf2, n_threads)
    events.append(('launch', 'fused_mul_sub_0'))
    del buf0
    events.append(('free', 'buf0'))
    return (buf2,)

# end of golden
