// The steps of one call of a launcher, in the order in which they happen; `run` at the end is that order.
#pragma once

namespace wb {

inline Frame::~Frame() {
  for (int i = 0; i < op.argument_count; ++i) {
    if (!raw[i]) continue;
    if (op.arguments[i].type == LIST) torch_delete_list(reinterpret_cast<StableListHandle>(raw[i]));
    if (op.arguments[i].type == STRING) torch_delete_string(reinterpret_cast<StringHandle>(raw[i]));
  }
}

// An optional value arrives boxed: null, or a heap cell that is ours to free.
inline bool unbox(StableIValue& v) {
  auto* cell = reinterpret_cast<StableIValue*>(v);
  if (!cell) return false;
  v = *cell;
  delete cell;
  return true;
}

// Takes over everything on the stack at once, so that an error on the way leaks nothing.
inline void take(Frame& f, const StableIValue* stack) {
  int t = 0;
  for (int i = 0; i < f.op.argument_count; ++i) {
    const Argument& a = f.op.arguments[i];
    StableIValue v = stack[i];
    const bool is_given = !(a.flags & OPTIONAL) || unbox(v);
    f.raw[i] = 0;
    f.values[i].i = 0;
    if (a.type == TENSOR) {
      Tensor& x = f.tensors[t++];
      if (is_given) x.handle = reinterpret_cast<AtenTensorHandle>(v);
      continue;
    }
    if (!is_given) {
      f.none |= uint64_t(1) << i;
      continue;
    }
    f.raw[i] = v;
    if (a.type == INT) f.values[i].i = static_cast<int64_t>(v);
    if (a.type == BOOL) f.values[i].i = (v & 0xff) != 0;
    if (a.type == DTYPE) f.values[i].i = static_cast<int32_t>(v);
    if (a.type == FLOAT) memcpy(&f.values[i].f, &v, sizeof v);
  }
}

inline void show_device(Message& m, const Tensor& t) {
  if (t.device_type == aoti_torch_device_type_cpu()) m.add("cpu");
  else if (t.device_type == aoti_torch_device_type_cuda()) m.add("cuda:%d", t.device_index);
  else m.add("device type %d", t.device_type);
}

// Sizes, strides and dtypes of all tensor arguments; one device for all. An undefined tensor counts as None.
inline void read_tensors(Frame& f) {
  const Tensor* first = nullptr;
  const Argument* a = f.op.arguments;
  for (int i = 0; i < f.op.tensor_arguments; ++i, ++a) {
    while (a->type != TENSOR) ++a;
    Tensor& t = f.tensors[i];
    bool defined = false;
    if (t) aoti_torch_is_defined(t.handle, &defined);
    if (!defined) {
      if (!(a->flags & OPTIONAL)) problem("%s is undefined", a->name);
      if (t) aoti_torch_delete_tensor_object(t.handle);
      t.handle = nullptr;
      continue;
    }
    t.read();
    if (!first) first = &t;
    if (t.device_type != first->device_type || t.device_index != first->device_index) {
      Problem p;
      p.message.add("%s is on ", a->name);
      show_device(p.message, t);
      p.message.add(", %s on ", f.tensor_name(static_cast<int>(first - f.tensors)));
      show_device(p.message, *first);
      throw p;
    }
  }
}

inline void Frame::plan_tensor(int i, Dtype dtype, Span shape) {
  Tensor& t = tensors[i];
  Room& room = rooms[i - op.tensor_arguments];
  int64_t numel = 1, stride = 1;
  for (int64_t k = shape.size - 1; k >= 0; --k) {
    const int64_t n = shape.data[k];
    if (n < 0) problem("size %lld is negative", (long long)n);
    room.sizes[k] = n;
    room.strides[k] = stride;
    stride = mul(stride, n > 0 ? n : 1);
    numel = n ? numel : 0;
  }
  mul(stride, element_size(dtype));
  t.sizes = room.sizes, t.strides = room.strides, t.dim = shape.size, t.dtype = dtype;
  t.numel = numel ? stride : 0;
}

// True when every returned and every mutated tensor is empty.
inline bool nothing_to_do(const Frame& f) {
  int t = 0;
  for (int i = 0; i < f.op.argument_count; ++i) {
    if (f.op.arguments[i].type != TENSOR) continue;
    const Tensor& x = f.tensors[t++];
    if (f.op.arguments[i].flags & MUTATED && x && x.numel) return false;
  }
  for (int k = 0; k < f.op.result_count; ++k)
    if (f.op.results[k] >= 0 && f.tensors[f.op.results[k]].numel) return false;
  return true;
}

// No instance fits: the notebook may build one now. Returns if there is a new descriptor to look at.
inline void ask_for_instance(Frame& f, bool again) {
  const int n = f.tensor_count();
  Message got;
#ifdef WB_LIVE
  int8_t codes[256];
#endif
  for (int i = 0; i < n && i < 256; ++i) {
#ifdef WB_LIVE
    codes[i] = static_cast<int8_t>(f.tensors[i].dtype);
#endif
    if (i < f.op.tensor_arguments) got.add("%s%s %s", i ? ", " : "", f.tensor_name(i), dtype_name(f.tensors[i].dtype));
  }
  f.at = -1;
#ifdef WB_LIVE
  if (again || !hooks.miss) problem("no kernel was built for these dtypes: %s", got.text);
  reply = Message();
  if (hooks.miss(codes, n) != 0) problem("%s", *reply.text ? reply.text : got.text);
#else
  got.add(". There are kernels for ");
  for (int64_t k = 0; k < f.descriptor->instance_count; ++k)
    for (int i = 0; i < f.op.tensor_arguments; ++i) {
      const int8_t code = f.descriptor->instances[k].dtypes[i];
      got.add("%s%s %s", i ? ", " : k ? "; " : "", f.tensor_name(i), code == any_dtype ? "of any dtype" : dtype_name(code));
    }
  got.add(": convert the arguments, or save the package again with a case of these dtypes");
  problem("no kernel was built for these dtypes: %s", got.text);
#endif
}

// A number that is None has no spelling in a kernel.
inline void refuse_none(const Frame& f, const Function& function) {
  for (int64_t k = 0; k < function.parameter_count; ++k) {
    const Parameter& p = function.parameters[k];
    if (p.value < f.op.argument_count && f.is_none(p.value))
      problem("%s is None, and %s takes it as `%s %s`", f.op.values[p.value], function.name, type_name(p.type), f.op.values[p.value]);
  }
}

[[noreturn]] __attribute__((noinline, cold)) inline void misfit(const Frame& f, const Function& function, int64_t position) {
  const Parameter& p = function.parameters[position - 1];
  const char* name = f.op.values[p.value];
  problem("%s = %lld does not fit the parameter `%s %s` of %s", name, (long long)f.values[p.value].i, type_name(p.type), name, function.name);
}

inline void bind_tensors(Frame& f) {
  for (int k = 0; k < f.op.bound_count; ++k) {
    const Tensor& t = f.tensors[f.op.bound[k].tensor];
    f.values[f.op.bound[k].value].p = f.descriptor->handles ? (t.copy ? t.copy : t.handle) : t.data;
  }
}

inline void call_functions(Frame& f) {
  for (int64_t k = 0; k < f.descriptor->function_count; ++k) {
    const Function& function = f.instance->functions[k];
    if (__builtin_expect(f.none != 0, 0)) refuse_none(f, function);
    const int wrong = function.entry(f.values);
    if (__builtin_expect(wrong != 0, 0)) misfit(f, function, wrong);
  }
}

// ---- what differs from device to device: `launcher_cuda.h` has these four for its own kind of frame ------------------
struct Nothing {};
inline void find_device(Frame&) {}
inline void shape_launches(Frame&) {}
inline Nothing enter(Frame&) { return {}; }
inline void call_kernels(Frame& f) {
  bind_tensors(f);
  call_functions(f);
}

inline void give(Frame& f, StableIValue* stack, uint64_t outputs) {
  for (uint64_t k = 0; k < outputs; ++k) {
    AtenTensorHandle h = nullptr;
    if (f.op.results[k] >= 0) {
      Tensor& t = f.tensors[f.op.results[k]];
      if (t.copy) {
        NoGradients guard;
        check(aoti_torch_copy_(t.handle, t.copy, 0), "copying an output into the strides of the reference");
      }
      h = t.handle;
      t.handle = nullptr;
    } else {
      check(aoti_torch_new_uninitialized_tensor(&h), "an undefined gradient");
    }
    stack[k] = reinterpret_cast<StableIValue>(h);
  }
}

template <typename F> inline void steps(F& f, StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  const auto wanted = static_cast<uint64_t>(f.op.argument_count);
  if (inputs != wanted) problem("registered with %d arguments, called with %d", int(wanted), int(inputs));
  take(f, stack);
  if (outputs != uint64_t(f.op.output_count) && outputs != uint64_t(f.op.result_count))
    problem("the launcher returns %d tensors, the op %d", f.op.result_count, int(outputs));
  read_tensors(f);
  find_device(f);
  bool idle = false;
  for (bool again = false;; again = true) {
#ifdef WB_LIVE
    f.descriptor = choose(f, current());
    if (!f.descriptor) problem("no kernel is installed");
#else
    f.descriptor = choose(f, f.descriptor);
#endif
    f.op.plan(f);
    if ((idle = nothing_to_do(f))) break;
    f.op.prepare(f);
    if ((f.instance = find(f))) break;
    ask_for_instance(f, again);
  }
  if (!idle) shape_launches(f);
  f.at = -1;
  if (!idle && f.descriptor->handles != 1) settle_arguments(f);
  [[maybe_unused]] const auto inside = enter(f);
  make_tensors(f);
  if (!idle) call_kernels(f);
  give(f, stack, outputs);
}

[[noreturn]] __attribute__((noinline, cold)) inline void raise(const Frame& f, const Problem& p) {
  Message m;
  m.add("%s: ", f.op.name);
  if (f.at < 0 || !f.descriptor) throw Error(m.add("%s", p.message.text));
  const Text& statement = f.descriptor->statements[f.at];
  m.add("%s", statement.text);
  m.add(p.message.text[0] == ' ' ? "%s" : ": %s", p.message.text);
#ifdef WB_LIVE
  m.add(" (line %lld)", (long long)statement.line);
#endif
  throw Error(m);
}

template <typename F> inline void run(F& f, StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  try {
    steps(f, stack, inputs, outputs);
  } catch (const Problem& p) {
    raise(f, p);
  }
}

#ifdef WB_LIVE
// ---- what a launcher exports ----------------------------------------------------------------------------------------
using Kernel = void (*)(StableIValue*, uint64_t, uint64_t);

inline const char* unregister_kernels() {
  if (hooks.library && aoti_torch_delete_library_object(hooks.library) != 0) {
    reply = Message().add("torch could not take the kernels back");
    return reply.text;
  }
  hooks.library = nullptr;
  return nullptr;
}

inline const char* register_kernels(const char* ns, const char* key, const char* const* names, int count, Kernel kernel) {
  if (hooks.library) return nullptr;
  bool ok = aoti_torch_library_init_impl(ns, key, "launcher", 0, &hooks.library) == 0;
  for (int i = 0; ok && i < count; ++i) ok = torch_library_impl(hooks.library, names[i], kernel, ABI_VERSION) == 0;
  if (ok) return nullptr;
  unregister_kernels();
  reply = Message().add("torch could not register %s::%s for %s", ns, names[0], key);
  return reply.text;
}
#endif

}  // namespace wb

#ifdef WB_LIVE
#define WB_EXPORT extern "C" __attribute__((visibility("default")))
#define WB_LAUNCHER(ns, key, names, kernel)                                                                            \
  WB_EXPORT const char* wb_register() { return wb::register_kernels(ns, key, names, sizeof names / sizeof *names, kernel); } \
  WB_EXPORT const char* wb_unregister() { return wb::unregister_kernels(); }                                           \
  WB_EXPORT void wb_set(const void* d) {                                                                               \
    __atomic_store_n(&wb::hooks.descriptor, static_cast<const wb::Descriptor*>(d), __ATOMIC_RELEASE);                  \
  }                                                                                                                    \
  WB_EXPORT void wb_hook_miss(int (*f)(const int8_t*, int32_t)) { wb::hooks.miss = f; }                                \
  WB_EXPORT void wb_hook_allocate(void* (*f)(int64_t)) { wb::hooks.allocate = f; }                                     \
  WB_EXPORT uint64_t wb_copied() { return __atomic_exchange_n(&wb::hooks.copied, 0, __ATOMIC_RELAXED); }               \
  WB_EXPORT void wb_set_message(const char* text) { wb::reply = wb::Message().add("%s", text); }
#endif
