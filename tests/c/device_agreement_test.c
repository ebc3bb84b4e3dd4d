/* device_agreement_test.c: random programs give the same bits on the CPU and on every other device that computes.
 *
 * Functions of f64 and complex numbers are the device's own and agree within a few units in the last place; programs
 * with products are left to the tests of providers. Chebyshev polynomials are left out: of order n they are
 * cos(n acos(x)), in f64 for all reals, which multiplies that error by n.
 *
 * - HEADRACE_TEST_PROGRAMS: number of programs (default 200)
 * - HEADRACE_TEST_SEED: the first seed
 * - HEADRACE_TEST_REPEATS: runs of each program on the same memory; from the third on a device may replay it as a graph
 *
 * Skipped if there is no other device.
 */
#include "hr_test.h"

#include <math.h>

#include "program_runner.h"
#include "program_stream.h"

static bool is_near(double x, double y, double error) {
  return (x != x && y != y) || x == y || fabs(x - y) <= error * (fabs(x) + fabs(y)) + error * 1e-3;
}

/* Both parts: a NaN is a NaN, and errors are those of the whole number. */
static bool is_near_complex(const double *x, const double *y, double error) {
  double size = fabs(x[0]) + fabs(x[1]) + fabs(y[0]) + fabs(y[1]);
  bool is_near = true;
  for (int i = 0; i < 2; ++i) {
    is_near &= (x[i] != x[i] && y[i] != y[i]) || x[i] == y[i] || fabs(x[i] - y[i]) <= error * size;
  }
  return is_near;
}

static bool is_same(hr_dtype dtype, const char *a, const char *b) {
  double x, y, v[2], w[2];
  float p, q, f[2], g[2];
  uint16_t h, k;
  size_t size = hr_dtype_size(dtype);
  if (memcmp(a, b, size) == 0) {
    return true;
  }
  switch (dtype) {
    case HR_DTYPE_C128:
      memcpy(v, a, 16), memcpy(w, b, 16);
      return is_near_complex(v, w, 1e-11);
    case HR_DTYPE_F64:
      memcpy(&x, a, 8), memcpy(&y, b, 8);
      return is_near(x, y, 1e-11);
    case HR_DTYPE_C64:
      memcpy(f, a, 8), memcpy(g, b, 8);
      for (int i = 0; i < 2; ++i) {
        v[i] = (double)f[i], w[i] = (double)g[i];
      }
      return is_near_complex(v, w, 1e-5);
    case HR_DTYPE_F32:
      memcpy(&p, a, 4), memcpy(&q, b, 4);
      return p != p && q != q;
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
      memcpy(&h, a, 2), memcpy(&k, b, 2);
      p = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(h) : hr_bf16_to_f32(h);
      q = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(k) : hr_bf16_to_f32(k);
      return p != p && q != q;
    case HR_DTYPE_F8E4M3FN:
      return (*(const uint8_t *)a & 0x7f) == 0x7f && (*(const uint8_t *)b & 0x7f) == 0x7f;
    case HR_DTYPE_F8E5M2:
      return (*(const uint8_t *)a & 0x7f) > 0x7c && (*(const uint8_t *)b & 0x7f) > 0x7c;
    default: /* integers, and formats with one NaN */
      return false;
  }
}

static void describe(const generated *g) {
  hr_text text = {0};
  hr_status_ignore(hr_program_print(&g->program, &text));
  fprintf(stderr, "%s\n", hr_text_chars(&text));
  hr_text_fini(&text);
}

static bool is_equal(const generated *g, int b, const char *x, const char *y, uint64_t seed, const char *name) {
  size_t size = hr_dtype_size(g->dtypes[b]);
  for (size_t at = 0; at + size <= g->bytes[b]; at += size) {
    if (!is_same(g->dtypes[b], x + at, y + at)) {
      fprintf(stderr, "seed %llu: %s: buffer %%%d (%s), element %zu:", (unsigned long long)seed, name, b,
              hr_dtype_name(g->dtypes[b]), at / size);
      for (size_t n = 0; n < size; ++n) {
        fprintf(stderr, " %02x/%02x", (unsigned char)x[at + n], (unsigned char)y[at + n]);
      }
      fprintf(stderr, "\n");
      return false;
    }
  }
  return true;
}

static bool compare(hr__side *cpu, hr__side *other, const generated *g, uint64_t seed) {
  bool is_good = true;
  for (int b = 0; is_good && b < g->buffer_count; ++b) {
    int64_t dims[1], strides[1];
    char *x = calloc(g->bytes[b] + 1, 1), *y = calloc(g->bytes[b] + 1, 1);
    hr_view view = hr__side_bytes(cpu, g, b, dims, strides);
    hr_status left = hr_stream_read(cpu->stream, &view, x);
    view = hr__side_bytes(other, g, b, dims, strides);
    hr_status right = hr_stream_read(other->stream, &view, y);
    is_good = hr_status_code_of(left) == hr_status_code_of(right);
    is_good = is_good && (left != HR_OK || is_equal(g, b, x, y, seed, other->device->name));
    if (hr_status_code_of(left) != hr_status_code_of(right)) {
      fprintf(stderr, "seed %llu: cpu: %s; %s: %s\n", (unsigned long long)seed, hr_status_message(left),
              other->device->name, hr_status_message(right));
    }
    hr_status_free(left);
    hr_status_free(right);
    free(x);
    free(y);
  }
  return is_good;
}

/* True if the devices agree. */
static bool check_program(hr__side *cpu, hr__side *other, uint64_t seed) {
  generated g;
  long repeats = hr__setting("HEADRACE_TEST_REPEATS", 1);
  HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &g));
  bool is_good = true;
  if (!hr__has_products(&g.program) && !hr__has_rows(&g.program, "chebyshev")) {
    hr__side *sides[2] = {cpu, other};
    hr_status_code codes[2];
    for (int s = 0; s < 2; ++s) {
      HR_ASSERT_OK(hr__side_fill(sides[s], &g));
      for (long k = 1; k < repeats; ++k) {
        hr_status_ignore(
            hr__side_run(sides[s], &g)); /* from the same contents each time: small differences don't grow */
        HR_ASSERT_OK(hr__side_refill(sides[s], &g));
      }
      hr_status status = hr__side_run(sides[s], &g);
      codes[s] = hr_status_code_of(status);
      if (s == 1 && codes[0] != codes[1]) {
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, hr_status_message(status));
      }
      hr_status_free(status);
    }
    is_good = codes[0] == codes[1] && compare(cpu, other, &g, seed);
    if (!is_good && getenv("HEADRACE_TEST_SHOW") != NULL) {
      describe(&g);
    }
    hr__side_drop(cpu, &g);
    hr__side_drop(other, &g);
  }
  hr__generated_fini(&g);
  return is_good;
}

static void open_side(const char *name, hr__side *s) {
  HR_ASSERT_OK(hr_device_open(name, &s->device));
  HR_ASSERT_OK(hr_stream_create(s->device, &s->stream));
}

static void close_side(hr__side *s) {
  hr_stream_release(s->stream);
  hr_device_release(s->device);
}

HR_TEST(devices_agree_with_the_cpu) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", hr_test_count(200)), first = hr__setting("HEADRACE_TEST_SEED", 1);
  for (int d = 0; hr_drivers[d] != NULL; ++d) {
    if (strcmp(hr_drivers[d]->name, "cpu") == 0 || strcmp(hr_drivers[d]->name, "null") == 0 ||
        hr_drivers[d]->count() == 0) {
      continue;
    }
    hr__side cpu, other;
    open_side("cpu", &cpu);
    open_side(hr_drivers[d]->name, &other);
    long failures = 0;
    for (long k = 0; k < count && failures < 20; ++k) {
      failures += !check_program(&cpu, &other, (uint64_t)(first + k));
    }
    close_side(&cpu);
    close_side(&other);
    HR_ASSERT_EQ(failures, 0);
  }
}
