#include "engine/deferred_copies.h"

#include <string.h>

typedef struct writes {
  const hr_trace *trace;
  size_t use, record; /* the next use, and the record that it is looked for in */
  uint32_t *last;     /* of each buffer: the last record that writes it, and 1; 0: none */
} writes;

static void note_write(void *arg, uint32_t local, bool is_output) {
  writes *w = arg;
  while (w->use >= w->trace->records.data[w->record].local_end) {
    ++w->record;
  }
  ++w->use;
  if (is_output) {
    w->last[local] = (uint32_t)w->record + 1;
  }
}

static bool is_visible(const hr_trace *trace, uint32_t local) {
  return trace->buffers.data[local] != NULL && hr__buffer_holders(trace->buffers.data[local]) > 1;
}

static bool is_deferred(const writes *w, size_t i) {
  const hr_trace *trace = w->trace;
  if (!hr__trace_is_whole_copy(trace, i)) {
    return false;
  }
  const uint32_t *locals = trace->locals.data + trace->records.data[i].local_end - 2;
  uint32_t from = locals[0], to = locals[1], writer = w->last[from];
  return w->last[to] == i + 1 && writer > 0 && writer <= i && hr__trace_op(trace, writer - 1) == HR_OP_CALL &&
         is_visible(trace, from) && is_visible(trace, to) && hr__buffer_address(trace->buffers.data[to]) == NULL;
}

/* False without memory. */
static bool defer(hr_trace *trace, size_t i, hr_trace *rest) {
  if (!hr_vector_reserve(&trace->deferred, trace->deferred.count + 1)) {
    return false;
  }
  hr_status status = hr__trace_repeat(rest, trace, i);
  if (status != HR_OK) {
    hr_status_free(status);
    return false;
  }
  trace->deferred.data[trace->deferred.count++] = trace->locals.data[trace->records.data[i].local_end - 1];
  return true;
}

void hr__defer_copies(hr_trace *trace, hr_trace *rest) {
  if (!hr_vector_reserve(&trace->renumbered, trace->buffers.count)) {
    return;
  }
  memset(trace->renumbered.data, 0, trace->buffers.count * sizeof(uint32_t));
  writes w = {.trace = trace, .last = trace->renumbered.data};
  const hr_key key = {.record_count = trace->records.count, .words = trace->words.data, .locals = trace->locals.data};
  hr__key_each_use(&key, note_write, &w);
  bool ok = true;
  for (size_t i = 0; ok && i < trace->records.count; ++i) {
    ok = !is_deferred(&w, i) || defer(trace, i, rest);
  }
  rest->pending_bytes = 0; /* the trace has counted them */
}

void hr__recall_copies(hr_trace *trace, hr_trace *rest) {
  if (trace->deferred.count > 0) {
    hr_vector_clear(&trace->deferred);
    hr__trace_clear(rest);
  }
}
