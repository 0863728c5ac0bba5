// What Python calls of an object whose blocks were collected by reload.h; behind the first of its sources.
#pragma once
#include "reload.h"

#include <exception>

#define WB_EXPORT extern "C" __attribute__((visibility("default")))

namespace wb_reload __attribute__((visibility("hidden"))) {

inline std::vector<std::unique_ptr<Library>> live;
inline std::string reply;

// "file \t line \t message": where the block stands that torch did not take.
inline const char* refused(const Block& b, const std::string& what) {
  reply = std::string(b.file) + "\t" + std::to_string(b.line) + "\t" + what;
  return reply.c_str();
}

inline void drop() {
  while (!live.empty()) live.pop_back();  // the last first: kernels before the names that they stand behind
}

inline const char* run() {
  if (!live.empty()) return nullptr;
  for (const Block& b : blocks()) {
    try {
      const auto kind = b.kind == torch::Library::DEF ? torch::Library::FRAGMENT : b.kind;
      live.push_back(std::make_unique<Library>(kind, b.ns, b.key, b.file, b.line));
      b.fill(*live.back());
      for (const OfBuild& c : live.back()->shown) show(c);
    } catch (const c10::Error& error) {
      drop();
      return refused(b, error.what_without_backtrace());
    } catch (const std::exception& error) {
      drop();
      return refused(b, error.what());
    } catch (...) {
      drop();
      return refused(b, "the block threw something that is no std::exception");
    }
  }
  return nullptr;
}

}  // namespace wb_reload

WB_EXPORT const char* wb_register() { return wb_reload::run(); }
WB_EXPORT const char* wb_unregister() { return wb_reload::drop(), nullptr; }

// Take the place of a former build: its names go, ours come; where torch refuses ours, its names are back. One call, in
// which Python's lock is held, so that no thread of Python finds a name missing.
WB_EXPORT const char* wb_replace(const char* (*leave)(), const char* (*come_back)()) {
  leave();
  const char* message = wb_reload::run();
  if (message) come_back();
  return message;
}

// One line a method of each class: namespace \t class \t method \t how many arguments it takes beside the object.
WB_EXPORT const char* wb_classes() {
  wb_reload::reply.clear();
  for (const auto& c : wb_reload::classes()) {
    wb_reload::reply += c.ns + "\t" + c.name + "\t\t0\n";
    for (const torch::jit::Function* f : c.type->methods())
      if (std::string(f->doc_string()) != wb_reload::FRONT)
        wb_reload::reply += c.ns + "\t" + c.name + "\t" + f->name() + "\t" +
                            std::to_string(f->getSchema().arguments().size() - 1) + "\n";
  }
  return wb_reload::reply.c_str();
}

// One line a block: kind \t namespace \t key \t file \t line.
WB_EXPORT const char* wb_blocks() {
  static const char* const kinds[] = {"def", "impl", "fragment"};
  wb_reload::reply.clear();
  for (const auto& b : wb_reload::blocks()) {
    wb_reload::reply += std::string(kinds[b.kind]) + "\t" + b.ns + "\t" + (b.key ? c10::toString(*b.key) : "") + "\t" + b.file +
                        "\t" + std::to_string(b.line) + "\n";
  }
  return wb_reload::reply.c_str();
}
