"""The parsers of PTX, SASS, MLIR and LLVM IR on short texts as the tools write them."""

from workbench.inspect import gpu, llvm_ir, mlir, ptx, sass

SASS = """\
\t.target\tsm_90
.text._Z5scalePf:
\t//## File "/dev/null/cell [3]", line 4
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/dev/null/cell [3]", line 2 inlined at "/dev/null/cell [3]", line 5
\t//## File "/dev/null/cell [3]", line 5
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
.L_x_0:
        /*0020*/                   FFMA R0, R5, R5, R0 ;
\t//## File "/usr/include/other.h", line 2
        /*0030*/               @P1 BRA `(.L_x_0) ;
        /*0040*/                   EXIT ;
.L_x_1:
        /*0050*/                   BRA `(.L_x_1);
        /*0060*/                   NOP;
.L_x_2:
.text._Z4nextv:
        /*0000*/                   EXIT ;
"""


def test_sass_by_source_line():
    found = sass.parse(SASS, "cell [3]")
    assert list(found) == ["_Z5scalePf", "_Z4nextv"]
    shown = [(e.text.strip(), e.line, e.callers) for e in found["_Z5scalePf"]]
    assert shown == [
        ("LDC R1, c[0x0][0x28]", 4, ()),
        ("@!P0  LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", 2, (5,)),
        (".L_x_0:", 0, ()),
        ("FFMA R0, R5, R5, R0", 2, (5,)),
        ("@P1  BRA .L_x_0", 0, ()),  # of another file
        ("EXIT", 0, ()),
    ]
    assert [e.line for e in found["_Z4nextv"]] == [0]  # no line carries over from the function before


def test_sass_by_the_lines_of_its_ptx():
    listing = '.text.k:\n\t//## File "a.py", line 7\n\t//## File ".nv_debug_ptx_txt", line 2\n  /*0000*/  EXIT ;\n'
    assert sass.parse(listing, "a.py", [(), (4, 10)])["k"][0].callers == (10,)
    assert sass.parse(listing, "a.py", [(), ()])["k"][0].line == 7


PTX = """\
.version 8.7
.target sm_90
.weak .entry _Z5scalePf(
\t.param .u64 _Z5scalePf_param_0
)
.maxntid 128, 2, 1
{
\t.reg .b32 \t%r<3>;
\t.loc\t1 4 0
\tld.param.u64 \t%rd1, [_Z5scalePf_param_0];
\t.loc\t1 2 3, function_name $L__info_string0, inlined_at 1 15 3
$L__BB0_2:
\tmul.f32 \t%f1, %f2, %f2;
\t.loc\t1 15 3, function_name $L__info_string1, inlined_at 1 32 3
\tadd.f32 \t%f1, %f2, %f2;
\tret;
}
\t.file\t1 "/dev/null/cell [3]"
\t.section\t.debug_str
\t{
.b8 95
\t}
"""


def test_ptx_by_source_line():
    found = {" ".join(e.text.split()): (e.line, e.callers) for e in ptx.parse(PTX, "cell [3]")}
    assert found["ld.param.u64 %rd1, [param_0];"] == (4, ())
    assert found["mul.f32 %f1, %f2, %f2;"] == (2, (15, 32))
    assert found["add.f32 %f1, %f2, %f2;"] == (15, (32,))
    assert found["$L__BB0_2:"] == (0, ())
    assert found[".weak .entry scale("] == (0, ())
    assert not [text for text in found if text.startswith((".version", ".file", ".section", ".b8", ".loc"))]
    assert ptx.threads(PTX) == 256
    assert ptx.entry(PTX) == "_Z5scalePf"


def test_tritons_ptx_tells_what_was_inlined_in_comments():
    text = (
        ".visible .entry k(\n)\n{\n\t.loc\t2 191 40 // standard.py:191:40 @[ <cell, 40>:4:18 @[ <cell, 40>:10:23 ] ]\n"
        '\tret; // done\n}\n\t.file\t1 "<cell, 40>"\n\t.file\t2 "/t/language" "standard.py"\n'
    )
    assert [(e.text.strip(), e.line, e.callers) for e in ptx.parse(text, "<cell, 40>")][3:4] == [("ret;", 4, (10,))]
    assert ptx.places(text, "<cell, 40>")[4] == (4, 10)
    assert ptx.files(text) == ["<cell, 40>", "/t/language/standard.py"]


TTIR = """\
#loc = loc("<cell, 40>":6:0)
#loc9 = loc("<cell, 40>":4:18)
#loc10 = loc("<cell, 40>":10:23)
#loc11 = loc(unknown)
#loc33 = loc("e"(#loc10))
#loc38 = loc(callsite(#loc9 at #loc33))
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc))) attributes {noinline = false} {
    %row = tt.get_program_id x : i32 loc(#loc27)
    %e = "tt.reduce"(%row) <{axis = 0 : i32}> ({
    ^bb0(%a: f32 loc(callsite(#loc11 at #loc38))):
      %m = arith.maxnumf %a, %a : f32 loc(fused[#loc40, #loc41])
    }) : (tensor<128xf32>) -> f32 loc(#loc38)
    tt.return loc(#loc22)
  } loc(#loc)
} loc(#loc)
#loc8 = loc("/t/standard.py":191:40)
#loc22 = loc("<cell, 40>":11:4 to :9)
#loc27 = loc("row"(#loc22))
#loc40 = loc(callsite(#loc8 at #loc38))
#loc41 = loc("odd name) \\" ("(#loc40))
"""


def test_mlir_by_source_line():
    found = {e.text.strip(): (e.line, e.callers) for e in mlir.parse(TTIR, "<cell, 40>")}
    assert found["%row = tt.get_program_id x : i32"] == (11, ())
    assert found["%m = arith.maxnumf %a, %a : f32"] == (4, (10,))
    assert found['%e = "tt.reduce"(%row) <{axis = 0 : i32}> ({'] == (4, (10,))  # as its end says
    assert found["}) : (tensor<128xf32>) -> f32"] == (4, (10,))
    assert found["module {"] == (0, ())
    assert found["^bb0(%a: f32):"] == (0, ())
    assert not [text for text in found if "loc(" in text]


def test_a_circle_of_locations_ends():
    assert mlir.parse("#a = loc(#b)\n#b = loc(#a)\n%x = f loc(#a)", "c")[0].line == 0


LLIR = """\
; ModuleID = 'LLVMDialectModule'
@global_smem = external addrspace(3) global [0 x i8], align 16
define ptx_kernel void @kernel(ptr %0) #0 !dbg !4 {
  %6 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !12
  %7 = fadd float %6, %6, !dbg !19
  ret void, !dbg !35
}
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1
attributes #0 = { nounwind }
!1 = !DIFile(filename: "<cell, 40>", directory: "")
!4 = distinct !DISubprogram(name: "kernel", scope: !1, file: !1, line: 6)
!12 = !DILocation(line: 7, column: 24, scope: !4)
!19 = !DILocation(line: 191, column: 40, scope: !20, inlinedAt: !22)
!20 = distinct !DILexicalBlockFile(scope: !4, file: !21, discriminator: 0)
!21 = !DIFile(filename: "standard.py", directory: "/t")
!22 = !DILocation(line: 4, column: 18, scope: !23, inlinedAt: !24)
!23 = distinct !DILexicalBlock(scope: !4, line: 1)
!24 = !DILocation(line: 10, column: 23, scope: !4)
!35 = !DILocation(line: 0, scope: !4)
"""


def test_llvm_ir_by_source_line():
    assert [(e.text.strip(), e.line, e.callers) for e in llvm_ir.parse(LLIR, "<cell, 40>")][1:5] == [
        ("define ptx_kernel void @kernel(ptr %0) #0 {", 0, ()),
        ("%6 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()", 7, ()),
        ("%7 = fadd float %6, %6", 4, (10,)),
        ("ret void", 0, ()),
    ]


def test_instructions_are_counted_by_what_they_do():
    written = """LDG.E.128 R0;LDG.E R1;LDG.E R1;LDG.E.U16 R2;STG.E.64 R3;LDS.128 R4;HFMA2.MMA R5, -RZ, RZ, 0, 0;FFMA R0
HGMMA.64x128x16.F32 R24;BAR.SYNC 0x0;STL R1;DADD R2"""
    rows = written.replace("\n", ";").split(";")
    text = ".text.k:\n" + "".join(f"  /*{i:04x}*/  {row} ;\n" for i, row in enumerate(rows))
    assert gpu.counts(sass.parse(text, "cell")["k"]) == (
        ("global loads of 16 bytes", 1),
        ("global loads of 4 bytes", 2),
        ("global loads of 2 bytes", 1),
        ("global stores of 8 bytes", 1),
        ("shared loads of 16 bytes", 1),
        ("tensor core operations", 1),
        ("FMA", 1),  # HFMA2.MMA with zeros is a constant
        ("double-precision operations", 1),
        ("barriers", 1),
        ("local stores", 1),
    )
