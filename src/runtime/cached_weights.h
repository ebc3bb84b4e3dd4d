/* cached_weights.h: results that a library or a program (engine/weights.h) derived from a buffer's contents, cached
 * while the contents stay the same.
 *
 * Packing a weight into a library's own layout costs about as much as a small product with it. The key of an entry is
 *
 * - the stamp of the contents it was made from (buffer.h), and
 * - a recipe: words that describe which bytes were read, and in which layout they are now.
 *
 * So all programs that read one weight share its packed forms, independent of their other shapes. Stamps are unique:
 * memory that is freed and reused gets another one.
 *
 * Published entries are immutable. They are dropped when the buffer is written or released, or when the device runs out
 * of memory; a run that uses an entry retains it to its end. Each context (base/context.h) has its own entries:
 * functions without a device use the current context. Threads: any; one lock.
 */
#ifndef HEADRACE_RUNTIME_CACHED_WEIGHTS_H_
#define HEADRACE_RUNTIME_CACHED_WEIGHTS_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

struct hr_device;
struct hr_lane;
struct hr_tickets;
typedef struct hr_cached_weights hr_cached_weights;

/* The published entry, retained; NULL if there is none. */
hr_cached_weights *hr__cached_weights_find(uint64_t stamp, const uint64_t *recipe, size_t word_count);
/* A new entry with `bytes` of the device's memory (NULL: of the host's) to be filled, visible to the caller alone; NULL
 * if memory is exhausted. */
hr_cached_weights *hr__cached_weights_create(struct hr_device *device, uint64_t stamp, const uint64_t *recipe,
                                             size_t word_count, size_t bytes);
/* The entry for a run. The second time that it is requested, by any program, a new entry, which the caller fills and
 * publishes (*out_is_new). NULL: nothing is cached, and the run makes its own copy. Stamp 0: the contents are unknown.
 */
hr_cached_weights *hr__cached_weights_get(uint64_t stamp, const uint64_t *recipe, size_t word_count, size_t bytes,
                                          bool *out_is_new);
/* Makes the entry visible to others, unless one with its key exists or the list has no memory. */
void hr__cached_weights_publish(hr_cached_weights *cached_weights);
void hr__cached_weights_release(hr_cached_weights *cached_weights); /* NULL: nothing */
void *hr__cached_weights_data(const hr_cached_weights *cached_weights);
/* Notes that a job of the lane writes or reads the device's memory of the entry, which it has retained, and adds the
 * tickets that the job must follow. A new entry is written by its creator alone. */
void hr__cached_weights_use(hr_cached_weights *cached_weights, const struct hr_lane *lane, uint64_t ticket, bool writes,
                            struct hr_tickets *tickets);
/* A number that no other entry has or had, never 0: for recipes of data made from this entry. */
uint64_t hr__cached_weights_serial(const hr_cached_weights *cached_weights);

/* Drops all entries that were made from these contents. */
void hr__cached_weights_forget(hr_context *context, uint64_t stamp);

/* A buffer's note (buffer.h): the stamp of the contents from which entries were made; 0: none were. The device's jobs
 * read and write it: those that write the buffer in order, those that read it also at once. */
typedef struct hr_weights_note {
  atomic_uint_least64_t stamp;
} hr_weights_note;

/* Entries may be made from the contents `stamp` (0: from none). Those made from older contents are dropped. */
static inline void hr__cached_weights_note(hr_weights_note *note, hr_context *context, uint64_t stamp) {
  uint64_t before = atomic_load_explicit(&note->stamp, memory_order_relaxed);
  if (__builtin_expect(before != 0, 0) && before != stamp) {
    hr__cached_weights_forget(context, before);
  }
  atomic_store_explicit(&note->stamp, stamp, memory_order_relaxed);
}

void hr__cached_weights_forget_all(void);

/* Of all published entries. */
int64_t hr__cached_weights_bytes(void);

#endif
