"""What compilers said, word for word, and what becomes of it. No compiler runs here."""

from __future__ import annotations

import pytest

from workbench.build.diagnostics import Lines, error, parse
from workbench.errors import Diagnostic

CELL = """#include "wb_body.h"
#line 2 "cell [3]"
//! flags -fbogus -lnope
int helper(int);
int f(int x) {
  int y = 3 // three

  return helper(y) + z;
}
template <typename T> void g(T t) { t.foo(); }
void h() { g(3); }
#line 1 "generated"
extern "C" int thunk() { return 0; }
"""
LINES = Lines(CELL)


def seen(log, lines=LINES):
    return [(d.file, d.line, d.column, d.severity, d.message) for d in parse(log, lines)]


def test_lines_know_what_the_user_typed_where():
    assert LINES.labels == ("cell", "cell [3]", "generated")
    assert LINES.at("cell [3]", 3) == "int helper(int);"
    assert LINES.at("generated", 1) == 'extern "C" int thunk() { return 0; }'
    assert LINES.at("cell [3]", 99) == ""
    assert LINES.mentioning(r"\bhelper\b") == ("cell [3]", 3)


def test_the_name_of_the_cell_does_not_make_other_code():
    assert Lines(CELL.replace("cell [3]", "cell [4]")).unlabelled == LINES.unlabelled
    assert Lines(CELL.replace("#line 2", "#line 3")).unlabelled != LINES.unlabelled
    assert Lines(CELL.replace("generated", "cell [3]")).unlabelled != LINES.unlabelled


def test_an_error_is_on_the_users_line_with_what_stands_there():
    log = "cell [3]: In function ‘int f(int)’:\ncell [3]:7:22: error: ‘z’ was not declared in this scope\n"
    assert parse(log, LINES) == (
        Diagnostic("cell [3]", 7, 22, "error", "‘z’ was not declared in this scope", "  return helper(y) + z;"),
    )


def test_errors_come_before_warnings_each_with_its_notes():
    log = (
        "cell [3]:5:7: warning: unused variable ‘y’ [-Wunused-variable]\n"
        "cell [3]:7:22: error: ‘z’ was not declared in this scope\n"
        "cell [3]:3:5: note: ‘helper’ declared here\n"
        "/usr/include/c++/12/cmath:80:3: note: in the library\n"
        "cell [3]:8:1: fatal error: stopping\n"
    )
    assert [(d.line, d.severity) for d in parse(log, LINES)] == [
        (7, "error"),
        (3, "note"),
        (8, "error"),
        (5, "warning"),
    ]


def test_a_missing_semicolon_is_on_the_line_that_lacks_it():
    log = "cell [3]:7:3: error: expected ‘,’ or ‘;’ before ‘return’\n"
    assert parse(log, LINES) == (
        Diagnostic("cell [3]", 5, 12, "error", "expected ‘,’ or ‘;’ before ‘return’", "  int y = 3 // three"),
    )
    log = "cell [3]:7:20: error: expected ‘;’ before ‘z’\n"  # in the middle of a line: it is that line
    assert seen(log)[0][:3] == ("cell [3]", 7, 20)


def test_an_error_inside_a_library_is_on_the_line_that_led_there():
    log = (
        "In file included from /usr/include/c++/12/bits/stl_algobase.h:71,\n"
        "                 from <stdin>:1:\n"
        "/usr/include/c++/12/bits/predefined_ops.h: In instantiation of ‘constexpr bool op(...)’:\n"
        "/usr/include/c++/12/bits/stl_algo.h:1809:14:   required from ‘constexpr void std::sort(...)’\n"
        "cell [3]:9:12:   required from here\n"
        "/usr/include/c++/12/bits/predefined_ops.h:45:23: error: no match for ‘operator<’\n"
        "   45 |       { return *__it1 < *__it2; }\n"
        "      |                ~~~~~~~^~~~~~~~\n"
    )
    assert seen(log) == [("cell [3]", 9, 12, "error", "no match for ‘operator<’ (in predefined_ops.h:45)")]


def test_an_error_in_the_users_template_names_the_use_too():
    log = (
        "cell [3]: In instantiation of ‘void g(T) [with T = int]’:\n"
        "cell [3]:10:13:   required from here\n"
        "cell [3]:9:39: error: request for member ‘foo’ in ‘t’\n"
        "cell [3]: In function ‘int f(int)’:\n"
        "cell [3]:7:22: error: ‘z’ was not declared in this scope\n"
    )
    assert [d[:4] for d in seen(log)] == [
        ("cell [3]", 9, 39, "error"), ("cell [3]", 10, 13, "note"), ("cell [3]", 7, 22, "error"),
    ]  # fmt: skip


def test_clang_names_the_use_in_a_note():
    log = (
        "/usr/include/c++/12/bits/predefined_ops.h:45:23: error: invalid operands to binary expression\n"
        "cell [3]:9:12: note: in instantiation of function template specialization 'g<int>' requested here\n"
    )
    assert seen(log)[0] == (
        "cell [3]",
        9,
        12,
        "error",
        "invalid operands to binary expression (in predefined_ops.h:45)",
    )


def test_what_stands_before_the_first_line_mark_has_the_files_name():
    log = "<stdin>:1:1: error: expected unqualified-id\n"
    assert seen(log, Lines("&\n", "rmsnorm.cpp")) == [("rmsnorm.cpp", 1, 1, "error", "expected unqualified-id")]


def test_a_header_that_is_missing_says_where_it_was_looked_for():
    log = "cell [3]:2:10: fatal error: warp.cuh: No such file or directory\ncompilation terminated.\n"
    (found,) = seen(log, Lines(CELL, folders=("/home/me/nb",)))
    assert found[:4] == ("cell [3]", 2, 10, "error")
    assert found[4].startswith("there is no header warp.cuh: looked in /home/me/nb and in the compiler's own folders")
    (found,) = seen("cell [3]:2:10: fatal error: 'warp.cuh' file not found\n")
    assert found[4].startswith("there is no header warp.cuh: looked in the compiler's own folders")


def test_the_users_own_header_is_the_users(tmp_path):
    header = tmp_path / "my.h"
    header.write_text("int a;\nint b = c;\n")
    log = f"In file included from cell [3]:2:\n{header}:2:9: error: ‘c’ was not declared in this scope\n"
    (found, note) = parse(log, Lines(CELL, folders=(str(tmp_path),)))
    assert (found.file, found.line, found.excerpt) == (str(header), 2, "int b = c;")
    assert (note.file, note.line, note.severity) == ("cell [3]", 2, "note")


@pytest.mark.parametrize(
    "log",
    [
        (
            "/usr/bin/ld: /tmp/cc1.o: in function `f':\n<stdin>:(.text+0x19): undefined reference to `helper(int)'\n"
            "/usr/bin/ld: <stdin>:(.text+0x29): undefined reference to `helper(int)'\n"
            "collect2: error: ld returned 1 exit status\n"
        ),
        (
            "/tmp/cc1.o:<stdin>:function f: error: undefined reference to 'helper(int)'\n"
            "collect2: error: ld returned 1 exit status\n"
        ),
        (
            "ld.lld: error: undefined symbol: helper(int)\n>>> referenced by <stdin>\n"
            "clang: error: linker command failed with exit code 1 (use -v to see invocation)\n"
        ),
        "mold: error: undefined symbol: helper(int)\n>>> referenced by <stdin>\ncollect2: error: ld returned 1 exit status\n",
    ],
    ids=["ld", "gold", "lld", "mold"],
)
def test_a_name_that_nothing_defines_is_on_the_line_that_declares_it(log):
    (found,) = seen(log)
    assert found[:4] == ("cell [3]", 3, 0, "error")
    assert found[4].startswith("undefined reference to helper(int): it is declared, but nothing defines it")


@pytest.mark.parametrize(
    "log",
    [
        "/usr/bin/ld: cannot find -lnope: No such file or directory\ncollect2: error: ld returned 1 exit status\n",
        "/usr/bin/ld.gold: error: cannot find -lnope\ncollect2: error: ld returned 1 exit status\n",
        "ld.lld: error: unable to find library -lnope\n",
    ],
    ids=["ld", "gold", "lld"],
)
def test_a_library_that_is_missing_is_on_the_line_that_asks_for_it(log):
    assert seen(log) == [("cell [3]", 2, 0, "error", "the linker cannot find the library nope (-lnope)")]


def test_an_unknown_flag_is_on_the_line_that_gives_it():
    log = "g++: error: unrecognized command-line option ‘-fbogus’\n"
    assert seen(log) == [("cell [3]", 2, 0, "error", "unrecognized command-line option ‘-fbogus’")]
    log = "clang: error: unknown argument: '-fbogus'\n"
    assert seen(log) == [("cell [3]", 2, 0, "error", "unknown argument: '-fbogus'")]
    log = "cc1plus: error: bad value ‘zen9’ for ‘-march=’ switch\n"
    assert seen(log) == [("cc1plus", 0, 0, "error", "bad value ‘zen9’ for ‘-march=’ switch")]


def test_cuda_messages_have_a_column_too():
    log = (
        'cell [3](7): error: identifier "z" is undefined\n'
        "    return helper(y) + z;\n"
        "                       ^\n\n"
        'cell [3](5): warning #177-D: variable "y" was declared but never referenced\n'
        '1 error detected in the compilation of "cell [3]".\n'
    )
    assert seen(log) == [
        ("cell [3]", 7, 22, "error", 'identifier "z" is undefined'),
        ("cell [3]", 5, 0, "warning", 'variable "y" was declared but never referenced'),
    ]
    log = 'cell [3](2): catastrophic error: cannot open source file "warp.cuh"\n'
    assert seen(log)[0][4].startswith("there is no header warp.cuh")


def test_the_same_message_is_said_once():
    assert len(seen("cell [3]:7:22: error: no\n" * 3)) == 1


# ---- the exception


def test_the_exception_holds_the_first_error_and_counts_the_rest():
    log = "cell [3]:5:7: warning: w\ncell [3]:7:22: error: ‘z’ was not declared\ncell [3]:9:39: error: no member\n"
    caught = error(parse(log, LINES), log, otherwise="failed")
    assert str(caught) == (
        "cell [3], line 7: ‘z’ was not declared\n"
        "    return helper(y) + z;\n"
        "                       ^\n"
        "(1 more error; `.log` of this exception holds the whole output)"
    )
    assert (caught.log, len(caught.diagnostics)) == (log, 3)


def test_an_output_without_messages_is_shown_from_its_end():
    caught = error((), "one\ntwo\nthree\nfour\n", otherwise="the compiler failed with exit status 4")
    assert str(caught) == "the compiler failed with exit status 4: two\nthree\nfour"
