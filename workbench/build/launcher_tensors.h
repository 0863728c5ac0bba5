// The tensors of one call of a launcher: arguments made contiguous, outputs with the strides of the reference, workspace.
#pragma once

namespace wb {

// A contiguous tensor.
inline AtenTensorHandle new_tensor(const Tensor& t, const int64_t* strides) {
  AtenTensorHandle made = nullptr;
#ifdef WB_LIVE
  if (hooks.allocate) {
    void* data = hooks.allocate(t.numel * element_size(t.dtype));
    if (!data) problem("the allocation hook gave no memory");
    check(aoti_torch_create_tensor_from_blob(data, t.dim, t.sizes, strides, 0, t.dtype, t.device_type, t.device_index, &made), "wrapping memory");
    return made;
  }
#endif
  check(aoti_torch_empty_strided(t.dim, t.sizes, strides, t.dtype, t.device_type, t.device_index, &made), "allocation");
  return made;
}

struct NoGradients {
  bool before = aoti_torch_grad_mode_is_enabled();
  NoGradients() { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGradients() { aoti_torch_grad_mode_set_enabled(before); }
};

// Pointers of the arguments. What the kernels take no strides of is made contiguous; a mutated one never is.
inline void settle_arguments(Frame& f) {
  int t = 0;
  for (int i = 0; i < f.op.argument_count; ++i) {
    const Argument& a = f.op.arguments[i];
    if (a.type != TENSOR) continue;
    Tensor& x = f.tensors[t++];
    if (!x) continue;
    if (!x.contiguous && !(a.flags & STRIDED)) {
      if (a.flags & MUTATED) {
        Problem p;
        p.message.add("%s is written in place and not contiguous, and no directive reads %s.stride(); its strides are ", a.name, a.name);
        show(p.message, x.stride());
        throw p;
      }
      NoGradients guard;
#ifdef WB_LIVE
      __atomic_fetch_or(&hooks.copied, uint64_t(1) << i, __ATOMIC_RELAXED);
#endif
      Room room;
      int64_t stride = 1;
      for (int64_t k = x.dim - 1; k >= 0; --k) room.strides[k] = stride, stride *= x.sizes[k] > 0 ? x.sizes[k] : 1;
      check(aoti_torch_empty_strided(x.dim, x.sizes, room.strides, x.dtype, x.device_type, x.device_index, &x.copy), "allocation");
      check(aoti_torch_copy_(x.copy, x.handle, 0), "making an argument contiguous");
    }
    if (a.flags & MUTATED) check(torch_get_mutable_data_ptr(x.handle, &x.data), "reading a tensor");
    else check(torch_get_const_data_ptr(x.copy ? x.copy : x.handle, const_cast<const void**>(&x.data)), "reading a tensor");
    if (reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(element_size(x.dtype)))
      problem("%s does not begin at a multiple of its element size, %lld bytes", a.name, (long long)element_size(x.dtype));
  }
}

inline StableIValue duplicate(const Argument& a, StableIValue v) {
  if (a.type == STRING) {
    const char* data = nullptr;
    size_t length = 0;
    StringHandle made = nullptr;
    torch_string_c_str(reinterpret_cast<StringHandle>(v), &data);
    torch_string_length(reinterpret_cast<StringHandle>(v), &length);
    check(torch_new_string_handle(data, length, &made), "copying a string");
    return reinterpret_cast<StableIValue>(made);
  }
  if (a.type == LIST) {
    size_t size = 0;
    StableListHandle made = nullptr;
    torch_list_size(reinterpret_cast<StableListHandle>(v), &size);
    check(torch_new_list_reserve_size(size, &made), "copying a list");
    for (size_t k = 0; k < size; ++k) {
      StableIValue element = 0;
      torch_list_get_item(reinterpret_cast<StableListHandle>(v), k, &element);
      torch_list_push_back(made, element);
    }
    return reinterpret_cast<StableIValue>(made);
  }
  return v;
}

// Asks the layout op, with the arguments as they came, for empty tensors with the strides of the reference.
inline void ask_layout(Frame& f, AtenTensorHandle* like) {
  StableIValue stack[64 + MAX_DIM] = {};
  int t = 0;
  for (int i = 0; i < f.op.argument_count; ++i) {
    const Argument& a = f.op.arguments[i];
    bool is_given = !f.is_none(i);
    StableIValue v = 0;
    if (a.type == TENSOR) {
      const Tensor& x = f.tensors[t++];
      is_given = bool(x);
      AtenTensorHandle again = nullptr;
      if (is_given) check(aoti_torch_new_tensor_handle(x.handle, &again), "handing on a tensor");
      v = reinterpret_cast<StableIValue>(again);
    } else if (is_given) {
      v = duplicate(a, f.raw[i]);
    }
    if (a.flags & OPTIONAL) v = is_given ? reinterpret_cast<StableIValue>(new StableIValue(v)) : 0;
    stack[i] = v;
  }
  check(torch_call_dispatcher(f.op.layout, "", stack, ABI_VERSION), "asking for the strides of the outputs");
  for (int k = 0; k < f.op.output_count; ++k) like[k] = reinterpret_cast<AtenTensorHandle>(stack[k]);
}

// Puts output `t` where the reference's would be: `like` has the strides wanted. Takes over `like`.
inline void settle_output(Tensor& t, AtenTensorHandle like) {
  Tensor wanted;
  wanted.handle = like;
  wanted.read();
  if (!equal(wanted.shape(), t.shape()) || wanted.dtype != t.dtype) return;  // the trial tells shapes apart
  if (!wanted.contiguous) t.copy = new_tensor(t, t.strides);
#ifdef WB_LIVE
  else if (hooks.allocate) t.handle = new_tensor(t, wanted.strides);
#endif
  if (!t.handle) {
    t.handle = wanted.handle;
    wanted.handle = nullptr;
  }
}

// Fills new memory with zeros; another kind of frame has its own.
inline void zero(Frame&, Tensor& t) { memset(t.data, 0, static_cast<size_t>(t.numel * element_size(t.dtype))); }

template <typename F> inline void make_tensors(F& f) {
  const Tensor* first = nullptr;
  bool layout = f.descriptor->layout != 0;
  for (int i = 0; i < f.op.tensor_arguments; ++i) {
    if (!f.tensors[i]) continue;
    if (!first) first = &f.tensors[i];
    layout |= !f.tensors[i].contiguous;
  }
  for (int i = f.op.tensor_arguments; i < f.tensor_count(); ++i) {
    if (!first) f.tensors[i].device_type = aoti_torch_device_type_cpu();
    else f.tensors[i].device_type = first->device_type, f.tensors[i].device_index = first->device_index;
  }
  if (layout && f.op.output_count) {
    NoGradients guard;
    AtenTensorHandle like[MAX_DIM];
    ask_layout(f, like);
    for (int k = 0; k < f.op.output_count; ++k) {
      if (f.op.results[k] >= 0) settle_output(f.tensors[f.op.results[k]], like[k]);
      else aoti_torch_delete_tensor_object(like[k]);
    }
  }
  for (int i = f.op.tensor_arguments; i < f.tensor_count(); ++i) {
    Tensor& t = f.tensors[i];
    if (t.dtype == no_dtype) continue;  // workspace of a call with nothing to do
    if (!t.handle) t.handle = new_tensor(t, t.strides);
    check(torch_get_mutable_data_ptr(t.copy ? t.copy : t.handle, &t.data), "reading a tensor");
    if (f.op.allocations[i - f.op.tensor_arguments].flags & ZEROED && t.numel) zero(f, t);
  }
}

}  // namespace wb
