# golden  tests/e2e/test_mutants.py::test_no_storage_is_kept_over_the_peak   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch import memory_plan_checks

f32 = torch.float32
sum_0 = kernels('sum_0')
fused_add_repeat_1 = kernels('fused_add_repeat_1')
sum_2 = kernels('sum_2')
add_3 = kernels('add_3')

call_lives = memory_plan_checks.planned(
    ('lent', 65536, False, ('arg0_1', 'input', '', 0, 7)),
    ('own', 65536, False, ('buf0', 'allocate', '', 0, 2)),
    ('own', 512, False, ('buf1', 'allocate', '', 1, 3)),
    ('own', 524288, False, ('buf3', 'allocate', '', 2, 4)),
    ('own', 524288, False, ('buf4', 'allocate', '', 3, 5)),
    ('own', 512, False, ('buf5', 'allocate', '', 4, 6)),
    ('own', 65536, False, ('buf6', 'allocate', '', 5, 7)),
    ('own', 65536, True, ('buf7', 'allocate', '', 6, None)),
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
    buf1 = empty_strided((128,), (1,), f32)
    events.append(('allocate', 'buf1'))
    life.allocate('buf1', buf1)
    life.call('sum_0', ('buf0', buf0), ('buf1', buf1))
    # 2: sum_1
    sum_0(buf0, buf1, n_threads)
    events.append(('launch', 'sum_0'))
    del buf0
    events.append(('free', 'buf0'))
    life.free('buf0')
    buf3 = empty_strided((1024, 128), (128, 1), f32)
    events.append(('allocate', 'buf3'))
    life.allocate('buf3', buf3)
    life.call('fused_add_repeat_1', ('arg0_1', arg0_1), ('buf1', buf1), ('buf3', buf3))
    # 3: add, repeat
    fused_add_repeat_1(arg0_1, buf1, buf3, n_threads)
    events.append(('launch', 'fused_add_repeat_1'))
    del buf1
    events.append(('free', 'buf1'))
    life.free('buf1')
    buf4 = empty_strided((1024, 128), (128, 1), f32)
    events.append(('allocate', 'buf4'))
    life.allocate('buf4', buf4)
    life.call('aten.mm.out', ('buf3', buf3), ('arg0_1', arg0_1), ('buf4', buf4))
    # 4: mm_1
    torch.mm(buf3, arg0_1, out=buf4)
    events.append(('extern', 'aten.mm.out'))
    del buf3
    events.append(('free', 'buf3'))
    life.free('buf3')
    buf5 = empty_strided((128,), (1,), f32)
    events.append(('allocate', 'buf5'))
    life.allocate('buf5', buf5)
    life.call('sum_2', ('buf4', buf4), ('buf5', buf5))
    # 5: sum_2
    sum_2(buf4, buf5, n_threads)
    events.append(('launch', 'sum_2'))
    del buf4
    events.append(('free', 'buf4'))
    life.free('buf4')
    buf6 = empty_strided((128, 128), (128, 1), f32)
    events.append(('allocate', 'buf6'))
    life.allocate('buf6', buf6)
    life.call('add_3', ('arg0_1', arg0_1), ('buf5', buf5), ('buf6', buf6))
    # 6: add_1
    add_3(arg0_1, buf5, buf6, n_threads)
    events.append(('launch', 'add_3'))
    del buf5
    events.append(('free', 'buf5'))
    life.free('buf5')
    buf7 = empty_strided((128, 128), (128, 1), f32)
    events.append(('allocate', 'buf7'))
    life.allocate('buf7', buf7)
    life.call('aten.mm.out', ('buf6', buf6), ('arg0_1', arg0_1), ('buf7', buf7))
    # 7: mm_2
    torch.mm(buf6, arg0_1, out=buf7)
    events.append(('extern', 'aten.mm.out'))
    del arg0_1, buf6
    events.append(('free', 'arg0_1'))
    events.append(('free', 'buf6'))
    life.free('arg0_1', 'buf6')
    life.returns(('buf7', buf7))
    return (buf7,)

# end of golden
