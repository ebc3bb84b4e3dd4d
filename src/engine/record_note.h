/* record_note.h: reports of single events for profiles: copies, commits, compilations, allocations, fallbacks.
 *
 * Apart from records.h, so that parts of the engine which instances depend on can report. Defined in records.c.
 */
#ifndef HEADRACE_ENGINE_RECORD_NOTE_H_
#define HEADRACE_ENGINE_RECORD_NOTE_H_

#include "base/text.h"
#include "headrace/profile.h"
#include "runtime/device.h"

/* Flags of hr_device.recorded: a profile is started, one that notes operations, and places have names. */
enum { HR_RECORDED = 1, HR_RECORDED_OPERATIONS = 2, HR_RECORDED_PLACES = 4 };

static inline int hr__recorded(const hr_device *device) {
  return atomic_load_explicit(&((hr_device *)device)->recorded, memory_order_relaxed);
}

typedef struct hr_note {
  hr_profile_kind kind;
  int64_t begin, end;
  int64_t bytes, count; /* see hr_plain_entry, here and below */
  uint64_t stream, number;
  hr_dtype dtype;
  int rank;
  const int64_t *dims;
  const char *text; /* NULL: none */
} hr_note;

/* `device`: NULL for compilers. Any thread. */
void hr__records_add(const hr_device *device, const hr_note *note);
/* Appends the name of a correlation's place; nothing if it has none. */
void hr__records_place(uint64_t correlation, hr_text *text);
/* True if some profile of the current context is started. */
bool hr__records_are_on(void);

#endif
