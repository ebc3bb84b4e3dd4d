/* fft.h: one plan for the transforms of a length, and the passes that run it in f32 and in f64 (fft_passes.inc).
 *
 * A length of small prime factors runs as Stockham passes, one for each factor. A pass of radix r over `stride`
 * sequences of equal length gives r times as many sequences, 1/r as long; no final reordering is needed.
 *
 *   y[q + s (r p + k)] = w^(p k) * sum over j of x[q + s (p + m j)] u^(j k)
 *
 *   w = exp(-2 pi i / (r m)), u = exp(-2 pi i / r)
 *
 * q runs over s neighbours, so passes are loops over vectors; several lines are done at once by starting with s =
 * lines. Other lengths (Bluestein) become a convolution with exp(pi i k^2 / n), of a length that has small factors. The
 * tables' numbers are computed in f64 from angles below pi / 4 and rounded once.
 */
#ifndef HEADRACE_PROVIDERS_HOST_FFT_H_
#define HEADRACE_PROVIDERS_HOST_FFT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HR__FFT_FACTORS = 64, HR__FFT_RADIX_MAX = 31, HR__FFT_LANE_BYTES = 64 };

typedef struct hr__fft_plan {
  int64_t length; /* of the complex transform; half of an even real one */
  int64_t padded; /* of the passes: the length itself, or Bluestein's */
  int64_t whole;  /* of the real transform, else 0 */
  bool is_double, is_chirped;
  int factor_count;
  int factors[HR__FFT_FACTORS];
  /* Numbers re, im, re, im, ... after the plan, as float or double: their offsets, counted in pairs. */
  size_t twiddles;         /* for each factor in turn (r - 1) m numbers, then its r roots unless the radix is small */
  size_t chirp, convolved; /* Bluestein: exp(-pi i k^2 / n) for k < n, and the padded transform of the other sequence */
  size_t halves;           /* real transforms of even length: exp(-2 pi i k / N) for k <= N / 2 */
} hr__fft_plan;

/* Elements of each of four arrays of scratch, for this many lines at once. Halves have one number more than passes. */
static inline int64_t hr__fft_elements(const hr__fft_plan *plan, int lines) {
  return (plan->padded + 1) * lines;
}

static inline const void *hr__fft_numbers(const hr__fft_plan *plan, size_t at) {
  return (const char *)(plan + 1) + at * 2 * (plan->is_double ? sizeof(double) : sizeof(float));
}

/* Transforms `lines` interleaved lines of plan->length: element k of line l is re[k * lines + l], im[..]. The result is
 * in the same arrays or in the other two (true). Elements after the length may be written. */
bool hr__fft_passes_f32(const hr__fft_plan *plan, int lines, float *re, float *im, float *other_re, float *other_im);
bool hr__fft_passes_f64(const hr__fft_plan *plan, int lines, double *re, double *im, double *other_re,
                        double *other_im);

#endif
