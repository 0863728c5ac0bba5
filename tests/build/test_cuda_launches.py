"""Launches in a text: where they are, what becomes of them, and what is said of those on the default stream."""

from __future__ import annotations

import pytest

from workbench.build import cuda_launches
from workbench.build.cuda_stubs import rewritten
from workbench.source import Source


@pytest.mark.parametrize(
    ("text", "kernel", "configuration"),
    [
        ("k<<<g, b>>>(x);", "k", ("g", "b")),
        ("  else a::b::k<T, (N > 1)> <<< dim3(1, 2), f<int, 3>(n), 0, s >>> (x, y);", "a::b::k<T,(N>1)>",
         ("dim3(1, 2)", "f<int, 3>(n)", "0", "s")),
        ("pick<T>(n)<<<1, 2>>>(x);", "pick<T>(n)", ("1", "2")),
        ("(*f)<<<1, 2>>>(x);", "(*f)", ("1", "2")),
        ("::k<std::pair<int, T>><<<1, 2>>>(x);", "::k<std::pair<int,T>>", ("1", "2")),
        ("table[i]<<<1, 2>>>();", "table[i]", ("1", "2")),
        ("#define GO(T) k<T> \\\n  <<<g, b>>> \\\n  (x)", "k<T>", ("g", "b")),
    ],
)  # fmt: skip
def test_a_launch_is_found(text, kernel, configuration):
    (launch,) = cuda_launches.find(text)
    assert (launch.kernel, launch.configuration) == (kernel, configuration)


@pytest.mark.parametrize(
    "text", ["// k<<<1, 2>>>(x);", 'f("k<<<1, 2>>>(x)");', "a <<< b;", "k<<<1, 2>>>;", "k<<<1, 2; >>>(x);"]
)
def test_what_is_no_launch(text):
    assert cuda_launches.find(text) == ()
    assert rewritten(text) == text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('if (a) k<<<n, 256>>>(f(x), ")"); else {}', 'if (a) (wb::configure(n, 256), k(f(x), ")")); else {}'),
        ("k<T, 2><<<g, b, 0, s>>>(x);\nk<<<1, 1>>>();", "(wb::configure(g, b, 0, s), k<T, 2>(x));\n(wb::configure(1, 1), k());"),
        ("#define GO(T) k<T><<<g, b>>>(x)", "#define GO(T) (wb::configure(g, b), k<T>(x))"),
    ],
)  # fmt: skip
def test_a_launch_becomes_a_call_of_its_stub(text, wanted):
    assert rewritten(text) == wanted


@pytest.mark.parametrize(
    "stream", ["", ", 0", ", 64", ", 0, 0", ", 0, nullptr", ", 0, (cudaStream_t)0", ", 0, cudaStream_t(0)"]
)
def test_a_launch_on_the_default_stream_is_flagged(stream):
    (said,) = cuda_launches.lint(
        Source(f"void f() {{\n  k<T><<<g, b{stream}>>>(x);\n}}", "cuda", "cell [3]", 2), "full"
    )
    shared = "64" if stream == ", 64" else "0"
    assert (said.file, said.line, said.column, said.severity) == ("cell [3]", 3, 3, "warning")
    assert said.message == (
        f"k is launched on the default stream: write <<<g, b, {shared}, at::cuda::getCurrentCUDAStream()>>>"
    )
    assert said.excerpt == f"  k<T><<<g, b{stream}>>>(x);"


@pytest.mark.parametrize("stream", ["s", "wb::current_stream()", "at::cuda::getCurrentCUDAStream()"])
def test_a_launch_with_a_stream_is_not(stream):
    assert cuda_launches.lint(Source(f"k<<<g, b, 0, {stream}>>>(x);", "cuda"), "host") == ()


def test_full_code_that_guards_no_device_is_noted_once():
    text = "void f() {\n  k<<<g, b, 0, s>>>(x);\n  k<<<g, b, 0, s>>>(x);\n}"
    (said,) = cuda_launches.lint_guard(Source(text, "cuda", "cell [3]", 2))
    assert (said.line, said.message) == (
        3,
        (
            "k is launched on the current device, which need not be the tensors': write "
            "`const c10::cuda::CUDAGuard guard(x.device());` before it"
        ),
    )  # fmt: skip
    guarded = text.replace("{\n", "{\n  const at::cuda::OptionalCUDAGuard guard(device_of(x));\n")
    assert cuda_launches.lint_guard(Source(guarded, "cuda")) == ()
    assert cuda_launches.lint_guard(Source("// CUDAGuard\n" + text, "cuda")) != ()
