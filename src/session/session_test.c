/* Sessions: instances by dims, and random graphs against the same calls on a stream. */
#include "session/session_test.h"

#include "base/env.h"
#include "base/log.h"
#include "headrace/array.h"
#include "headrace/transform.h"

static const float weights[12] = {1, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, -12};

/* x [n, 3] times w [3, 4], of which the negative elements are 0 */
static hr_graph *layer(void) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), w = constant_of(g, HR_DTYPE_F32, "3 4", weights);
  hr_graph_output(g, "y", ADD(g, RELU, VALUES(ADD(g, MATMUL, VALUES(x, w), 0, NULL)), 0, NULL));
  HR_ASSERT_OK(hr_graph_status(g));
  return g;
}

HR_TEST(a_session_keeps_an_instance_for_each_set_of_dims) {
  hr_graph *g = layer();
  hr_session *session = session_of(g, &(hr_session_options){.instances_max = 2});
  hr_graph_release(g);
  static const int64_t sizes[] = {1, 2, 1, 3, 2, 3};
  static const int instances[] = {1, 2, 2, 3, 4, 4};
  for (int i = 0; i < 6; ++i) {
    hr_tensor x = counted(DIMS(sizes[i], 3)), y;
    const hr_tensor *inputs[1] = {&x};
    HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
    expect_type(&y, HR_DTYPE_F32, DIMS(sizes[i], 4));
    float got[MOST];
    read(&y, got);
    HR_ASSERT(got[0] == 0 && got[1] == 26 && got[2] == 29 && got[3] == 0);
    HR_ASSERT_EQ(stats_of(session).instances, instances[i]);
    hr_tensor_release(&x);
    hr_tensor_release(&y);
  }
  HR_ASSERT_EQ(stats_of(session).kept, 2);
  HR_ASSERT_EQ(stats_of(session).runs, 6);
  HR_ASSERT_EQ(stats_of(session).records, 2);
  HR_ASSERT_EQ(stats_of(session).constant_bytes_copied, 0); /* the graph's memory is the device's */
  hr_session_release(session);
}

HR_TEST(instances_have_a_limit_of_bytes) {
  hr_graph *g = layer();
  hr_session *session = session_of(g, &(hr_session_options){.bytes_max = 1});
  for (int64_t n = 1; n < 4; ++n) {
    hr_tensor x = counted(DIMS(n, 3)), y;
    const hr_tensor *inputs[1] = {&x};
    for (int run = 0; run < 2; ++run) {
      HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
      hr_tensor_release(&y);
    }
    hr_tensor_release(&x);
    const hr_session_stats stats = stats_of(session);
    HR_ASSERT_EQ(stats.kept, 1);
    HR_ASSERT_EQ(stats.instances, n);
    HR_ASSERT_EQ(stats.hits, n);
    HR_ASSERT(stats.kept_bytes > 100 && stats.kept_bytes < 10000);
  }
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(a_warm_instance_is_compiled) {
  hr_graph *g = graph_of("graph 2\ninput %x f32[n, 3]\nvariable %w f32[3] = [1.0, 2.0, 3.0]\n%0 = multiply(%x, %w)\n"
                         "%1 = sum(%0, axis=[1])\n%2 = add(%w, 1)\nassign %w = %2\noutput y = %1\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor like = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {2, 3}, .strides = {3, 1}}, x = counted(DIMS(2, 3)), y, w;
  const hr_tensor *types[1] = {&like}, *inputs[1] = {&x};
  hr_stats before, after;
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  HR_ASSERT_OK(hr_session_warm(session, 1, types));
  HR_ASSERT_EQ(stats_of(session).runs, 0);
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  EXPECT(&w, 1, 2, 3);
  hr_tensor_release(&w);
  hr_stream_stats(stream, &before);
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  hr_stream_stats(stream, &after);
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  HR_ASSERT_EQ(after.compiles, before.compiles);
  EXPECT(&y, 8, 26);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(the_log_names_operations) {
  char path[] = "/tmp/session_log.XXXXXX", text[8192];
  hr_graph *g = layer();
  hr_graph_name(g, hr_graph_output_value(g, 0), "scores");
  hr_session *session = session_of(g, NULL);
  hr_tensor x = counted(DIMS(2, 3)), y;
  const hr_tensor *inputs[1] = {&x};
  HR_ASSERT(mkstemp(path) >= 0);
  setenv("HEADRACE_DEBUG", "3", 1);
  setenv("HEADRACE_LOG", path, 1);
  hr__env_reload();
  hr__log_reload();
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  unsetenv("HEADRACE_DEBUG");
  unsetenv("HEADRACE_LOG");
  hr__env_reload();
  hr__log_reload();
  FILE *file = fopen(path, "rb");
  size_t count = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[count] = '\0';
  HR_ASSERT_CONTAINS(text, "graph: \"scores\" (relu): operations 1 to 1");
  HR_ASSERT_CONTAINS(text, "instance of 2 operations for f32[2,3]: 2 records");
  remove(path);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(inputs_of_any_layout_are_accepted) {
  hr_graph *g = layer();
  hr_session *session = session_of(g, NULL);
  hr_tensor whole = counted(DIMS(3, 4)), x, y;
  const hr_tensor *of = &whole;
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &of, 0, NULL, 1, &x));
  x.dims[0] = 2, x.offset = 1; /* columns 1 and 2 of [3, 4]: [[1, 5, 9], [2, 6, 10]] */
  of = &x;
  HR_ASSERT_OK(hr_session_run(session, 1, &of, 1, &y));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 4));
  EXPECT(&y, 0, 118, 137, 0, 0, 132, 158, 0);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&whole);
  hr_session_release(session);
  hr_graph_release(g);
}

/* Its copy must have another order of strides, too. */
HR_TEST(an_input_without_gaps_may_be_in_another_order) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3");
  hr_graph_output(g, "y", ADD(g, NEGATIVE, VALUES(x), 0, NULL));
  hr_session *session = session_of(g, NULL);
  hr_tensor whole = counted(DIMS(3, 2)), turned, y;
  const hr_tensor *of = &whole;
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &of, 0, NULL, 1, &turned));
  of = &turned;
  HR_ASSERT_OK(hr_session_run(session, 1, &of, 1, &y));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 3));
  EXPECT(&y, -0.0, -2, -4, -1, -3, -5);
  hr_tensor_release(&y);
  hr_tensor_release(&turned);
  hr_tensor_release(&whole);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(a_graph_may_grow_after_its_sessions_are_made) {
  hr_graph *g = layer();
  hr_session *sessions[2] = {session_of(g, NULL), session_of(g, &(hr_session_options){.keeps_operations = true})};
  hr_value last = hr_graph_output_value(g, 0);
  for (int i = 0; i < 1000; ++i) {
    last = ADD(g, ADD, VALUES(last, constant_of(g, HR_DTYPE_F32, "4", weights)), 0, NULL);
  }
  hr_graph_output(g, "last", last);
  for (int i = 0; i < 2; ++i) {
    hr_tensor x = counted(DIMS(1, 3)), y;
    const hr_tensor *inputs[1] = {&x};
    HR_ASSERT_OK(hr_session_run(sessions[i], 1, inputs, 1, &y));
    EXPECT(&y, 0, 26, 29, 0);
    RELEASE(&x, &y);
    hr_session_release(sessions[i]);
  }
  hr_graph_release(g);
}

HR_TEST(outputs_are_buffers_of_their_own) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 2"), c = constant_of(g, HR_DTYPE_F32, "2", weights);
  hr_value sum = ADD(g, ADD, VALUES(x, c), 0, NULL);
  hr_graph_output(g, "x", x);
  hr_graph_output(g, "c", c);
  hr_graph_output(g, "shape", hr_graph_shape(g, x));
  hr_graph_output(g, "seven", hr_graph_number(g, hr_scalar_f64(7)));
  hr_graph_output(g, "sum", sum);
  hr_graph_output(g, "turned", ADD(g, PERMUTE_DIMS, VALUES(sum), 0, NULL));
  hr_graph_output(g, "sum again", sum);
  hr_session *session = session_of(g, NULL);
  for (int64_t n = 0; n < 4; n += 3) {
    hr_tensor in = counted(DIMS(n, 2)), out[7];
    const hr_tensor *inputs[1] = {&in};
    HR_ASSERT_OK(hr_session_run(session, 1, inputs, 7, out));
    for (int i = 0; i < 7; ++i) {
      HR_ASSERT(out[i].buffer != in.buffer);
      for (int k = 0; k < i; ++k) {
        HR_ASSERT(out[i].buffer != out[k].buffer);
      }
    }
    EXPECT(&out[1], 1, -2);
    EXPECT(&out[2], (float)n, 2);
    expect_type(&out[3], HR_DTYPE_F64, 0, NULL);
    EXPECT(&out[3], 7);
    expect_type(&out[5], HR_DTYPE_F32, DIMS(2, n));
    if (n == 3) {
      EXPECT(&out[0], 0, 1, 2, 3, 4, 5);
      EXPECT(&out[4], 1, -1, 3, 1, 5, 3);
      EXPECT(&out[5], 1, 3, 5, -1, 1, 3);
      EXPECT(&out[6], 1, -1, 3, 1, 5, 3);
    }
    for (int i = 0; i < 7; ++i) {
      hr_tensor_release(&out[i]);
    }
    hr_tensor_release(&in);
  }
  hr_session_release(session);
  hr_graph_release(g);
}

static int64_t cached_bytes(void) {
  hr_stats stats;
  hr_stream_stats(stream, &stats);
  return (int64_t)stats.cached_weights_bytes;
}

/* x [n, 300] times w [300, 80] of 16 bits: the conversion of w runs in the first two runs. */
HR_TEST(results_made_from_constants_are_kept) {
  static int16_t w[300 * 80];
  for (int i = 0; i < 300 * 80; ++i) {
    w[i] = (int16_t)(i % 5 - 2);
  }
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 300"), c = constant_of(g, HR_DTYPE_I16, "300 80", w);
  hr_value wide =
      ADD(g, ASTYPE, VALUES(c), ATTRIBUTES_OF({"dtype", {.kind = HR_ATTRIBUTE_DTYPE, .value.dtype = HR_DTYPE_F32}}));
  hr_graph_output(g, "y", ADD(g, MATMUL, VALUES(x, wide), 0, NULL));
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  hr_tensor in = counted(DIMS(1, 300));
  const hr_tensor *inputs[1] = {&in};
  float first[80], again[80];
  HR_ASSERT_EQ(cached_bytes(), 0);
  for (int i = 0; i < 4; ++i) {
    hr_tensor y = {0};
    HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
    HR_ASSERT_OK(hr_array_read(stream, &y, i == 0 ? first : again));
    HR_ASSERT(i == 0 || memcmp(first, again, sizeof first) == 0);
    hr_tensor_release(&y);
  }
  HR_ASSERT(cached_bytes() >= (int64_t)(300 * 80 * sizeof(float)));
  hr_tensor_release(&in);
  hr_session_release(session);
  HR_ASSERT_EQ(cached_bytes(), 0);
}

HR_TEST(a_run_that_fails_names_the_value_and_the_session_goes_on) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n m"), y = input_of(g, "y", HR_DTYPE_F32, "k");
  hr_value half = ADD(g, RESHAPE, VALUES(x), ATTRIBUTES_OF({"shape", INTS_OF(-1, 2)}));
  hr_graph_name(g, half, "pairs");
  hr_graph_output(g, "pairs", half);
  hr_graph_output(g, "y", y);
  hr_session *session = session_of(g, NULL);
  hr_tensor odd = counted(DIMS(3, 3)), even = counted(DIMS(3, 2)), k = counted(DIMS(1)), out[2];
  const hr_tensor *inputs[2] = {&odd, &k};
  HR_ASSERT_ERROR(hr_session_run(session, 2, inputs, 2, out), HR_STATUS_INVALID_ARGUMENT, "\"pairs\": reshape: ");
  HR_ASSERT_ERROR(hr_session_run(session, 2, inputs, 1, out), HR_STATUS_INVALID_ARGUMENT, "1 results, expected 2");
  HR_ASSERT_ERROR(hr_session_run(session, 1, inputs, 2, out), HR_STATUS_INVALID_ARGUMENT, "1 inputs, expected 2");
  inputs[0] = &even;
  HR_ASSERT_OK(hr_session_warm(session, 2, inputs));
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  HR_ASSERT_OK(hr_session_run(session, 2, inputs, 2, out));
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  expect_type(&out[0], HR_DTYPE_F32, DIMS(3, 2));
  EXPECT(&out[0], 0, 1, 2, 3, 4, 5);
  RELEASE(&odd, &even, &k, &out[0], &out[1]);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(a_tape_sees_the_run_of_a_session) {
  hr_graph *g = graph_of("graph 2\ninput %x f32[n]\nvariable %w f32[1] = [2.0]\n%0 = multiply(%x, %w)\n"
                         "%1 = square(%0)\n%2 = add(%w, 1)\nassign %w = %2\noutput y = %1\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(3), F32(1, 2, 3)), y, gradient, w;
  const hr_tensor *inputs[1] = {&x}, *outputs[1] = {&y};
  for (int run = 0; run < 2; ++run) {
    hr_tape *tape = NULL;
    HR_ASSERT_OK(hr_tape_begin(stream, &tape));
    HR_ASSERT_OK(hr_tape_watch(tape, 1, inputs));
    HR_ASSERT_OK(hr_session_warm(session, 1, inputs)); /* which the tape does not see */
    HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
    hr_tape_end(tape);
    HR_ASSERT_OK(hr_tape_gradient(tape, 1, outputs, NULL, 1, inputs, &gradient));
    hr_tape_destroy(tape);
    if (run == 0) {
      EXPECT(&y, 4, 16, 36);
      EXPECT(&gradient, 8, 16, 24);
    } else {
      EXPECT(&y, 9, 36, 81);
      EXPECT(&gradient, 18, 36, 54);
    }
    RELEASE(&y, &gradient);
  }
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  EXPECT(&y, 16, 64, 144);
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  EXPECT(&w, 5);
  RELEASE(&x, &y, &w);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(a_training_step_follows_its_gradient) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), t = input_of(g, "t", HR_DTYPE_F32, "n 4");
  hr_value w = input_of(g, "w", HR_DTYPE_F32, "3 4"), rate = hr_graph_number(g, hr_scalar_f64(0.01));
  hr_value error = ADD(g, SUBTRACT, VALUES(ADD(g, MATMUL, VALUES(x, w), 0, NULL), t), 0, NULL);
  hr_value loss = ADD(g, MEAN, VALUES(ADD(g, SQUARE, VALUES(error), 0, NULL)), 0, NULL);
  hr_value step = ADD(g, MULTIPLY, VALUES(hr_graph_gradient(g, loss, 0, 1, &w), rate), 0, NULL);
  hr_graph_output(g, "loss", loss);
  hr_graph_output(g, "w", ADD(g, SUBTRACT, VALUES(w, step), 0, NULL));
  hr_session *session = session_of(g, NULL);
  hr_tensor data = tensor_of(HR_DTYPE_F32, DIMS(4, 3), weights),
            wanted = tensor_of(HR_DTYPE_F32, DIMS(4, 4), F32(1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2));
  hr_tensor parameter = tensor_of(HR_DTYPE_F32, DIMS(3, 4), weights);
  float losses[20];
  for (int i = 0; i < 20; ++i) {
    const hr_tensor *inputs[3] = {&data, &wanted, &parameter};
    hr_tensor out[2];
    HR_ASSERT_OK(hr_session_run(session, 3, inputs, 2, out));
    read(&out[0], &losses[i]);
    hr_tensor_release(&out[0]);
    hr_tensor_release(&parameter);
    parameter = out[1];
  }
  for (int i = 1; i < 20; ++i) {
    HR_ASSERT(losses[i] < losses[i - 1]);
  }
  HR_ASSERT(losses[19] < 0.2F * losses[0]);
  hr_tensor_release(&parameter);
  hr_tensor_release(&data);
  hr_tensor_release(&wanted);
  hr_session_release(session);
  hr_graph_release(g);
}

/* ---- random graphs ---- */

enum { VALUES_MAX = 24, SOURCES = 4, OUTPUTS = 3 };

typedef struct step {
  hr_functional function;
  int count, inputs[2];
  int attribute_count;
  hr_graph_attribute attributes[3];
  int64_t ints[3];
} step;

static uint32_t seed;

static int random_below(int count) {
  seed = seed * 1664525u + 1013904223u;
  return (int)(seed >> 8) % count;
}

static bool has_type_of(const hr_graph *g, hr_value a, hr_value b) {
  hr_type x, y;
  HR_ASSERT_OK(hr_graph_type(g, a, &x));
  HR_ASSERT_OK(hr_graph_type(g, b, &y));
  bool is_same = x.dtype == y.dtype && x.rank == y.rank;
  for (int d = 0; is_same && d < x.rank; ++d) {
    is_same = x.dims[d] == y.dims[d] && (x.symbols[d] == NULL) == (y.symbols[d] == NULL) &&
              (x.symbols[d] == NULL || strcmp(x.symbols[d], y.symbols[d]) == 0);
  }
  return is_same;
}

static void set_int(step *s, const char *name, hr_attribute_kind kind, int64_t number) {
  hr_graph_attribute *attribute = &s->attributes[s->attribute_count];
  s->ints[s->attribute_count++] = number;
  attribute->name = name, attribute->value.kind = kind;
  if (kind == HR_ATTRIBUTE_INTS) {
    attribute->value.count = 1, attribute->value.value.ints = &s->ints[s->attribute_count - 1];
  } else {
    attribute->value.value.integer = number;
  }
}

/* A step on earlier values, in place because of its pointers. */
static void choose(const hr_graph *g, const hr_value *values, int count, step *s) {
  static const hr_functional unary[] = {HR_FUNCTIONAL_TANH, HR_FUNCTIONAL_SQUARE, HR_FUNCTIONAL_RELU,
                                        HR_FUNCTIONAL_SIGMOID, HR_FUNCTIONAL_NEGATIVE};
  static const hr_functional binary[] = {HR_FUNCTIONAL_ADD, HR_FUNCTIONAL_MULTIPLY, HR_FUNCTIONAL_MAXIMUM,
                                         HR_FUNCTIONAL_SUBTRACT, HR_FUNCTIONAL_ATAN2};
  static const hr_functional along[] = {HR_FUNCTIONAL_SOFTMAX, HR_FUNCTIONAL_CUMULATIVE_SUM, HR_FUNCTIONAL_SORT};
  static const hr_functional reduced[] = {HR_FUNCTIONAL_SUM, HR_FUNCTIONAL_MAX, HR_FUNCTIONAL_MEAN};
  *s = (step){.count = 1, .inputs = {random_below(count), random_below(count)}};
  hr_type type;
  HR_ASSERT_OK(hr_graph_type(g, values[s->inputs[0]], &type));
  int axis = type.rank > 0 ? random_below(type.rank) : 0, kind = random_below(type.rank > 0 ? 8 : 2);
  if (kind == 1 && has_type_of(g, values[s->inputs[0]], values[s->inputs[1]])) {
    s->function = binary[random_below(5)], s->count = 2;
  } else if (kind == 2) {
    s->function = along[random_below(3)];
    set_int(s, "axis", HR_ATTRIBUTE_INT, axis);
  } else if (kind == 3) {
    s->function = reduced[random_below(3)];
    set_int(s, "axis", HR_ATTRIBUTE_INTS, axis);
    set_int(s, "keepdims", HR_ATTRIBUTE_FLAG, random_below(2));
  } else if (kind == 4) {
    s->function = HR_FUNCTIONAL_PERMUTE_DIMS;
  } else if (kind == 5) {
    s->function = HR_FUNCTIONAL_CONCAT, s->count = 2, s->inputs[1] = s->inputs[0];
    set_int(s, "axis", HR_ATTRIBUTE_INT, axis);
  } else if (kind == 6) {
    s->function = HR_FUNCTIONAL_RESHAPE;
    set_int(s, "shape", HR_ATTRIBUTE_INTS, -1);
  } else if (kind == 7 && type.rank < 4) {
    s->function = HR_FUNCTIONAL_EXPAND_DIMS;
    set_int(s, "axis", HR_ATTRIBUTE_INTS, axis);
  } else {
    s->function = unary[random_below(5)];
  }
}

static hr_graph *random_graph(step *steps) {
  hr_graph *g = new_graph();
  hr_value values[VALUES_MAX];
  values[0] = input_of(g, "a", HR_DTYPE_F32, "n m"), values[1] = input_of(g, "b", HR_DTYPE_F32, "m 3");
  values[2] = input_of(g, "c", HR_DTYPE_F32, "n"), values[3] = constant_of(g, HR_DTYPE_F32, "3 4", weights);
  for (int i = SOURCES; i < VALUES_MAX; ++i) {
    step *s = &steps[i];
    choose(g, values, i, s);
    const hr_value inputs[2] = {values[s->inputs[0]], values[s->inputs[1]]};
    values[i] = hr_graph_add(g, s->function, s->count, inputs, s->attribute_count, s->attributes);
    HR_ASSERT_OK(hr_graph_status(g));
  }
  for (int i = 0; i < OUTPUTS; ++i) {
    const char *const names[OUTPUTS] = {"p", "q", "r"};
    hr_graph_output(g, names[i], values[VALUES_MAX - OUTPUTS + i]);
  }
  HR_ASSERT_OK(hr_graph_status(g));
  return g;
}

/* The same calls on the stream. */
static void apply_steps(const step *steps, const hr_tensor *const *inputs, hr_tensor *out) {
  hr_tensor values[VALUES_MAX];
  for (int i = 0; i < SOURCES; ++i) {
    values[i] = *inputs[i];
  }
  for (int i = SOURCES; i < VALUES_MAX; ++i) {
    const step *s = &steps[i];
    const hr_tensor *of[2] = {&values[s->inputs[0]], &values[s->inputs[1]]};
    hr_attribute attributes[3] = {{0}};
    for (int a = 0; a < s->attribute_count; ++a) {
      attributes[a] = s->attributes[a].value;
    }
    HR_ASSERT_OK(hr_functional_apply(stream, s->function, s->count, of, s->attribute_count, attributes, 1, &values[i]));
  }
  for (int i = 0; i < VALUES_MAX; ++i) {
    if (i >= VALUES_MAX - OUTPUTS) {
      out[i - (VALUES_MAX - OUTPUTS)] = values[i];
    } else if (i >= SOURCES) {
      hr_tensor_release(&values[i]);
    }
  }
}

static void expect_same_bits(const hr_tensor *x, const hr_tensor *expected, uint32_t of) {
  enum { LARGEST = 1 << 18 };
  static char got[LARGEST], wanted[LARGEST];
  expect_type(x, expected->dtype, expected->rank, expected->dims);
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  HR_ASSERT(bytes <= LARGEST);
  hr_view view = hr_tensor_view(x), other = hr_tensor_view(expected);
  HR_ASSERT_OK(hr_stream_read(stream, &view, got));
  HR_ASSERT_OK(hr_stream_read(stream, &other, wanted));
  if (memcmp(got, wanted, bytes) != 0) {
    HR_FAIL("other bits in graph %u", (unsigned)of);
  }
}

static bool is_too_large(const hr_graph *g, const hr_tensor *const *inputs) {
  hr_tensor types[OUTPUTS];
  bool is_large = false;
  HR_ASSERT_OK(hr_graph_apply(g, NULL, 3, inputs, OUTPUTS, types));
  for (int i = 0; i < OUTPUTS; ++i) {
    is_large |= hr_tensor_count(&types[i]) > 1 << 15;
  }
  return is_large;
}

static void compare_runs(const hr_graph *g, const step *steps, int64_t n, int64_t m, uint32_t of) {
  hr_session *session = session_of(g, NULL);
  hr_tensor a = counted(DIMS(n, m)), b = counted(DIMS(m, 3)), c = counted(DIMS(n));
  hr_tensor d = tensor_of(HR_DTYPE_F32, DIMS(3, 4), weights), out[OUTPUTS], expected[OUTPUTS];
  const hr_tensor *inputs[SOURCES] = {&a, &b, &c, &d};
  for (int repeat = 0; repeat < 2 && !is_too_large(g, inputs); ++repeat) {
    HR_ASSERT_OK(hr_session_run(session, 3, inputs, OUTPUTS, out));
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    apply_steps(steps, inputs, expected);
    for (int i = 0; i < OUTPUTS; ++i) {
      expect_same_bits(&out[i], &expected[i], of);
      hr_tensor_release(&out[i]);
      hr_tensor_release(&expected[i]);
    }
  }
  hr_tensor *all[] = {&a, &b, &c, &d};
  for (int i = 0; i < SOURCES; ++i) {
    hr_tensor_release(all[i]);
  }
  hr_session_release(session);
}

HR_TEST(random_graphs_have_the_bits_of_their_calls) {
  static step steps[VALUES_MAX];
  for (uint32_t i = 0; i < (uint32_t)hr_test_count(120); ++i) {
    seed = i;
    hr_graph *g = random_graph(steps), *read = read_back(g);
    compare_runs(g, steps, 5, 7, i);
    compare_runs(read, steps, 11, 2, i);
    compare_runs(read, steps, 1, 1, i);
    hr_graph_release(read);
    hr_graph_release(g);
  }
}

/* ---- memory ---- */

static hr_graph *failing_graph;

static hr_status open_and_instantiate(void) {
  hr_session *session = NULL;
  hr_tensor x = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {2, 3}, .strides = {3, 1}};
  const hr_tensor *inputs[1] = {&x};
  HR_RETURN_IF_ERROR(hr_session_create(stream, failing_graph, NULL, &session));
  hr_status status = hr_session_warm(session, 1, inputs);
  hr_session_release(session);
  return status;
}

HR_TEST(sessions_survive_failing_allocations) {
  open_stream();
  failing_graph = layer();
  wait_for_kernels();
  HR_TEST_OOM(open_and_instantiate);
  hr_graph_release(failing_graph);
}
