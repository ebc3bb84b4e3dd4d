/* cached_weights.h: what a library or a program (engine/weights.h) made of a buffer's contents, kept while the contents
 * stay.
 *
 * A weight in a library's own layout costs about as much to make as a small product with it. An entry is found by the
 * stamp of the contents that it was made of (buffer.h) and a recipe: words that say which bytes were read, and in which
 * layout they lie now. So all programs that read one weight share what they make of it, whatever their other shapes. A
 * stamp is never given twice: memory that is freed and used again has another.
 *
 * Entries don't change once they are published. They are forgotten when the buffer is written or released, or when the
 * device runs out of memory; a run that works with one holds it to its end. Each context (base/context.h) has its own:
 * functions without a device work on the current one. Threads: any; one lock.
 */
#ifndef HEADRACE_RUNTIME_CACHED_WEIGHTS_H_
#define HEADRACE_RUNTIME_CACHED_WEIGHTS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

struct hr_device;
typedef struct hr_cached_weights hr_cached_weights;

/* The published entry, retained; NULL when there is none. */
hr_cached_weights *hr__cached_weights_find(uint64_t stamp, const uint64_t *recipe, size_t word_count);
/* A new entry with `bytes` of the device's memory (NULL: of the host's) to be filled, known to its maker alone; NULL
 * when memory is out. */
hr_cached_weights *hr__cached_weights_create(struct hr_device *device, uint64_t stamp, const uint64_t *recipe,
                                             size_t word_count, size_t bytes);
/* For a run that works with what may be kept: the entry, or, where contents are seen for the second time in turn, a new
 * one that the caller fills and publishes (*out_is_new). NULL: nothing is kept, and the run makes its own. `seen_stamp`
 * is the caller's, from run to run, 0 at first; stamp 0: nobody knows the contents. */
hr_cached_weights *hr__cached_weights_get(uint64_t stamp, uint64_t *seen_stamp, const uint64_t *recipe,
                                          size_t word_count, size_t bytes, bool *out_is_new);
/* Lets others find it; where there is one already, or no memory for the list, nobody will. */
void hr__cached_weights_publish(hr_cached_weights *cached_weights);
void hr__cached_weights_release(hr_cached_weights *cached_weights); /* NULL: nothing */
void *hr__cached_weights_data(const hr_cached_weights *cached_weights);
/* A number that no other entry has or had, for recipes of what is made of this one; never 0. */
uint64_t hr__cached_weights_serial(const hr_cached_weights *cached_weights);

/* Nobody finds what was made of these contents any more. */
void hr__cached_weights_forget(hr_context *context, uint64_t stamp);
void hr__cached_weights_forget_all(void);

/* Of all published entries. */
int64_t hr__cached_weights_bytes(void);

#endif
