"""What the compilers' sanitizers print, as rows."""

from __future__ import annotations

import pytest

from workbench.trial import watched

HEAD = "cell [3]"
HEAP = """\
said by the program
=================================================================
==32251==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6090000003a0 at pc 0x7f7e5db511e9 bp 0x7ffd3f3c5020 sp 0x7ffd3f3c5018
WRITE of size 4 at 0x6090000003a0 thread T0
    #0 0x7f7e5db511e8 in helper(float*) /usr/include/helper.h:9
    #1 0x7f7e5db511e8 in scale(float const*, float*, long) /home/me/cell [3]:12
    #2 0x7f7e82709f79  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)

0x6090000003a0 is located 0 bytes to the right of 32-byte region [0x609000000380,0x6090000003a0)
allocated by thread T0 here:
    #0 0x7f7e836b7ffd in __interceptor_posix_memalign ../../../../src/libsanitizer/asan/asan_malloc_linux.cpp:145
"""
STACK = """\
==1==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7f5f at pc 0x7f5f bp 0x7ffc sp 0x7ffc
READ of size 4 at 0x7f5f thread T0
    #0 0x7f5fb19115e4 in sum /home/me/cell [3]:3

Address 0x7f5f is located in stack of thread T0 at offset 96 in frame
    #0 0x7f5fb1911500 in scale(float const*, float*, long) /home/me/cell [3]:4

  This frame has 1 object(s):
    [64, 96) 'acc' (line 5) <== Memory access at offset 96 overflows this variable
"""
GLOBAL = """\
==1==ERROR: AddressSanitizer: global-buffer-overflow on address 0x7f5f at pc 0x7f5f bp 0x7ffc sp 0x7ffc
READ of size 4 at 0x7f5f thread T0
    #0 0x7f5fb19115e4 in scale /home/me/warp.h:3

0x7f5f is located 0 bytes to the right of global variable 'table' defined in 'warp.h:1:14' (0x7f5e) of size 16
"""
NULL = """\
==1==ERROR: AddressSanitizer: SEGV on unknown address 0x000000000000 (pc 0x7f bp 0x7f sp 0x7f T0)
==1==The signal is caused by a WRITE memory access.
    #0 0x7f5fb19115e4 in scale /home/me/cell [3]:5
"""


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (HEAP, "heap-buffer-overflow: WRITE of size 4 in scale at cell [3]:12: 0 bytes to the right of 32-byte region"),
        (
            STACK,
            "stack-buffer-overflow: READ of size 4 in sum at cell [3]:3: overflows the local acc, declared on line 5",
        ),
        (
            GLOBAL,
            "global-buffer-overflow: READ of size 4 in scale at warp.h:3: 0 bytes to the right of the global table",
        ),
        (NULL, "SEGV in scale at cell [3]:5"),
    ],
)
def test_a_report_is_a_row_on_the_users_line(text, row):
    assert [str(f) for f in watched.parse(text, [HEAD, "warp.h"])] == [row]


def test_where_it_is_in_memory():
    [found] = watched.parse(HEAP, [HEAD])
    assert (found.address, found.allocation) == (0x6090000003A0, 0x609000000380)


def test_reports_one_after_the_other_and_those_of_other_code():
    assert [f.line for f in watched.parse(HEAP + STACK, [HEAD])] == [12, 3]
    assert watched.parse(HEAP, ["another"]) == ()
    assert watched.parse("", [HEAD]) == watched.parse("nothing of interest", [HEAD]) == ()


def test_undefined_behaviour():
    said = (
        f"{HEAD}:4:17: runtime error: signed integer overflow: 1 + 2147483647 cannot be represented in type 'int'\n" * 2
    )
    [found] = watched.undefined(said + "/usr/include/x.h:1:1: runtime error: null\n", [HEAD])
    assert (found.tool, found.line, found.count) == ("undefined", 4, 2)
    assert str(found).startswith(
        "signed integer overflow: 1 + 2147483647 cannot be represented in type 'int' at cell [3]:4"
    )
