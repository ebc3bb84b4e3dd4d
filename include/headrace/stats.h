/* stats.h: the counters of streams and devices.
 *
 * Each list below is one table, HR_..._STATS(X) with a row X(name, meaning) for each counter. The structs and the names
 * of hr_stream_stat_name and hr_memory_stat_name are generated from them. All counters are int64_t in the order of
 * their table; new ones come last. Readers pass the size of their struct in bytes: a program built with an older header
 * gets its counters, and one with a newer header reads 0 for the others.
 */
#ifndef HEADRACE_STATS_H_
#define HEADRACE_STATS_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a stream, since its creation or the last reset. */
#define HR_STREAM_STATS(X)                                                                      \
  X(operations, "recorded")                                                                     \
  X(commits, "traces handed to the device")                                                     \
  X(commits_by_read, "of those, because the host needed a value")                               \
  X(commits_by_limit, "of those, because much was pending")                                     \
  X(commits_by_request, "of those, because the program wanted it")                              \
  X(commits_by_mode, "of those, because of the mode")                                           \
  X(cache_hits, "commits whose program was compiled before")                                    \
  X(cache_entries, "programs kept now")                                                         \
  X(compiles, "programs compiled")                                                              \
  X(general_plans, "of those, copies of an earlier one with other dims")                        \
  X(compile_ns, "time they took")                                                               \
  X(groups, "of fused operations that ran: kernels, library calls, checks of indices")          \
  X(kernels, "launches of fused kernels; one may have several")                                 \
  X(kernels_interpreted, "of those, by the block interpreter; the others ran as compiled code") \
  X(library_calls, "provider kernels launched")                                                 \
  X(bytes_moved, "that kernels and library calls read and wrote, each element once a call")     \
  X(bytes_copied_in, "from host to device")                                                     \
  X(bytes_copied_out, "from device to host")                                                    \
  X(temporary_bytes, "arena of the largest program")                                            \
  X(temporaries_elided, "buffers that never got memory")                                        \
  X(cached_weights_bytes, "in the process: kept now, weights in layouts of libraries")          \
  X(jit_compiled, "in the process: kernels that the system's compiler made")                    \
  X(jit_loaded, "in the process: kernels that the disk cache had")                              \
  X(jit_unable, "in the process: kernels that stay interpreted")                                \
  X(jit_ns, "time that compilers took, in the background")                                      \
  X(jit_waiting, "kernels that wait for a compiler now, or that it works on")                   \
  X(graph_launches, "graphs of the driver that were launched, each for many of the groups")     \
  X(graph_builds, "graphs of the driver that were captured")                                    \
  X(graph_updates, "kernels of graphs that got other numbers before a launch")                  \
  X(layouts_undone, "buffers that lay as a library likes it, and were brought back into order") \
  X(guard_failures, "programs of a known structure that were compiled all the same")            \
  X(caches_extended, "results of cat that took over the memory of their first piece")           \
  X(caches_grown, "results of cat that got new memory, with room for more rows")                \
  X(library_make_ns, "in the process: time in which a thread made code of libraries")           \
  X(library_wait_ns, "in the process: time that runs waited for code of libraries, or made it")

/* Of a device's memory, in bytes. */
#define HR_MEMORY_STATS(X)                                                                    \
  X(allocated_bytes, "bound to live buffers and to the temporaries of executables")           \
  X(allocated_bytes_peak, "the most since the last reset")                                    \
  X(reserved_bytes, "allocated and cached")                                                   \
  X(reserved_bytes_peak, "the most since the last reset")                                     \
  X(limit_bytes, "no more than this is reserved; 0: no limit")                                \
  X(allocation_count, "allocations")                                                          \
  X(driver_allocation_count, "those that the cache could not serve")                          \
  X(device_free_bytes, "of the whole device")                                                 \
  X(device_total_bytes, "of the whole device")                                                \
  X(program_bytes, "of the host, about: compiled programs that streams keep")                 \
  X(temporary_bytes, "of allocated_bytes: for temporaries of executables, kept between runs") \
  X(heap_bytes, "of the host, in the process: chunks for small blocks, of programs and all else")

#define HR_STATS_FIELD(name, meaning) int64_t name;
typedef struct hr_stats {
  HR_STREAM_STATS(HR_STATS_FIELD)
} hr_stats;
typedef struct hr_memory_stats {
  HR_MEMORY_STATS(HR_STATS_FIELD)
} hr_memory_stats;
#undef HR_STATS_FIELD

/* The name and the meaning of counter `index`; NULL after the last. */
HR_API const char *hr_stream_stat_name(int index);
HR_API const char *hr_stream_stat_meaning(int index);
HR_API const char *hr_memory_stat_name(int index);
HR_API const char *hr_memory_stat_meaning(int index);

#ifdef __cplusplus
}
#endif

#endif
