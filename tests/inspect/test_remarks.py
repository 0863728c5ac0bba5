from workbench.inspect import remarks

GCC = """\
0:7:25: missed: couldn't vectorize loop
0:7:25: missed: not vectorized: loop nest containing two or more consecutive inner loops cannot be vectorized
0:9:27: optimized: loop vectorized using 32 byte vectors
0:9:27: optimized: loop vectorized using 64 byte vectors
0:11:27: optimized: loop vectorized using 64 byte vectors
0:11:27: optimized:  loop versioned for vectorization because of possible aliasing
0:14:3: missed: couldn't vectorize loop
0:14:3: missed: not vectorized: control flow in loop.
0:14:3: missed: not vectorized: no vectype for stmt: _6 = *_5;
 scalar_type: const float
/usr/include/c++/12/cmath:464:27: missed: statement clobbers memory: _50 = __builtin_sqrtf (_10);
"""
CLANG = """\
/tmp/x/cell:4:3: remark: vectorized loop (vectorization width: 8, interleaved count: 4) [-Rpass=loop-vectorize]
/tmp/x/cell:9:3: remark: loop not vectorized: value that could not be identified as reduction [-Rpass-analysis=loop-vectorize]
/tmp/x/cell:9:3: remark: loop not vectorized [-Rpass-missed=loop-vectorize]
"""


def test_gccs_remarks_are_told_once_a_line_the_best_first():
    assert remarks.loops(remarks.parse(GCC, "0")) == {
        7: ("missed", ""),
        9: ("vectorized", "vectors of 64 bytes"),
        11: ("vectorized", f"vectors of 64 bytes; {remarks.ALIASING}"),
        14: ("missed", "control flow in loop."),
    }


def test_clangs_remarks():
    assert remarks.loops(remarks.parse(CLANG, "cell")) == {
        4: ("vectorized", "8 elements at a time, 4 such vectors a round"),
        9: ("missed", "value that could not be identified as reduction"),
    }


def test_remarks_about_other_files_are_none_of_the_users():
    assert remarks.parse(GCC, "cmath")[0].line == 464
    assert remarks.parse(GCC, "another") == ()
