// fallback.h: operators that have no row (fallback.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
} // namespace c10

namespace headrace {

enum class FallbackMode { Error = 0, Warn = 1, Allow = 2 };

void set_fallback_mode(FallbackMode mode);
FallbackMode fallback_mode();
void run_on_host(const c10::OperatorHandle &op, std::vector<c10::IValue> *stack); // counted; throws if not allowed
std::map<std::string, int64_t> fallback_counts();                                 // by operator's name
void reset_fallback_counts();

} // namespace headrace
