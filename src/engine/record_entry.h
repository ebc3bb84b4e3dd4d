/* record_entry.h: entries of a ring of records, and the records that a reader gets of them.
 *
 * An entry is made of 8-byte words. A run of a program is one entry, whatever the number of its kernels: a reference to
 * the description of its launches (run_description.h), and two words for the time of each.
 */
#ifndef HEADRACE_ENGINE_RECORD_ENTRY_H_
#define HEADRACE_ENGINE_RECORD_ENTRY_H_

#include "engine/run_description.h"
#include "engine/trace.h"
#include "headrace/profile.h"

enum { HR_ENTRY_PADDING = HR_PROFILE_KINDS }; /* a kind of entries besides those of records */

typedef struct hr_entry {
  uint32_t words; /* with this head */
  uint16_t kind;
  bool with_operations;    /* of a run: its operations are records, too */
  const hr_device *device; /* NULL: none. Devices are where they are as long as their context */
  uint64_t thread;
  int64_t begin, end;
} hr_entry;

typedef struct hr_entry_time {
  int64_t begin;          /* 0: the launch did not run */
  uint64_t length_x_tier; /* the tier is in the lowest two bits */
} hr_entry_time;

typedef struct hr_run_entry {
  hr_entry head;
  hr_run_description *description; /* a reference */
  uint64_t stream, number, first_operation;
  uint32_t launch_count, mark_count;
  /* hr_entry_time for each launch, hr_mark of operations for each recorded operation, or for none */
} hr_run_entry;

typedef struct hr_plain_entry {
  hr_entry head;
  int64_t bytes, count;    /* `count`: operations or elements */
  uint64_t stream, number; /* `number`: of a run or a program */
  uint64_t correlation;
  uint32_t dtype; /* of a copy; 0 of others */
  uint16_t rank, text_bytes;
  /* dims; text with its 0 */
} hr_plain_entry;

typedef void (*hr_record_fn)(void *arg, const hr_profile_record *record);

/* Scratch memory for expanding. */
typedef struct hr_record_lists {
  HR_VECTOR(uint64_t) numbers;
  HR_VECTOR(uint64_t) correlations;
  HR_VECTOR(const char *) names;
  hr_text text;
  bool with_shares; /* of the memory's bandwidth, which may be measured for them */
} hr_record_lists;
void hr__record_lists_fini(hr_record_lists *lists);

/* Calls fn for the records of an entry; false if memory for a list was short. */
bool hr__entry_expand(const hr_entry *entry, hr_record_lists *lists, hr_record_fn fn, void *arg);
/* The number of these records. */
int64_t hr__entry_records(const hr_entry *entry);
/* Releases what the entry holds. */
void hr__entry_release(const hr_entry *entry);

#endif
