# golden  tests/e2e/test_mutants.py::test_choices_between_other_kernels_are_others   target=cpu  view=wrapper  level=canonical  form=2

import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

f32 = torch.float32
fused_cos_softmax_0 = kernels('fused_cos_softmax_0')
fused_cos_softmax_1 = kernels('fused_cos_softmax_1')
fused_sin_softmax_2 = kernels('fused_sin_softmax_2')
fused_sin_softmax_3 = kernels('fused_sin_softmax_3')


def fused_cos_softmax_0_3_rows(arg0_1, buf3, n_threads):
    # 1: cos, _softmax
    fused_cos_softmax_0(arg0_1, buf3, n_threads)
    events.append(('launch', 'fused_cos_softmax_0'))


def fused_cos_softmax_0_3_rows_in_parts(arg0_1, buf3, n_threads):
    # 2: cos, _softmax
    fused_cos_softmax_1(arg0_1, buf3, n_threads)
    events.append(('launch', 'fused_cos_softmax_1'))


fused_cos_softmax_0_3 = choose('af23c1bbe8f1982d', 'bits', 'rows', {'rows': fused_cos_softmax_0_3_rows, 'rows_in_parts': fused_cos_softmax_0_3_rows_in_parts}, (), (1,), ())


def fused_sin_softmax_2_6_rows(arg1_1, buf7, n_threads):
    # 4: sin, _softmax_1
    fused_sin_softmax_2(arg1_1, buf7, n_threads)
    events.append(('launch', 'fused_sin_softmax_2'))


def fused_sin_softmax_2_6_rows_in_parts(arg1_1, buf7, n_threads):
    # 5: sin, _softmax_1
    fused_sin_softmax_3(arg1_1, buf7, n_threads)
    events.append(('launch', 'fused_sin_softmax_3'))


fused_sin_softmax_2_6 = choose('65b67bf33c3975bf', 'bits', 'rows', {'rows': fused_sin_softmax_2_6_rows, 'rows_in_parts': fused_sin_softmax_2_6_rows_in_parts}, (), (1,), ())


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    n_threads = threads.count()
    buf3 = empty_strided((8, 40000), (40000, 1), f32)
    events.append(('allocate', 'buf3'))
    # 3: cos, _softmax
    fused_cos_softmax_0_3(arg0_1, buf3, n_threads)
    del arg0_1
    events.append(('free', 'arg0_1'))
    buf7 = empty_strided((8, 40000), (40000, 1), f32)
    events.append(('allocate', 'buf7'))
    # 6: sin, _softmax_1
    fused_sin_softmax_2_6(arg1_1, buf7, n_threads)
    del arg1_1
    events.append(('free', 'arg1_1'))
    return (buf3, buf7)

# end of golden
