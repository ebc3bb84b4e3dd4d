/* Vector: a growable array of any type, by macros.
 *
 *   HR_VECTOR(int64_t) dims = {0};
 *   if (!hr_vector_push(&dims, 4)) { ...out of memory... }
 *   for (size_t i = 0; i < dims.count; ++i) { use(dims.data[i]); }
 *   hr_vector_fini(&dims);
 *
 * A zeroed vector is valid and empty. The macros evaluate their vector argument more than once: pass a plain pointer.
 * Growing moves the elements; pointers into `data` end there. Threads: one at a time.
 */
#ifndef HEADRACE_BASE_VECTOR_H_
#define HEADRACE_BASE_VECTOR_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/allocator.h"

#define HR_VECTOR(type)     \
  struct {                  \
    type *data;             \
    size_t count, capacity; \
  }

/* Makes room for `capacity` elements in all; false when memory is out, and then nothing has changed. */
#define hr_vector_reserve(vector, wanted)                                                                  \
  ({                                                                                                       \
    size_t hr_vector_wanted_ = (wanted);                                                                   \
    bool hr_vector_fits_ = hr_vector_wanted_ <= (vector)->capacity;                                        \
    if (__builtin_expect(!hr_vector_fits_, 0)) {                                                           \
      void *hr_vector_moved_ =                                                                             \
          hr__vector_grow((vector)->data, &(vector)->capacity, hr_vector_wanted_, sizeof *(vector)->data); \
      if (hr_vector_moved_ != NULL) {                                                                      \
        (vector)->data = hr_vector_moved_;                                                                 \
        hr_vector_fits_ = true;                                                                            \
      }                                                                                                    \
    }                                                                                                      \
    hr_vector_fits_;                                                                                       \
  })

/* Appends one element, which may be a compound literal; false when memory is out, and then nothing has changed. */
#define hr_vector_push(vector, ...)                    \
  (hr_vector_reserve((vector), (vector)->count + 1) && \
   ((void)((vector)->data[(vector)->count++] = (__VA_ARGS__)), true))

/* Removes and gives the last element of a vector that has one. */
#define hr_vector_pop(vector) ((vector)->data[--(vector)->count])

#define hr_vector_last(vector) ((vector)->data[(vector)->count - 1])

/* Empties the vector and keeps its memory. */
#define hr_vector_clear(vector) ((void)((vector)->count = 0))

/* Gives back free room of a vector that does not grow any more, if there is memory to move it. */
#define hr_vector_trim(vector) \
  ((void)((vector)->data =     \
              hr__vector_trim((vector)->data, &(vector)->capacity, (vector)->count, sizeof *(vector)->data)))

/* Frees the memory; the vector is empty and usable afterwards. */
#define hr_vector_fini(vector)                \
  do {                                        \
    hr_free((vector)->data);                  \
    (vector)->data = NULL;                    \
    (vector)->count = (vector)->capacity = 0; \
  } while (0)

/* Moves `data` to a block for at least `wanted` elements of `size` bytes and stores the new capacity, or gives NULL. */
void *hr__vector_grow(void *data, size_t *capacity, size_t wanted, size_t size);
/* The block for `count` elements, moved if it was larger and there is memory; `data` NULL: none. */
void *hr__vector_trim(void *data, size_t *capacity, size_t count, size_t size);

#endif /* HEADRACE_BASE_VECTOR_H_ */
