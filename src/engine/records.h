/* records.h: where the engine reports what ran, for profiles (headrace/profile.h).
 *
 * A device's `recorded` flags are 0 while no profile is started and places have no names: then nothing below is called.
 * The ring of a profile holds entries (record_entry.h). A new entry overwrites the oldest ones, which are summed in the
 * profile's tables before. All profiles of a context share one lock, which is held for an entry at a time.
 */
#ifndef HEADRACE_ENGINE_RECORDS_H_
#define HEADRACE_ENGINE_RECORDS_H_

#include "engine/record_entry.h"
#include "engine/record_note.h"
#include "engine/run_scratch.h"

/* The device can be recorded from now on; for each new stream. */
void hr__records_join(hr_device *device);

/* Notes the last `count` operations of a trace, whose stream is locked. */
void hr__records_mark(hr_trace *trace, size_t count, int recorded);
/* The same of a part's records, which have these origins. */
void hr__records_mark_part(hr_trace *trace, size_t count, const uint32_t *origins, int recorded);

typedef struct hr_run_note {
  const hr_instance *instance;
  uint64_t stream, number, first_operation; /* `first_operation`: the number of the first one in the stream */
  int64_t begin, end;
  const hr_launch_time *times; /* of each step */
  size_t mark_count;           /* 0: none is known */
  const hr_operation_mark *marks;
} hr_run_note;

/* On a thread that runs the device's jobs. */
void hr__records_add_run(const hr_device *device, const hr_run_note *note);

/* For the end of the process: waits for the work of the devices that have been recorded. */
void hr__records_drain_devices(void);
#endif
