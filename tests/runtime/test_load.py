"""Loading: kernels as built-in functions, what they read, what is refused, and the threads they may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from minductor.core.errors import LoadFailed
from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit
from minductor.runtime.launch.load import ENTRY_PRELUDE, MAX_ARGUMENTS, Library, entry, load_library, threads

ROOT = Path(__file__).parents[2]
MANY = MAX_ARGUMENTS - 1

KERNELS = f"""
{EXPORT} long add(const float* __restrict a, const float* b, float* out, long n, long threads) {{
  for (long i = 0; i < n; i++) out[i] = a[i] + b[i];
  return threads;
}}
{EXPORT} int mixed(int i, double d, short* out, long long l, unsigned char u) {{
  out[0] = static_cast<short>(i + l + u + static_cast<int>(d * 4));
  return -7;
}}
{EXPORT} long none() {{ return 1L << 40; }}
{EXPORT} long order({", ".join(f"long a{i}" for i in range(MANY))}, long* out) {{
  long i = 0;
  {" ".join(f"out[i++] = a{i};" for i in range(MANY))}
  return i;
}}
{EXPORT} long address(const void* p) {{ return reinterpret_cast<long>(p); }}
extern "C" int omp_get_max_threads();
extern "C" int omp_get_thread_num();
extern "C" int omp_get_num_threads();
{EXPORT} long most_threads() {{ return omp_get_max_threads(); }}
{EXPORT} long team(long threads) {{
  long size = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
  if (omp_get_thread_num() == 0) size = omp_get_num_threads();
  return size;
}}
extern "C" int usleep(unsigned);
{EXPORT} long nap(long* flag) {{
  for (int i = 0; i < 3000 && __atomic_load_n(flag, __ATOMIC_SEQ_CST) == 0; i++) usleep(10000);
  return *flag;
}}
"""
BOUND = ("add", "mixed", "none", "order", "address", "most_threads", "team", "nap")


def build(folder: Path, text: str, *symbols: str) -> Path:
    unit = Unit("m", ENTRY_PRELUDE + text + "".join(map(entry, symbols)))
    Toolchain(probe(), os.environ, keep=folder).compile([unit], folder / "m.so")
    return folder / "m.so"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("load"), KERNELS, *BOUND)


@pytest.fixture(scope="module")
def library(path: Path) -> Library:
    return load_library(path)


def test_a_kernel_reads_tensors_and_ints(library: Library) -> None:
    a, b, out = torch.randn(100), torch.randn(100), torch.zeros(100)
    assert library.bind("add")(a, b, out, 99, 5) == 5
    assert torch.equal(out[:99], (a + b)[:99]) and out[99] == 0


def test_the_address_is_the_tensors_own_first_element(library: Library) -> None:
    address = library.bind("address")
    tensor = torch.arange(10)
    for view in (tensor, tensor[3:], tensor[::2], torch.nn.Parameter(torch.ones(3)), torch.ones(2, requires_grad=True)):
        assert address(view) == view.data_ptr()
    assert address(torch.empty(0)) == torch.empty(0).data_ptr()


def test_a_kernel_has_its_name(library: Library) -> None:
    add = library.bind("add")
    assert add.__name__ == "add" and "built-in" in repr(add)


def test_parameters_of_any_kind_in_any_order(library: Library) -> None:
    out = torch.zeros(1, dtype=torch.int16)
    assert library.bind("mixed")(-1000, 2.5, out, 300, 255) == -7
    assert out.item() == -1000 + 300 + 255 + 10
    assert library.bind("mixed")(0, 3, out, 0, 0) == -7  # an int where a double is wanted
    assert out.item() == 12


def test_the_status_is_wide(library: Library) -> None:
    assert library.bind("none")() == 1 << 40


def test_many_arguments_keep_their_order(library: Library) -> None:
    out = torch.zeros(MANY, dtype=torch.int64)
    values = [i * i - 5 for i in range(MANY)]
    assert library.bind("order")(*values, out) == MANY
    assert out.tolist() == values


@pytest.mark.parametrize("arguments", [(), (1, 2, 3), (1,) * 6])
def test_a_wrong_number_of_arguments_is_an_error(library: Library, arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="mixed takes 5 arguments"):
        library.bind("mixed")(*arguments)


@pytest.mark.parametrize("bad", ["1", 1.5, None, 1 << 70])
def test_what_is_no_int_is_an_error_and_nothing_runs(library: Library, bad: object) -> None:
    out = torch.zeros(3)
    with pytest.raises((TypeError, OverflowError)):
        library.bind("add")(torch.ones(3), torch.ones(3), out, bad, 1)
    assert out.tolist() == [0, 0, 0]


def test_a_bound_kernel_outlives_its_library(path: Path) -> None:
    bound = [load_library(path).bind("none") for _ in range(100)]
    assert {f() for f in bound} == {1 << 40}


def test_other_threads_run_while_a_kernel_does(library: Library) -> None:
    flag = torch.zeros(1, dtype=torch.int64)
    threading.Timer(0.1, flag.fill_, (1,)).start()  # it can only fire if the kernel lets go of the interpreter
    assert library.bind("nap")(flag) == 1


def test_several_units_share_one_call_function(tmp_path: Path) -> None:
    units = [
        Unit(f"u{i}", ENTRY_PRELUDE + EXPORT + f"long k{i}(long x) {{ return x + {i}; }}\n" + entry(f"k{i}"))
        for i in range(3)
    ]
    Toolchain(probe(), os.environ).compile(units, tmp_path / "m.so")
    library = load_library(tmp_path / "m.so")
    assert [library.bind(f"k{i}")(10) for i in range(3)] == [10, 11, 12]


def test_two_libraries_with_the_same_symbol_stay_apart(tmp_path: Path) -> None:
    answers: list[Callable[..., int]] = []
    for i in range(2):
        folder = tmp_path / str(i)
        folder.mkdir()
        answers.append(load_library(build(folder, EXPORT + f"long same() {{ return {i}; }}\n", "same")).bind("same"))
    assert [answer() for answer in answers] == [0, 1]


def test_a_symbol_that_is_not_there(library: Library) -> None:
    with pytest.raises(LoadFailed, match="missing"):
        library.bind("missing")
    with pytest.raises(LoadFailed, match="missing"):
        library.address("missing")


# What cannot be loaded.


def test_a_file_that_is_missing_cut_or_no_library(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    cuts = {f"cut{n}.so": whole[: len(whole) * n // 16] for n in range(1, 16)}
    for name, data in {**cuts, "short.so": whole[:-1], "text.so": b"hello" * 99, "empty.so": b""}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(LoadFailed, match=name):
            load_library(tmp_path / name)
    with pytest.raises(LoadFailed, match=r"missing\.so"):
        load_library(tmp_path / "missing.so")


def test_an_undefined_symbol_fails_at_load_not_in_a_kernel(tmp_path: Path) -> None:
    text = (
        'extern "C" long nowhere_to_be_found(long);\n' + EXPORT + "long f(long x) { return nowhere_to_be_found(x); }\n"
    )
    with pytest.raises(LoadFailed, match="nowhere_to_be_found"):
        load_library(build(tmp_path, text, "f"))


def test_a_sanitised_library_is_refused_where_it_would_end_the_process(tmp_path: Path) -> None:
    Toolchain(probe(), os.environ).compile([Unit("m", "int x;")], tmp_path / "m.so", sanitize=True)
    with pytest.raises(LoadFailed, match="LD_PRELOAD"):
        load_library(tmp_path / "m.so")


def test_a_torch_without_the_address_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "_torchinductor_pyobject_tensor_data_ptr")
    with pytest.raises(LoadFailed, match="tensor's data"):
        load_library(path)


@pytest.mark.parametrize("parameter", ["float x", "bool* p, float x"])
def test_a_parameter_that_no_argument_becomes_does_not_compile(tmp_path: Path, parameter: str) -> None:
    with pytest.raises(Exception, match="pointers, integers and doubles"):
        build(tmp_path, EXPORT + f"long f({parameter}) {{ return 0; }}\n", "f")


# Threads.


def test_torch_and_the_kernels_share_one_openmp(library: Library) -> None:
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert library.bind("most_threads")() == threads().count() == count
            assert library.bind("team")(threads().count()) == count
    finally:
        torch.set_num_threads(before)
    names = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line]
    assert len(set(names)) == 1


def test_a_forked_child_runs_kernels_on_one_thread(path: Path) -> None:
    """With more, libgomp would wait for ever for the threads that the fork did not copy."""
    code = """
import os, sys, torch
from pathlib import Path
from minductor.runtime.launch.load import load_library, threads
torch.set_num_threads(2)
count, team = threads(), load_library(Path(sys.argv[1])).bind("team")
assert team(count.count()) == 2
child = os.fork()
if child == 0:
    assert (count.count(), threads().count()) == (1, 1)
    os._exit(10 + team(count.count()))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
assert team(threads().count()) == 2
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, env=environ, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
