/* record_trace.h: a profile's records as a timeline, apart from the file's format.
 *
 * Each host thread has a track with its commits, copies, compilations, allocations and fallbacks. Each device has one
 * with its kernels and calls of libraries, and one with its programs. Arrows lead from the point where an operation was
 * recorded, if those points are recorded, to its commit, and from a commit to each kernel of its program. An arrow has
 * a number, and two events.
 */
#ifndef HEADRACE_ENGINE_RECORD_TRACE_H_
#define HEADRACE_ENGINE_RECORD_TRACE_H_

#include <stdio.h>

#include "base/text.h"
#include "headrace/profile.h"

typedef struct hr_trace_file {
  FILE *file;
  hr_text text; /* not written yet */
  int pid;
  bool failed, has_event;
} hr_trace_file;

typedef struct hr_trace_arrows {
  uint64_t first, count; /* numbers from `first` on */
} hr_trace_arrows;

typedef struct hr_trace_event {
  const hr_profile_record *record;
  const char *category, *prefix; /* `prefix`: before the record's name */
  int track;                     /* from 1 on */
  bool is_instant;
  hr_trace_arrows out, in; /* that begin and end here */
} hr_trace_event;

typedef struct hr_trace_format {
  void (*begin)(hr_trace_file *file, const hr_profile_counts *counts);
  /* Before the first event of the track. `name`: NULL for the host thread of the record. */
  void (*track)(hr_trace_file *file, int track, const char *name, const hr_profile_record *record);
  void (*event)(hr_trace_file *file, const hr_trace_event *event);
  void (*end)(hr_trace_file *file);
  /* An argument of an event. */
  void (*text)(hr_text *to, const char *name, const char *value);
  void (*integer)(hr_text *to, const char *name, int64_t value);
  void (*real)(hr_text *to, const char *name, double value);
  void (*list)(hr_text *to, const char *name, int64_t count, const char *const *values);
} hr_trace_format;

extern const hr_trace_format hr__trace_json;     /* of Chrome's trace viewer */
extern const hr_trace_format hr__trace_protobuf; /* Perfetto's own */

/* Passes the arguments of a record to the format. */
void hr__trace_arguments(const hr_trace_format *format, const hr_profile_record *record, hr_text *to);

#endif
