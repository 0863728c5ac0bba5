// A CUDA runtime without a GPU: it knows how much shared memory a kernel may have, and records what it is asked.
// A block has 48 KB without asking, the kernel's own arrays included, and 227 KB at most.
#include <cuda_runtime_api.h>

#include <cstdint>

extern "C" {
int fake_own = 0, fake_asked = 0, fake_called = 0, fake_most = 0, fake_launched = 0, fake_missing = 0;
int fake_allowed[8] = {};  // by GPU
int fake_gpu = 0;
static cudaError_t last = cudaSuccess;
static size_t wanted = 0;
static cudaError_t failed(cudaError_t code) { return code == cudaSuccess ? code : (last = code); }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* told, const void*) {
  ++fake_asked;
  if (fake_missing) return failed(cudaErrorInvalidDeviceFunction);
  told->sharedSizeBytes = fake_own;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 232448, cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int bytes) {
  ++fake_called;
  if (bytes + fake_own > 232448) return failed(cudaErrorInvalidValue);
  return fake_allowed[fake_gpu] = fake_most = bytes, cudaSuccess;
}
static cudaError_t launched(size_t shared) {
  const size_t allowed = fake_allowed[fake_gpu] ? fake_allowed[fake_gpu] : 48 * 1024 - fake_own;
  if (shared > allowed) return failed(cudaErrorInvalidValue);
  return ++fake_launched, cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t shared, cudaStream_t) { return launched(shared); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t shared, cudaStream_t) { return launched(shared); }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) { return launched(config->dynamicSmemBytes); }
cudaError_t cudaGetLastError() {
  const cudaError_t code = last;
  return last = cudaSuccess, code;
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t shared, CUstream_st*) { return wanted = shared, 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t* shared, void*) { return *shared = wanted, cudaSuccess; }
char __cudaInitModule(void**) { return 0; }
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
}
