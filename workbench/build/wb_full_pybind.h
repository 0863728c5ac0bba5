// The same for code that also speaks to Python: pybind11, torch's conversions for it, its translation of errors.
// Precompiled.
#pragma once
#include "wb_full_torch.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
