/* Modules: sources that are accepted and refused, runs between other operations, operands of any form, guards. */
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "base/thread.h"
#include "headrace/function.h"
#include "headrace/module.h"
#include "headrace/profile.h"
#include "hr_test.h"
#include "module/module_source.h"

enum { COUNT = 1000 };

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
} fixture;

static const char *device_name = "cpu";

static fixture open_fixture(void) {
  fixture f;
  HR_ASSERT_OK(hr_device_open(device_name, &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static const hr_module *compile(fixture *f, const char *source) {
  const hr_module *module;
  HR_ASSERT_OK(hr_module_create(f->device, source, strlen(source), &module));
  return module;
}

typedef struct tensor {
  hr_buffer *buffer;
  int64_t dims[2], strides[2];
} tensor;

static hr_view view_of(const tensor *t) {
  return (hr_view){.buffer = t->buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = t->dims, .strides = t->strides};
}

static tensor make(fixture *f, int64_t rows, int64_t columns, const float *values) {
  tensor t = {.dims = {rows, columns}, .strides = {columns, 1}};
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)(rows * columns) * sizeof(float), &t.buffer));
  hr_view view = view_of(&t);
  if (values != NULL) {
    HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  }
  return t;
}

static hr_view number(const hr_scalar *scalar) {
  return (hr_view){.scalar = scalar, .dtype = scalar->dtype};
}

static void read_back(fixture *f, const tensor *t, float *out) {
  hr_view view = view_of(t);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, out));
}

static void fill(float *values, int count) {
  for (int i = 0; i < count; ++i) {
    values[i] = (float)(i % 17 - 8) / 4;
  }
}

static float shrink(float x, float l) {
  return x > l ? x - l : x < -l ? x + l : 0;
}

static const char softshrink[] = "/* moves x towards 0 */\n"
                                 "kernel void softshrink(in float *x, out float *y,\n"
                                 "                       float l) {\n"
                                 "  y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);\n"
                                 "}\n";

/* y = shrink(2 x) + 1: one program with a call in it, again with another number, and no compile. */
HR_TEST(a_kernel_runs_between_its_neighbours) {
  fixture f = open_fixture();
  const hr_module *module = compile(&f, softshrink);
  float values[COUNT], out[COUNT];
  fill(values, COUNT);
  tensor x = make(&f, 1, COUNT, values);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_stats before, after;
  for (int round = 0; round < 3; ++round) {
    hr_scalar two = hr_scalar_f64(2), one = hr_scalar_f64(1), l = hr_scalar_f64(0.5 + round);
    tensor a = make(&f, 1, COUNT, NULL), b = make(&f, 1, COUNT, NULL), y = make(&f, 1, COUNT, NULL);
    hr_view vx = view_of(&x), va = view_of(&a), vb = view_of(&b), vy = view_of(&y);
    hr_stream_stats(f.stream, &before);
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_MUL, NULL, 2, (hr_view[]){vx, number(&two)}, 1, &va));
    HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){va, vb, number(&l)}, NULL, NULL));
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vb, number(&one)}, 1, &vy));
    hr_buffer_release(a.buffer);
    hr_buffer_release(b.buffer);
    read_back(&f, &y, out);
    hr_stream_stats(f.stream, &after);
    HR_ASSERT_EQ(after.commits - before.commits, 1);
    HR_ASSERT_EQ(after.compiles - before.compiles, round == 0);
    for (int i = 0; i < COUNT; ++i) {
      HR_ASSERT(out[i] == shrink(2 * values[i], (float)l.value.f[0]) + 1);
    }
    hr_buffer_release(y.buffer);
  }
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

/* One module for a source; another source is another one. */
HR_TEST(a_source_is_compiled_once) {
  fixture f = open_fixture();
  const hr_module *a = compile(&f, softshrink), *b = compile(&f, softshrink);
  HR_ASSERT(a == b);
  HR_ASSERT_EQ(hr_module_kernel_count(a), 1);
  HR_ASSERT_STR_EQ(hr_module_kernel_name(a, 0), "softshrink");
  HR_ASSERT_EQ(hr_module_parameter_count(a, 0), 3);
  hr_parameter p = hr_module_parameter(a, 0, 1);
  HR_ASSERT_STR_EQ(p.name, "y");
  HR_ASSERT_EQ(p.kind, HR_PARAMETER_OUT);
  HR_ASSERT_EQ(p.dtype, HR_DTYPE_F32);
  close_fixture(&f);
}

/* Results of the built-in rows, and of rows of a matrix; two kernels and a function in one source. */
HR_TEST(kernels_have_math_and_rows) {
  static const char source[] =
      "static float twice(float v) { return 2 * v; }\n"
      "kernel void waves(in float *x, out float *y) { y[i] = twice(sin(x[i])) + expf(x[i]) + round(x[i]) + "
      "fmax(x[i], 0.25f) + (float)pow(2.0, 3); }\n"
      "kernel void soft(in float *x, out float *y, long n) {\n"
      "  const float most = row_max(x + i * n, n);\n"
      "  float sum = 0;\n"
      "  for (long k = 0; k < n; ++k) { sum += exp(x[i * n + k] - most); }\n"
      "  for (long k = 0; k < n; ++k) { y[i * n + k] = exp(x[i * n + k] - most) / sum; }\n"
      "}\n"
      "kernel void sums(in float *x, out float *y, int n) { y[i] = row_sum(x + i * n, n) - row_dot(x, x, 0); }\n";
  enum { ROWS = 20, COLUMNS = 50 };
  fixture f = open_fixture();
  const hr_module *module = compile(&f, source);
  HR_ASSERT_EQ(hr_module_kernel_count(module), 3);
  float values[COUNT], out[COUNT];
  fill(values, COUNT);
  tensor x = make(&f, ROWS, COLUMNS, values), y = make(&f, ROWS, COLUMNS, NULL), s = make(&f, ROWS, 1, NULL);
  hr_scalar columns = hr_scalar_i64(COLUMNS);
  const int64_t rows[3] = {ROWS, 1, 1};
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&x), view_of(&y)}, NULL, NULL));
  read_back(&f, &y, out);
  for (int i = 0; i < COUNT; ++i) {
    float v = values[i];
    HR_ASSERT_NEAR(out[i], 2 * sinf(v) + expf(v) + roundf(v) + fmaxf(v, 0.25f) + 8, 1e-5);
  }
  HR_ASSERT_OK(
      hr_module_record(f.stream, module, 1, (hr_view[]){view_of(&x), view_of(&y), number(&columns)}, rows, NULL));
  HR_ASSERT_OK(
      hr_module_record(f.stream, module, 2, (hr_view[]){view_of(&y), view_of(&s), number(&columns)}, NULL, NULL));
  read_back(&f, &s, out);
  for (int r = 0; r < ROWS; ++r) {
    HR_ASSERT_NEAR(out[r], 1, 1e-5);
  }
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_buffer_release(s.buffer);
  close_fixture(&f);
}

/* Three dims of threads, whose numbers are thread(0) to thread(2). */
HR_TEST(grids_have_three_dims) {
  static const char source[] = "kernel void number(out float *y) {\n"
                               "  y[(thread(2) * threads(1) + thread(1)) * threads(0) + i] =\n"
                               "      100 * thread(2) + 10 * thread(1) + thread(0);\n}\n";
  fixture f = open_fixture();
  const hr_module *module = compile(&f, source);
  tensor y = make(&f, 1, 5 * 3 * 2, NULL);
  float out[30];
  HR_ASSERT_OK(
      hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&y)}, (int64_t[]){5, 3, 2}, (int64_t[]){4, 1, 0}));
  read_back(&f, &y, out);
  for (int k = 0; k < 30; ++k) {
    HR_ASSERT(out[k] == (float)(100 * (k / 15) + 10 * (k / 5 % 3) + k % 5));
  }
  HR_ASSERT_ERROR(hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&y)}, (int64_t[]){5, -3, 2}, NULL),
                  HR_STATUS_INVALID_ARGUMENT, "threads (5, -3, 2)");
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

static const char sum_source[] =
    "kernel void add(in float *a, in float *b, inout float *c) { c[i] += a[i] - 2 * b[i]; }";

/* Transposed, expanded and overlapping views: kernels see dense operands with the values from before. */
HR_TEST(operands_of_any_form) {
  enum { N = 7 };
  fixture f = open_fixture();
  const hr_module *module = compile(&f, sum_source);
  float values[N * N], row[N], out[N * N];
  fill(values, N * N);
  fill(row, N);
  tensor c = make(&f, N, N, values), r = make(&f, 1, N, row);
  tensor transposed = {.buffer = c.buffer, .dims = {N, N}, .strides = {1, N}};
  tensor spread = {.buffer = r.buffer, .dims = {N, N}, .strides = {0, 1}};
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&transposed), view_of(&spread), view_of(&c)},
                                NULL, NULL));
  read_back(&f, &c, out);
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; ++j) {
      HR_ASSERT(out[i * N + j] == values[i * N + j] + (values[j * N + i] - 2 * row[j]));
    }
  }
  /* the updated operand in another order than its memory, beside itself */
  HR_ASSERT_OK(
      hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&c), view_of(&c), view_of(&transposed)}, NULL, NULL));
  float again[N * N];
  read_back(&f, &c, again);
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; ++j) {
      HR_ASSERT(again[j * N + i] == out[j * N + i] + (out[i * N + j] - 2 * out[i * N + j]));
    }
  }
  hr_buffer_release(c.buffer);
  hr_buffer_release(r.buffer);
  close_fixture(&f);
}

HR_TEST(empty_and_single_elements) {
  fixture f = open_fixture();
  const hr_module *module = compile(&f, softshrink);
  hr_scalar l = hr_scalar_i64(1);
  float three = 3, out;
  tensor x = make(&f, 1, 1, &three), y = make(&f, 1, 1, NULL);
  hr_view vx = view_of(&x), vy = view_of(&y);
  vx.rank = vy.rank = 0;
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){vx, vy, number(&l)}, NULL, NULL));
  read_back(&f, &y, &out);
  HR_ASSERT(out == 2);
  vx = view_of(&x), vy = view_of(&y);
  const int64_t none[2] = {0, 5};
  vx.dims = vy.dims = none;
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){vx, vy, number(&l)}, NULL, NULL));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

HR_TEST(arguments_are_checked) {
  static const char two[] = "kernel void two(out float *y, out float *z, uint8_t n, half h) {\n"
                            "  y[i] = n; z[i] = to_float(h);\n}\n";
  fixture f = open_fixture();
  const hr_module *module = compile(&f, two);
  tensor y = make(&f, 2, 3, NULL), z = make(&f, 2, 3, NULL);
  hr_scalar n = hr_scalar_i64(200), large = hr_scalar_i64(256), part = hr_scalar_f64(0.5);
  hr_view vy = view_of(&y), vz = view_of(&z), wrong = view_of(&z);
  float out[6];
  wrong.dtype = HR_DTYPE_I32;
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){vy, vz, number(&n), number(&part)}, NULL, NULL));
  read_back(&f, &y, out);
  HR_ASSERT(out[5] == 200);
  read_back(&f, &z, out);
  HR_ASSERT(out[5] == 0.5f);
  struct {
    hr_view arguments[4];
    const char *message;
  } bad[] = {
      {{vy, wrong, number(&n), number(&part)},
       "kernel two, parameter z: expected a tensor of f32, found a tensor of i32"},
      {{vy, number(&n), number(&n), number(&part)}, "parameter z: expected a tensor of f32, found a number"},
      {{vy, vz, vz, number(&part)}, "parameter n: expected a number of type uint8_t, found a tensor"},
      {{vy, vz, number(&large), number(&part)}, "parameter n: expected a number of type uint8_t, found 256"},
      {{vy, vz, number(&part), number(&part)}, "parameter n: expected a number of type uint8_t, found 0.5"},
      {{vy, vy, number(&n), number(&part)}, "kernel two: outputs y and z share memory"},
  };
  for (size_t k = 0; k < sizeof bad / sizeof *bad; ++k) {
    HR_ASSERT_ERROR(hr_module_record(f.stream, module, 0, bad[k].arguments, NULL, NULL), HR_STATUS_INVALID_ARGUMENT,
                    bad[k].message);
  }
  wrong = vz, wrong.offset = 1;
  HR_ASSERT_ERROR(hr_module_record(f.stream, module, 0, (hr_view[]){vy, wrong, number(&n), number(&part)}, NULL, NULL),
                  HR_STATUS_INVALID_ARGUMENT, "reaches elements 1 to 6");
  hr_buffer_release(y.buffer);
  hr_buffer_release(z.buffer);
  close_fixture(&f);
}

/* Forty parameters; the limit of 48 is the parser's. */
HR_TEST(many_parameters) {
  enum { MANY = 40 };
  fixture f = open_fixture();
  hr_text source = {0};
  hr_text_append(&source, "kernel void many(out float *y");
  for (int k = 0; k < MANY - 1; ++k) {
    hr_text_printf(&source, ", in float *x%d", k);
  }
  hr_text_append(&source, ") { y[i] = 0");
  for (int k = 0; k < MANY - 1; ++k) {
    hr_text_printf(&source, " + %d * x%d[i]", k, k);
  }
  hr_text_append(&source, "; }");
  const hr_module *module = compile(&f, hr_text_chars(&source));
  float values[4] = {1, 2, 3, 4}, out[4];
  tensor x = make(&f, 1, 4, values), y = make(&f, 1, 4, NULL);
  hr_view arguments[MANY] = {view_of(&y)};
  for (int k = 1; k < MANY; ++k) {
    arguments[k] = view_of(&x);
  }
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, arguments, NULL, NULL));
  read_back(&f, &y, out);
  HR_ASSERT(out[3] == 4 * (float)(38 * 39 / 2));
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_text_fini(&source);
  close_fixture(&f);
}

/* ---- functions of the host ---- */

typedef struct counted {
  int calls, released;
} counted;

static hr_status double_elements(const hr_function_call *call) {
  counted *c = call->arg;
  for (int i = 0; call->input_count == 1 && call->output_count == 1 && i < 4; ++i) {
    ((float *)call->outputs[0])[i] = 2 * ((const float *)call->inputs[0])[i];
  }
  return ++c->calls != 3 ? HR_OK : hr_status_make(HR_STATUS_ABORTED, "the third call");
}

static void count_release(void *arg) {
  ++((counted *)arg)->released;
}

static hr_function_spec spec_of(hr_function_run run, counted *c) {
  return (hr_function_spec){.name = "double_elements", .run = run, .arg = c, .release = count_release};
}

/* Each call has an argument of its own and the program of the one before; its failure is the program's, and later work
 * goes on. */
HR_TEST(functions_are_nodes) {
  fixture f = open_fixture();
  counted c = {0, 0};
  float values[4] = {1, 2, 3, 4}, out[4];
  tensor x = make(&f, 1, 4, values);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  for (int k = 1; k <= 4; ++k) {
    hr_stats before, after;
    tensor a = make(&f, 1, 4, NULL), y = make(&f, 1, 4, NULL);
    hr_view vx = view_of(&x), va = view_of(&a), vy = view_of(&y);
    hr_scalar one = hr_scalar_f64(1);
    hr_stream_stats(f.stream, &before);
    const hr_function_spec spec = spec_of(double_elements, &c);
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &vx, 1, &va));
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){va, number(&one)}, 1, &vy));
    hr_buffer_release(a.buffer);
    if (k == 3) {
      HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_ABORTED, "double_elements: the third call");
    } else {
      read_back(&f, &y, out);
      HR_ASSERT(out[0] == 3 && out[3] == 9);
    }
    hr_stream_stats(f.stream, &after);
    HR_ASSERT_EQ(after.commits - before.commits, 1);
    HR_ASSERT_EQ(after.compiles - before.compiles, k == 1);
    HR_ASSERT_EQ(c.calls, k);
    HR_ASSERT_EQ(c.released, k);
    hr_buffer_release(y.buffer);
  }
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

static hr_status note_order(const hr_function_call *call) {
  counted *c = call->arg;
  float *sum = call->outputs[0];
  c->calls += sum[0] == (float)c->calls;
  ++sum[0];
  return HR_OK;
}

static hr_status note_call(const hr_function_call *call) {
  ++((counted *)call->arg)->calls;
  return HR_OK;
}

/* Updated outputs keep their contents; calls without readers and without operands run, in order. */
HR_TEST(functions_update_and_have_effects) {
  fixture f = open_fixture();
  counted c = {0, 0}, alone = {0, 0};
  float values[2] = {0, 7}, out[2];
  tensor x = make(&f, 1, 2, values);
  hr_function_spec spec = spec_of(note_order, &c), nothing = spec_of(note_call, &alone);
  hr_view vx = view_of(&x);
  spec.updated_count = 1;
  for (int k = 0; k < 3; ++k) {
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 1, &vx));
    HR_ASSERT_OK(hr_function_record(f.stream, &nothing, 0, NULL, 0, NULL));
  }
  HR_ASSERT_EQ(c.calls + alone.calls, 0);
  read_back(&f, &x, out);
  HR_ASSERT(out[0] == 3 && out[1] == 7);
  HR_ASSERT_EQ(c.calls, 3);
  HR_ASSERT_EQ(alone.calls, 3);
  HR_ASSERT_EQ(c.released + alone.released, 6);
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

static hr_status fail(const hr_function_call *call) {
  (void)call;
  return hr_status_make(HR_STATUS_ABORTED, "always");
}

/* Older memory has the stores recorded before the call, and none of those after it, though all could run at once. */
HR_TEST(functions_that_fail_leave_later_stores_undone) {
  fixture f = open_fixture();
  for (int is_short = 0; is_short < 2; ++is_short) {
    counted c = {0, 0};
    float values[2] = {1, 5}, out[2];
    tensor x = make(&f, 1, 2, values);
    hr_view vx = view_of(&x), inputs[2] = {vx, vx};
    hr_function_spec spec = spec_of(fail, &c);
    spec.is_short = is_short != 0;
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, inputs, 1, &vx));
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 0, NULL));
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_MUL, NULL, 2, inputs, 1, &vx));
    HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_ABORTED, "always");
    read_back(&f, &x, out);
    HR_ASSERT(out[0] == 2 && out[1] == 10);
    hr_buffer_release(x.buffer);
  }
  close_fixture(&f);
}

static hr_status fail_later(const hr_function_call *call) {
  return ++((counted *)call->arg)->calls <= 3 ? HR_OK : hr_status_make(HR_STATUS_ABORTED, "the fourth call");
}

/* A short program that fails on the thread that waits does not run again. */
HR_TEST(short_functions_that_fail_run_once) {
  fixture f = open_fixture();
  counted c = {0, 0};
  float values[2] = {1, 5}, out[2];
  tensor x = make(&f, 1, 2, values);
  hr_view vx = view_of(&x), inputs[2] = {vx, vx};
  hr_function_spec spec = spec_of(fail_later, &c);
  spec.is_short = true;
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  for (int k = 0; k < 4; ++k) {
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, inputs, 1, &vx));
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 0, NULL));
    bool is_finished = hr_stream_finish_short(f.stream);
    HR_ASSERT(k != 2 || is_finished);
    if (k < 3) {
      HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    } else {
      HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_ABORTED, "the fourth call");
    }
  }
  HR_ASSERT_EQ(c.calls, 4);
  read_back(&f, &x, out);
  HR_ASSERT(out[0] == 16 && out[1] == 80);
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

static atomic_bool goes_on;

static hr_status wait_for_the_caller(const hr_function_call *call) {
  (void)call;
  const int64_t end = hr_clock_ns() + INT64_C(20) * 1000 * 1000 * 1000;
  while (!atomic_load(&goes_on) && hr_clock_ns() < end) {
    hr_thread_relax();
  }
  return atomic_load(&goes_on) ? HR_OK : hr_status_make(HR_STATUS_ABORTED, "the caller waits");
}

/* They may wait for the thread that finishes work soon. */
HR_TEST(functions_are_not_waited_for_where_work_is_finished_soon) {
  fixture f = open_fixture();
  counted c = {0, 0};
  tensor x = make(&f, 1, 2, (float[]){1, 2});
  hr_view vx = view_of(&x);
  hr_function_spec spec = spec_of(wait_for_the_caller, &c);
  spec.updated_count = 1;
  for (int k = 0; k < 6; ++k) {
    spec.is_late = k % 2 == 0;
    atomic_store(&goes_on, false);
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 1, &vx));
    HR_ASSERT(!hr_stream_finish_soon(f.stream));
    atomic_store(&goes_on, true);
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  }
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

/* One argument for both: the order of the calls is that of the records. */
HR_TEST(late_functions_run_in_front_of_their_readers) {
  fixture f = open_fixture();
  counted c = {0, 0};
  float zeros[2] = {0, 7}, ones[2] = {1, 5}, out[2];
  tensor x = make(&f, 1, 2, zeros), y = make(&f, 1, 2, ones), z = make(&f, 1, 2, NULL);
  hr_view vx = view_of(&x), vy = view_of(&y), vz = view_of(&z);
  hr_scalar ten = hr_scalar_f64(10);
  hr_function_spec spec = spec_of(note_order, &c);
  spec.updated_count = 1, spec.is_late = true;
  HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 1, &vx)); /* x: 1 */
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vy, number(&ten)}, 1, &vz));
  HR_ASSERT_OK(hr_function_record(f.stream, &spec, 0, NULL, 1, &vy)); /* y: 2 */
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vz, vx}, 1, &vz));
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vx, vy}, 1, &vx));
  read_back(&f, &z, out);
  HR_ASSERT(out[0] == 12 && out[1] == 22);
  read_back(&f, &x, out);
  HR_ASSERT(out[0] == 3 && out[1] == 12);
  HR_ASSERT_EQ(c.calls, 2);
  HR_ASSERT_EQ(c.released, 2);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_buffer_release(z.buffer);
  close_fixture(&f);
}

static hr_status look_at_columns(const hr_function_call *call) {
  counted *c = call->arg;
  const float *x = call->inputs[0];
  float *y = call->outputs[0];
  for (int i = 0; i < 6; ++i) {
    y[i] = x[i] + 10;
  }
  ++c->calls;
  return HR_OK;
}

/* A transposed input and a transposed output are row-major for the function; an output that is an input, too. */
HR_TEST(functions_get_dense_operands) {
  fixture f = open_fixture();
  counted c = {0, 0};
  float values[6] = {0, 1, 2, 3, 4, 5}, out[6];
  tensor x = make(&f, 2, 3, values), y = make(&f, 2, 3, NULL);
  static const int64_t dims[2] = {3, 2}, strides[2] = {1, 3};
  hr_view vx = view_of(&x), vy = view_of(&y), whole = view_of(&x);
  vx.dims = vy.dims = dims, vx.strides = vy.strides = strides;
  const hr_function_spec spec = spec_of(look_at_columns, &c);
  HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &vx, 1, &vy));
  HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &whole, 1, &whole));
  read_back(&f, &y, out);
  for (int i = 0; i < 6; ++i) {
    HR_ASSERT(out[i] == (float)i + 10);
  }
  read_back(&f, &x, out);
  HR_ASSERT(out[0] == 10 && out[5] == 15);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

HR_TEST(function_arguments_are_checked) {
  fixture f = open_fixture();
  counted c = {0, 0};
  float values[4] = {1, 2, 3, 4};
  tensor x = make(&f, 1, 4, values);
  hr_view vx = view_of(&x), none = {0}, far = vx;
  far.offset = 1;
  hr_function_spec spec = spec_of(note_call, &c), empty = {.run = NULL};
  HR_ASSERT_ERROR(hr_function_record(f.stream, &spec, 1, &none, 1, &vx), HR_STATUS_INVALID_ARGUMENT,
                  "double_elements: input 0: expected a buffer, found none");
  HR_ASSERT_ERROR(hr_function_record(f.stream, &spec, 1, &far, 1, &vx), HR_STATUS_OUT_OF_RANGE,
                  "double_elements: input 0: elements 1 to 4 of a buffer that holds 4");
  HR_ASSERT_ERROR(hr_function_record(f.stream, &spec, 0, NULL, 2, (hr_view[]){vx, vx}), HR_STATUS_INVALID_ARGUMENT,
                  "outputs 0 and 1 share memory");
  HR_ASSERT_ERROR(hr_function_record(f.stream, &spec, 48, &vx, 1, &vx), HR_STATUS_INVALID_ARGUMENT,
                  "48 inputs and 1 outputs: expected at most 48 operands");
  spec.updated_count = 2;
  HR_ASSERT_ERROR(hr_function_record(f.stream, &spec, 0, NULL, 1, &vx), HR_STATUS_INVALID_ARGUMENT,
                  "2 updated outputs: expected 0 to 1");
  HR_ASSERT_ERROR(hr_function_record(f.stream, &empty, 0, NULL, 1, &vx), HR_STATUS_INVALID_ARGUMENT, "NULL argument");
  HR_ASSERT_EQ(c.released, 5);
  HR_ASSERT_EQ(c.calls, 0);
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

/* ---- names in profiles ---- */

typedef struct seen_names {
  bool kernel, function, recorded;
} seen_names;

static void see_name(void *arg, const hr_profile_record *record) {
  seen_names *seen = arg;
  bool is_launch = record->kind == HR_PROFILE_LIBRARY || record->kind == HR_PROFILE_KERNEL;
  seen->kernel |= is_launch && strncmp(record->name, "softshrink", 10) == 0;
  seen->function |= is_launch && strncmp(record->name, "double_elements", 15) == 0;
  for (int i = 0; is_launch && i < record->operation_count; ++i) {
    seen->recorded |= strcmp(record->operation_names[i], "double_elements") == 0;
  }
}

HR_TEST(profiles_name_kernels_and_functions) {
  fixture f = open_fixture();
  const hr_module *module = compile(&f, softshrink);
  counted c = {0, 0};
  float values[4] = {1, 2, 3, 4};
  tensor x = make(&f, 1, 4, values), y = make(&f, 1, 4, NULL), z = make(&f, 1, 4, NULL);
  hr_view vx = view_of(&x), vy = view_of(&y), vz = view_of(&z);
  hr_scalar l = hr_scalar_f64(0.5);
  const hr_function_spec spec = spec_of(double_elements, &c);
  hr_profile *profile;
  seen_names seen = {0};
  HR_ASSERT_OK(hr_profile_create(f.device, 0, 0, &profile));
  HR_ASSERT_OK(hr_profile_start(profile));
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){vx, vy, number(&l)}, NULL, NULL));
  HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &vy, 1, &vz));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_OK(hr_profile_stop(profile));
  HR_ASSERT_OK(hr_profile_read(profile, sizeof(hr_profile_record), see_name, &seen));
  hr_profile_release(profile);
  HR_ASSERT(seen.kernel && seen.function && seen.recorded);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_buffer_release(z.buffer);
  close_fixture(&f);
}

/* ---- sources that are refused ---- */

static void refuse(const char *source, const char *part) {
  fixture f = open_fixture();
  const hr_module *module = NULL;
  HR_ASSERT_ERROR(hr_module_create(f.device, source, strlen(source), &module), HR_STATUS_INVALID_ARGUMENT, part);
  HR_ASSERT(module == NULL);
  close_fixture(&f);
}

HR_TEST(sources_that_are_no_kernels) {
  refuse("", "line 1: a kernel");
  refuse("int x;\n", "line 2: a kernel");
  refuse("kernel int f(out float *y) {}", "line 1: expected void, found 'int'");
  refuse("kernel void f() {}", "expected a type");
  refuse("\nkernel void f(out float *y,\n in quux *x) {}", "line 3: expected a type (float, double");
  refuse("kernel void f(in float *y) {}", "expected an operand declared out or inout in kernel, found 'f'");
  refuse("kernel void f(float *y) {}", "expected in, out or inout in front of a pointer, found 'y'");
  refuse("kernel void f(out float y) {}", "expected a pointer after in, out or inout");
  refuse("kernel void f(out float *y, float y) {}", "expected a name of its own");
  refuse("kernel void f(out float *i) {}", "expected a name of its own (i is the number of the thread)");
  refuse("kernel void f(out float *y) {}\nkernel void f(out float *y) {}", "line 2: expected a new name of a kernel");
  refuse("kernel void f(out float *y) {\n", "a '{' is not closed");
  refuse("kernel void f(out float *y) { } }", "'}' without '{'");
  refuse("kernel void f(out float *y) { /* }", "the comment does not end");
  refuse("kernel void f(out float *y) { \"}", "the quotation does not end");
  refuse("kernel void f(out float *y);", "expected '{', found ';'");
}

/* A file is not read, in whatever form C allows to ask for it. */
HR_TEST(sources_that_include_files) {
  static const char *const forms[] = {
      "# include <stdio.h>",     "%:include <stdio.h>",      "#\\\ninclude <stdio.h>",       "#inc\\ \nlude <stdio.h>",
      "#/* */include <stdio.h>", "/* */ #include <stdio.h>", "#include_next <stdio.h>",      "#import <stdio.h>",
      "#embed <stdio.h>",        "\v\f#include <stdio.h>",   "#define A \\\n B\n#include A", "/*\n*/#include <stdio.h>",
  };
  for (size_t f = 0; f < sizeof forms / sizeof *forms; ++f) {
    hr_text source = {0};
    hr_text_printf(&source, "%s\nkernel void f(out float *y) {}", forms[f]);
    refuse(hr_text_chars(&source), "kernels include no files");
    hr_text_fini(&source);
  }
}

/* The compiler's messages have the source's lines. */
HR_TEST(sources_that_do_not_compile) {
  refuse("kernel void f(out float *y,\n              float l) {\n  y[i] = l +;\n}\n", "source:3:");
  refuse("kernel void f(out float *y) {\n  y[i] = \n    unknown(i);\n}\n", "source:3:");
  refuse("// one\nkernel void f(in float *x, out float *y) {\n  x[i] = 1;\n}\n", "source:3:");
  refuse("kernel void f(out float *y) { y[i] = z; }\n", "source:1:");
  refuse("kernel void f(out float *y) { y[i] = ((((1; }", "source:1:");
}

/* Quotes and comments that look like code, and names of the texts, are the source's own affair. */
HR_TEST(sources_that_look_odd) {
  fixture f = open_fixture();
  (void)compile(&f, "// } kernel void g(\n/* \" */ static const char text[] = \"} kernel \\\" {\";\n"
                    "#define VALUE \\\n  1.5f // }\n// } \\\n }\n"
                    "kernel void odd(out float *y) { const char c = '}'; y[i] = c == text[0] ? VALUE : 0; }");
  close_fixture(&f);
}

/* ---- guards ---- */

HR_TEST(writes_next_to_an_output_are_found) {
  static const char source[] = "kernel void spill(inout float *y, int at) { y[i] += 1; if (i == 0) { y[at] = 7; } }";
  setenv("HEADRACE_GUARDS", "on", 1);
  hr__env_reload();
  fixture f = open_fixture();
  const hr_module *module = compile(&f, source);
  float values[4] = {1, 2, 3, 4}, out[4];
  static const struct {
    int at;
    const char *message;
  } cases[] = {{4, "kernel spill writes element 4 of its output y, which has 4 elements"},
               {9, "writes element 9 of"},
               {-2, "writes element -2 of"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
    tensor y = make(&f, 1, 4, values);
    hr_scalar at = hr_scalar_i64(cases[k].at);
    HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&y), number(&at)}, NULL, NULL));
    HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, cases[k].message);
    hr_buffer_release(y.buffer);
  }
  tensor y = make(&f, 1, 4, values);
  hr_scalar at = hr_scalar_i64(0);
  HR_ASSERT_OK(hr_module_record(f.stream, module, 0, (hr_view[]){view_of(&y), number(&at)}, NULL, NULL));
  read_back(&f, &y, out);
  HR_ASSERT(out[0] == 7 && out[3] == 5);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
  unsetenv("HEADRACE_GUARDS");
  hr__env_reload();
}

/* ---- compilers ---- */

/* In a context of its own, which has not found a compiler yet. */
static void with_compiler(const char *path, hr_status_code code, const char *part) {
  hr_context *context;
  setenv("HEADRACE_CC", path, 1);
  setenv("HEADRACE_CC_SECONDS", "1", 1);
  HR_ASSERT_OK(hr__context_create(&context));
  hr_context *before = hr__context_enter(context);
  fixture f = open_fixture();
  const hr_module *module = NULL;
  HR_ASSERT_ERROR(hr_module_create(f.device, softshrink, strlen(softshrink), &module), code, part);
  close_fixture(&f);
  (void)hr__context_enter(before);
  hr__context_destroy(context);
  unsetenv("HEADRACE_CC");
  unsetenv("HEADRACE_CC_SECONDS");
}

HR_TEST(compilers_that_fail) {
  char path[] = "/tmp/hr_module_testXXXXXX";
  int file = mkstemp(path);
  static const char hang[] = "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\nsleep 60\n";
  HR_ASSERT(file >= 0 && write(file, hang, sizeof hang - 1) == (ssize_t)(sizeof hang - 1));
  HR_ASSERT(fchmod(file, 0700) == 0 && close(file) == 0);
  with_compiler(path, HR_STATUS_DEADLINE_EXCEEDED, "was killed after 1.0 s");
  with_compiler("/nowhere/cc", HR_STATUS_UNAVAILABLE, "kernels in C need a compiler: no compiler \"/nowhere/cc\"");
  with_compiler("/bin/false", HR_STATUS_UNAVAILABLE, "kernels in C need a compiler");
  unlink(path);
}

/* ---- a GPU ---- */

static hr_status note_queue(const hr_function_call *call) {
  ((counted *)call->arg)->calls += call->queue != NULL && call->inputs[0] != NULL && call->outputs[0] != NULL;
  return HR_OK;
}

/* The same program again and again: a graph of it would leave calls out. */
static void functions_run_on_a_gpu(void) {
  fixture f = open_fixture();
  counted c = {0, 0};
  tensor x = make(&f, 1, 4, (float[4]){1, 2, 3, 4}), y = make(&f, 1, 4, (float[4]){0});
  hr_view vx = view_of(&x), vy = view_of(&y);
  hr_function_spec spec = spec_of(note_queue, &c);
  spec.updated_count = 1;
  for (int k = 1; k <= 10; ++k) {
    for (int i = 0; i < 4; ++i) {
      HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vx, vy}, 1, &vy));
      HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &vx, 1, &vy));
    }
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    HR_ASSERT_EQ(c.calls, 4 * k);
  }
  float out[4];
  read_back(&f, &y, out);
  HR_ASSERT(out[0] == 40 && out[3] == 160);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

/* Its operands are in the host's memory on a GPU, too. */
static void functions_compute_beside_a_gpu(void) {
  fixture f = open_fixture();
  counted c = {0, 0};
  tensor x = make(&f, 1, 4, (float[4]){1, 2, 3, 4}), y = make(&f, 1, 4, NULL);
  hr_view vx = view_of(&x), vy = view_of(&y);
  hr_function_spec spec = spec_of(double_elements, &c);
  spec.is_on_host = true;
  for (int k = 1; k <= 2; ++k) {
    float out[4];
    HR_ASSERT_OK(hr_function_record(f.stream, &spec, 1, &vx, 1, &vy));
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){vx, vy}, 1, &vx));
    read_back(&f, &x, out);
    HR_ASSERT_EQ(c.calls, k);
    HR_ASSERT(out[0] == (k == 1 ? 3.0f : 9.0f) && out[3] == (k == 1 ? 12.0f : 36.0f));
  }
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

HR_TEST(kernels_run_on_a_gpu) { /* the last one: it changes the device */
  hr_device *device = NULL;
  hr_status status = hr_device_open("cuda", &device);
  if (status != HR_OK) {
    hr_status_free(status);
    HR_SKIP("no CUDA device");
  }
  hr_device_release(device);
  device_name = "cuda";
  a_kernel_runs_between_its_neighbours();
  a_source_is_compiled_once();
  kernels_have_math_and_rows();
  grids_have_three_dims();
  operands_of_any_form();
  empty_and_single_elements();
  arguments_are_checked();
  many_parameters();
  functions_run_on_a_gpu();
  functions_compute_beside_a_gpu();
  refuse("kernel void f(out float *y) {\n  y[i] = unknown(i);\n}\n", "source(2)");
}
