# golden  tests/e2e/test_mutants.py::test_an_operator_reads_before_its_operand_is_overwritten   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
sin_0 = kernels('sin_0')
copy_1 = kernels('copy_1')


def call(args):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    buf0 = empty_strided((8, 8), (8, 1), f32)
    events.append(('allocate', 'buf0'))
    # 1: sin
    sin_0(arg0_1, buf0, n_threads)
    events.append(('launch', 'sin_0'))
    buf1 = empty_strided((8, 8), (8, 1), f32)
    events.append(('allocate', 'buf1'))
    # 2: mm
    torch.mm(buf0, arg0_1, out=buf1)
    events.append(('extern', 'aten.mm.out'))
    # 3: copy, copy_
    copy_1(buf0, arg0_1, n_threads)
    events.append(('launch', 'copy_1'))
    del arg0_1, buf0
    events.append(('free', 'arg0_1'))
    events.append(('free', 'buf0'))
    return (buf1,)

# end of golden
