"""`wb.load_inline`: torch's call, its arguments and what comes back."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.utils import cpp_extension

import workbench as wb
from workbench.adopt import adoption
from workbench.cells import telling

SINES = "at::Tensor sin_add(at::Tensor x, at::Tensor y) { return x.sin() + y.sin(); }"
X = torch.arange(3.0)


@pytest.fixture
def wanted(monkeypatch):
    """What would be built; nothing is."""
    found = []

    class Stop(Exception):
        pass

    def build(sources, **options):
        found.append((sources, options))
        raise Stop

    monkeypatch.setattr(adoption.extension, "build", build)

    def call(*args, **kwargs):
        with pytest.raises(Stop):
            wb.load_inline(*args, **kwargs)
        return found[-1]

    return call


def test_the_arguments_are_torchs():
    mine, torchs = inspect.signature(wb.load_inline), inspect.signature(cpp_extension.load_inline)
    assert [(p.name, p.default) for p in mine.parameters.values()][: len(torchs.parameters)] == [
        (p.name, p.default) for p in torchs.parameters.values()
    ]


def test_options_and_sources(wanted):
    sources, options = wanted(
        "inline_a", ["int k = 1;\n", SINES], functions="sin_add", extra_cflags=["-O3"], extra_ldflags=["-lm"],
        extra_include_paths=["include"],
    )  # fmt: skip
    assert [s.text for s in sources] == [f'int k = 1;\n\n#line 1 "cpp_sources[1]"\n{SINES}']
    assert sources[0].file == "cpp_sources[0]"
    assert (
        options["name"] == "inline_a" and options["extra_cflags"] == ("-O3",) and options["extra_ldflags"] == ("-lm",)
    )
    assert 'm.def("sin_add(Tensor x, Tensor y) -> Tensor")' in options["after"]
    assert "PYBIND11_MODULE" not in options["after"] and options["macros"] == "reload.h"


def test_functions_that_no_schema_can_say_stay_plain(wanted):
    _, options = wanted("inline_b", SINES + "\nstd::map<int, int> info() { return {}; }", functions=["sin_add", "info"])
    assert (
        'PYBIND11_MODULE(inline_b, m) {\n  m.def("info", torch::wrap_pybind_function(info), "info");'
        in options["after"]
    )
    assert options["macros"] == "reload_python.h"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"functions": ["nope"]}, "functions names 'nope', which the sources do not define; they define sin_add"),
        ({"extra_cflags": "-O3"}, "extra_cflags is a list of strings, got the string '-O3'"),
        ({"sycl_sources": "x"}, "sycl_sources are not built here"),
        ({"name": "no name"}, "is an identifier; got 'no name'"),
        ({"cpp_sources": []}, "cpp_sources is empty"),
        ({}, "nothing here says what it defines"),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(wb.SchemaError) as caught:
        wb.load_inline(**{"name": "inline_c", "cpp_sources": SINES, **arguments})
    assert said in str(caught.value)


@pytest.mark.slow
def test_a_call_of_today():
    told = []
    with telling(told.append):
        sin_add = wb.load_inline(
            name="inline_d",
            cpp_sources=[SINES],
            functions=["sin_add"],
            verbose=True,
            build_directory="/tmp/nowhere",
            use_pch=True,
        )
        assert torch.equal(sin_add(X, X), 2 * X.sin()) and torch.ops.inline_d.sin_add.default is sin_add.torch_op
        assert sin_add.last_line is told[0]
        assert told[0].notes[:2] == tuple(
            f"{n} means nothing here: builds have folders and headers of their own"
            for n in ("build_directory", "use_pch")
        )
        more = SINES.replace("+", "-") + "\nat::Tensor scale(const at::Tensor& x, int k) { return x * k; }"
        found = wb.load_inline("inline_d", more, functions={"sin_add": "difference of sines", "scale": "k times"})
        assert (
            sin_add(X, X).tolist() == [0.0] * 3
            and found.sin_add is sin_add
            and sin_add.__doc__ == "difference of sines"
        )
        assert found.scale(X, 3).tolist() == [0.0, 3.0, 6.0] and dir(found) == ["scale", "sin_add"]
        with pytest.raises(RuntimeError, match="does not fit"):
            found.scale(X, 2**40)
        with pytest.raises(wb.BuildError) as caught:
            wb.load_inline("inline_d", "\n" + more.replace("x * k;", "x * kk;"), functions=["sin_add"])
        assert (caught.value.file, caught.value.line) == ("cpp_sources", 3)
        assert found.scale(X, 3).tolist() == [0.0, 3.0, 6.0]
