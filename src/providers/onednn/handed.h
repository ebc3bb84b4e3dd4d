/* handed.h: products of f32 matrices that are handed over to a kernel, such as gradients to an optimizer's update.
 *
 * An update reads and writes several arrays as large as a weight, so it waits for memory, which products leave idle.
 * Here each thread makes some whole rows, and runs the kernel on them at once. While it multiplies, it requests the
 * same rows of the kernel's other arrays. The product has sgemm's bits (panels.h).
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_HANDED_H_
#define HEADRACE_PROVIDERS_ONEDNN_HANDED_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/host_kernel.h"

/* c [rows, columns], dense, = a^T [rows, depth] b [depth, columns]; lines of a and b are dense, a step apart. */
typedef struct hr__handed {
  int64_t rows, depth, columns;
  const float *a, *b;
  int64_t a_step, b_step;
  float *c;
  float *panels; /* hr__packed_panels_floats */
  const hr_host_taker *taker;
} hr__handed;

/* True if this processor can, and is not slower than a product and a kernel one after the other. */
bool hr__handed_is_worth(int64_t rows, int64_t depth, int64_t columns);
/* False, and nothing is done, if the kernel's units may have elements of several threads. */
bool hr__handed_multiply(const hr__handed *p);

#endif
