// How a kernel is launched, as host code hands it to the function that launches.
#pragma once
#include <stdint.h>

enum { WB_GPUS = 64 };  // more than a machine has

struct wb_launch {
  uint32_t grid[3], block[3], cluster[3], shared;
  int32_t gpu;
  void* stream;
  int32_t own;  // filled in where `shared` was more than allowed before: bytes of the kernel's own __shared__ arrays
};
