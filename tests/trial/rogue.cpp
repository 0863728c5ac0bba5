// Kernels that misbehave, one way each: `void NAME(const float* x, float* out, int64_t n)`.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#define KERNEL(NAME) extern "C" void NAME(const float* x, float* out, int64_t n) noexcept
static volatile int64_t zero = 0;

KERNEL(twice) { for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i]; }

// ways to die
KERNEL(null_pointer) { *(volatile float*)nullptr = 1; }
KERNEL(wild_pointer) { *(volatile float*)0x123456789abc = 1; }
KERNEL(noncanonical) { *(volatile float*)0xdeadbeefdeadbeef = 1; }
KERNEL(calls_abort) { abort(); }
KERNEL(failed_assert) { assert(n < 0 && "n is negative"); }
KERNEL(calls_exit) { exit(3); }
KERNEL(calls_exit_0) { exit(0); }
KERNEL(calls_quick_exit) { _exit(0); }
KERNEL(throws_in_thread) { std::thread([] { throw std::runtime_error("boom"); }).join(); }
KERNEL(divides_by_zero) { out[0] = (float)(n / zero); }
KERNEL(traps) { __builtin_trap(); }
KERNEL(raises_segv) { raise(SIGSEGV); }
KERNEL(kills_itself) { kill(getpid(), SIGKILL); }
KERNEL(kills_its_worker) { kill(getppid(), SIGKILL); pause(); }
__attribute__((noinline)) static int64_t dig(int64_t n) { volatile char hole[256]; hole[0] = (char)n; return n < 0 ? n : dig(n + 1) + hole[0]; }
KERNEL(overflows_the_stack) { out[0] = (float)dig(0); }
KERNEL(overflows_with_an_array) { volatile char hole[64 << 20]; for (size_t i = 0; i < sizeof hole; i += 512) hole[sizeof hole - 1 - i] = 1; }
KERNEL(null_in_thread) { std::thread([] { *(volatile float*)nullptr = 1; }).join(); }
KERNEL(corrupts_the_heap) { void* p = malloc(64); free(p); free(p); for (int i = 0; i < 99; ++i) free((char*)p + 16 * i); }

// ways to hang
KERNEL(spins) { while (!zero) {} }
KERNEL(sleeps) { signal(SIGTERM, SIG_IGN); for (;;) sleep(1000); }
KERNEL(stops) { raise(SIGSTOP); }
KERNEL(spins_in_threads) { std::vector<std::thread> t; for (int i = 0; i < 4; ++i) t.emplace_back([] { while (!zero) {} }); for (auto& one : t) one.join(); }

// ways to take what is not theirs
KERNEL(takes_all_memory) { for (;;) { volatile char* p = new char[64 << 20]; for (size_t i = 0; i < (64 << 20); i += 4096) p[i] = 1; } }
KERNEL(closes_all_files) { twice(x, out, n); for (int i = 0; i < 4096; ++i) close(i); }
KERNEL(writes_into_all_files) { twice(x, out, n); for (int i = 0; i < 1024; ++i) if (write(i, "garbage, a lot of garbage", 25) < 0) continue; }
KERNEL(leaves_a_thread) { twice(x, out, n); std::thread([] { for (;;) zero = 0; }).detach(); }
KERNEL(leaves_a_process) { twice(x, out, n); if (!fork()) { for (;;) sleep(1000); } }
KERNEL(leaves_a_daemon) { twice(x, out, n); pid_t p = fork(); if (!p) { setsid(); if (!fork()) for (;;) sleep(1000); _exit(0); } waitpid(p, nullptr, 0); printf("daemon of %d\n", getpid()); }
KERNEL(reads_stdin) { char c; ssize_t got = read(0, &c, 1); printf("read %zd\n", got); twice(x, out, n); }

// ways to print
KERNEL(prints) { twice(x, out, n); printf("n is %ld", (long)n); std::cerr << " and x is " << x[0] << "\n"; }
KERNEL(prints_and_dies) { printf("before the end"); *(volatile float*)nullptr = 1; }
KERNEL(floods) { twice(x, out, n); for (int i = 0; i < 20000; ++i) puts("0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789"); }
KERNEL(floods_for_ever) { for (;;) puts("0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789"); }

// ways to touch what is not theirs
KERNEL(writes_one_more) { for (int64_t i = 0; i <= n; ++i) out[i] = 1; }
KERNEL(writes_far_behind) { twice(x, out, n); out[n + 5000] = 1; }
KERNEL(writes_before) { twice(x, out, n); out[-1] = 1; }
KERNEL(writes_far_before) { twice(x, out, n); out[-2000] = 1; }
KERNEL(reads_far_behind) { twice(x, out, n); out[0] = ((volatile const float*)x)[n + 5000]; }
KERNEL(reads_one_more) { for (int64_t i = 0; i < n; ++i) out[i] = x[i + 1]; }
KERNEL(writes_to_its_input) { twice(x, out, n); ((float*)x)[7] = 1; }
KERNEL(writes_half) { for (int64_t i = 0; i < n / 2; ++i) out[i] = 2 * x[i]; }
KERNEL(writes_nan) { for (int64_t i = 0; i < n; ++i) out[i] = NAN; }

// in place: x may change where the schema says so
KERNEL(adds_one) { for (int64_t i = 0; i < n; ++i) ((float*)x)[i] += 1; }
