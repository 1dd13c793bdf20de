# golden  tests/e2e/test_mutants.py::test_nan_is_reported_where_it_is_made   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret
from minductor.runtime.launch import nan_asserts

f32 = torch.float32
fused_log_add_0 = kernels('fused_log_add_0')
places = [('log', 'add')]


def call(args):
    arg0_1, = args
    args.clear()
    n_threads = threads.count()
    buf1 = empty_strided((2,), (1,), f32)
    buf1.zero_()
    events.append(('allocate', 'buf1'))
    with nan_asserts.Watch('fused_log_add_0', {'buf1': buf1}, [arg0_1], places[0]):
        # 1: log, add
        fused_log_add_0(arg0_1, buf1, n_threads)
    events.append(('launch', 'fused_log_add_0'))
    del arg0_1
    events.append(('free', 'arg0_1'))
    return (buf1,)

# end of golden
