// The same and autograd functions written in C++. Precompiled.
#pragma once
#include "wb_full_torch.h"

#include <torch/autograd.h>
