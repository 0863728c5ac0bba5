// All that torch's own header offers, for code that needs more than the slim ones. Precompiled.
#pragma once
#include <torch/extension.h>
