/* tuning_cache.h: which way of running a library's operation is fastest on this machine, measured once and kept on
 * disk.
 *
 * A key is a text that says all that the time depends on: the operation with its shapes, strides and dtypes, what may
 * be kept of its operands, the device, the threads, the libraries and their versions. Its value is the name of a way
 * and, for people, what all ways took. One file each lies beside the compiled kernels (disk_cache.h): damaged and
 * foreign ones count as absent, old ones go first when the folder is full, processes share them.
 *
 * What a process finds on disk when it asks for a key first is its answer to the end. What it measures itself goes to
 * disk, for the processes that come later: a contraction's bits depend on the way, and the same program gives the same
 * bits as long as the process lives. Where a way is measured before the first run in any, it is taken at once
 * (autotune.h). HEADRACE_TUNING says whether anything is measured, or read. Threads: any; one lock.
 */
#ifndef HEADRACE_ENGINE_TUNING_CACHE_H_
#define HEADRACE_ENGINE_TUNING_CACHE_H_

#include "base/text.h"

typedef struct hr_tuning_entry hr_tuning_entry;

/* The entry of a key, the context's own until it ends; NULL where nothing is kept: without a folder, when there are too
 * many, or out of memory. */
hr_tuning_entry *hr__tuning_entry_find(const char *key, size_t length);
const char *hr__tuning_entry_key(const hr_tuning_entry *tuning_entry);
/* The way to take; "": whatever is thought best. Empty until it is known, and then the same to the end. */
const char *hr__tuning_entry_algorithm(const hr_tuning_entry *tuning_entry);
/* Whether it may be measured: nobody did before. */
bool hr__tuning_entry_is_open(hr_tuning_entry *tuning_entry);
/* Whether the caller should measure it: nobody else does now. */
bool hr__tuning_entry_claim(hr_tuning_entry *tuning_entry);
/* Gives it up unmeasured. */
void hr__tuning_entry_unclaim(hr_tuning_entry *tuning_entry);
/* Closes the choice; `note` is for people. A folder that can't be written is no error. */
void hr__tuning_entry_close(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note);
/* The same, and takes the way in this process, too: nothing has run in another one yet. */
void hr__tuning_entry_settle(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note);
/* Leaves it to other processes: here it stays as it is. */
void hr__tuning_entry_leave(hr_tuning_entry *tuning_entry);
/* Forgets what this context knows, as if it began: for tests. */
void hr__tuning_cache_forget(void);

#endif
