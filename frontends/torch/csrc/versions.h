// versions.h: where versions of torch differ in errors and results, the device follows the one it is compiled for.
#pragma once

#include <c10/util/Exception.h>
#include <torch/version.h>

namespace headrace {

constexpr bool kSince215 = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15;

} // namespace headrace

// A dtype without an order or without a kernel: RuntimeErrors before torch 2.15.
#define HEADRACE_CHECK_ORDERED(condition, ...)                          \
  do {                                                                  \
    TORCH_CHECK_TYPE(!headrace::kSince215 || (condition), __VA_ARGS__); \
    TORCH_CHECK(condition, __VA_ARGS__);                                \
  } while (false)

#define HEADRACE_CHECK_SERVED(condition, ...)                                      \
  do {                                                                             \
    TORCH_CHECK_NOT_IMPLEMENTED(!headrace::kSince215 || (condition), __VA_ARGS__); \
    TORCH_CHECK(condition, __VA_ARGS__);                                           \
  } while (false)
