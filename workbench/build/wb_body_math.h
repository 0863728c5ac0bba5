// The prelude of kernels that use mathematical functions, or std::. <math.h> puts those of float and double in scope.
#pragma once
#include "wb_body.h"

#include <cmath>
#include <cstdint>

#include <math.h>
