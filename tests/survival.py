"""Cells that kill, hang or spoil the process they run in, one way each, for `test_survival.py`.

Every cell doubles `x` correctly, too, where it gets so far: what is refused is refused for what else it does.
"""

from __future__ import annotations

from dataclasses import dataclass

NEEDS = {  # what of a text asks for which header: each cell includes little, so that it compiles fast
    "std::thread": "thread", "std::chrono": "chrono", "std::runtime_error": "stdexcept", "jmp_buf": "csetjmp",
    "raise(|kill(|signal(|sigset_t": "csignal", "FILE|freopen": "cstdio", "abort(|exit(|malloc(|setenv": "cstdlib",
    "memset": "cstring", "setlocale": "clocale", "fesetround|feenableexcept": "cfenv", "_MM_SET": "xmmintrin.h",
    "assert(": "cassert", "_Unwind_": "unwind.h", "pthread_": "pthread.h", "mmap(": "sys/mman.h", "rlimit": "sys/resource.h",
    "umask(": "sys/stat.h", "waitpid(": "sys/wait.h",
    "write(|getpid(|sleep(|fork(|close(|chdir(|_exit(|execl(|alarm(": "unistd.h",
}  # fmt: skip


def includes(text: str) -> str:
    found = [name for words, name in NEEDS.items() if any(w in text for w in words.split("|"))]
    return "".join(f"#include <{name}>\n" for name in found) + "static volatile int64_t zero = 0;\n"


@dataclass(frozen=True)
class Rogue:
    """One bad cell: what it does after its work, and what the error must say of it.

    `before` stands above the function; `line` says that the error must name the line on which `does` begins;
    `limit_s` is the time that it gets.
    """

    does: str
    kind: str  # of the TrialError
    says: str  # in its message
    before: str = ""
    line: bool = False
    limit_s: float = 0.0
    flags: str = ""

    def raw(self, name: str = "twice") -> tuple[str, int]:
        """The text of a raw cell, and the line of what it does."""
        directives = f"//! n = x.numel()\n//! out = empty_like(x)\n{f'//! flags {self.flags}' if self.flags else ''}\n"
        head = directives + includes(self.before + self.does) + (self.before + "\n" if self.before else "")
        text = head + (
            f"void {name}(const float* x, float* out, int64_t n) {{\n"
            "  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];\n"
            f"  {self.does}\n"
            "}\n"
        )
        return text, head.count("\n") + 3

    def host(self, name: str = "twice") -> tuple[str, int]:
        """The same on tensors, in the host tier."""
        head = includes(self.before + self.does) + (self.before + "\n" if self.before else "")
        text = head + (
            f"Tensor {name}(const Tensor& x) {{\n"
            "  Tensor out_ = torch::stable::empty_like(x);\n"
            "  const float* x_ = x.const_data_ptr<float>(); float* out = out_.mutable_data_ptr<float>(); const int64_t n = x.numel();\n"
            "  { const float* x = x_;\n"
            "  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];\n"
            f"  {self.does} }}\n"
            "  return out_;\n"
            "}\n"
        )
        return text, head.count("\n") + 6

    def full(self, name: str = "twice") -> tuple[str, int]:
        """The same in the full tier."""
        head = (
            "#include <torch/types.h>\n"
            + includes(self.before + self.does)
            + (self.before + "\n" if self.before else "")
        )
        text = head + (
            f"torch::Tensor {name}(const torch::Tensor& x) {{\n"
            "  torch::Tensor out_ = torch::empty_like(x);\n"
            "  const float* x_ = x.const_data_ptr<float>(); float* out = out_.mutable_data_ptr<float>(); const int64_t n = x.numel();\n"
            "  { const float* x = x_;\n"
            "  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];\n"
            f"  {self.does} }}\n"
            "  return out_;\n"
            "}\n"
        )
        return text, head.count("\n") + 6


NULL = "it writes through a null pointer"
DIG = "__attribute__((noinline)) static int64_t dig(int64_t n) { volatile char hole[256]; hole[0] = (char)n; return n < 0 ? n : dig(n + 1) + hole[0]; }"

ROGUES = {
    # signals
    "null pointer": Rogue("*(volatile float*)nullptr = 1;", "crash", NULL, line=True),
    "wild pointer": Rogue("*(volatile float*)0x123456789abc = 1;", "crash", "it writes at 0x123456789abc", line=True),
    "wild read": Rogue("out[0] += ((volatile const float*)x)[-(1ll << 35)];", "crash", "it reads at 0x", line=True),
    "bus": Rogue("raise(SIGBUS);", "crash", "stopped by SIGBUS", line=True),
    "past the end of a file": Rogue(
        "FILE* f = tmpfile(); *(volatile char*)mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fileno(f), 0) = 1;",
        "crash", "stopped by SIGBUS", line=True,
    ),
    "integer division": Rogue("out[0] = (float)(n / zero);", "crash", "SIGFPE: an integer division by zero", line=True),
    "trap": Rogue("if (!zero) __builtin_trap();", "crash", "SIGILL", line=True),
    "abort": Rogue("abort();", "crash", "it called abort()", line=True),
    "failed assert": Rogue("assert(n < 0);", "crash", "Assertion `n < 0' failed", line=True),
    "kill": Rogue("kill(getpid(), SIGKILL);", "crash", "SIGKILL"),
    "term": Rogue("raise(SIGTERM);", "crash", "SIGTERM"),
    "segv": Rogue("raise(SIGSEGV);", "crash", "SIGSEGV", line=True),
    "alarm": Rogue("alarm(0); raise(SIGALRM);", "crash", "SIGALRM"),
    # the process ends
    "exit": Rogue("exit(3);", "crash", "it ended the process: exit(3)"),
    "exit 0": Rogue("exit(0);", "crash", "it ended the process: exit(0)"),
    "_exit": Rogue("_exit(0);", "crash", "it ended the process: exit(0)"),
    "quick_exit": Rogue("quick_exit(4);", "crash", "it ended the process: exit(4)"),
    "exec": Rogue('execl("/bin/true", "true", (char*)nullptr);', "crash", "it ended the process: exit(0)"),
    # exceptions and jumps
    "std exception": Rogue('if (!zero) throw std::runtime_error("boom");', "mismatch", "raises on 4x8 float32: boom"),
    "int exception": Rogue("if (!zero) throw 42;", "mismatch", "it threw something that is no std::exception"),
    "foreign exception": Rogue(
        "foreign.exception_class = 0x1234; if (!zero) _Unwind_RaiseException(&foreign);", "mismatch", "it threw something that is no C++ exception",
        before="static _Unwind_Exception foreign;",
    ),
    "exception in a thread": Rogue('std::thread([] { throw std::runtime_error("boom"); }).join();', "crash", "boom"),
    "noexcept": Rogue("[]() noexcept { if (!zero) throw 42; }();", "crash", "'int'"),
    "pthread_cancel": Rogue("pthread_cancel(pthread_self()); pthread_testcancel();", "hang", "it ended the thread that called it", limit_s=0.5),
    "pthread_exit": Rogue("pthread_exit(nullptr);", "hang", "it ended the thread that called it", limit_s=0.5),
    "longjmp": Rogue("jmp_buf there; memset(&there, 7, sizeof there); if (!zero) longjmp(there, 1);", "crash", "SIG"),
    # memory
    "stack overflow": Rogue("out[0] = (float)dig(0);", "crash", "the stack overflowed", before=DIG),
    "large array": Rogue(
        "volatile char hole[64 << 20]; for (size_t i = 0; i < sizeof hole; i += 512) hole[sizeof hole - 1 - i] = 1;",
        "crash", "the stack overflowed", line=True,
    ),
    "all memory": Rogue(
        "for (;;) { volatile char* p = new char[64 << 20]; for (size_t i = 0; i < (64 << 20); i += 4096) p[i] = 1; }",
        "mismatch", "bad_alloc", limit_s=60,
    ),
    "double free": Rogue('void* p = malloc(64); free(p); asm volatile("" : "+r"(p)); free(p);', "crash", "double free", line=True),
    "read-only memory": Rogue('*(volatile char*)"text" = 1;', "crash", "read-only memory", line=True),
    "own code": Rogue("*(volatile char*)(void*)twice = 1;", "crash", "read-only memory", line=True,
                      before="void twice(const float*, float*, int64_t);"),
    "write past an output": Rogue("out[n] = 1;", "overrun", "past the end of out"),
    "write far past an output": Rogue("out[n + 5000] = 1;", "overrun", "past the end of out", line=True),
    "write before an output": Rogue("out[-1] = 1;", "overrun", "before the start of out"),
    "write far before an output": Rogue("out[-2000] = 1;", "overrun", "before the start of out", line=True),
    "write into an input": Rogue("((float*)x)[1] = 1;", "mutation", "x[0, 1]", line=True),
    "read far past an input": Rogue("out[0] += ((volatile const float*)x)[n + 5000];", "overrun", "past the end of x", line=True),
    # never an end
    "loop": Rogue("while (!zero) {}", "hang", "did not end within 0.5 s", limit_s=0.5, line=True),
    "sleep": Rogue("signal(SIGTERM, SIG_IGN); for (;;) sleep(1000);", "hang", "did not end", limit_s=0.5),
    "stop": Rogue("raise(SIGSTOP);", "hang", "did not end", limit_s=0.5),
    "deadlock": Rogue("pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; pthread_mutex_lock(&m); pthread_mutex_lock(&m);",
                      "hang", "did not end", limit_s=0.5),
    # left behind
    "thread that crashes later": Rogue(
        "std::thread([] { std::this_thread::sleep_for(std::chrono::seconds(3)); *(volatile float*)nullptr = 1; }).detach();",
        "mutation", "a thread that still runs",
    ),
    "thread that crashes soon": Rogue(
        "std::thread([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); *(volatile float*)nullptr = 1; }).detach();",
        "crash", NULL, line=True,
    ),
    "thread that spins": Rogue("std::thread([] { for (;;) zero = 0; }).detach();", "mutation", "a thread that still runs"),
    "fork": Rogue("if (!fork()) for (;;) sleep(1000);", "mutation", "a process"),
    "fork that returns": Rogue("fork();", "mutation", "a process"),
    "daemon": Rogue(
        "pid_t p = fork(); if (!p) { setsid(); if (!fork()) for (;;) sleep(1000); _exit(0); } waitpid(p, nullptr, 0);",
        "mutation", "a process",
    ),
    # printing without end
    "stdout flooded": Rogue("static char page[1 << 16]; for (int i = 0; i < 1600; ++i) if (write(1, page, sizeof page) < 0) abort(); abort();",
                            "crash", "it called abort()"),
    "stderr flooded": Rogue("static char page[1 << 16]; for (;;) if (write(2, page, sizeof page) < 0) abort();",
                            "hang", "did not end", limit_s=0.5),
    # the process itself
    "all files closed": Rogue("for (int i = 0; i < 1024; ++i) close(i);", "crash", "it closed the file descriptors"),
    "some files closed": Rogue("for (int i = 0; i < 100; ++i) close(i);", "mutation", "closed file descriptors"),
    "stdout closed": Rogue("close(1);", "mutation", "closed file descriptors"),
    "stdout elsewhere": Rogue('if (!freopen("/dev/null", "w", stdout)) abort();', "mutation", "file descriptor"),
    "chdir": Rogue('if (chdir("/")) abort();', "mutation", "the working directory"),
    "setenv": Rogue('setenv("HOME", "/nowhere", 1);', "mutation", "the environment variable HOME"),
    "umask": Rogue("umask(0777);", "mutation", "umask"),
    "signal handler": Rogue("signal(SIGINT, SIG_IGN);", "mutation", "the handler of SIGINT"),
    "fault handler": Rogue("signal(SIGSEGV, [](int) { _exit(0); });", "mutation", "the handler of SIGSEGV"),
    "signal mask": Rogue("sigset_t s; sigfillset(&s); pthread_sigmask(SIG_BLOCK, &s, nullptr);", "mutation", "which signals are blocked"),
    "timer": Rogue("alarm(5);", "mutation", "a timer"),
    "locale": Rogue('setlocale(LC_ALL, "C.UTF-8"); setlocale(LC_NUMERIC, "POSIX");', "mutation", "the locale"),
    "rounding": Rogue("fesetround(FE_UPWARD);", "mutation", "the floating-point environment"),
    "traps": Rogue("feenableexcept(FE_DIVBYZERO | FE_INVALID);", "mutation", "the floating-point environment"),
    "flush to zero": Rogue("_MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);", "mutation", "the floating-point environment"),
    "limit": Rogue("rlimit r{64, 64}; setrlimit(RLIMIT_NOFILE, &r);", "mutation", "a resource limit"),
    # loading
    "initialiser that crashes": Rogue("", "crash", "while its library was loaded", before="static const int made = [] { if (!zero) *(volatile int*)8 = 1; return 1; }();"),
    "initialiser that throws": Rogue("", "crash", "boom", before='static const int made = [] { if (!zero) throw std::runtime_error("boom"); return 1; }();'),
    "initialiser that hangs": Rogue("", "hang", "while its library was loaded", limit_s=0.5, before="static const int made = [] { while (!zero) {} return 1; }();"),
    "initialiser that exits": Rogue("", "crash", "while its library was loaded", before="static const int made = [] { exit(0); return 1; }();"),
    "initialiser that changes the directory": Rogue("", "mutation", "the working directory", before='static const int made = [] { return chdir("/"); }();'),
    "destructor that crashes": Rogue("", "crash", "at the end of the process", before="struct Bad { ~Bad() { *(volatile int*)nullptr = 1; } } static bad;"),
    "destructor that hangs": Rogue("", "hang", "at the end of the process", limit_s=0.5, before="struct Bad { ~Bad() { while (!zero) {} } } static bad;"),
}  # fmt: skip
