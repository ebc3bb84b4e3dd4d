// registration.h: kernels are registered when the device is first used, so that a program which only imports torch pays
// for none. Used like TORCH_LIBRARY_IMPL and TORCH_LIBRARY, at namespace scope:
//
//   HEADRACE_KERNELS(aten, PrivateUse1, m) { m.impl("add.out", &add); }
//   HEADRACE_OPERATORS(headrace, m) { m.def("name(...) -> ...", &function); }
#pragma once

#include <torch/library.h>

namespace headrace {

struct LateLibrary {
  torch::Library::Kind kind;
  const char *name, *file;
  std::optional<c10::DispatchKey> key;
  uint32_t line;
  void (*fill)(torch::Library &);
};

struct LateRegistration {
  explicit LateRegistration(const LateLibrary &library); // start.cpp: notes it
};

} // namespace headrace

#define HEADRACE_LATE(kind, name, key, m)                                                        \
  static void C10_CONCATENATE(fill_, __LINE__)(torch::Library &);                                \
  static const headrace::LateRegistration C10_CONCATENATE(late_, __LINE__)(                      \
      {torch::Library::kind, name, __FILE__, key, __LINE__, &C10_CONCATENATE(fill_, __LINE__)}); \
  static void C10_CONCATENATE(fill_, __LINE__)(torch::Library & m)

#define HEADRACE_KERNELS(name, key, m) HEADRACE_LATE(IMPL, #name, c10::DispatchKey::key, m)
#define HEADRACE_OPERATORS(name, m) HEADRACE_LATE(FRAGMENT, #name, std::nullopt, m)
