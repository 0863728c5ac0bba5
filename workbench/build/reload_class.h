// Custom classes that a re-run can bring again. torch keeps the first class of a name for ever, so the one that it keeps
// is a front without objects: it makes objects of the newest build, by constructor and by unpickling. Each build has a type
// of its own, called like the front; an object of another build is refused by its type, never read with the wrong layout.
#pragma once
#include <torch/custom_class.h>

#include <string>
#include <vector>

namespace wb_reload __attribute__((visibility("hidden"))) {

// Members that torch keeps private: see `SignatureOf` in reload.h.
template <typename Tag, typename Tag::of M> struct Reach {
  friend typename Tag::of member(Tag) { return M; }
};
struct NameOf { using of = std::optional<c10::QualifiedName> c10::NamedType::*; friend of member(NameOf); };
struct TypeOf { using of = c10::WeakOrStrongTypePtr c10::ivalue::Object::*; friend of member(TypeOf); };
struct MethodsOf { using of = std::vector<torch::jit::Function*> c10::ClassType::*; friend of member(MethodsOf); };
struct StaticsOf { using of = std::vector<torch::jit::Function*> c10::ClassType::*; friend of member(StaticsOf); };
template struct Reach<NameOf, &c10::NamedType::name_>;
template struct Reach<TypeOf, &c10::ivalue::Object::type_>;
template struct Reach<MethodsOf, &c10::ClassType::methods_>;
template struct Reach<StaticsOf, &c10::ClassType::staticmethods_>;

inline const char* const FRONT = "the newest build of a class from a cell";

struct OfBuild {
  std::string ns, name;
  c10::ClassTypePtr type;
  std::string qualified() const { return "__torch__.torch.classes." + ns + "." + name; }
};
inline std::vector<OfBuild>& classes() {
  static std::vector<OfBuild> all;
  return all;
}

// What torch has under the name; made if there is none.
inline c10::ClassTypePtr front(const OfBuild& c) {
  c10::ClassTypePtr found = torch::getCustomClass(c.qualified());
  TORCH_CHECK(!found || found->doc_string() == FRONT, "the class ", c.ns, "::", c.name,
              " is registered by another library in this process: choose another name");
  if (found) return found;
  found = c10::ClassType::create(c10::QualifiedName(c.qualified()), std::weak_ptr<torch::jit::CompilationUnit>(), false, FRONT);
  found->addAttribute("capsule", c10::CapsuleType::get());
  torch::registerCustomClass(found);
  return found;
}

// A method that makes an object, for the front: the object gets the type of the build first.
inline torch::jit::Function* making(torch::jit::Function* made, const c10::ClassTypePtr& type) {
  const size_t count = made->getSchema().arguments().size();
  auto method = std::make_unique<torch::jit::BuiltinOpFunction>(
      made->qualname(), made->getSchema(), [made, type, count](torch::jit::Stack& stack) {
        auto object = stack.at(stack.size() - count).toObject();
        (*object).*member(TypeOf()) = c10::WeakOrStrongTypePtr(c10::StrongTypePtr(nullptr, type));
        made->run(stack);
      });
  torch::jit::Function* kept = method.get();
  torch::registerCustomClassMethod(std::move(method));
  return kept;
}

// What torch.compile and torch.export ask for first says why it is not there.
inline void refuse_to_flatten(const OfBuild& c) {
  c10::FunctionSchema schema("__obj_flatten__", "", {c10::Argument("self", c.type)}, {c10::Argument("", c10::AnyType::get())});
  auto method = std::make_unique<torch::jit::BuiltinOpFunction>(
      c10::QualifiedName(c.qualified() + ".__obj_flatten__"), std::move(schema), [c](torch::jit::Stack&) {
        TORCH_CHECK(false, c.ns, "::", c.name, " has no __obj_flatten__, so torch.compile and torch.export cannot look into "
                    "its objects: give the class .def(\"__obj_flatten__\", ...), which returns a tuple of (name, value) pairs");
      }, FRONT);
  c.type->addMethod(method.get());
  torch::registerCustomClassMethod(std::move(method));
}

// The front makes objects of this build from now on. Called when its methods are all there.
inline void show(const OfBuild& c) {
  if (!c.type->findMethod("__obj_flatten__")) refuse_to_flatten(c);
  std::vector<torch::jit::Function*> methods;
  for (torch::jit::Function* f : c.type->methods())
    methods.push_back(f->name() == "__init__" || f->name() == "__setstate__" ? making(f, c.type) : f);
  const c10::ClassTypePtr there = front(c);
  (*there).*member(MethodsOf()) = std::move(methods);
  (*there).*member(StaticsOf()) = (*c.type).*member(StaticsOf());
}

// torch's own class_ for a build: registered under a name with a number, called by its plain name.
template <typename T> torch::class_<T> class_of(const std::string& ns, const std::string& name, std::vector<OfBuild>& shown) {
  OfBuild mine{ns, name, nullptr};
  front(mine);
  for (const OfBuild& c : classes())
    if (c.ns == ns && c.name == name) mine = c;  // these blocks ran before: its objects may live
  std::string numbered;
  for (int n = 1; torch::getCustomClass(OfBuild{ns, numbered = name + "__build" + std::to_string(n), nullptr}.qualified());) ++n;
  torch::class_<T> made(ns, numbered);
  const c10::ClassTypePtr type = torch::getCustomClass(OfBuild{ns, numbered, nullptr}.qualified());
  (*type).*member(NameOf()) = c10::QualifiedName(mine.qualified());
  if (!mine.type) {
    mine.type = type;
    // torch looks a type up once for each shared object, by a name that builds share.
    const_cast<c10::ClassTypePtr&>(c10::getCustomClassType<c10::intrusive_ptr<T>>()) = mine.type;
    const_cast<c10::ClassTypePtr&>(c10::getCustomClassType<c10::tagged_capsule<T>>()) = mine.type;
    classes().push_back(mine);
  }
  shown.push_back(mine);
  return made;
}

}  // namespace wb_reload
