// What a launcher for a GPU does besides: its device and stream, geometry and limits, parameters, launches.
//
// Nothing of CUDA is included or linked. The functions of the driver come in a table, `wb_hook_driver` takes it; kernels
// are CUkernel handles, which belong to no context. Nothing here allocates, locks or makes text unless it fails.
#pragma once
#include "launcher.h"
#ifdef WB_LIVE
#include "driver.h"
#include "launcher_parameters.h"
#endif

namespace wb {

#ifdef WB_LIVE
static const Driver* driver = nullptr;

enum { MAX_THREADS = 0, STATIC_SHARED = 1, REGISTERS = 4, MAX_DYNAMIC_SHARED = 8, CLUSTER_DIMENSION = 4 };

[[noreturn]] __attribute__((noinline, cold)) inline void driver_problem(const char* what, int code, const char* more = "") {
  const char *name = nullptr, *text = nullptr;
  driver->error_name(code, &name);
  driver->error_text(code, &text);
  problem("%s failed: %s (%s)%s", what, text ? text : "an error that the driver has no text for", name ? name : "?", more);
}
inline void ok(int code, const char* what) {
  if (__builtin_expect(code != 0, 0)) driver_problem(what, code);
}
#else
struct Gpu {
  int32_t arch, sm_count, shared_limit, clusters;
};
#endif

// ---- one call --------------------------------------------------------------------------------------------------------
struct Geometry {
  uint32_t grid[3], block[3], cluster[3], shared;
  int at;  // the text of `shared`
};

struct CudaFrame : Frame {
  void (*geometry)(CudaFrame&);
  Geometry* kernels;  // of each kernel
#ifdef WB_LIVE
  Value* packed;      // the parameters of all kernels, one after the other
  void** pointers;    // to these
#endif
  Gpu* gpu = nullptr;
  int32_t index = 0;
  void* stream = nullptr;

  // Called by `geometry` for each kernel, in this order; each checks what it is given.
  template <typename... N> void grid(int k, N... n) {
    const int64_t sizes[] = {int64_t(n)...};
    const Span s{sizes, sizeof...(n)};
    uint32_t* g = kernels[k].grid;
    g[1] = g[2] = 1;
    for (int64_t i = 0; i < s.size; ++i) {
      if (__builtin_expect(sizes[i] < 1 || sizes[i] > (i ? 65535 : 2147483647), 0)) wrong_grid(s, i);
      g[i] = static_cast<uint32_t>(sizes[i]);
    }
    kernels[k].cluster[0] = kernels[k].shared = 0;
  }
  template <typename... N> void block(int k, N... n) {
    const int64_t sizes[] = {int64_t(n)...};
    const Span s{sizes, sizeof...(n)};
    uint32_t* b = kernels[k].block;
    b[1] = b[2] = 1;
    for (int64_t i = 0; i < s.size; ++i) {
      if (__builtin_expect(sizes[i] < 1 || sizes[i] > (i == 2 ? 64 : 1024), 0)) wrong_block(s);
      b[i] = static_cast<uint32_t>(sizes[i]);
    }
    if (__builtin_expect(b[0] * b[1] * b[2] > 1024, 0)) wrong_block(s);
  }
  void shared(int k, int64_t bytes) {
    if (bytes < 0) problem("%lld bytes of shared memory, which is negative", (long long)bytes);
    if (bytes > gpu->shared_limit) too_much_shared(bytes, 0);
    kernels[k].shared = static_cast<uint32_t>(bytes);
    kernels[k].at = at;
  }
  template <typename... N> void cluster(int k, N... n) {
    const int64_t sizes[] = {int64_t(n)...};
    const Span s{sizes, sizeof...(n)};
    uint32_t* c = kernels[k].cluster;
    if (!gpu->clusters) problem("this GPU (sm_%d) has no clusters, which need sm_90 or later", gpu->arch);
    c[0] = c[1] = c[2] = 1;
    for (int64_t i = 0; i < s.size; ++i) {
      if (sizes[i] < 1 || sizes[i] > 8) wrong_cluster(s);
      c[i] = static_cast<uint32_t>(sizes[i]);
    }
    if (c[0] * c[1] * c[2] > 8) wrong_cluster(s);
    for (int i = 0; i < 3; ++i)
      if (kernels[k].grid[i] % c[i]) uneven_cluster(k);
  }

  [[noreturn]] __attribute__((noinline, cold)) void wrong_grid(Span s, int64_t i) {
    Problem p;
    p.message.add("the grid is ");
    show_sizes(p.message, s);
    if (s.data[i] < 1) p.message.add(", it needs at least 1 block; write cdiv(a, b) for a // b, or max(1, ...) where there may be no work");
    else if (i) p.message.add(", its second and third size are at most 65535; put the largest first");
    else p.message.add(", its first size is at most 2147483647");
    throw p;
  }
  [[noreturn]] __attribute__((noinline, cold)) void wrong_block(Span s) {
    Problem p;
    int64_t threads = 1;
    bool negative = false;
    for (int64_t i = 0; i < s.size; ++i) negative |= s.data[i] < 1, threads *= s.data[i] < 100000 ? s.data[i] : 100000;
    p.message.add("the block is ");
    show_sizes(p.message, s);
    if (negative) p.message.add(", it needs at least 1 thread");
    else if (threads > 1024) p.message.add(", a block has at most 1024 threads");
    else p.message.add(", its third size is at most 64");
    throw p;
  }
  [[noreturn]] __attribute__((noinline, cold)) void wrong_cluster(Span s) {
    Problem p;
    p.message.add("the cluster is ");
    show_sizes(p.message, s);
    p.message.add(", it has 1 to 8 blocks");
    throw p;
  }
  [[noreturn]] __attribute__((noinline, cold)) void uneven_cluster(int k) {
    const Geometry& g = kernels[k];
    problem("the cluster (%u, %u, %u) does not divide the grid (%u, %u, %u)", g.cluster[0], g.cluster[1], g.cluster[2],
            g.grid[0], g.grid[1], g.grid[2]);
  }
  [[noreturn]] __attribute__((noinline, cold)) void too_much_shared(int64_t bytes, int own) {
    Problem p;
    p.message.add("%lld bytes of shared memory", (long long)bytes);
    if (own) p.message.add(" and %d of the kernel's own __shared__ arrays", own);
    p.message.add(" are more than the %d that a block may have on this GPU (sm_%d)", gpu->shared_limit, gpu->arch);
    throw p;
  }
  static void show_sizes(Message& m, Span s) {
    if (s.size == 1) show(m, s.data[0]);
    else show(m, s);
  }
};

inline const Gpu& gpu(const Frame& f) { return *static_cast<const CudaFrame&>(f).gpu; }

#ifdef WB_LIVE
inline void find_device(CudaFrame& f) {
  if (!driver) problem("the launcher was given no CUDA driver");
  int i = 0;
  while (i < f.op.tensor_arguments && !f.tensors[i]) ++i;
  if (i == f.op.tensor_arguments) problem("no tensor was given, so nothing says on which GPU");
  f.index = f.tensors[i].device_index < 0 ? 0 : f.tensors[i].device_index;
  if (f.index >= driver->gpu_count) problem("%s is on GPU %d, of which the driver knows %d", f.tensor_name(i), f.index, int(driver->gpu_count));
  f.gpu = driver->gpus + f.index;
}

// Lets a kernel have the dynamic shared memory that it asks for, on this device from now on.
__attribute__((noinline, cold)) inline void allow_shared(CudaFrame& f, const Function& function, const Geometry& g) {
  void* kernel = reinterpret_cast<void*>(function.entry);
  int own = 0;
  f.at = g.at;
  ok(driver->get_attribute(&own, STATIC_SHARED, kernel, f.gpu->ordinal), "asking for the kernel's shared memory");
  int allowed = f.gpu->shared - own;
  if (int64_t(g.shared) > allowed) {
    allowed = f.gpu->shared_limit - own;
    if (int64_t(g.shared) > allowed) f.too_much_shared(g.shared, own);
    ok(driver->set_attribute(MAX_DYNAMIC_SHARED, allowed, kernel, f.gpu->ordinal), "asking for more shared memory");
  }
  __atomic_store_n(function.allowed + f.index, allowed, __ATOMIC_RELAXED);
}

// Geometry of all kernels: whatever is wrong with one is told before any of them runs.
inline void shape_launches(CudaFrame& f) {
  f.geometry(f);
  if (f.descriptor->handles) return;
  for (int64_t k = 0; k < f.descriptor->function_count; ++k) {
    const Function& function = f.instance->functions[k];
    const Geometry& g = f.kernels[k];
    if (g.shared && int64_t(g.shared) > __atomic_load_n(function.allowed + f.index, __ATOMIC_RELAXED))
      allow_shared(f, function, g);
  }
}

// The context of the tensors' device while memory is filled and kernels are launched; the former one afterwards.
struct Inside {
  void* former = nullptr;
  bool changed = false;
  explicit Inside(CudaFrame& f) {
    check(driver->stream(f.index, &f.stream), "asking for the current stream");
    void* context = __atomic_load_n(&f.gpu->context, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!context, 0)) {
      ok(driver->retain(&context, f.gpu->ordinal), "opening the GPU");
      __atomic_store_n(&f.gpu->context, context, __ATOMIC_RELEASE);
    }
    ok(driver->get_context(&former), "asking for the current context");
    if (__builtin_expect(former == context, 1)) return;
    ok(driver->set_context(context), "choosing the GPU");
    changed = true;
  }
  Inside(const Inside&) = delete;
  ~Inside() {
    if (changed) driver->set_context(former);
  }
};
inline Inside enter(CudaFrame& f) { return Inside(f); }

inline void zero(CudaFrame& f, Tensor& t) {
  const size_t bytes = static_cast<size_t>(t.numel * element_size(t.dtype));
  ok(driver->fill(reinterpret_cast<uint64_t>(t.data), 0, bytes, f.stream), "filling memory with zeros");
}

[[noreturn]] __attribute__((noinline, cold)) inline void failed(const CudaFrame& f, const Function& function, const Geometry& g, int code) {
  void* kernel = reinterpret_cast<void*>(function.entry);
  const int wanted = int(g.block[0] * g.block[1] * g.block[2]);
  Message what, more;
  what.add("launching %s on a grid of (%u, %u, %u), blocks of (%u, %u, %u) and %u bytes of shared memory", function.name,
           g.grid[0], g.grid[1], g.grid[2], g.block[0], g.block[1], g.block[2], g.shared);
  int most = 0, registers = 0;
  if (code == 1 || code == 701) {  // invalid value, out of resources
    driver->get_attribute(&most, MAX_THREADS, kernel, f.gpu->ordinal);
    driver->get_attribute(&registers, REGISTERS, kernel, f.gpu->ordinal);
    if (most > 0 && most < wanted)
      more.add(": with %d registers a thread, or the __launch_bounds__ of %s, its blocks have at most %d threads; write "
               "__launch_bounds__(%d) or take a smaller block", registers, function.name, most, wanted);
  }
  if (code == 209) more.add(": it was compiled for another GPU than this one, sm_%d", f.gpu->arch);
  if (code == 700 || (code >= 714 && code <= 719))
    more.add(". A kernel before this one failed, and the GPU is lost to this process: restart it");
  driver_problem(what.text, code, more.text);
}

inline void call_kernels(CudaFrame& f) {
  bind_tensors(f);
  if (f.descriptor->handles) return call_functions(f);
  int64_t slot = 0;
  for (int64_t k = 0; k < f.descriptor->function_count; ++k) {
    const Function& function = f.instance->functions[k];
    if (__builtin_expect(f.none != 0, 0)) refuse_none(f, function);
    for (int64_t i = 0; i < function.parameter_count; ++i, ++slot) {
      const Parameter& p = function.parameters[i];
      if (__builtin_expect(!pack(p, f.values[p.value], f.packed[slot]), 0)) misfit(f, function, i + 1);
      f.pointers[slot] = f.packed + slot;
    }
  }
  slot = 0;
  for (int64_t k = 0; k < f.descriptor->function_count; ++k) {
    const Function& function = f.instance->functions[k];
    const Geometry& g = f.kernels[k];
    void *kernel = reinterpret_cast<void*>(function.entry), **pointers = f.pointers + slot;
    int code;
    if (__builtin_expect(!g.cluster[0], 1)) {
      code = driver->launch(kernel, g.grid[0], g.grid[1], g.grid[2], g.block[0], g.block[1], g.block[2], g.shared, f.stream, pointers, nullptr);
    } else {
      Attribute cluster = {CLUSTER_DIMENSION, 0, {g.cluster[0], g.cluster[1], g.cluster[2]}};
      const Config config = {{g.grid[0], g.grid[1], g.grid[2]}, {g.block[0], g.block[1], g.block[2]}, g.shared, f.stream, &cluster, 1};
      code = driver->launch_ex(&config, kernel, pointers, nullptr);
    }
    if (__builtin_expect(code != 0, 0)) failed(f, function, g, code);
    slot += function.parameter_count;
  }
}
#endif

}  // namespace wb

#ifdef WB_LIVE
#define WB_DRIVER \
  WB_EXPORT void wb_hook_driver(const void* d) { wb::driver = static_cast<const wb::Driver*>(d); }
#else
#include "launcher_cudart.h"
#endif
