/* tuning_cache.h: the fastest algorithm of a library's operation on this machine, measured once and kept on disk.
 *
 * A key is a text with everything that the time depends on: the operation with its shapes, strides and dtypes, the
 * operands that may be cached, the device, the threads, the libraries and their versions. Its value is the name of an
 * algorithm and, for people, the times of all algorithms. Each entry is a file beside the compiled kernels
 * (disk_cache.h). Damaged and foreign files count as absent, old ones are removed first when the folder is full, and
 * processes share them.
 *
 * The first lookup of a key in a process fixes the answer until the process ends. Results that the process measures
 * itself go to disk for later processes: a contraction's bits depend on the algorithm, and the same program must give
 * the same bits as long as the process lives. An algorithm that is measured before any run is used at once
 * (autotune.h). HEADRACE_TUNING switches measuring and reading. Threads: any; one lock.
 */
#ifndef HEADRACE_ENGINE_TUNING_CACHE_H_
#define HEADRACE_ENGINE_TUNING_CACHE_H_

#include "base/text.h"

typedef struct hr_tuning_entry hr_tuning_entry;

/* The entry of a key, owned by the context until it ends. NULL without a folder, with too many entries, or out of
 * memory. */
hr_tuning_entry *hr__tuning_entry_find(const char *key, size_t length);
/* The same, by a hash that the caller has given to the entry; NULL: none has it. Two keys with one hash share an
 * entry: a library's algorithm that is not the fastest. */
hr_tuning_entry *hr__tuning_entry_find_named(uint64_t hash);
/* Gives an entry, or NULL, a hash. */
void hr__tuning_entry_name(hr_tuning_entry *tuning_entry, uint64_t hash);
const char *hr__tuning_entry_key(const hr_tuning_entry *tuning_entry);
/* The algorithm to use; "": the default. Empty until it is known, and then the same until the context ends. */
const char *hr__tuning_entry_algorithm(const hr_tuning_entry *tuning_entry);
/* True if it may be measured: no process has done so before. */
bool hr__tuning_entry_is_open(hr_tuning_entry *tuning_entry);
/* True if the caller should measure it: no other thread does now. */
bool hr__tuning_entry_claim(hr_tuning_entry *tuning_entry);
/* Ends a claim without a measurement. */
void hr__tuning_entry_unclaim(hr_tuning_entry *tuning_entry);
/* Closes the entry; `note` is for people. A folder that can't be written is no error. */
void hr__tuning_entry_close(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note);
/* The same, and uses the algorithm in this process, too: no other algorithm has run here yet. */
void hr__tuning_entry_settle(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note);
/* Leaves the measurement to other processes: in this one the entry stays as it is. */
void hr__tuning_entry_leave(hr_tuning_entry *tuning_entry);
/* Drops all entries of this context, as if it began: for tests. */
void hr__tuning_cache_forget(void);

#endif
