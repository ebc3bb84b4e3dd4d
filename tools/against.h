/* against.h: `headrace bench --against`: the same model, sizes and seconds in other engines, each in a process of its
 * own (headrace/_engines.py).
 */
#ifndef HEADRACE_TOOLS_AGAINST_H_
#define HEADRACE_TOOLS_AGAINST_H_

#include <stddef.h>

#include "headrace/graph.h"

/* The command line of that process. Zeroed: empty. */
typedef struct against {
  char **data; /* owned, with NULL behind the last */
  size_t count, capacity;
} against;

/* Appends a run: the names, dtypes and dims of the inputs for a batch of this size. */
hr_status against_add(against *runs, int64_t batch, const hr_graph *graph, int input_count, const hr_tensor *inputs);
/* Fails unless these engines (names with commas between them) are known, and the file may be a model for them. */
hr_status against_check(const char *engines, const char *path);
/* Runs each of these engines, which print their rows. `products`: hr_session_options. */
hr_status against_run(const against *runs, const char *engines, const char *path, double seconds, hr_dtype products);
void against_free(against *runs);

#endif
