// runtime.h: what to do with operators that have no row (fallback.cpp), as the Python module sets and reads it.
#pragma once

#include <string>

namespace headrace {

enum class FallbackMode { Error = 0, Warn = 1, Allow = 2 };

void set_fallback_mode(FallbackMode mode);
FallbackMode fallback_mode();
std::string fallback_counts(); // lines of "name count"
void reset_fallback_counts();

} // namespace headrace
