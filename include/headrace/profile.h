/* profile.h: records of what ran: kernels and library calls with their times, commits, compilations, copies.
 *
 *   hr_profile *profile;
 *   hr_profile_create(NULL, 0, 0, &profile);
 *   hr_profile_start(profile);
 *   ...
 *   hr_profile_stop(profile);
 *   hr_profile_read(profile, sizeof(hr_profile_record), print_record, NULL);
 *   hr_profile_release(profile);
 *
 * A profile keeps the newest records in a ring of a fixed size. Older ones are summed in its tables and then
 * overwritten. Several profiles may be started at once; each gets all records. Without a started profile nothing is
 * recorded. Programs, their results and their keys are the same with and without profiles.
 *
 * Work is recorded when it runs, which may be later than the call that requested it: synchronize the streams before
 * hr_profile_stop to see all of it. On a device that works beside the host, an event follows each kernel while a
 * profile is started, the host waits once for each program, and graphs are not used, so that times are those of
 * kernels.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Threads: any.
 */
#ifndef HEADRACE_PROFILE_H_
#define HEADRACE_PROFILE_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_profile hr_profile;

typedef enum hr_profile_kind {
  HR_PROFILE_RUN = 0,        /* a program, from its first to its last step; its kernels are records of their own */
  HR_PROFILE_KERNEL,         /* a launch of fused kernels */
  HR_PROFILE_LIBRARY,        /* a call of a library */
  HR_PROFILE_CHECK,          /* the host checks indices */
  HR_PROFILE_DROPPED,        /* operations that nobody needed the results of: nothing ran for them */
  HR_PROFILE_OPERATION,      /* an operation was recorded; only with HR_PROFILE_OPERATIONS */
  HR_PROFILE_COMMIT,         /* a trace was handed to the device; the name is the reason */
  HR_PROFILE_COMPILE,        /* a program was compiled */
  HR_PROFILE_KERNEL_COMPILE, /* the system's compiler made kernels */
  HR_PROFILE_KERNEL_LOAD,    /* a kernel was loaded from the disk cache */
  HR_PROFILE_COPY_IN,        /* from the host to the device */
  HR_PROFILE_COPY_OUT,       /* from the device to the host */
  HR_PROFILE_COPY_BETWEEN,   /* from another device */
  HR_PROFILE_FALLBACK,       /* a frontend ran an operation on the host; the bytes are those copied for it */
  HR_PROFILE_ALLOCATION,     /* a buffer got memory */
  HR_PROFILE_KINDS
} hr_profile_kind;

typedef enum hr_profile_tier {
  HR_PROFILE_TIER_NONE = 0,
  HR_PROFILE_TIER_INTERPRETED,
  HR_PROFILE_TIER_COMPILED,
  HR_PROFILE_TIER_LIBRARY
} hr_profile_tier;

/* A record. New fields come last; readers pass the size of their struct. Texts are never NULL. All pointers are valid
 * during the call that passes the record. */
typedef struct hr_profile_record {
  hr_profile_kind kind;
  hr_profile_tier tier;
  int64_t begin_ns, end_ns;
  const char *name;     /* as in the lines of HEADRACE_DEBUG=2 */
  const char *shapes;   /* dtypes and dims: "f32[64,32] f32[32,16] -> f32[64,16]"; "" if unknown */
  const char *provider; /* of a library call; else "" */
  const char *device;   /* "" for compilers, which work for all devices */
  uint64_t thread;      /* the system's number of the host thread */
  uint64_t stream;      /* the stream's number; 0: none */
  uint64_t program;     /* the hash of the program, as in HEADRACE_DEBUG=3; 0: none */
  uint64_t run;         /* number of the run in its stream, the same in its commit, run and kernels; 0: none */
  int64_t bytes_read, bytes_written, flops;
  int64_t bytes_saved;        /* of results that the kernel computes and that never get memory */
  int64_t elements;           /* of a copy */
  int64_t operation_count;    /* operations in it: recorded ones, each once */
  const uint64_t *operations; /* their numbers in the stream, from 0 on; NULL: only the count is known */
  const char *const *operation_names;
  const uint64_t *correlations; /* of hr_profile_correlate, for each of them; NULL: none was set */
  uint64_t correlation;         /* that of the thread, of records without such lists; 0: none */
  /* Of a kernel or library call: bytes a second, relative to the peak of the device's memory; above 1 if most of them
   * are in caches. 0: not known. The peak of the host's memory is measured once in a process, when a profile is read
   * for the first time (0.1 s), or at the start with HEADRACE_TRACE. */
  double bandwidth_share;
} hr_profile_record;

typedef struct hr_profile_counts {
  int64_t records; /* in the ring */
  int64_t summed;  /* overwritten by newer ones, or drained: only the tables have them */
  int64_t lost;    /* nowhere: larger than the ring, or host memory was short */
} hr_profile_counts;

enum { HR_PROFILE_OPERATIONS = 1 }; /* flags: a record for each recorded operation, too */

/* A profile of a device, or of all devices of the current context if it is NULL. `ring_bytes`: 0 means 16 MB. The
 * caller owns the profile. */
HR_API HR_MUST_USE hr_status hr_profile_create(hr_device *device, size_t ring_bytes, unsigned flags,
                                               hr_profile **out_profile);
/* Stops it if it is started. NULL is fine. */
HR_API void hr_profile_release(hr_profile *profile);
/* FAILED_PRECONDITION if it is started; RESOURCE_EXHAUSTED if 8 others are. Records of an earlier start stay. */
HR_API HR_MUST_USE hr_status hr_profile_start(hr_profile *profile);
/* FAILED_PRECONDITION if it is not started. */
HR_API HR_MUST_USE hr_status hr_profile_stop(hr_profile *profile);
/* Drops all records and sums. */
HR_API void hr_profile_clear(hr_profile *profile);

/* Calls fn for each record in the ring, oldest first by the time of their ends; `bytes` is the size of the caller's
 * hr_profile_record. fn may call any function of this library. */
HR_API HR_MUST_USE hr_status hr_profile_read(hr_profile *profile, size_t bytes,
                                             void (*fn)(void *arg, const hr_profile_record *record), void *arg);
/* The same, and moves the records to the tables. */
HR_API HR_MUST_USE hr_status hr_profile_drain(hr_profile *profile, size_t bytes,
                                              void (*fn)(void *arg, const hr_profile_record *record), void *arg);
typedef enum hr_profile_table {
  HR_TABLE_OPERATIONS = 1, /* kernels and library calls by name, shapes and tier */
  HR_TABLE_COPIES = 2,     /* by direction, single numbers apart */
  HR_TABLE_FALLBACKS = 4,  /* operations that ran on the host, by name */
  HR_TABLES_ALL = 7
} hr_profile_table;
/* Passes tables to `write`, as text: sums of all records since the creation or the last hr_profile_clear, also of those
 * that the ring has no more. `tables`: bits of hr_profile_table. */
HR_API HR_MUST_USE hr_status hr_profile_tables(hr_profile *profile, unsigned tables,
                                               void (*write)(void *arg, const char *text), void *arg);
/* Writes the ring's records to a file, as a timeline for Perfetto: in its own format if the file's name ends in
 * .pftrace or .perfetto-trace, else in the JSON format of Chrome's trace viewer. UNAVAILABLE if the file can't be
 * written. */
HR_API HR_MUST_USE hr_status hr_profile_write_trace(hr_profile *profile, const char *path);
/* Writes what HEADRACE_TRACE and HEADRACE_PROFILE request, unless it has been written. This happens by itself at exit;
 * programs that end in another way call it before. */
HR_API void hr_profile_report(void);
HR_API void hr_profile_counts_read(hr_profile *profile, size_t bytes, hr_profile_counts *out_counts);

/* Sets the number that operations recorded by this thread have in records from now on; 0 is none. */
HR_API void hr_profile_correlate(uint64_t correlation);
/* The same of a number that is added to it, unless that is 0: the place in a program, of which the other number is one
 * run. Graphs have one for each operation (hr_graph_origin). */
HR_API void hr_profile_origin(uint32_t origin);
/* True if HEADRACE_DUMP or HEADRACE_DEBUG print names of places. */
HR_API bool hr_profile_wants_places(void);
/* Sets the function that names the place of a correlation: it writes a text that ends in NUL, at most `bytes`, such as
 * "jit(f)/add f.py:3". Operations have correlations from then on, also if no profile is started. Any thread may call
 * it. NULL: none. */
HR_API void hr_profile_name_places(void (*fn)(uint64_t correlation, char *out_text, size_t bytes));
/* True if some started profile has records of the device. */
HR_API bool hr_profile_is_on(const hr_device *device);
/* The clock of records. */
HR_API int64_t hr_profile_clock_ns(void);
/* Adds a record of an operation that a frontend ran on the host. */
HR_API void hr_profile_note_fallback(hr_device *device, const char *name, int64_t begin_ns, int64_t end_ns,
                                     int64_t copied_bytes);

/* ---- ranges ---- */

/* True if a profiler has named its library, for NVTX or ITT, in the environment of this process, and it was opened. */
HR_API bool hr_range_is_on(void);
/* A range of the calling thread, for that profiler. Ranges nest. Without a profiler nothing happens. */
HR_API void hr_range_push(const char *name);
HR_API void hr_range_pop(void);

#ifdef __cplusplus
}
#endif

#endif
