// The functions of the NVIDIA driver that launchers and host cells call: a table that Python fills in, so that nothing of
// CUDA is included or linked.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace wb {

// Laid out the same in structures.py.
struct Gpu {
  void* context;  // its primary one, null until a tensor of this device came
  int32_t ordinal, arch, sm_count;
  int32_t shared, shared_limit;  // bytes a block may take: without asking, and at most
  int32_t clusters;              // 1: it has them
};
struct Attribute {  // CUlaunchAttribute
  int32_t id, pad;
  uint32_t value[16];
};
struct Config {  // CUlaunchConfig
  uint32_t grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  uint32_t attribute_count;
};
struct Driver {
  int (*launch)(void*, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void*, void**, void**);
  int (*launch_ex)(const Config*, void*, void**, void**);
  int (*get_context)(void**);
  int (*set_context)(void*);
  int (*retain)(void**, int);
  int (*get_attribute)(int*, int, void*, int);
  int (*set_attribute)(int, int, void*, int);
  int (*fill)(uint64_t, unsigned char, size_t, void*);
  int (*error_name)(int, const char**);
  int (*error_text)(int, const char**);
  int32_t (*stream)(int32_t, void**);
  int64_t gpu_count;
  Gpu* gpus;
};

}  // namespace wb
