// How a kernel is launched, as host code hands it to the function that launches.
#pragma once
#include <stdint.h>

struct wb_launch {
  uint32_t grid[3], block[3], cluster[3], shared;
  void* stream;
};
