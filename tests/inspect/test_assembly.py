from workbench.inspect import assembly, cpp, demangle

LISTING = """
/tmp/x/object.o:     file format elf64-x86-64


Disassembly of section .text:

0000000000000000 <_Z3addPfPKfl>:
_Z3addPfPKfl():
/tmp/x/0:3
   0:\tendbr64
   4:\ttest   rdx,rdx
   7:\tjle    2a <_Z3addPfPKfl+0x2a>
   9:\txor    eax,eax
   b:\tnop    DWORD PTR [rax+rax*1+0x0]
_Z2sqf():
/tmp/x/0:1 (discriminator 3)
inlined by /tmp/x/0:4 (_Z3addPfPKfl)
  10:\tvmovups ymm0,YMMWORD PTR [rsi+rax*4]
inlined by /tmp/x/0:4 (_Z3addPfPKfl)
  15:\tvmulps ymm0,ymm0,YMMWORD PTR [rip+0x0]        # 1d <_Z3addPfPKfl+0x1d>
\t\t\t19: R_X86_64_PC32\t.LC1-0x4
_Z3addPfPKfl():
/tmp/x/0:4
  1d:\tvmovups YMMWORD PTR [rdi+rax*4],ymm0
  22:\tadd    rax,0x8
  26:\tcmp    rax,rdx
  28:\tjne    10 <_Z3addPfPKfl+0x10>
/tmp/x/0:5
  2a:\tcall   2f <_Z3addPfPKfl+0x2f>
\t\t\t2b: R_X86_64_PLT32\tsqrtf-0x4
  2f:\tret

Disassembly of section .text._ZN3std4swapEv:

0000000000000000 <_ZN3std4swapEv>:
_ZN3std4swapEv():
/usr/include/c++/12/bits/move.h:3
   0:\tret

0000000000000010 <wb_call_add>:
wb_call_add():
/tmp/x/0:3
  10:\tjmp    0 <_Z3addPfPKfl>
"""


def test_instructions_stand_on_the_lines_they_came_from():
    found = {f.symbol: f for f in assembly.functions(LISTING)}
    shown = assembly.entries(found["_Z3addPfPKfl"], "0")
    by_text = {" ".join(e.text.split()): (e.line, e.callers) for e in shown}
    assert by_text["vmulps ymm0,ymm0,YMMWORD PTR [rip+.LC1]"] == (1, (4,))  # inlined into line 4
    assert by_text["add rax,0x8"] == (4, ())
    assert by_text["call sqrtf"] == (5, ())
    assert [e.text for e in shown if e.of(1)] == [e.text for e in shown if e.line == 1]
    assert len([e for e in shown if e.of(4)]) == 6


def test_addresses_become_labels_and_padding_goes():
    shown = [" ".join(e.text.split()) for e in assembly.entries(assembly.functions(LISTING)[0], "0")]
    assert shown[:5] == ["endbr64", "test rdx,rdx", "jle .L2", "xor eax,eax", ".L1:"]
    assert "jne .L1" in shown
    assert not [s for s in shown if s.startswith("nop") or "#" in s]


def test_only_the_users_functions_are_shown():
    found = assembly.functions(LISTING)
    assert [f.name for f in assembly.user_functions(found, "0", cpp.GENERATED)] == ["add"]
    assert (
        not cpp.GENERATED.search("_Z6my_wb_f")
        and cpp.GENERATED.search("_Z7wb_callv")
        and cpp.GENERATED.search("wb_call_f")
    )
    # A template is inlined into what calls it: then that is all there is.
    assert [f.symbol for f in assembly.user_functions(found[2:], "0", cpp.GENERATED)] == ["wb_call_add"]


def test_the_loop_and_its_vectors():
    (loop,) = assembly.loops(assembly.functions(LISTING)[0], "0")
    assert (loop.line, loop.instructions, loop.vector_bytes, loop.computes, loop.in_order) == (4, 6, 32, True, False)


def test_what_computes_on_vectors():
    widths = {
        "vfmadd231ps zmm1,zmm2,zmm3": 64,
        "vaddpd ymm0,ymm1,ymm2": 32,
        "mulps xmm0,xmm1": 16,
        "vpaddd ymm0,ymm1,ymm2": 32,
        "vmovups ZMMWORD PTR [rax],zmm0": 64,
        "vcvtdq2ps ymm0,ymm1": 32,
        "movaps xmm0,xmm1": 0,  # a copy of a scalar
        "vxorps xmm0,xmm0,xmm0": 0,  # a zero
        "addss xmm0,xmm1": 0,
        "vfmadd231ss xmm0,xmm1,xmm2": 0,
        "add rax,1": 0,
        "fadd v0.4s, v1.4s, v2.4s": 16,
    }
    assert {text: assembly.vector_bytes(text) for text in widths} == widths


def test_names_are_as_people_write_them():
    assert demangle.short("_Z4fillIfLi256EEvPT_i") == "fill<float, 256>"
    assert demangle.short("_ZN4mine4fillEPf") == "mine::fill"
    assert demangle.short("main") == "main"
    assert demangle.short("_Z") == "_Z"
    assert demangle.demangle("_Z4fillPfi") == "fill(float*, int)"


def test_what_was_moved_out_of_a_function_is_no_function():
    cold = assembly.Function("_Z3addPfPKfl.cold")
    assert cold.is_cold
    assert cold.name == "add"
    assert not assembly.Function("_Z3addPfPKfl").is_cold
