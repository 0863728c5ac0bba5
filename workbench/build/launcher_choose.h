// Which kernels serve a call: those tuned for its sizes, those compiled for its dtypes.
#pragma once

namespace wb {

// Are these the dtypes and sizes of the tensor arguments?
inline bool fits(const Frame& f, const int64_t* wanted) {
  for (int i = 0; i < f.op.tensor_arguments; ++i) {
    const Tensor& t = f.tensors[i];
    if (!t) {
      if (*wanted++ != -1) return false;
      continue;
    }
    if (*wanted++ != t.dtype || *wanted++ != t.dim) return false;
    for (int64_t k = 0; k < t.dim; ++k)
      if (*wanted++ != t.sizes[k]) return false;
  }
  return true;
}

// What was tuned for these sizes, else the descriptor itself.
inline const Descriptor* choose(const Frame& f, const Descriptor* d) {
  for (int64_t k = 0; d && k < d->choice_count; ++k)
    if (fits(f, d->choices[k].sizes)) return d->choices[k].descriptor;
  return d;
}

inline const Instance* find(const Frame& f) {
  const int n = f.tensor_count();
  for (int64_t k = 0; k < f.descriptor->instance_count; ++k) {
    const int8_t* wanted = f.descriptor->instances[k].dtypes;
    int i = 0;
    while (i < n && (f.tensors[i].dtype == no_dtype || wanted[i] == any_dtype || wanted[i] == f.tensors[i].dtype)) ++i;
    if (i == n) return &f.descriptor->instances[k];
  }
  return nullptr;
}

}  // namespace wb
