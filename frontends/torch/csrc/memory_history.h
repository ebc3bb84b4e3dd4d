// memory_history.h: the stacks that create tensors, while a history of memory is kept (memory_history.cpp).
#pragma once

#include <atomic>

#include "headrace/stream.h"

namespace headrace {

extern std::atomic<bool> history_is_kept;
void note_creation(hr_buffer *buffer);
void forget_creation(hr_buffer *buffer);

} // namespace headrace
