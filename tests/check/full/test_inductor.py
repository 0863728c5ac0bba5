"""A full check compiles by Inductor without looking for what vector instructions there are, and leaves that open."""

from __future__ import annotations

import pytest
from torch import Tensor

import workbench as wb
from workbench.check.full import inductor


@pytest.fixture
def probed(monkeypatch):
    """The looks of Inductor, all of which find that it works; what it knew before is known again afterwards."""
    from torch._inductor import cpu_vec_isa

    known = (cpu_vec_isa.valid_vec_isa_list, *{type(i).__bool__ for i in cpu_vec_isa.supported_vec_isa_list})
    clear = lambda: [getattr(f, "cache_clear", lambda: None)() for f in known]
    looks: list = []
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: not looks.append(str(self)))
    clear()
    yield looks
    clear()


def test_no_look_is_taken(probed, namespace):
    from torch._inductor import cpu_vec_isa

    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    scale.cases(lambda t: [t(4, 8)])
    report = scale.check("full")
    assert next(r for r in report.rows if r.check == "inductor").status == "pass"
    assert not probed
    if cpu_vec_isa.x86_isa_checker():  # what the user compiles then is looked at as ever
        assert cpu_vec_isa.valid_vec_isa_list() and probed


def test_what_is_known_stays(probed):
    from torch._inductor import cpu_vec_isa

    found = cpu_vec_isa.valid_vec_isa_list()
    with inductor.scalar_code():
        assert cpu_vec_isa.valid_vec_isa_list() is found
    assert cpu_vec_isa.valid_vec_isa_list() is found
