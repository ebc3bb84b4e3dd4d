/* growth.h: decides which results of `cat` may grow in place, as a cache of keys and values does with each token.
 *
 *   for each token:  new = cat((old, row), dim), and nothing holds `old` any more
 *
 * Copying the old rows each time costs as much as all else in a long context. So the result of such a cat gets memory
 * with room for as many rows again, and the next cat writes its own rows alone: the result takes the old buffer's
 * memory over. A room that is full is left for one of twice the rows, so that a row is copied twice on average. Rooms
 * are rounded up: their rows are part of the key, and caches that begin with other lengths mostly have the same.
 *
 * A cat is considered if
 *   - its first piece is a whole buffer with contents, which dies with the program;
 *   - its result is new, and the other pieces have rows, but no more than the first: a program that writes no row does
 *     not use the result, which then has no memory to take over;
 *   - the first piece was made by such a cat, too: a cat of a training step, whose pieces come from elsewhere each
 *     time, gets no room;
 *   - no dim in front of the rows is more than 1. Otherwise the rows get a *pitch*, and libraries run some products
 *     with other kernels, which have other bits. So only one row may be added, and at most one dim may be more than 1
 *     beside the rows and the last dim.
 *
 * A result whose rows have a pitch and that is returned to the default layout (default_layout.h) is *settled*: neither
 * it nor the cats that follow get room again, as its program needs addresses or other views.
 *
 * The compiler decides how (compiler/rooms.c), the hand-over moves the memory (commit.c). Devices other than the host
 * have no growth: their launches are recorded with addresses, and a step's programs have several sets of them already.
 * Threads: the stream's lock.
 */
#ifndef HEADRACE_ENGINE_GROWTH_H_
#define HEADRACE_ENGINE_GROWTH_H_

#include "engine/plan.h"

/* hr_buffer::growth */
typedef enum hr_growth_state {
  HR_GROWN_NOT = 0,
  HR_GROWN_CANDIDATE, /* the result of a cat that is considered */
  HR_GROWN,           /* the same with room */
  HR_GROWN_SETTLED
} hr_growth_state;

/* Finds the cats of the trace that are considered, appends them to its list, and adds the permission to grow to its
 * shapes, and the room of results to its layouts (hr__trace_key). True if there is such room: the key has layouts.
 * `is_tight`: memory is short, and nothing gets new room. */
bool hr__growth_find(hr_trace *trace, bool is_tight);

/* Moves memory to the results that take it over; false if one has memory of its own by now, and nothing has changed. */
bool hr__growth_take(const hr_trace *trace, const hr_plan *plan, void **bound);
/* After that: notes what became of the cats, and counts them. */
void hr__growth_note(const hr_trace *trace, const hr_plan *plan, hr_stats *stats);
/* Notes that a buffer is returned to the default layout. */
void hr__growth_settle(hr_buffer *buffer);

#endif
