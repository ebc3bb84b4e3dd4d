/* Kernels that store to indexed positions, against a plain walk in logical order: every form of runs, lines, lanes and
 * units. */
#include "hr_test.h"

#include <math.h>

#include "base/integer.h"
#include "base/thread.h"
#include "core/math/vmath.h"
#include "interp/interp.h"
#include "interp/interp_testing.h"

enum { EXTENT = 23, ELEMENTS_MAX = 1 << 17, GUARD = 64 };

typedef struct scene {
  int rank;
  int64_t dims[4];
  uint32_t ordered_mask;
  int64_t index[4], from[4], to[4]; /* strides */
  int64_t term;                     /* distance of the positions of neighbouring indices */
  hr_dtype dtype, index_dtype;
  hr_store_mode mode;
  enum { LOADED, SCALED, CONSTANT } value;
  bool is_scaled_by_one;
} scene;

static uint64_t seed = 7;

static uint32_t any(uint32_t below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % below;
}

static void put(hr_dtype dtype, void *memory, int64_t at, double value) {
  switch (dtype) {
    case HR_DTYPE_F32:
      ((float *)memory)[at] = (float)value;
      break;
    case HR_DTYPE_BF16:
      ((uint16_t *)memory)[at] = hr_f32_to_bf16((float)value);
      break;
    case HR_DTYPE_F16:
      ((uint16_t *)memory)[at] = hr_f32_to_f16((float)value);
      break;
    case HR_DTYPE_I16:
      ((int16_t *)memory)[at] = (int16_t)(int64_t)value;
      break;
    case HR_DTYPE_I64:
      ((int64_t *)memory)[at] = (int64_t)value;
      break;
    case HR_DTYPE_F64:
      ((double *)memory)[at] = value;
      break;
    default:
      ((uint8_t *)memory)[at] = (uint8_t)(int64_t)value;
      break;
  }
}

static double get(hr_dtype dtype, const void *memory, int64_t at) {
  switch (dtype) {
    case HR_DTYPE_F32:
      return (double)((const float *)memory)[at];
    case HR_DTYPE_BF16:
      return (double)hr_bf16_to_f32(((const uint16_t *)memory)[at]);
    case HR_DTYPE_F16:
      return (double)hr_f16_to_f32(((const uint16_t *)memory)[at]);
    case HR_DTYPE_I16:
      return ((const int16_t *)memory)[at];
    case HR_DTYPE_I64:
      return (double)((const int64_t *)memory)[at];
    case HR_DTYPE_F64:
      return ((const double *)memory)[at];
    default:
      return ((const uint8_t *)memory)[at];
  }
}

/* Sums of two floats in double equal the float sum once they are rounded. */
static double combined(hr_store_mode mode, double a, double b) {
  switch (mode) {
    case HR_STORE_ADD:
      return a + b;
    case HR_STORE_MUL:
      return a * b;
    case HR_STORE_MAX:
      return isnan(a) || a > b ? a : b;
    case HR_STORE_MIN:
      return isnan(a) || a < b ? a : b;
    default:
      return b;
  }
}

static void expect(const scene *s, const int64_t *indices, const void *from, double number, void *to) {
  int64_t count = 1;
  for (int d = 0; d < s->rank; ++d) {
    count *= s->dims[d];
  }
  for (int64_t element = 0; element < count; ++element) {
    int64_t rest = element, index_at = 0, from_at = 0, to_at = 0;
    for (int d = s->rank - 1; d >= 0; --d) {
      int64_t place = rest % s->dims[d];
      rest /= s->dims[d];
      index_at += place * s->index[d], from_at += place * s->from[d], to_at += place * s->to[d];
    }
    int64_t index = indices[index_at] < 0 ? indices[index_at] + EXTENT : indices[index_at];
    if (index < 0 || index >= EXTENT) {
      continue; /* a check reports it; nothing else is touched */
    }
    to_at += index * s->term;
    double value = s->value == CONSTANT ? number : get(s->dtype, from, from_at);
    value = s->value == SCALED ? value * number : value;
    if (s->value == SCALED && s->dtype == HR_DTYPE_F32) {
      value = (double)(float)value;
    }
    put(s->dtype, to, to_at, combined(s->mode, get(s->dtype, to, to_at), value));
  }
}

static void make(const scene *s, kernel_maker *m) {
  make_begin(m, s->rank, s->dims, 0, s->ordered_mask);
  int from = make_arg(m), indices = make_arg(m), to = make_arg(m), number = make_scalar(m);
  int index = make_load(m, 0, indices, s->index_dtype, 0, s->index);
  hr_class cls = hr_dtype_class(s->dtype);
  int value =
      s->value == CONSTANT ? make_op1(m, 0, HR_OP_COPY, cls, number) : make_load(m, 0, from, s->dtype, 0, s->from);
  if (s->value == SCALED) {
    value = make_op2(m, 0, HR_OP_MUL, cls, any(2) != 0 ? value : number, value);
    if (m->instrs[m->kernel.instr_count - 1].sources[0].kind == HR_SOURCE_REGISTER) {
      m->instrs[m->kernel.instr_count - 1].sources[1] = (hr_source){HR_SOURCE_SCALAR, 0};
    }
  }
  make_store(m, 0, to, s->dtype, 0, s->to, value)->mode = s->mode;
  make_term(m, index, s->term, EXTENT);
}

/* A kernel of another scene, and how many scenes had its memory. */
static hr_host_kernel *other;
static int renumbered;

/* The kernel of a scene; for some, in the memory of an earlier scene's. */
static hr_host_kernel *create(kernel_maker *m, bool takes_other) {
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_interp_create(make_end(m), &kernel));
  if (takes_other && other != NULL && other->run == kernel->run && kernel->interned[0] == NULL) {
    HR_ASSERT(hr_interp_renumber(other, make_end(m)));
    kernel->destroy(kernel);
    kernel = other;
    other = NULL;
    ++renumbered;
  }
  return kernel;
}

/* Keeps one for later scenes. */
static void destroy(hr_host_kernel *kernel) {
  if (other != NULL) {
    other->destroy(other);
  }
  other = kernel;
}

static void check(const scene *s) {
  size_t size = hr_dtype_size(s->dtype), bytes = ELEMENTS_MAX * size;
  int64_t *wide = malloc(ELEMENTS_MAX * 8);
  int32_t *narrow = malloc(ELEMENTS_MAX * 4);
  char *from = malloc(bytes), *start = malloc(bytes), *expected = malloc(bytes), *block = malloc(bytes + 2 * GUARD);
  bool is_small = s->dtype == HR_DTYPE_I64 && s->mode == HR_STORE_MUL; /* products that a double represents */
  for (int64_t i = 0; i < ELEMENTS_MAX; ++i) {
    uint32_t pick = any(40);
    wide[i] = pick == 0 ? EXTENT + (int64_t)any(5) : pick == 1 ? -EXTENT - 1 : (int64_t)any(2 * EXTENT) - EXTENT;
    narrow[i] = (int32_t)wide[i];
    put(s->dtype, from, i, (double)any(is_small ? 2 : 9));
    put(s->dtype, start, i, (double)any(9));
    if (any(50) == 0 && hr_dtype_is_real(s->dtype)) {
      put(s->dtype, from, i, (double)NAN);
    }
  }
  double number = s->is_scaled_by_one || is_small ? 1 : 3;
  memcpy(expected, start, bytes);
  expect(s, wide, from, number, expected);
  hr_scalar scalars[] = {hr_dtype_is_integer(s->dtype) ? hr_scalar_i64((int64_t)number) : hr_scalar_f64(number)};
  for (int threads = 1; threads <= 5; threads += 2) {
    kernel_maker m;
    make(s, &m);
    HR_ASSERT_OK(hr_kernel_verify(make_end(&m)));
    hr_thread_count_set(threads);
    hr_host_kernel *kernel = create(&m, threads == 1);
    memset(block, 0xa5, bytes + 2 * GUARD);
    memcpy(block + GUARD, start, bytes);
    char *scratch = hr_aligned_malloc(kernel->scratch_bytes + 64, 64);
    void *args[] = {from, s->index_dtype == HR_DTYPE_I64 ? (void *)wide : narrow, block + GUARD};
    hr_host_call call = {args, scalars, NULL, scratch};
    for (int odd = 1; odd >= 0; --odd) { /* units in another order */
      for (int64_t unit = odd; unit < kernel->passes[0].units; unit += 2) {
        memset(scratch, 0xcd, kernel->scratch_bytes);
        kernel->run(kernel, 0, &call, unit, unit + 1);
      }
    }
    for (int64_t i = 0; i < ELEMENTS_MAX; ++i) { /* the bits of a NaN are arbitrary */
      double want = get(s->dtype, expected, i), got = get(s->dtype, block + GUARD, i);
      HR_ASSERT(want == got || (isnan(want) && isnan(got)));
    }
    for (size_t i = 0; i < GUARD; ++i) {
      HR_ASSERT_EQ((unsigned char)block[i], 0xa5);
      HR_ASSERT_EQ((unsigned char)block[GUARD + bytes + i], 0xa5);
    }
    hr_aligned_free(scratch);
    destroy(kernel);
  }
  hr_thread_count_set(0);
  free(wide), free(narrow), free(from), free(start), free(expected), free(block);
}

/* The same domain with every dtype, mode and kind of value. */
static void check_all(scene s) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_BF16, HR_DTYPE_F16, HR_DTYPE_I64,
                                    HR_DTYPE_U8,  HR_DTYPE_I16,  HR_DTYPE_F64};
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; ++d) {
    for (int mode = HR_STORE_SET; mode <= HR_STORE_MIN; ++mode) {
      if (!hr_test_takes((int64_t)d + mode)) {
        continue;
      }
      s.dtype = dtypes[d], s.mode = (hr_store_mode)mode;
      s.index_dtype = any(2) != 0 ? HR_DTYPE_I64 : HR_DTYPE_I32;
      s.value = (int)any(3);
      s.is_scaled_by_one = any(2) != 0;
      check(&s);
    }
  }
}

HR_TEST(rows_are_stored_by_index) {
  for (int64_t width = 1; width < 3000; width = width * 3 + 1) { /* lanes, runs, cut runs */
    check_all((scene){.rank = 2,
                      .dims = {4000 / (width + 20) + 3, width},
                      .ordered_mask = 1,
                      .index = {1, 0},
                      .from = {width, 1},
                      .to = {0, 1},
                      .term = width});
  }
  check_all((scene){
      .rank = 2, .dims = {300, 32}, .ordered_mask = 1, .index = {1, 0}, .from = {32, 1}, .to = {0, 1}, .term = 32});
}

HR_TEST(columns_are_stored_by_index) {
  check_all((scene){.rank = 2,
                    .dims = {37, 600},
                    .ordered_mask = 2,
                    .index = {0, 1},
                    .from = {600, 1},
                    .to = {EXTENT, 0},
                    .term = 1});
  check_all((scene){
      .rank = 2, .dims = {600, 37}, .ordered_mask = 1, .index = {1, 0}, .from = {37, 1}, .to = {0, EXTENT}, .term = 1});
  check_all((scene){.rank = 3,
                    .dims = {5, 100, 7},
                    .ordered_mask = 2,
                    .index = {0, 3, 0},
                    .from = {1, 5, 500},
                    .to = {1, 0, 5 * EXTENT},
                    .term = 5});
}

HR_TEST(single_elements_are_stored_by_index) {
  check_all((scene){.rank = 1, .dims = {20000}, .ordered_mask = 1, .index = {1}, .from = {2}, .to = {0}, .term = 5});
  check_all((scene){.rank = 2,
                    .dims = {200, 1100},
                    .ordered_mask = 1,
                    .index = {500, 1},
                    .from = {70, 1},
                    .to = {0, 1},
                    .term = 1100});
  check_all((scene){.rank = 2, /* many short lines: whole, and in parts */
                    .dims = {2000, 40},
                    .ordered_mask = 1,
                    .index = {40, 1},
                    .from = {40, 1},
                    .to = {0, 1},
                    .term = 40});
  check_all((scene){.rank = 2,
                    .dims = {1000, 100},
                    .ordered_mask = 1,
                    .index = {100, 1},
                    .from = {1, 1000},
                    .to = {0, 1},
                    .term = 100});
  check_all((scene){.rank = 2, /* lanes */
                    .dims = {9000, 3},
                    .ordered_mask = 1,
                    .index = {1, 0},
                    .from = {3, 1},
                    .to = {0, 1},
                    .term = 3});
  check_all((scene){.rank = 3,
                    .dims = {3, 40, 50},
                    .ordered_mask = 6,
                    .index = {2000, 50, 1},
                    .from = {2000, 1, 40},
                    .to = {EXTENT, 0, 0},
                    .term = 1});
  check_all((scene){.rank = 0, .term = 1});
}

/* Runs after the tests above. */
HR_TEST(scatters_take_the_numbers_of_others) {
  HR_ASSERT(renumbered > 0);
  other->destroy(other);
  other = NULL;
}
