// runtime.h: what the Python module speaks to: the C interface's errors, and what to do with operators that have no row
// (fallback.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
} // namespace c10

namespace headrace {

// Runs `body`: 0, or an hr_status_code with the message of its exception in headrace_torch_error().
int guarded(const std::function<void()> &body);

enum class FallbackMode { Error = 0, Warn = 1, Allow = 2 };

void set_fallback_mode(FallbackMode mode);
FallbackMode fallback_mode();
void run_on_host(const c10::OperatorHandle &op, std::vector<c10::IValue> *stack); // counted; throws where not allowed
std::string fallback_counts();                                                    // lines of "name count"
void reset_fallback_counts();

} // namespace headrace
