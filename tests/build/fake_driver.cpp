// A driver without a GPU, under libcuda's own names: it records what it is asked, and runs a host function for a kernel.
//
// A "cubin" here is a file "FAKE /path/of/a/shared/object"; its kernels are exported objects of type FakeKernel.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

struct FakeKernel {
  void (*run)(void** parameters, const uint32_t* grid, const uint32_t* block);
  int32_t parameters, own_shared, max_threads, registers;
};
struct Record {
  int32_t what;
  uint32_t grid[3], block[3], cluster[3], shared;
  void *kernel, *stream, *context;
  int64_t parameters[64];
};
enum { LAUNCH = 1, LAUNCH_EX, FILL, SET_CONTEXT, SET_ATTRIBUTE, RETAIN };
struct Attribute { int32_t id, pad; uint32_t value[16]; };
struct Config { uint32_t grid[3], block[3], shared; void* stream; Attribute* attributes; uint32_t count; };

extern "C" {
#define API __attribute__((visibility("default")))
API Record fake_records[1024];
API int32_t fake_count = 0, fake_devices = 1, fake_launch_code = 0, fake_load_code = 0, fake_init_code = 0, fake_version = 13000;
API int32_t fake_put = 0, fake_put_code = 0, fake_major = 9, fake_minor = 0, fake_clusters = 1, fake_run = 1;
API void* fake_stream = nullptr;
static thread_local void* current = nullptr;

API void fake_reset() {
  fake_put = fake_put_code = fake_count = fake_launch_code = fake_load_code = fake_init_code = 0;
  fake_devices = fake_clusters = fake_run = 1, fake_version = 13000, fake_major = 9, fake_minor = 0;
  fake_stream = current = nullptr;
}
API void fake_make_current(void* context) { current = context; }
API void* fake_current() { return current; }

static Record& record(int32_t what) {
  Record& r = fake_records[fake_count++ % 1024];
  r = Record();
  r.what = what;
  r.context = current;
  return r;
}
static int launched(Record& r, void* kernel, const uint32_t* grid, const uint32_t* block, uint32_t shared, void* stream, void** p) {
  auto* k = static_cast<FakeKernel*>(kernel);
  memcpy(r.grid, grid, 12), memcpy(r.block, block, 12);
  r.shared = shared, r.stream = stream, r.kernel = kernel;
  for (int i = 0; i < k->parameters && i < 64; ++i) memcpy(r.parameters + i, p[i], 8);
  if (fake_launch_code) return fake_launch_code;
  if (fake_run) k->run(p, grid, block);
  return 0;
}

API int cuInit(unsigned) { return fake_init_code; }
API int cuDriverGetVersion(int* v) { *v = fake_version; return 0; }
API int cuDeviceGetCount(int* n) { *n = fake_devices; return 0; }
API int cuDeviceGet(int* d, int i) { *d = i; return 0; }
API int cuDeviceGetName(char* name, int, int) { strcpy(name, "Fake H200"); return 0; }
API int cuDeviceGetAttribute(int* v, int which, int) {
  switch (which) {
    case 16: *v = 132; return 0;
    case 8: *v = 49152; return 0;
    case 97: *v = 232448; return 0;
    case 120: *v = fake_clusters; return 0;
    case 75: *v = fake_major; return 0;
    case 76: *v = fake_minor; return 0;
    default: *v = 2048; return 0;
  }
}
API int cuGetErrorName(int code, const char** t) {
  *t = code == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
       : code == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" : code == 999 ? nullptr : "CUDA_ERROR_OTHER";
  return 0;
}
API int cuGetErrorString(int code, const char** t) {
  *t = code == 701 ? "too many resources requested for launch" : code == 700 ? "an illegal memory access was encountered"
       : code == 222 ? "the provided PTX was compiled with an unsupported toolchain." : code == 999 ? nullptr : "another error";
  return 0;
}
API int cuLibraryLoadData(void** library, const char* data, void*, void*, unsigned, void*, void*, unsigned) {
  if (fake_load_code) return fake_load_code;
  if (strncmp(data, "FAKE ", 5) != 0) return 200;
  *library = dlopen(data + 5, RTLD_NOW | RTLD_LOCAL);
  return *library ? 0 : 200;
}
API int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  *kernel = dlsym(library, name);
  return *kernel ? 0 : 500;
}
API int cuKernelGetFunction(void** function, void* kernel) { *function = kernel, ++fake_put; return fake_put_code; }
API int cuKernelGetAttribute(int* v, int which, void* kernel, int) {
  auto* k = static_cast<FakeKernel*>(kernel);
  *v = which == 0 ? k->max_threads : which == 1 ? k->own_shared : k->registers;
  return 0;
}
API int cuKernelSetAttribute(int which, int value, void* kernel, int device) {
  Record& r = record(SET_ATTRIBUTE);
  r.kernel = kernel;
  r.parameters[0] = which, r.parameters[1] = value, r.parameters[2] = device;
  return 0;
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  record(RETAIN);
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(0x1000 + device));
  return 0;
}
API int cuCtxGetCurrent(void** context) { *context = current; return 0; }
API int cuCtxSetCurrent(void* context) { current = context; record(SET_CONTEXT); return 0; }
API int cuMemsetD8Async(uint64_t at, unsigned char value, size_t n, void* stream) {
  Record& r = record(FILL);
  r.kernel = reinterpret_cast<void*>(at), r.stream = stream, r.parameters[0] = static_cast<int64_t>(n);
  memset(r.kernel, value, n);
  return 0;
}
API int cuLaunchKernel(void* kernel, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned shared, void* stream, void** p, void**) {
  const uint32_t grid[] = {a, b, c}, block[] = {d, e, f};
  return launched(record(LAUNCH), kernel, grid, block, shared, stream, p);
}
API int cuLaunchKernelEx(const Config* config, void* kernel, void** p, void**) {
  Record& r = record(LAUNCH_EX);
  if (config->count == 1 && config->attributes->id == 4) memcpy(r.cluster, config->attributes->value, 12);
  return launched(r, kernel, config->grid, config->block, config->shared, config->stream, p);
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int threads, size_t) { *n = 2048 / threads; return 0; }
API int32_t aoti_torch_get_current_cuda_stream(int32_t, void** stream) { *stream = fake_stream; return 0; }
}
