# golden  tests/e2e/test_mutants.py::test_memory   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch import memory_plan_checks

f32 = torch.float32
fused_flip_add_0 = kernels('fused_flip_add_0')
fused_flip_mul_1 = kernels('fused_flip_mul_1')

call_lives = memory_plan_checks.planned(
    ('lent', 65536, False, ('arg0_1', 'input', '', 0, 1)),
    ('own', 65536, True, ('buf0', 'allocate', '', 0, 2), ('buf3', 'transfer', 'buf0', 2, 4), ('buf6', 'transfer', 'buf3', 4, None)),
    ('own', 65536, False, ('buf2', 'allocate', '', 1, 3), ('buf5', 'transfer', 'buf2', 3, 5)),
)


@memory_plan_checks.watched(call_lives, 'log', events)
def call(args, life):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    life.begins(('arg0_1', arg0_1))
    buf0 = empty_strided((128, 128), (128, 1), f32)
    events.append(('allocate', 'buf0'))
    life.allocate('buf0', buf0)
    life.call('aten.mm.out', ('arg0_1', arg0_1), ('buf0', buf0))
    # 1: mm
    torch.mm(arg0_1, arg0_1, out=buf0)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    life.free('arg0_1')
    buf2 = empty_strided((128, 128), (128, 1), f32)
    events.append(('allocate', 'buf2'))
    life.allocate('buf2', buf2)
    life.call('fused_flip_add_0', ('buf0', buf0), ('buf2', buf2))
    # 2: flip, add
    fused_flip_add_0(buf0, buf2, n_threads)
    events.append(('launch', 'fused_flip_add_0'))
    buf3 = buf0
    del buf0
    events.append(('reuse', 'buf3'))
    life.transfer('buf3', 'buf0', buf3)
    life.call('aten.mm.out', ('buf2', buf2), ('buf3', buf3))
    # 3: mm_1
    torch.mm(buf2, buf2, out=buf3)
    events.append(('extern', 'aten.mm.out'))
    buf5 = buf2
    del buf2
    events.append(('reuse', 'buf5'))
    life.transfer('buf5', 'buf2', buf5)
    life.call('fused_flip_mul_1', ('buf3', buf3), ('buf5', buf5))
    # 4: flip_1, mul
    fused_flip_mul_1(buf3, buf5, n_threads)
    events.append(('launch', 'fused_flip_mul_1'))
    buf6 = buf3
    del buf3
    events.append(('reuse', 'buf6'))
    life.transfer('buf6', 'buf3', buf6)
    life.call('aten.mm.out', ('buf5', buf5), ('buf6', buf6))
    # 5: mm_2
    torch.mm(buf5, buf5, out=buf6)
    events.append(('extern', 'aten.mm.out'))
    del buf5
    events.append(('free', 'buf5'))
    life.free('buf5')
    life.returns(('buf6', buf6))
    return (buf6,)

# end of golden
