/* loop_test.c: loops that are one operation (graph_evaluate_loop.c) have the bits of their recorded iterations.
 *
 * Random bodies run in a session, and iteration for iteration on the stream. HEADRACE_TEST_PROGRAMS sets their number
 * (default 60), HEADRACE_TEST_SEED the first seed.
 */
#include <stdio.h>

#include "base/env.h"
#include "base/thread.h"
#include "headrace/array.h"
#include "session/session_test.h"

enum { TEXT = 1 << 14, RESULTS_MAX = 8, VALUES_MAX = 32 };

typedef struct body {
  char *text; /* of TEXT bytes */
  size_t length;
  uint64_t seed;
  int names;
  char floats[VALUES_MAX][12]; /* values f32[n] */
  int float_count;
} body;

static int pick(body *b, int count) {
  b->seed = b->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((b->seed >> 33) % (uint64_t)count);
}

#define WRITE(b, ...) ((b)->length += (size_t)snprintf((b)->text + (b)->length, TEXT - (b)->length, __VA_ARGS__))

static const char *any(body *b) {
  return b->floats[pick(b, b->float_count)];
}

static void add_float(body *b, const char *name) {
  char *to = b->floats[b->float_count++];
  memcpy(to, name, strlen(name) + 1);
}

/* A statement whose result is f32[n]. */
static void add_statement(body *b) {
  static const char *const binary[] = {"add", "subtract", "multiply", "maximum", "minimum", "divide"};
  static const char *const unary[] = {"tanh", "sigmoid", "abs", "negative", "sin", "floor"};
  int n = b->names++;
  switch (pick(b, 11)) {
    case 0:
    case 1:
      WRITE(b, "%%t%d = %s(%s, %s)\n", n, binary[pick(b, 6)], any(b), any(b));
      break;
    case 2:
      WRITE(b, "%%t%d = %s(%s)\n", n, unary[pick(b, 6)], any(b));
      break;
    case 3:
      WRITE(b, "%%u%d = sum(%s)\n%%t%d = multiply(%s, %%u%d)\n", n, any(b), n, any(b), n);
      break;
    case 4:
      WRITE(b, "%%t%d = matmul(%%m, %s)\n", n, any(b));
      break;
    case 5:
      WRITE(b, "%%u%d = less(%s, %s)\n%%t%d = where(%%u%d, %s, %s)\n", n, any(b), any(b), n, n, any(b), any(b));
      break;
    case 6:
      WRITE(b, "%%t%d = flip(%s, axis=[0])\n", n, any(b));
      break;
    case 7:
      WRITE(b, "%%u%d = astype(%s, dtype=%s)\n%%t%d = astype(%%u%d, dtype=f32)\n", n, any(b),
            pick(b, 2) == 0 ? "bf16" : "f64", n, n);
      break;
    default:
      WRITE(b,
            "%%u%d = multiply(%%j, 3)\n%%v%d = remainder(%%u%d, 11)\n%%w%d = reshape(%%v%d, shape=[1])\n"
            "%%s%d = slice(%s, begin=[0], count=[2], step=[1])\n%%t%d = dynamic_slice_update(%s, %%s%d, %%w%d)\n",
            n, n, n, n, n, n, any(b), n, any(b), n, n);
      break;
  }
  char name[12];
  snprintf(name, sizeof name, "%%t%d", n);
  add_float(b, name);
}

/* Two branches, and the body of an inner loop. */
static const char inner[] = "function @0 {\ninput %a f32[n]\ninput %b f32[n]\n%s = add(%a, %b)\noutput s = %s\n}\n"
                            "function @1 {\ninput %a f32[n]\ninput %b f32[n]\n%s = multiply(%a, %b)\noutput s = %s\n}\n"
                            "function @2 {\ninput %i i64[]\ninput %a f32[n]\ninput %b f32[n]\n%s = add(%a, %b)\n"
                            "%u = sum(%s)\n%t = sin(%u)\n%r = multiply(%s, %t)\noutput r = %r\n}\n";

/* Inputs of both functions: a counter, two carried values, a long result that the body updates, then what stays. */
#define INPUTS "input %%i i64[]\ninput %%a f32[n]\ninput %%b f32[n]\ninput %%y f32[20, n]\ninput %%q f32[n, 2]\n"
#define STAYS "input %%c f32[n]\ninput %%m f32[n, n]\n"

static void write_body(body *b, bool is_scan) {
  WRITE(b, "function @3 {\n" INPUTS "%s" STAYS "%%j = add(%%i, 1)\n", is_scan ? "input %x f32[n]\n" : "");
  add_float(b, "%a"), add_float(b, "%b"), add_float(b, "%c");
  if (is_scan) {
    add_float(b, "%x");
  }
  for (int k = 0, count = 1 + pick(b, 8); k < count; ++k) {
    add_statement(b);
  }
  WRITE(b, "%%r = reshape(%s, shape=[1, n])\n%%z = reshape(%%i, shape=[1])\n%%k = concat(%%z, %%zero)\n", any(b));
  WRITE(b, "%%l = dynamic_slice_update(%%y, %%r, %%k)\n%%qs = stack(%s, %s)\n%%qq = swapaxes(%%qs)\n", any(b), any(b));
  WRITE(b, "output j = %%j\noutput a = %s\noutput b = %s\noutput y = %%l\noutput q = %%qq\n", any(b), any(b));
  if (is_scan) {
    WRITE(b, "output s = %s\n", any(b));
  }
  WRITE(b, "}\n");
}

/* The text of a graph with one loop of `count` iterations; returns the number of outputs. */
static int write_graph(body *b, uint64_t seed, int count) {
  static char storage[TEXT];
  *b = (body){.text = storage, .seed = seed * 7919 + 1};
  bool is_scan = pick(b, 2) == 0;
  WRITE(b, "graph 2\n%s", inner);
  write_body(b, is_scan);
  char *zero = strstr(b->text, "%j = add(%i");
  char rest[TEXT];
  snprintf(rest, sizeof rest, "%s", zero);
  b->length = (size_t)(zero - b->text);
  WRITE(b, "constant %%zero i64[1] = [0]\n%s", rest);
  if (!is_scan) {
    WRITE(b, "function @4 {\n" INPUTS STAYS "%%d = less(%%i, %d)\noutput d = %%d\n}\n", count);
  }
  WRITE(b,
        "input %%a f32[n]\ninput %%b f32[n]\ninput %%y f32[20, n]\ninput %%q f32[n, 2]\ninput %%x f32[t, n]\n" STAYS
        "constant %%i i64[] = [0]\n%%0, %%1, %%2, %%3, %%4%s = %s, %%i, %%a, %%b, %%y, %%q%s, %%c, %%m, carried=5%s)\n",
        is_scan ? ", %5" : "", is_scan ? "scan(@3" : "while(@3, @4", is_scan ? ", %x" : "",
        is_scan ? ", sequences=1" : "");
  WRITE(b, "output i = %%0\noutput a = %%1\noutput b = %%2\noutput y = %%3\noutput q = %%4\n%s",
        is_scan ? "output s = %5\n" : "");
  return is_scan ? 6 : 5;
}

static hr_tensor random_of(body *b, int rank, const int64_t *dims) {
  float values[1 << 10];
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  HR_ASSERT(count <= (int64_t)(sizeof values / sizeof *values));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = (float)(pick(b, 2001) - 1000) / 700.0f;
  }
  return tensor_of(HR_DTYPE_F32, rank, dims, values);
}

/* Bytes of NaN may differ. */
static void expect_same(const hr_tensor *x, const hr_tensor *y, const char *text) {
  HR_ASSERT_EQ(x->dtype, y->dtype);
  HR_ASSERT_EQ(x->rank, y->rank);
  size_t count = (size_t)hr_tensor_count(x), size = hr_dtype_size(x->dtype);
  char *a = malloc(count * size + 1), *b = malloc(count * size + 1);
  HR_ASSERT_OK(hr_array_read(stream, x, a));
  HR_ASSERT_OK(hr_array_read(stream, y, b));
  for (size_t i = 0; i < count; ++i) {
    float p = 0, q = 0;
    if (x->dtype == HR_DTYPE_F32) {
      memcpy(&p, a + i * size, size), memcpy(&q, b + i * size, size);
    }
    if (memcmp(a + i * size, b + i * size, size) != 0 && !(p != p && q != q)) {
      printf("element %zu: %a and %a of\n%s\n", i, (double)p, (double)q, text);
      HR_ASSERT(false);
    }
  }
  free(a), free(b);
}

static void check_graph(uint64_t seed, int count) {
  static body b;
  int results = write_graph(&b, seed, count), n = 3 + (int)(seed % 5) * 3;
  hr_tensor inputs[7] = {random_of(&b, DIMS(n)),    random_of(&b, DIMS(n)),        random_of(&b, DIMS(20, n)),
                         random_of(&b, DIMS(n, 2)), random_of(&b, DIMS(count, n)), random_of(&b, DIMS(n)),
                         random_of(&b, DIMS(n, n))};
  const hr_tensor *places[7];
  hr_tensor expected[RESULTS_MAX], out[RESULTS_MAX];
  hr_graph *g = graph_of(b.text);
  hr_session *session = session_of(g, NULL);
  for (int i = 0; i < 7; ++i) {
    places[i] = &inputs[i];
  }
  HR_ASSERT_OK(hr_graph_apply(g, stream, 7, places, results, expected));
  for (int run = 0; run < 3; ++run) {
    hr_thread_count_set(run % 2 + 1);
    HR_ASSERT_OK(hr_session_run(session, 7, places, results, out));
    for (int i = 0; i < results; ++i) {
      expect_same(&expected[i], &out[i], b.text);
      hr_tensor_release(&out[i]);
    }
  }
  hr_thread_count_set(0);
  HR_ASSERT_EQ(stats_of(session).waits, 0);
  HR_ASSERT(stats_of(session).records < count); /* the loop is one */
  for (int i = 0; i < 7; ++i) {
    hr_tensor_release(&inputs[i]);
  }
  for (int i = 0; i < results; ++i) {
    hr_tensor_release(&expected[i]);
  }
  hr_session_release(session);
  hr_graph_release(g);
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

HR_TEST(random_bodies_have_the_bits_of_their_iterations) {
  uint64_t first = number_of("HEADRACE_TEST_SEED", 1), programs = number_of("HEADRACE_TEST_PROGRAMS", 60);
  open_stream();
  for (uint64_t seed = first; seed < first + programs; ++seed) {
    check_graph(seed, 16 + (int)(seed % 7));
  }
}

/* The thread that waits runs loops of few iterations itself, and leaves longer ones to another. */
HR_TEST(short_loops_run_in_the_call_that_waits) {
  open_stream();
  for (int count = 50; count <= 5000000; count *= 100000) {
    char text[512];
    snprintf(
        text, sizeof text,
        "graph 2\nfunction @0 {\ninput %%i i64[]\ninput %%x f32[2, 3]\n%%y = multiply(%%x, 0.5)\n%%z = add(%%y, 1)\n"
        "output x = %%z\n}\ninput %%x f32[2, 3]\n%%0 = for(@0, %d, %%x, carried=1)\noutput x = %%0\n",
        count);
    body b = {.seed = 3};
    hr_tensor x = random_of(&b, DIMS(2, 3));
    const hr_tensor *places[1] = {&x};
    hr_graph *g = graph_of(text);
    hr_session *session = session_of(g, NULL);
    bool is_short = false;
    for (int run = 0; run < 4; ++run) {
      hr_tensor out;
      float values[6];
      HR_ASSERT_OK(hr_session_run(session, 1, places, 1, &out));
      is_short = hr_stream_finish_short(stream);
      HR_ASSERT_OK(hr_array_read(stream, &out, values));
      HR_ASSERT_NEAR(values[5], 2, 1e-6);
      hr_tensor_release(&out);
    }
    HR_ASSERT_EQ(is_short, count == 50);
    hr_tensor_release(&x);
    hr_session_release(session);
    hr_graph_release(g);
  }
}

/* ---- bodies whose elements do not depend on each other, which kernels repeat (engine/repeated_steps.h) ---- */

enum { KINDS = 5 };
static const char *const kinds[KINDS] = {"f32", "f64", "bf16", "f16", "i32"};

static void add_pointwise(body *b, const char *kind) {
  static const char *const binary[] = {"add", "subtract", "multiply", "maximum", "minimum"};
  int n = b->names++;
  bool is_float = kind[0] != 'i';
  switch (pick(b, is_float ? 5 : 3)) {
    case 0:
      WRITE(b, "%%u%d = less(%s, %s)\n%%t%d = where(%%u%d, %s, %s)\n", n, any(b), any(b), n, n, any(b), any(b));
      break;
    case 1:
      WRITE(b, "%%t%d = abs(%s)\n", n, any(b));
      break;
    case 2:
      WRITE(b, "%%t%d = %s(%s, %s)\n", n, binary[pick(b, 5)], any(b), any(b));
      break;
    case 3:
      WRITE(b, "%%t%d = tanh(%s)\n", n, any(b));
      break;
    default:
      WRITE(b, "%%t%d = multiply(%s, 0.75)\n", n, any(b));
      break;
  }
  char name[12];
  snprintf(name, sizeof name, "%%t%d", n);
  add_float(b, name);
}

/* A counter and two carried values, of a kind, of any dims. */
static void write_pointwise(body *b, uint64_t seed, const char *kind, const char *dims, int64_t count) {
  static char storage[TEXT];
  *b = (body){.text = storage, .seed = seed * 7919 + 5};
  WRITE(b, "graph 2\nfunction @0 {\ninput %%i i64[]\ninput %%k i64[]\n");
  WRITE(b, "input %%a %s%s\ninput %%b %s%s\ninput %%c %s%s\n%%j = add(%%k, 3)\n", kind, dims, kind, dims, kind, dims);
  add_float(b, "%a"), add_float(b, "%b"), add_float(b, "%c");
  for (int k = 0, statements = 1 + pick(b, 9); k < statements; ++k) {
    add_pointwise(b, kind);
  }
  const char *wave = kind[0] == 'i' ? "negative" : "sin";
  WRITE(b, "%%x = %s(%s)\n%%y = %s(%s)\noutput k = %%j\noutput a = %%x\noutput b = %%y\n}\n", wave, any(b), wave,
        any(b));
  WRITE(b, "input %%p f32%s\ninput %%q f32%s\ninput %%r f32%s\n", dims, dims, dims);
  WRITE(b, "%%a = astype(%%p, dtype=%s)\n%%b = astype(%%q, dtype=%s)\n%%c = astype(%%r, dtype=%s)\n", kind, kind, kind);
  WRITE(b, "constant %%k i64[] = [7]\n%%0, %%1, %%2 = for(@0, %lld, %%k, %%a, %%b, %%c, carried=3)\n",
        (long long)count);
  WRITE(b, "output k = %%0\noutput a = %%1\noutput b = %%2\n");
}

/* Runs of the graph on a stream and in a session have the same results. */
static void check_runs(body *b, hr_tensor *inputs) {
  const hr_tensor *places[3] = {&inputs[0], &inputs[1], &inputs[2]};
  hr_tensor expected[3], out[3];
  hr_graph *g = graph_of(b->text);
  hr_session *session = session_of(g, NULL);
  HR_ASSERT_OK(hr_graph_apply(g, stream, 3, places, 3, expected));
  for (int run = 0; run < 3; ++run) {
    hr_thread_count_set(run % 2 + 1);
    HR_ASSERT_OK(hr_session_run(session, 3, places, 3, out));
    for (int i = 0; i < 3; ++i) {
      expect_same(&expected[i], &out[i], b->text);
      hr_tensor_release(&out[i]);
    }
  }
  hr_thread_count_set(0);
  for (int i = 0; i < 3; ++i) {
    hr_tensor_release(&expected[i]);
    hr_tensor_release(&inputs[i]);
  }
  hr_session_release(session);
  hr_graph_release(g);
}

static void set_jit(const char *jit) {
  setenv("HEADRACE_JIT", jit, 1);
  hr__env_reload();
}

static void check_pointwise(uint64_t seed) {
  static body b;
  set_jit(seed % 8 == 0 ? "wait" : "off");
  int n = 1 + (int)(seed * 37 % 1000);
  write_pointwise(&b, seed, kinds[seed % KINDS],
                  seed % 3 == 0   ? "[]"
                  : seed % 3 == 1 ? "[n]"
                                  : "[1, n]",
                  16 + (int64_t)(seed % 9));
  hr_tensor inputs[3];
  for (int i = 0; i < 3; ++i) {
    inputs[i] = seed % 3 == 0   ? random_of(&b, 0, NULL)
                : seed % 3 == 1 ? random_of(&b, DIMS(n))
                                : random_of(&b, DIMS(1, n));
  }
  check_runs(&b, inputs);
}

HR_TEST(repeated_kernels_have_the_bits_of_iterations) {
  uint64_t first = number_of("HEADRACE_TEST_SEED", 1), programs = number_of("HEADRACE_TEST_PROGRAMS", 40);
  open_stream();
  for (uint64_t seed = first; seed < first + programs; ++seed) {
    check_pointwise(seed);
  }
  check_pointwise(7048); /* its code needs more scratch than the interpreter */
  set_jit("auto");
}

/* More iterations than a call runs. */
HR_TEST(a_million_iterations_of_a_number) {
  open_stream();
  for (int wait = 0; wait < 2; ++wait) {
    set_jit(wait ? "wait" : "off");
    hr_graph *g = graph_of("graph 2\nfunction @0 {\ninput %i i64[]\ninput %k i64[]\ninput %l i64[]\n%j = add(%k, "
                           "3)\n%m = maximum(%l, %k)\n"
                           "output j = %j\noutput m = %m\n}\ninput %k i64[]\ninput %l i64[]\n%0, %1 = for(@0, 1100000, "
                           "%k, %l, carried=2)\n"
                           "output k = %0\noutput l = %1\n");
    int64_t zero = 0;
    hr_tensor k = tensor_of(HR_DTYPE_I64, 0, NULL, &zero), out[2];
    hr_session *session = session_of(g, NULL);
    HR_ASSERT_OK(hr_session_run(session, 2, (const hr_tensor *[]){&k, &k}, 2, out));
    int64_t values[2];
    for (int i = 0; i < 2; ++i) {
      HR_ASSERT_OK(hr_array_read(stream, &out[i], &values[i]));
      hr_tensor_release(&out[i]);
    }
    HR_ASSERT_EQ(values[0], 3300000);
    HR_ASSERT_EQ(values[1], 3300000 - 3);
    hr_tensor_release(&k);
    hr_session_release(session);
    hr_graph_release(g);
  }
  set_jit("auto");
}
