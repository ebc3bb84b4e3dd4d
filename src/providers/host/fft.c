/* fft.c: Fourier transforms along lines: plans, and the conversion of complex and real lines before and after the
 * passes (fft.h).
 *
 * Real lines of even length are read as half as many complex numbers z[j] = x[2j] + i x[2j+1]; a loop after the
 * transform (before the inverse) separates the two halves. Lines don't mix: a NaN stays in its own. Inverse transforms
 * swap real and imaginary parts on input and output.
 *
 * Several lines go through the passes side by side, one in each lane of a vector. If dims follow the transformed one,
 * lines are side by side in memory, too, and nothing has to be transposed.
 */
#include "providers/host/fft.h"

#include <math.h>
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "core/ops/op.h"
#include "providers/host/host.h"

enum { LANES_MAX = HR__FFT_LANE_BYTES / 4, GROUP_ELEMENTS = 1 << 17 };

/* ---- plans ---- */

/* exp(-2 pi i k / n), from an angle of at most pi / 4. */
static void root(int64_t k, int64_t n, double *out) {
  k %= n;
  int64_t eighth = 8 * k / n; /* of the circle */
  double angle = 2 * M_PI / (double)n, c, s;
  switch (eighth) {
    case 0:
      c = cos(angle * (double)k), s = sin(angle * (double)k);
      break;
    case 1:
    case 2: {
      double rest = (double)(4 * k - n) / 4 * angle; /* past a quarter */
      c = -sin(rest), s = cos(rest);
      break;
    }
    case 3:
    case 4: {
      double rest = (double)(2 * k - n) / 2 * angle;
      c = -cos(rest), s = -sin(rest);
      break;
    }
    case 5:
    case 6: {
      double rest = (double)(4 * k - 3 * n) / 4 * angle;
      c = sin(rest), s = -cos(rest);
      break;
    }
    default:
      c = cos(angle * (double)(n - k)), s = -sin(angle * (double)(n - k));
      break;
  }
  out[0] = c, out[1] = -s;
}

static void put(const hr__fft_plan *plan, size_t at, const double *number) {
  void *to = (char *)(uintptr_t)hr__fft_numbers(plan, at);
  if (plan->is_double) {
    memcpy(to, number, 2 * sizeof *number);
  } else {
    ((float *)to)[0] = (float)number[0], ((float *)to)[1] = (float)number[1];
  }
}

/* Factors of n: fours and fives first, as they are cheapest. False if a prime remains that is too large. */
static bool find_factors(int64_t n, hr__fft_plan *plan) {
  plan->factor_count = 0;
  for (int radix = 4; radix <= HR__FFT_RADIX_MAX && n > 1;) {
    if (n % radix == 0) {
      plan->factors[plan->factor_count++] = radix;
      n /= radix;
    } else {
      radix = radix == 4 ? 2 : radix == 2 ? 3 : radix == 3 ? 5 : radix + 2;
    }
  }
  return n == 1;
}

/* The smallest product of factors 2, 3 and 5 that is at least n. */
static int64_t find_smooth(int64_t n) {
  int64_t best = INT64_MAX;
  for (int64_t five = 1; five < best && five <= 5 * n; five *= 5) {
    for (int64_t three = five; three < best && three <= 3 * n; three *= 3) {
      int64_t two = three;
      while (two < n) {
        two *= 2;
      }
      best = two < best ? two : best;
    }
  }
  return best;
}

/* Sizes, and the offsets of the tables; returns the total count of numbers. */
static size_t lay_out(hr__fft_plan *plan) {
  size_t at = 0;
  int64_t rest;
  plan->is_chirped = !find_factors(plan->length, plan);
  plan->padded = plan->is_chirped ? find_smooth(2 * plan->length - 1) : plan->length;
  if (plan->is_chirped) {
    (void)find_factors(plan->padded, plan);
  }
  plan->twiddles = 0;
  rest = plan->padded;
  for (int f = 0; f < plan->factor_count; ++f) {
    int radix = plan->factors[f];
    rest /= radix;
    at += (size_t)((radix - 1) * rest + (radix > 5 ? radix : 0));
  }
  plan->chirp = at;
  at += plan->is_chirped ? (size_t)plan->length : 0;
  plan->convolved = at;
  at += plan->is_chirped ? (size_t)plan->padded : 0;
  plan->halves = at;
  at += plan->whole > 0 && plan->whole % 2 == 0 ? (size_t)plan->length + 1 : 0;
  return at;
}

static void fill_twiddles(const hr__fft_plan *plan) {
  size_t at = plan->twiddles;
  int64_t n = plan->padded;
  double number[2];
  for (int f = 0; f < plan->factor_count; ++f) {
    int radix = plan->factors[f];
    int64_t m = n / radix;
    for (int64_t p = 0; p < m; ++p) {
      for (int k = 1; k < radix; ++k) {
        root(p * k, n, number);
        put(plan, at++, number);
      }
    }
    for (int k = 0; radix > 5 && k < radix; ++k) {
      root(k, radix, number);
      put(plan, at++, number);
    }
    n = m;
  }
}

/* exp(-pi i k^2 / n), and the transform of its conjugate centred at 0, over the padded length. */
static hr_status fill_chirp(const hr__fft_plan *plan) {
  int64_t n = plan->length, padded = plan->padded;
  hr__fft_plan *exact = NULL; /* the same passes in f64 */
  double *block = hr_calloc((size_t)padded * 4, sizeof *block), number[2];
  hr__fft_plan sizes = {.length = padded, .is_double = true};
  size_t count = lay_out(&sizes);
  exact = hr_malloc(sizeof *exact + count * 2 * sizeof(double));
  if (block == NULL || exact == NULL) {
    hr_free(block);
    hr_free(exact);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "fft: no host memory for tables of %lld numbers",
                          (long long)padded);
  }
  *exact = sizes;
  fill_twiddles(exact);
  double *re = block, *im = block + padded, *other_re = im + padded, *other_im = other_re + padded;
  for (int64_t k = 0; k < n; ++k) {
    root((int64_t)((unsigned __int128)k * (unsigned __int128)k % (unsigned __int128)(2 * n)), 2 * n, number);
    put(plan, plan->chirp + (size_t)k, number);
    int64_t mirrored = k == 0 ? 0 : padded - k;
    re[k] = re[mirrored] = number[0];
    im[k] = im[mirrored] = -number[1];
  }
  bool is_other = hr__fft_passes_f64(exact, 1, re, im, other_re, other_im);
  for (int64_t k = 0; k < padded; ++k) {
    number[0] = (is_other ? other_re : re)[k] / (double)padded; /* the inverse divides */
    number[1] = (is_other ? other_im : im)[k] / (double)padded;
    put(plan, plan->convolved + (size_t)k, number);
  }
  hr_free(block);
  hr_free(exact);
  return HR_OK;
}

static hr__fft_plan sizes_of(const hr_node *node) {
  const hr_operand *sized = node->op == HR_OP_FFT_HALF ? &node->outputs[0] : &node->inputs[0];
  int64_t count = hr__operand_dim(sized, node->op == HR_OP_FFT ? (int)node->ints[1] : 0);
  bool is_real = node->op != HR_OP_FFT;
  return (hr__fft_plan){
      .length = is_real && count % 2 == 0 ? count / 2 : count,
      .whole = is_real ? count : 0,
      .is_double = hr_dtype_size(node->outputs[0].dtype) / (hr_dtype_is_complex(node->outputs[0].dtype) ? 2 : 1) == 8};
}

bool hr__fft_supports(const hr_node *node) {
  hr_dtype from = node->inputs[0].dtype, to = node->outputs[0].dtype;
  int64_t after = node->op == HR_OP_FFT ? node->ints[1] : 0;
  if (after < 0 || after >= node->inputs[0].rank) {
    return false;
  }
  int64_t count = hr__operand_dim(node->op == HR_OP_FFT_HALF ? &node->outputs[0] : &node->inputs[0], (int)after);
  int64_t half = hr__operand_dim(node->op == HR_OP_FFT_HALF ? &node->inputs[0] : &node->outputs[0], 0);
  bool is_whole = node->op == HR_OP_FFT_REAL && half == count;
  bool fits = node->op == HR_OP_FFT || half == count / 2 + 1 || is_whole;
  bool is_typed = node->op == HR_OP_FFT_REAL ? from == HR_DTYPE_F32 || from == HR_DTYPE_F64
                                             : from == HR_DTYPE_C64 || from == HR_DTYPE_C128;
  return fits && is_typed && (node->op != HR_OP_FFT_HALF || to != from) && count > 0 && count < INT64_C(1) << 40;
}

hr_status hr__fft_prepare(const hr_node *node, void **out_plan) {
  hr__fft_plan sizes = sizes_of(node);
  size_t count = lay_out(&sizes);
  hr__fft_plan *plan = hr_malloc(sizeof *plan + count * 2 * (sizes.is_double ? sizeof(double) : sizeof(float)));
  if (plan == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "fft: no host memory for tables of %zu numbers", count);
  }
  *plan = sizes;
  fill_twiddles(plan);
  for (int64_t k = 0; plan->whole > 0 && plan->whole % 2 == 0 && k <= plan->length; ++k) {
    double number[2];
    root(k, plan->whole, number);
    put(plan, plan->halves + (size_t)k, number);
  }
  hr_status status = plan->is_chirped ? fill_chirp(plan) : HR_OK;
  if (status != HR_OK) {
    hr_free(plan);
    return status;
  }
  *out_plan = plan;
  return HR_OK;
}

/* ---- lines ---- */

/* The addresses of a group's lines in a tensor, in numbers (a real line of pairs: in pairs). */
typedef struct fft_lines {
  int count, lanes;
  int64_t at[LANES_MAX], step; /* of each line's first number, and from one number to the next */
  /* All lines of a vector side by side: the first `run` in one row, the others at the front of the row in the following
   * plane. */
  bool are_beside;
  int run;
} fft_lines;

/* The number of elements of the dims after the transformed one. */
static int64_t count_after(const hr_node *node) {
  const hr_operand *x = &node->inputs[0];
  int64_t after = 1;
  for (int d = 0; node->op == HR_OP_FFT && d < node->ints[1]; ++d) {
    after *= hr__operand_dim(x, d);
  }
  return after;
}

/* The number of lines that go through the passes at once: a vector's, if memory allows. */
static int lane_count(const hr__fft_plan *plan, int64_t lines) {
  int lanes = plan->is_double ? LANES_MAX / 2 : LANES_MAX;
  if (lines < lanes / 2 || lanes * plan->padded > GROUP_ELEMENTS) {
    return 1;
  }
  return lanes;
}

/* Lines in groups that go through the passes together; `after`: the number of lines between a number of a line and its
 * next.
 */
typedef struct fft_groups {
  int64_t lines, after, count;
  int lanes;
} fft_groups;

static fft_groups groups_of(const hr__fft_plan *plan, const hr_node *node) {
  const hr_operand *x = &node->inputs[0];
  fft_groups g = {.lines = 1, .after = count_after(node)};
  for (int d = 0; d < x->rank; ++d) {
    g.lines *= x->dims[d];
  }
  g.lines /= node->op == HR_OP_FFT ? plan->length : x->dims[x->rank - 1];
  g.lanes = lane_count(plan, g.lines);
  g.count = hr_divide_up(g.lines, g.lanes);
  return g;
}

static fft_lines lines_of_group(const hr__library_call *call, const hr__tensor *tensor, int64_t group) {
  const hr__fft_plan *plan = call->plan;
  fft_groups g = groups_of(plan, call->node);
  int64_t length = call->node->op == HR_OP_FFT ? plan->length : hr__dim(tensor, 0);
  bool is_pairs = plan->whole > 0 && plan->whole % 2 == 0 && !hr_dtype_is_complex(tensor->dtype);
  int64_t first = group * g.lanes, left = g.lines - first, column = first % g.after;
  int64_t plane = (first - column) * (is_pairs ? length / 2 : length);
  fft_lines lines = {.lanes = g.lanes, .step = g.after};
  lines.count = (int)(left < g.lanes ? left : g.lanes);
  lines.run = (int)(g.after - column < lines.count ? g.after - column : lines.count);
  lines.are_beside = g.after > 1 && g.after >= g.lanes && g.lanes > 1 && lines.count == g.lanes;
  for (int l = 0; l < lines.count; ++l) {
    lines.at[l] = plane + column;
    if (++column == g.after) {
      column = 0;
      plane += g.after * (is_pairs ? length / 2 : length);
    }
  }
  return lines;
}

size_t hr__fft_scratch(const hr_node *node, int workers) {
  (void)workers;
  hr__fft_plan plan = sizes_of(node);
  (void)lay_out(&plan);
  int64_t elements = hr__fft_elements(&plan, groups_of(&plan, node).lanes);
  return 4 * (size_t)elements * (plan.is_double ? sizeof(double) : sizeof(float));
}

#define NAME_(fn, form) fn##_##form
#define NAME__(fn, form) NAME_(fn, form)
#define NAME(fn) NAME__(fn, FORM)

#if defined(__clang__)
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (NAME(quad_index)){i, j, k, l})
#endif

#define FORM f32
#define T float
#define INDEX int32_t
#include "providers/host/fft_lines.inc"
#undef FORM
#undef T
#undef INDEX

#define FORM f64
#define T double
#define INDEX int64_t
#include "providers/host/fft_lines.inc"

static hr_status transform(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  const hr__fft_plan *plan = call->plan;
  for (int64_t group = begin; group < end; ++group) {
    if (plan->is_double) {
      transform_group_f64(call, group, scratch);
    } else {
      transform_group_f32(call, group, scratch);
    }
  }
  return HR_OK;
}

hr_status hr__fft_run(const hr__library_call *call) {
  const hr__fft_plan *plan = call->plan;
  fft_groups groups = groups_of(plan, call->node);
  return hr__library_spread(call, groups.count, plan->padded * groups.lanes * 4, transform);
}
