// golden  tests/e2e/test_wrapper_cpp.py::test_reads_like_the_plan   target=cpu  view=wrapper  level=skeleton  form=2

#include "minductor_torch.h"

extern "C" int64_t gelu_0(float*, int64_t);
extern "C" int64_t index_1(int64_t*, float*, float*, int64_t);
extern "C" int32_t aoti_torch_cpu_addmm_out(md_Handle, md_Handle, md_Handle, md_Handle, double, double);
extern "C" int32_t aoti_torch_cpu_sort_stable(md_Handle, int32_t*, int64_t, int32_t, md_Handle*, md_Handle*);

static const md_Error index_1_errors[] = {
    {"IndexError", "index%s is out of bounds for dimension 0 with size 4 in aten.index.Tensor"},
};

static bool call(md_Call& md, md_Value* md_given, md_Value* md_made) {
  md_Lent arg0_1(md_given[0].tensor);
  md_Lent arg1_1(md_given[1].tensor);
  md_Lent arg2_1(md_given[2].tensor);
  md_Lent arg3_1(md_given[3].tensor);
  md_Tensor buf0, buf1, buf2, buf3, buf4, buf5;
  MD_TRY(md_empty(md, buf0, md_float32, {4, 8}, {8, 1}));
  md_event(md, "allocate", "buf0");
  // 1: addmm
  MD_CALL(aoti_torch_cpu_addmm_out(buf0.handle, arg0_1.handle, arg1_1.handle, arg2_1.handle, 1.0, 1.0),
          "lambda arg0_1, arg1_1, arg2_1, buf0: torch.addmm(arg0_1, arg1_1, arg2_1, out=buf0.clone())", "tttt", arg0_1.handle, arg1_1.handle, arg2_1.handle, buf0.handle);
  md_event(md, "extern", "aten.addmm.out");
  md_event(md, "free", "arg0_1");
  md_event(md, "free", "arg1_1");
  md_event(md, "free", "arg2_1");
  // 2: gelu
  gelu_0(buf0.data<float>(), md.threads);
  md_event(md, "launch", "gelu_0");
  buf1 = buf0.take();
  md_event(md, "reuse", "buf1");
  MD_TRY(md_empty(md, buf2, md_float32, {2, 8}, {8, 1}));
  md_event(md, "allocate", "buf2");
  // 3: index
  MD_TRY(md_status(md, index_1(arg3_1.data<int64_t>(), buf1.data<float>(), buf2.data<float>(), md.threads), index_1_errors, {"index"}));
  md_event(md, "launch", "index_1");
  md_event(md, "free", "arg3_1");
  // 4: histc
  MD_TRY(md_python(md, 4, {md_lend(buf1)}, "t", {&buf3}));
  md_event(md, "extern", "aten.histc.default");
  MD_TRY(md_sized(md, buf3, {100}));
  // 5: sort
  MD_CALL(aoti_torch_cpu_sort_stable(buf1.handle, md_Some<int32_t>(true), -1, false, buf4.made(), buf5.made()),
          "lambda buf1: torch.ops.aten.sort.stable(buf1, stable=True)", "t", buf1.handle);
  md_event(md, "extern", "aten.sort.stable");
  MD_TRY(md_sized(md, buf4, {4, 8}));
  MD_TRY(md_sized(md, buf5, {4, 8}));
  buf1.reset();
  md_event(md, "free", "buf1");
  md_made[0].tensor = buf2.give();
  md_made[1].tensor = buf3.give();
  md_made[2].tensor = buf4.give();
  md_made[3].tensor = buf5.give();
  return true;
}

MD_GRAPH("inference", call, "tttt", "tttt", "", 0)
MD_NODES("index")

// What only Python can call, by handle.
MD_PYTHON(R"python(
import math

import torch
from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret

aten_histc = torch.ops.aten.histc.default


def extern_4(buf1):
    # 4: histc
    buf3 = aten_histc(buf1)
    return (buf3,)
import torch
)python")

#include "minductor_python.h"

// end of golden
