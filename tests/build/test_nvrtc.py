"""CUDA text to a cubin: names, resources, messages, headers, architectures, what is missing, and interrupts."""

from __future__ import annotations

import builtins
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.build.nvrtc_tools import ARCH, symbols
from workbench.build import cuda_headers, diagnostics, nvrtc, nvrtc_errors, nvrtc_library, nvrtc_options
from workbench.build.resources import Resources
from workbench.errors import BuildError, ToolchainError

SCALE = '#line 2 "cell [3]"\ntemplate <typename T>\n__global__ void scale(const T* x, T* out, int n) {\n  out[threadIdx.x] = x[n] * T(2);\n}\n'
PLAIN = "__global__ void plain(float* x) { x[0] = 1; }\n"


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """The headers that NVRTC carries, unpacked once: 2400 files."""
    folder = str(tmp_path_factory.mktemp("carried"))
    return [folder] if nvrtc_library.unpack_headers(folder) else []


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch, carried):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cuda_headers, "_carried", lambda cache, version: carried)


def compile(text: str, *names: str, **options):
    return nvrtc.compile(text, **{"arch": ARCH, "names": names, **options})


def refused(text: str, *names: str, **options) -> BuildError:
    with pytest.raises(BuildError) as caught:
        compile(text, *names, **options)
    return caught.value


def tools() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def test_names_resolve_in_the_cubin_and_resources_are_those_of_cuobjdump():
    build = compile(SCALE + PLAIN, "scale<float>", "scale<double>", "plain")
    assert build.names == ("_Z5scaleIfEvPKT_PS0_i", "_Z5scaleIdEvPKT_PS0_i", "_Z5plainPf")
    assert build.path.endswith("kernel.cubin")
    assert build.tier == "cuda"
    assert (build.cached, build.note, build.diagnostics) == (False, "", ())
    assert set(build.names) <= symbols(build.path)
    said = subprocess.run(
        [tools() / "cuobjdump", "--dump-resource-usage", build.path], capture_output=True, text=True, check=True
    ).stdout
    registers = dict(re.findall(r"Function (\w+):\s+REG:(\d+)", said))
    assert [r.registers for r in build.resources] == [int(registers[n]) for n in build.names]
    assert [r.kernel for r in build.resources] == ["scale<float>", "scale<double>", "plain"]
    again = compile(SCALE + PLAIN, "scale<float>", "scale<double>", "plain")
    assert again.cached
    assert (again.path, again.names, again.resources) == (build.path, build.names, build.resources)


def test_bytes_that_python_shares_stay_as_they_are():
    """An empty log is one byte, and NVRTC writes it where it is told to."""
    nvrtc_library.run("", name="empty", options=(), headers={}, limit_s=60.0)
    shared = {n: (bytes([n]), chr(n)) for n in range(128)}
    assert all(one[0] == n and ord(letter) == n for n, (one, letter) in shared.items())


def test_a_refused_text_leaves_the_limit_of_the_stack_alone():
    """NVRTC lifts it for the whole process, and processes inherit it."""
    found = resource.getrlimit(resource.RLIMIT_STACK)
    before = (8 << 20, found[1])

    def refused(number):
        with pytest.raises(BuildError):
            nvrtc.compile(f"__global__ void k() {{ nowhere{number}(); }}", arch=ARCH)

    threads = [threading.Thread(target=refused, args=(i,)) for i in range(3)]
    resource.setrlimit(resource.RLIMIT_STACK, before)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert resource.getrlimit(resource.RLIMIT_STACK) == before
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, found)


def test_without_names_all_kernels_of_the_text_are_told():
    assert compile(PLAIN).names == ("_Z5plainPf",)
    assert compile(PLAIN).resources[0].kernel == "_Z5plainPf"


BIG = """\
__global__ void big(float* x, int n) {
  float v[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * 32 + threadIdx.x];
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i * 7 + 1) % 64] + x[k];
  }
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[i * 32 + threadIdx.x] = v[i];
}
"""


def test_spills_shared_memory_and_stack_are_told():
    (free,) = compile(BIG, "big").resources
    (tight,) = compile(BIG, "big", flags=("-maxrregcount", "32")).resources
    assert free.spills == 0
    assert free.registers > 64
    assert tight.registers <= 32
    assert tight.spill_stores > 0
    assert tight.spill_loads > 0
    assert 0 < tight.stack <= tight.spill_stores
    (shared,) = compile(
        "__global__ void s(float* x) { __shared__ float a[300]; a[threadIdx.x] = x[0]; __syncthreads(); x[1] = a[3]; }",
        "s",
    ).resources
    assert shared.shared == 1200
    (stack,) = compile(
        "__global__ void t(float* x, int n) { float a[100]; for (int i = 0; i < 100; ++i) a[(i * n) % 100] = x[i]; x[0] = a[n]; }",
        "t",
    ).resources
    assert stack.stack == 400


def test_another_cell_with_the_same_code_is_the_same_build_with_its_own_name():
    text = SCALE.replace("T(2)", "nothing")
    first = compile(SCALE, "scale<float>")
    assert compile(SCALE.replace("cell [3]", "cell [4]"), "scale<float>").path == first.path
    assert compile(SCALE, "scale<float>", line_info=True).path != first.path
    assert compile(SCALE, "scale<double>").path != first.path
    assert compile(SCALE, "scale<float>", arch="sm_80").path != first.path
    assert compile(SCALE, "scale<float>", flags=("-use_fast_math",)).path != first.path
    assert [refused(text.replace("[3]", f"[{n}]"), "scale<float>").file for n in (3, 4)] == ["cell [3]", "cell [4]"]


# ------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("\tint a = 1\n\tx[0] = a;", 3, 11, 'expected a ";"'),
        ("  x[0] = nothing;", 3, 10, 'identifier "nothing" is undefined'),
        ("#error stop here\n", 3, 2, "#error directive: stop here"),
        ("  x[0] = 1; {", 4, 0, 'expected a "}"'),
        ("  extern __device__ float missing(float);\n  x[0] = missing(x[1]);", 3, 0, "missing is declared, but nothing defines it in device code"),
        ("  __shared__ float s[20000]; s[threadIdx.x] = x[0]; x[1] = s[3];", 2, 0,
         "k declares 80000 bytes of __shared__ memory, 49152 are the most that a declaration may take: make it 'extern __shared__', and say how much in '//! shared = ...'"),
        ('  x[0] = 1;\n  asm("foo.f32 %0, %1;" : "=f"(x[0]) : "f"(x[1]));', 4, 0, "inline assembly: Not a name of any known instruction: 'foo'"),
    ],
    ids=["semicolon", "name", "directive", "brace", "undefined", "shared", "asm"],
)  # fmt: skip
def test_the_first_error_is_on_the_users_line(text, line, column, message):
    error = refused(f'#line 2 "cell [3]"\n__global__ void k(float* x) {{\n{text}\n}}\n', "k")
    assert (error.file, error.line) == ("cell [3]", line)
    first = error.diagnostics[0]
    assert (first.file, first.line, first.column, first.severity, first.message) == (
        "cell [3]",
        line,
        column,
        "error",
        message,
    )
    assert str(error).startswith(f"cell [3], line {line}: {message}")


def test_a_template_without_its_last_brace():
    error = refused('#line 2 "cell [3]"\n\ntemplate <typename T> __global__ void k(T* x) {\n  x[0] = 1;\n', "k<float>")
    assert error.line == 3
    assert error.message.startswith("closing brace of template definition not found")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("thrust/reduce.h", "it is for the host, from where functions on Tensor call it"),
        ("thrust/sort.h", "it is for the host, from where functions on Tensor call it"),
    ],
)
def test_a_header_that_nvrtc_cannot_read_is_named_on_its_line(header, said):
    error = refused(f'#line 2 "cell [3]"\n\n#include <{header}>\n{PLAIN}', "plain")
    assert (error.file, error.line) == ("cell [3]", 3)
    assert error.message.startswith(f"NVRTC cannot read <{header}>: {said}")


def test_an_error_in_a_template_says_who_asked_for_it(tmp_path):
    (tmp_path / "inner.cuh").write_text("template <typename T>\n__device__ T bad(T v) { return v.foo; }\n")
    text = '#line 2 "cell [3]"\n#include "inner.cuh"\ntemplate <class T>\n__global__ void k(T* x) {\n  x[0] = bad(x[1]);\n}\n'
    error = refused(text, "k<float>", includes=[str(tmp_path)])
    assert (error.file, error.line) == (str(tmp_path / "inner.cuh"), 2)
    assert [(d.severity, d.file, d.line) for d in error.diagnostics] == [
        ("error", str(tmp_path / "inner.cuh"), 2),
        ("note", "cell [3]", 5),
    ]


def test_a_warning_of_the_users_text_stays_and_others_go():
    build = compile(
        '#include <limits>\n#line 2 "cell [3]"\n__global__ void k(float* x) {\n  int unused = 3;\n  x[0] = 1;\n}\n', "k"
    )
    assert [(d.line, d.severity, d.message) for d in build.diagnostics] == [
        (3, "warning", 'variable "unused" was declared but never referenced')
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing<float>", 'nothing<float>: identifier "nothing" is undefined'),
        ("k<float, 3>", "k<float, 3>: cannot determine which instance of function template"),
    ],
)
def test_a_name_that_does_not_exist(name, message):
    error = refused('#line 2 "cell [3]"\n\ntemplate <typename T> __global__ void k(T* x) { x[0] = 1; }\n', name)
    assert re.match(message, error.message)
    assert error.line == (3 if name.startswith("k") else 0)


def test_a_missing_header_says_which_and_where_it_was_looked_for(tmp_path):
    error = refused('#line 2 "cell [3]"\n#include "warp.cuh"\n' + PLAIN, "plain", includes=[str(tmp_path)])
    assert error.line == 2
    assert error.message.startswith(f"there is no header warp.cuh: looked in {tmp_path} and in ")
    assert "/usr/local/cuda/include" in error.log or not os.path.isdir("/usr/local/cuda/include")
    (tmp_path / "warp.cuh").write_text("// it is there now\n")
    assert compile('#line 2 "cell [3]"\n#include "warp.cuh"\n' + PLAIN, "plain", includes=[str(tmp_path)]).path
    error = refused("#include <curand_nowhere.h>\n" + PLAIN, "plain")
    assert "`pip install nvidia-curand` brings it" in error.message


def test_a_header_of_the_prelude_is_not_missing_on_a_line_of_the_user(monkeypatch):
    monkeypatch.setattr(cuda_headers, "folders", lambda: ("/nowhere",))
    error = refused(
        '#include "wb_cuda.h"\n#include <cuda_fp16.h>\n#line 2 "cell [3]"\n' + PLAIN, "plain", file="cell [3]"
    )
    assert (error.file, error.line) == ("prelude", 2)
    assert (
        error.message
        == "there is no header cuda_fp16.h: looked in /nowhere (`flags -IFOLDER` adds one). `pip install nvidia-cuda-runtime` brings it"
    )


def test_functions_for_the_host_are_told_after_what_is_wrong_elsewhere():
    error = refused(
        '#line 2 "cell [3]"\nvoid host() { nothing(); }\n__global__ void k(float* x) { x[0] = wrong; }\n',
        "k",
        file="cell [3]",
    )
    assert [(d.line, d.message) for d in error.diagnostics] == [
        (3, 'identifier "wrong" is undefined'), (2, diagnostics.FOR_THE_HOST), (2, 'identifier "nothing" is undefined'),
    ]  # fmt: skip


def test_an_option_that_nvrtc_lacks_is_named_on_its_line():
    error = refused(
        '#line 2 "cell [3]"\n//! grid = 1\n//! flags -O3 -march=native\n' + PLAIN,
        "plain",
        flags=("-O3", "-march=native"),
    )
    assert (error.line, error.message.partition("\n")[0]) == (3, "unrecognized option -march=native found")


# ------------------------------------------------------------ headers


def test_the_users_headers_are_found_and_are_in_the_key(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "warp.cuh").write_text(
        '#include "sub/inner.cuh"\n__device__ float twice(float v) { return v * FACTOR; }\n'
    )
    (tmp_path / "sub" / "inner.cuh").write_text('#include "beside.cuh"\n')
    (tmp_path / "sub" / "beside.cuh").write_text("#define FACTOR 2\n")
    text = '#include "warp.cuh"\n__global__ void k(float* x) { x[0] = twice(x[1]); }\n'
    first = compile(text, "k", includes=[str(tmp_path)])
    (tmp_path / "sub" / "beside.cuh").write_text("#define FACTOR 3\n")
    second = compile(text, "k", includes=[str(tmp_path)])
    assert not second.cached
    assert Path(first.path).read_bytes() != Path(second.path).read_bytes()
    by_flag = compile(text, "k", includes=[str(tmp_path.parent)], flags=("-I", tmp_path.name))
    assert Path(by_flag.path).read_bytes() == Path(second.path).read_bytes()


def test_the_current_folder_is_no_place_for_headers(tmp_path, monkeypatch):
    (tmp_path / "here.cuh").write_text("")
    monkeypatch.chdir(tmp_path)
    assert refused('#include "here.cuh"\n' + PLAIN, "plain").message.startswith("there is no header here.cuh")


GROUPS = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* y) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  float v = cg::reduce(warp, x[block.thread_rank()], cg::plus<float>());
  EXTRA
  if (warp.thread_rank() == 0) y[0] = v;
}
"""


def test_cooperative_groups_without_and_with_libcu():
    build = compile(GROUPS.replace("EXTRA", "block.sync();"), "k")
    assert build.resources[0].registers > 0
    whole = compile(GROUPS.replace("EXTRA", "v += int(block.thread_scope);"), "k")
    assert re.fullmatch(r"cooperative_groups.h, cooperative_groups/reduce.h: [\d.]+ s of [\d.]+ s", whole.note)
    unseen = GROUPS.replace("namespace cg", "#define PASTED(a, b) a##b\nnamespace cg")
    late = compile(unseen.replace("EXTRA", "v += int(decltype(block)::PASTED(thread, _scope));"), "k")
    assert late.note  # without libcu++ it did not compile, so that was included after all


def test_cub_works_and_its_cost_is_told():
    text = """\
#include <cub/block/block_reduce.cuh>
__global__ void k(const float* x, float* y) {
  __shared__ typename cub::BlockReduce<float, 128>::TempStorage room;
  float sum = cub::BlockReduce<float, 128>(room).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) y[0] = sum;
}
"""
    build = compile(text, "k")
    assert build.resources[0].shared > 0
    assert build.diagnostics == ()
    assert re.fullmatch(r"cub/block/block_reduce.cuh: [\d.]+ s of [\d.]+ s", build.note)


@pytest.mark.parametrize(
    "name",
    [
        "cuda_fp16.h",
        "cuda_bf16.h",
        "cuda_fp8.h",
        "mma.h",
        "math_constants.h",
        "cuda_pipeline.h",
        "cuda/std/limits",
        "cuda.h",
        "limits",
        "tuple",
    ],
)
def test_headers_of_cuda_are_found(name):
    assert compile(f'#include "wb_cuda.h"\n#include <{name}>\n' + PLAIN, "plain").diagnostics == ()


def test_headers_that_nvrtc_carries_are_unpacked_anew_when_the_cache_was_cleared(tmp_path, monkeypatch):
    unpacked = []

    def unpack(cache, version):
        folder = tmp_path / "unpacked"
        folder.mkdir()
        unpacked.append(folder)
        return [str(folder)]

    monkeypatch.setattr(cuda_headers, "_carried", unpack)
    assert str(tmp_path / "unpacked") in cuda_headers.folders()
    assert str(tmp_path / "unpacked") in cuda_headers.folders()
    assert len(unpacked) == 1
    unpacked[0].rmdir()
    assert str(tmp_path / "unpacked") in cuda_headers.folders()
    assert len(unpacked) == 2


def test_the_toolkit_that_is_named_comes_first(tmp_path, monkeypatch):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_fp16.h").write_text("struct __half { float mine; };\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda_headers.folders()[0] == str(tmp_path / "include")
    assert compile("#include <cuda_fp16.h>\n__global__ void k(__half* x) { x->mine = 1; }\n", "k").path


# ------------------------------------------------------------ architectures and what is missing


def test_text_that_needs_instructions_of_its_own_generation_gets_them():
    text = '__global__ void k(float* x) {\n  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");\n  x[0] = 1;\n}\n'
    build = compile(text, "k")
    assert build.note == "for sm_90a: setmaxnreg in the text"
    assert ".target sm_90a" in nvrtc.ptx(text, arch=ARCH, names=["k"])
    error = refused(text, "k", arch="sm_80")
    assert re.match(
        r"inline assembly: Instruction 'setmaxnreg.inc' not supported on .target 'sm_80'|inline assembly: .*setmaxnreg",
        error.message,
    )
    assert error.line == 2


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        (
            "sm_42",
            r"NVRTC \d+\.\d+ does not compile for sm_42; it knows sm_\d+, .*\. Set WORKBENCH_ARCH to one of these",
        ),
        (
            "sm_990",
            r"NVRTC .* does not compile for sm_990; .* A newer one may: type `pip install 'kernel-workbench\[cuda\]' --upgrade`",
        ),
        ("gfx90a", r"NVRTC .* does not compile for gfx90a; "),
    ],
)
def test_an_unknown_architecture_is_refused(arch, message):
    with pytest.raises(ToolchainError, match=message):
        compile(PLAIN, "plain", arch=arch)


def test_without_the_extra_the_error_names_it(monkeypatch):
    real = builtins.__import__

    def no_cuda(name, *rest, **more):
        if name.startswith("cuda"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest, **more)

    nvrtc_library._nvrtc.cache_clear()
    nvrtc_library.version.cache_clear()
    monkeypatch.setattr(builtins, "__import__", no_cuda)
    with pytest.raises(
        ToolchainError,
        match=r"cuda-bindings, which cannot be imported \(No module named 'cuda.bindings'\)\. Type `pip install 'kernel-workbench\[cuda\]'`",
    ):
        compile(PLAIN, "plain")
    monkeypatch.undo()
    assert nvrtc_library.version() >= (12, 0)  # what was missing is not remembered


def test_without_the_library_the_error_names_it(monkeypatch):
    from cuda.bindings import nvrtc as bindings

    def no_library():
        raise RuntimeError("Failure finding libnvrtc.so: No such file\nlong\nlist")

    nvrtc_library._nvrtc.cache_clear()
    nvrtc_library.version.cache_clear()
    monkeypatch.setattr(bindings, "nvrtcVersion", no_library)
    with pytest.raises(
        ToolchainError,
        match=r"cuda-bindings finds no NVRTC library, libnvrtc.so \(Failure finding libnvrtc.so: No such file\)\. Type `pip install",
    ):
        compile(PLAIN, "plain")


def test_the_time_limit_ends_it():
    with pytest.raises(BuildError, match=r"NVRTC took more than 0\.05 s and was stopped"):
        compile("#include <cub/block/block_scan.cuh>\n" + PLAIN, "plain", limit_s=0.05)
    assert compile(PLAIN, "plain").path  # and another compiles meanwhile


def test_an_interrupt_gets_through_at_once(monkeypatch):
    release, stopped = threading.Event(), []
    monkeypatch.setattr(nvrtc_library._Job, "_compile", lambda job: release.wait(60))
    monkeypatch.setattr(nvrtc_library._Job, "stop", lambda job: stopped.append(job))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        compile(PLAIN, "plain")
    assert time.perf_counter() - began < 20
    assert len(stopped) == 1
    release.set()


def test_nvrtc_stops_when_it_is_told_to():
    job = nvrtc_library._Job(nvrtc_library._nvrtc(), PLAIN, "/dev/null/cell", ("-arch=sm_90",), {}, ("plain",), "CUBIN")
    job.stop()
    job.work()
    assert job.outcome.result == "ERROR_CANCELLED"


def test_a_process_may_end_while_nvrtc_runs(tmp_path):
    program = f"""
        import threading, time
        from workbench.build import nvrtc
        text = "#include <cub/block/block_scan.cuh>\\n__global__ void k() {{}}"
        def work():
            try:
                nvrtc.compile(text, arch="{ARCH}")
            except KeyboardInterrupt:
                print("stopped")
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
    """
    environment = {**os.environ, "WORKBENCH_CACHE": str(tmp_path / "other")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ptx_has_the_users_lines():
    text = nvrtc.ptx(SCALE, arch=ARCH, names=["scale<float>"])
    assert ".target sm_90" in text
    assert '"cell [3]"' in text
    assert re.search(r"\.loc\s+\d+ 4 ", text)
    assert ".loc" not in nvrtc.ptx(SCALE, arch=ARCH, names=["scale<float>"], line_info=False)


def test_nothing_of_cuda_is_imported_before_it_is_needed():
    program = "import sys, torch; before = set(sys.modules); import workbench.build.nvrtc, workbench.build.cuda_body; print({m for m in set(sys.modules) - before if m.startswith(('cuda', 'triton'))})"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


def test_prepare_is_quiet_and_quick():
    began = time.perf_counter()
    nvrtc.prepare()
    assert time.perf_counter() - began < 0.05


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("flags", "translated"),
    [
        (("-O3", "-use_fast_math", "--expt-relaxed-constexpr"), ("-use_fast_math",)),
        (("-Xptxas", "-v,-warn-spills", "--ptxas-options=-O1"), ("--ptxas-options=-v", "--ptxas-options=-warn-spills", "--ptxas-options=-O1")),
        (("-maxrregcount", "32", "-D", "A=1", "-I", "inc", "-std=c++17"), ("-maxrregcount=32", "-DA=1", "-Iinc", "-std=c++17")),
        (("-Xcompiler", "-fPIC", "-gencode", "arch=compute_90,code=sm_90", "-arch=sm_80", "-lineinfo"), ("-lineinfo",)),
        (("-march=native",), ("-march=native",)),
    ],
)  # fmt: skip
def test_nvcc_flags_are_translated(flags, translated):
    assert nvrtc_options.translated(flags) == translated


def test_what_the_user_sets_is_not_set_twice():
    made = nvrtc_options.options("sm_90", ("-std=c++17", "-Xptxas", "-v", "-D_CCCL_META_UNROLL_LIMIT=4"), ("/me",))
    assert made == (
        "-arch=sm_90",
        "-diag-suppress=47",
        "-I/me",
        "-std=c++17",
        "--ptxas-options=-v",
        "-D_CCCL_META_UNROLL_LIMIT=4",
    )
    assert (
        compile(
            "template <int... N> __global__ void k(float* x) { if constexpr (sizeof...(N) == 0) x[0] = 1; }\n",
            "k<>",
            flags=("-std=c++17",),
        ).diagnostics
        == ()
    )


def test_readable_names():
    assert nvrtc_errors.readable("(void(*)(const float*, int))mine::scale") == "mine::scale"
    assert nvrtc_errors.readable("scale<float, 3>") == "scale<float, 3>"
    assert Resources("k", 3).spills == 0


@pytest.mark.parametrize("line", ["n = x.numel()", "*_, n = x.shape", "m, n, k = x.shape"])
def test_a_name_of_a_directive_that_is_no_parameter(line):
    error = refused(f'#line 2 "cell [3]"\n//! {line}\n__global__ void k(float* x) {{ x[0] = n; }}\n', "k")
    assert error.line == 3 and "a line names it for parameters alone: take 'int n'" in error.message


@pytest.mark.parametrize("line", ["m = n", "tune n = 4", "require n == 4"])
def test_a_name_that_no_directive_defines(line):
    error = refused(f'#line 2 "cell [3]"\n//! {line}\n__global__ void k(float* x) {{ x[0] = n; }}\n', "k")
    assert "for parameters alone" not in error.message
