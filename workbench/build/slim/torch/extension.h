// Stands before torch/extension.h on the include path: the text began with wb_full_torch.h or wb_full_pybind.h, which hold
// what it needs of it. Text that needs more is compiled without this folder.
#pragma once
