// What most code on torch::Tensor needs: tensors, factories, library blocks. Precompiled.
//
// torch/extension.h holds this, the modules and optimisers of the C++ frontend, and Python; it costs three times as much.
#pragma once
#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/utils.h>
