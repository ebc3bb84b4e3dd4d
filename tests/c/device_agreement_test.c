/* device_agreement_test.c: random programs on the CPU and on each other device that computes: the same bits.
 *
 * Functions of f64 and complex numbers are the device's own and agree within a few units in the last place; programs with products
 * are left to the tests of providers. HEADRACE_TEST_PROGRAMS sets the number of programs (default 200), HEADRACE_TEST_SEED the first
 * seed. Without another device there is nothing to test.
 */
#include "hr_test.h"

#include <math.h>

#include "core/op.h"
#include "program_generator.h"
#include "program_runner.h"
#include "runtime/device.h"

typedef struct side {
  hr_device *device;
  hr_stream *stream;
  hr_buffer **buffers;
} side;

static hr_view bytes_of(side *s, const generated *g, int b, int64_t *dims, int64_t *strides) {
  dims[0] = (int64_t)g->bytes[b], strides[0] = 1;
  return (hr_view){.buffer = s->buffers[b], .dtype = HR_DTYPE_U8, .rank = 1, .dims = dims, .strides = strides};
}

static void make_buffers(side *s, const generated *g) {
  s->buffers = calloc((size_t)g->buffer_count + 1, sizeof *s->buffers);
  for (int b = 0; b < g->buffer_count; b++) {
    int64_t dims[1], strides[1];
    HR_ASSERT_OK(hr_buffer_create(s->device, g->bytes[b], &s->buffers[b]));
    hr_view view = bytes_of(s, g, b, dims, strides);
    HR_ASSERT_OK(g->bytes[b] > 0 ? hr_stream_write(s->stream, &view, g->memory[b]) : HR_OK);
  }
}

static hr_view to_view(const side *s, const generated *g, const hr_operand *x) {
  hr_view view = {.dtype = x->dtype, .rank = x->rank, .offset = x->offset, .dims = x->dims, .strides = x->strides};
  if (x->kind == HR_OPERAND_VALUE) {
    view.buffer = s->buffers[x->index];
  } else if (x->kind == HR_OPERAND_SCALAR) {
    const hr_program_scalar *scalar = &g->program.scalars[x->index];
    view.scalar = scalar->is_constant ? &scalar->value : &g->arguments[scalar->argument];
    view.rank = 0;
  }
  return view;
}

static hr_status record(side *s, const generated *g, const hr_node *node) {
  hr_view *views = calloc((size_t)(node->input_count + node->output_count) + 1, sizeof *views);
  hr_scalar *scalars = calloc((size_t)node->scalar_count + 1, sizeof *scalars);
  for (int i = 0; i < node->input_count; i++) {
    views[i] = to_view(s, g, &node->inputs[i]);
  }
  for (int i = 0; i < node->output_count; i++) {
    views[node->input_count + i] = to_view(s, g, &node->outputs[i]);
  }
  for (int i = 0; i < node->scalar_count; i++) {
    const hr_program_scalar *scalar = &g->program.scalars[node->scalar_base + (uint32_t)i];
    scalars[i] = scalar->is_constant ? scalar->value : g->arguments[scalar->argument];
  }
  hr_attrs attrs = {node->int_count, node->scalar_count, node->ints, scalars};
  hr_status status = hr_stream_record(s->stream, node->op, &attrs, node->input_count, views, node->output_count,
                                      views + node->input_count);
  free(views);
  free(scalars);
  return status;
}

/* The failure of the program, whichever operation reports it. */
static hr_status run(side *s, const generated *g) {
  hr_status failure = HR_OK;
  for (int i = 0; i < g->program.node_count; i++) {
    hr_status status = record(s, g, &g->program.nodes[i]);
    if (failure == NULL) {
      failure = status;
    } else {
      hr_status_free(status);
    }
  }
  hr_status status = hr_stream_synchronize(s->stream);
  if (failure == NULL) {
    return status;
  }
  hr_status_free(status);
  return failure;
}

static bool has_products(const hr_program *program) {
  for (int n = 0; n < program->node_count; n++) {
    hr_op_family family = hr_op_table(program->nodes[n].op)->family;
    if (family == HR_FAMILY_CONTRACTION || program->nodes[n].op == HR_OP_ATTENTION ||
        program->nodes[n].op == HR_OP_ATTENTION_BACKWARD) {
      return true;
    }
  }
  return false;
}

static bool is_near(double x, double y, double error) {
  return (x != x && y != y) || x == y || fabs(x - y) <= error * (fabs(x) + fabs(y)) + error * 1e-3;
}

static bool is_same(hr_dtype dtype, const char *a, const char *b) {
  double x, y;
  float p, q;
  uint16_t h, k;
  size_t size = hr_dtype_size(dtype);
  if (memcmp(a, b, size) == 0) {
    return true;
  }
  switch (dtype) {
    case HR_DTYPE_F64:
    case HR_DTYPE_C128:
      memcpy(&x, a, 8), memcpy(&y, b, 8);
      return is_near(x, y, 1e-11);
    case HR_DTYPE_C64:
      memcpy(&p, a, 4), memcpy(&q, b, 4);
      return is_near(p, q, 1e-5);
    case HR_DTYPE_F32:
      memcpy(&p, a, 4), memcpy(&q, b, 4);
      return p != p && q != q;
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
      memcpy(&h, a, 2), memcpy(&k, b, 2);
      p = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(h) : hr_bf16_to_f32(h);
      q = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(k) : hr_bf16_to_f32(k);
      return p != p && q != q;
    default:
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
      for (size_t n = 0; n < size; n++) {
        fprintf(stderr, " %02x/%02x", (unsigned char)x[at + n], (unsigned char)y[at + n]);
      }
      fprintf(stderr, "\n");
      return false;
    }
  }
  return true;
}

static bool compare(side *cpu, side *other, const generated *g, uint64_t seed) {
  bool is_good = true;
  for (int b = 0; is_good && b < g->buffer_count; b++) {
    int64_t dims[1], strides[1];
    char *x = calloc(g->bytes[b] + 1, 1), *y = calloc(g->bytes[b] + 1, 1);
    hr_view view = bytes_of(cpu, g, b, dims, strides);
    hr_status left = hr_stream_read(cpu->stream, &view, x);
    view = bytes_of(other, g, b, dims, strides);
    hr_status right = hr_stream_read(other->stream, &view, y);
    is_good = hr_status_code_of(left) == hr_status_code_of(right);
    is_good = is_good && (left != NULL || is_equal(g, b, x, y, seed, other->device->name));
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

static void drop_buffers(side *s, const generated *g) {
  for (int b = 0; b < g->buffer_count; b++) {
    hr_buffer_release(s->buffers[b]);
  }
  free(s->buffers);
}

/* Whether the devices agree. */
static bool check_program(side *cpu, side *other, uint64_t seed) {
  generated g;
  HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &g));
  bool is_good = true;
  if (!has_products(&g.program)) {
    side *sides[2] = {cpu, other};
    hr_status_code codes[2];
    for (int s = 0; s < 2; s++) {
      make_buffers(sides[s], &g);
      hr_status status = run(sides[s], &g);
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
    drop_buffers(cpu, &g);
    drop_buffers(other, &g);
  }
  hr__generated_fini(&g);
  return is_good;
}

static void open_side(const char *name, side *s) {
  HR_ASSERT_OK(hr_device_open(name, &s->device));
  HR_ASSERT_OK(hr_stream_create(s->device, &s->stream));
}

static void close_side(side *s) {
  hr_stream_release(s->stream);
  hr_device_release(s->device);
}

HR_TEST(devices_agree_with_the_cpu) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", 200), first = hr__setting("HEADRACE_TEST_SEED", 1);
  for (int d = 0; hr_drivers[d] != NULL; d++) {
    if (strcmp(hr_drivers[d]->name, "cpu") == 0 || strcmp(hr_drivers[d]->name, "null") == 0 ||
        hr_drivers[d]->count() == 0) {
      continue;
    }
    side cpu, other;
    open_side("cpu", &cpu);
    open_side(hr_drivers[d]->name, &other);
    long failures = 0;
    for (long k = 0; k < count && failures < 20; k++) {
      failures += !check_program(&cpu, &other, (uint64_t)(first + k));
    }
    close_side(&cpu);
    close_side(&other);
    HR_ASSERT_EQ(failures, 0);
  }
}
