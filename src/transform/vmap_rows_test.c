/* Rules of vmap.def: each row for all examples, against the row on each example, for any choice of the inputs that
 * differ. */
#include "core/ops/op.h"
#include "headrace/hook.h"
#include "headrace/transform.h"
#include "tensor_test.h"

enum { EXAMPLES = 3, OPERANDS = 8, MOST = 4096 };

typedef struct trial {
  hr_op op;
  int ints[12], int_count;
  double scalars[4];
  int scalar_count;
  const char *inputs;  /* of each "f23 ": f32, i64 or bool (f, i, b; - is absent) with these dims */
  const char *outputs; /* the same; = is inferred */
  int bound;           /* of integers */
  double tolerance;    /* 0: the same bits */
} trial;

#define INTS(...) {__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int)
#define NO_INTS {0}, 0
#define REALS(...) {__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double)
#define NO_REALS {0}, 0

static const trial trials[] = {
    {HR_OP_CONV, INTS(2, 1, 2, 1, 0, 1, 1, 1), NO_REALS, "f2345 f3322 f3", "=", 0, 1e-5},
    {HR_OP_CONV, INTS(1, 1, 1, 1, 1, 0), NO_REALS, "f147 f443", "=", 0, 1e-5},
    {HR_OP_CONV, INTS(1, 1, 0, 1, 2), NO_REALS, "f147 f422", "=", 0, 1e-5},
    {HR_OP_CONV_BACKWARD_DATA, INTS(2, 1, 1, 0, 0, 1, 1, 1), NO_REALS, "f2344 f3222", "=", 0, 1e-5},
    {HR_OP_CONV_BACKWARD_WEIGHT, INTS(2, 1, 1, 0, 0, 1, 1, 1), NO_REALS, "f2344 f2233", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f234 f45 f5", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f14 f45", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f24 f45 f25", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f24 f45 f15", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f24 f45 f5", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f14 f45 f15", "=", 0, 1e-5},
    {HR_OP_MATMUL, NO_INTS, NO_REALS, "f34 f41", "=", 0, 1e-5},
    {HR_OP_MEAN, INTS(2), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_VAR_MEAN, INTS(5, 1), REALS(1), "f234", "==", 0, 0},
    {HR_OP_NORM, INTS(2, 0), REALS(3), "f234", "=", 0, 0},
    {HR_OP_LOGSUMEXP, INTS(4), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_SOFTMAX, INTS(1), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_LOG_SOFTMAX, INTS(0), NO_REALS, "f", "=", 0, 0},
    {HR_OP_SOFTMAX_BACKWARD, INTS(1), NO_REALS, "f234 f234", "=", 0, 0},
    {HR_OP_LOG_SOFTMAX_BACKWARD, INTS(2), NO_REALS, "f234 f234", "=", 0, 0},
    {HR_OP_LAYER_NORM, INTS(1), REALS(1e-3), "f234 f4 f4", "===", 0, 0},
    {HR_OP_LAYER_NORM_BACKWARD, INTS(1), NO_REALS, "f34 f34 f31 f31 f4", "=--", 0, 0},
    {HR_OP_LAYER_NORM_BACKWARD, INTS(1), NO_REALS, "f34 f34 f31 f31 f4", "===", 0, 1e-5},
    {HR_OP_GROUP_NORM, INTS(2), REALS(1e-3), "f2434 f4 f4", "===", 0, 0},
    {HR_OP_GROUP_NORM_BACKWARD, INTS(2), NO_REALS, "f243 f243 f22 f22 f4", "=--", 0, 0},
    {HR_OP_BATCH_NORM, INTS(1), REALS(0.1, 1e-3), "f234 f3 f3", "===", 0, 0},
    {HR_OP_NLL_LOSS, INTS(1), REALS(-100), "f43 i4 f3", "==", 3, 0},
    {HR_OP_MSE_LOSS, INTS(2), NO_REALS, "f43 f43", "=", 0, 0},
    {HR_OP_MAX_POOL, INTS(2, 2, 1, 2, 0, 1, 1, 1), NO_REALS, "f2345", "==", 0, 0},
    {HR_OP_MAX_POOL, INTS(2, 1, 0, 1), NO_REALS, "f35", "==", 0, 0},
    {HR_OP_MAX_POOL_BACKWARD, INTS(2, 2, 1, 2, 0, 1, 1, 1), NO_REALS, "f2333 i2333", "f2345", 5, 0},
    {HR_OP_AVG_POOL, INTS(2, 2, 1, 2, 0, 1, 1, 1, 1, 0), NO_REALS, "f2345", "=", 0, 0},
    {HR_OP_AVG_POOL_BACKWARD, INTS(2, 1, 0, 1, 1, 0), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_ADAPTIVE_AVG_POOL, INTS(2), NO_REALS, "f2375", "f2332", 0, 0},
    {HR_OP_ADAPTIVE_AVG_POOL_BACKWARD, INTS(1), NO_REALS, "f233", "f235", 0, 0},
    {HR_OP_ADAPTIVE_MAX_POOL, INTS(2), NO_REALS, "f375", "f332 i332", 0, 0},
    {HR_OP_UPSAMPLE_NEAREST2D, INTS(0), REALS(2, 2), "f2334", "=", 0, 0},
    {HR_OP_UPSAMPLE_NEAREST2D_BACKWARD, INTS(0), REALS(0, 0), "f366", "f333", 0, 0},
    {HR_OP_UPSAMPLE_BILINEAR2D, INTS(1), REALS(2, 2), "f334", "=", 0, 0},
    {HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD, INTS(1), REALS(0, 0), "f2366", "f2333", 0, 1e-5},
    {HR_OP_RESAMPLE, INTS(1, 2, 0, 0), REALS(2), "f234", "=", 0, 0},
    {HR_OP_RESAMPLE_BACKWARD, INTS(1, 2, 0, 0, 0), REALS(2), "f264", "f234", 0, 1e-5},
    {HR_OP_GRID_SAMPLE, INTS(0, 1, 0), NO_REALS, "f2355 f2342", "=", 0, 0},
    {HR_OP_GRID_SAMPLE_BACKWARD, INTS(0, 0, 1), NO_REALS, "f2334 f2355 f2342", "==", 0, 1e-5},
    {HR_OP_CAT, INTS(1), NO_REALS, "f234 f224 f254", "=", 0, 0},
    {HR_OP_PAD, INTS(1, -1, 0, 2), REALS(3), "f34", "=", 0, 0},
    {HR_OP_PAD_BORDER, INTS(0, 1, 0, 1, 2), NO_REALS, "f34", "=", 0, 0},
    {HR_OP_PAD_BORDER, INTS(3, 1, 0, 1, 4), NO_REALS, "f34", "=", 0, 0},
    {HR_OP_PAD_BORDER_BACKWARD, INTS(2, 1, 0, 1, 2), NO_REALS, "f56", "=", 0, 1e-5},
    {HR_OP_PAD_BORDER_BACKWARD, INTS(1, 1, 0, 1, 2), NO_REALS, "f56", "=", 0, 1e-5},
    {HR_OP_INDEX_SELECT, INTS(1), NO_REALS, "f234 i23", "=", 3, 0},
    {HR_OP_INDEX_SELECT, INTS(0), NO_REALS, "f4 i", "=", 4, 0},
    {HR_OP_INDEX_SELECT, INTS(0), NO_REALS, "f i", "=", 1, 0},
    {HR_OP_GATHER, INTS(1), NO_REALS, "f234 i224", "=", 3, 0},
    {HR_OP_GATHER, INTS(0), NO_REALS, "f4 i", "=", 4, 0},
    {HR_OP_SCATTER, INTS(1, 1, 0), NO_REALS, "i234 f234", "f254", 5, 0},
    {HR_OP_SCATTER, INTS(0, 0, 0), NO_REALS, "i f", "f4", 4, 0},
    {HR_OP_INDEX, INTS(6, 1), NO_REALS, "f2342 i23 i13", "=", 3, 0},
    {HR_OP_INDEX, INTS(5, 0), NO_REALS, "f3243 i2 i2", "=", 3, 0},
    {HR_OP_INDEX_PUT, INTS(6, 1, 1), NO_REALS, "f2232 i23 i13", "f2342", 3, 1e-5},
    {HR_OP_INDEX_PUT, INTS(5, 2, 0), NO_REALS, "f3 i3 i3", "f3243", 3, 0},
    {HR_OP_INDEX_ADD, INTS(1), REALS(2), "i5 f254", "f234", 3, 1e-5},
    {HR_OP_EMBEDDING_BACKWARD, INTS(-1, 0), NO_REALS, "f534 i53", "f64", 6, 1e-5},
    {HR_OP_TRI, INTS(1), REALS(1), "f234", "=", 0, 0},
    {HR_OP_CUMSUM, INTS(1), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_CUMPROD, INTS(0), NO_REALS, "f", "=", 0, 0},
    {HR_OP_LOGCUMSUMEXP, INTS(2), NO_REALS, "f234", "=", 0, 0},
    {HR_OP_DROPOUT, NO_INTS, REALS(0.5, 7, 0), "f34", "=b34", 0, 0},
    {HR_OP_BERNOULLI, NO_INTS, REALS(0.5, 7, 0), "f34", "f34", 0, 0},
    {HR_OP_LSTM_CELL, NO_INTS, NO_REALS, "f28 f28 f22 f8 f8", "===", 0, 0},
    {HR_OP_LSTM_CELL_BACKWARD, NO_INTS, NO_REALS, "f22 f22 f22 f22 f28", "==", 0, 0},
    {HR_OP_GRU_CELL, NO_INTS, NO_REALS, "f26 f26 f22 f6 f6", "==", 0, 0},
    {HR_OP_GRU_CELL_BACKWARD, NO_INTS, NO_REALS, "f22 f2a", "===", 0, 0},
    {HR_OP_LSTM, INTS(0), NO_REALS, "f328 f22 f22 f82", "=====", 0, 1e-5},
    {HR_OP_LSTM, INTS(1), NO_REALS, "f318 f12 f12 f82", "==---", 0, 1e-5},
    {HR_OP_LSTM_BACKWARD, INTS(0), NO_REALS, "f322 f22 f22 f22 f322 f328 f82", "===", 0, 1e-5},
    {HR_OP_LSTM_BACKWARD, INTS(1), NO_REALS, "f322 - - f22 f322 f328 f82", "=--", 0, 1e-5},
    {HR_OP_GRU, INTS(0), NO_REALS, "f326 f22 f62 f6", "===", 0, 1e-5},
    {HR_OP_GRU, INTS(1), NO_REALS, "f326 f22 f62 -", "=--", 0, 1e-5},
    {HR_OP_GRU_BACKWARD, INTS(0), NO_REALS, "f322 f22 f32a f62", "===", 0, 1e-5},
    {HR_OP_ATTENTION, INTS(0), REALS(0.5), "f2234 f2254 f2253 b2235", "==", 0, 1e-5},
    {HR_OP_ATTENTION, INTS(1), REALS(0.5), "f2234 f2234 f2233 f33", "=", 0, 1e-5},
    {HR_OP_ATTENTION_BACKWARD, INTS(0), REALS(0.5), "f1123 f1124 f1134 f1133 f1123 f1123 f112", "===-", 0, 1e-4},
    {HR_OP_SORT, INTS(0), NO_REALS, "f34", "==", 0, 0},
    {HR_OP_SEARCH, INTS(0), NO_REALS, "f23 f24", "=", 0, 0},
    {HR_OP_FFT_REAL, NO_INTS, REALS(1), "f34", "=", 0, 1e-5},
    {HR_OP_ARGMAX, INTS(2), NO_REALS, "f34", "=", 0, 0},
    {HR_OP_IM2COL, INTS(2, 2, 1, 1, 0, 0, 1, 1), NO_REALS, "f2344", "=", 0, 0},
    {HR_OP_COL2IM, INTS(2, 1, 0, 1), NO_REALS, "f2324", "f235", 0, 1e-5},
    {HR_OP_SEGMENTS, INTS(1, -1), REALS(0), "f43 i2 i2", "=", 4, 0},
};

/* ---- operands ---- */

typedef struct operand {
  hr_dtype dtype; /* NONE: absent */
  bool is_inferred;
  int rank;
  int64_t dims[6];
} operand;

static int parse(const char *text, operand *out) {
  int count = 0;
  for (; *text != '\0'; ++count) {
    operand *x = &out[count];
    *x = (operand){.is_inferred = *text == '=', .dtype = HR_DTYPE_NONE};
    x->dtype = *text == 'f' ? HR_DTYPE_F32 : *text == 'i' ? HR_DTYPE_I64 : *text == 'b' ? HR_DTYPE_BOOL : HR_DTYPE_NONE;
    for (++text; (*text >= '0' && *text <= '9') || *text == 'a'; ++text) {
      x->dims[x->rank++] = *text == 'a' ? 10 : *text - '0';
    }
    text += *text == ' ';
  }
  return count;
}

static uint64_t seed_state = 3;

static double uniform(void) {
  seed_state = seed_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return 0.05 + 0.9 * (double)(seed_state >> 11) / 9007199254740992.0;
}

/* All examples of an operand, [EXAMPLES, dims]; boundaries and segments increase. */
static hr_tensor all_examples(const trial *t, const operand *x) {
  int64_t dims[7] = {EXAMPLES};
  memcpy(dims + 1, x->dims, (size_t)x->rank * sizeof *dims);
  hr_tensor all = new_tensor(x->dtype, x->rank + 1, dims);
  static float reals[MOST];
  static int64_t whole[MOST];
  static uint8_t truth[MOST];
  int64_t count = hr_tensor_count(&all);
  HR_ASSERT(count <= MOST);
  for (int64_t i = 0; i < count; ++i) {
    reals[i] = (float)uniform(), whole[i] = (int64_t)(uniform() * t->bound), truth[i] = uniform() > 0.3;
    truth[i] |= i % 5 == 0;
  }
  hr_view view = hr_tensor_view(&all);
  const void *values = truth;
  values = x->dtype == HR_DTYPE_F32 ? reals : x->dtype == HR_DTYPE_I64 ? (const void *)whole : values;
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  return all;
}

static hr_tensor example_of(const hr_tensor *all, int k) {
  hr_tensor x = *all;
  x.rank = all->rank - 1, x.offset = all->offset + k * all->strides[0];
  memmove(x.dims, all->dims + 1, (size_t)x.rank * sizeof *x.dims);
  memmove(x.strides, all->strides + 1, (size_t)x.rank * sizeof *x.strides);
  return x;
}

/* New outputs, of which a record may change only a part: they are the same in all examples before. */
static void make_outputs(const trial *t, int input_count, const hr_tensor *inputs, int count, const operand *wanted,
                         const hr_attrs *attrs, hr_tensor *outputs) {
  hr_tensor_type in[OPERANDS] = {{0}}, out[OPERANDS] = {{0}};
  for (int i = 0; i < input_count; ++i) {
    in[i] = (hr_tensor_type){.dtype = inputs[i].dtype, .rank = inputs[i].rank};
    memcpy(in[i].dims, inputs[i].dims, sizeof in[i].dims);
    memcpy(in[i].strides, inputs[i].strides, sizeof in[i].strides);
  }
  for (int i = 0; i < count; ++i) {
    out[i] = (hr_tensor_type){.dtype = wanted[i].dtype, .rank = wanted[i].rank};
    memcpy(out[i].dims, wanted[i].dims, sizeof wanted[i].dims);
  }
  HR_ASSERT_OK(hr_op_infer(t->op, attrs, input_count, in, count, out));
  for (int i = 0; i < count; ++i) {
    outputs[i] = (hr_tensor){0};
    if (wanted[i].is_inferred || wanted[i].dtype != HR_DTYPE_NONE) {
      outputs[i] = new_tensor(out[i].dtype, out[i].rank, out[i].dims);
      const hr_scalar one = hr_scalar_i64(1);
      const hr_view number = {.scalar = &one}, view = hr_tensor_view(&outputs[i]);
      HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &number, 1, &view));
    }
  }
}

static void record(const trial *t, const hr_attrs *attrs, int input_count, const hr_tensor *inputs, int output_count,
                   const hr_tensor *outputs) {
  hr_view views[2 * OPERANDS];
  for (int i = 0; i < input_count + output_count; ++i) {
    const hr_tensor *x = i < input_count ? &inputs[i] : &outputs[i - input_count];
    views[i] = x->buffer != NULL ? hr_tensor_view(x) : (hr_view){0};
  }
  HR_ASSERT_OK(hr_stream_record(stream, t->op, attrs, input_count, views, output_count, views + input_count));
}

static void compare(const trial *t, const hr_tensor *actual, const hr_tensor *expected) {
  static char a[8 * MOST], b[8 * MOST];
  hr_view x = hr_tensor_view(actual), y = hr_tensor_view(expected);
  int64_t count = hr_tensor_count(actual), size = (int64_t)hr_dtype_size(actual->dtype);
  HR_ASSERT(count == hr_tensor_count(expected) && count * size <= (int64_t)sizeof a);
  HR_ASSERT_OK(hr_stream_read(stream, &x, a));
  HR_ASSERT_OK(hr_stream_read(stream, &y, b));
  if (t->tolerance == 0 || (actual->dtype != HR_DTYPE_F32 && actual->dtype != HR_DTYPE_C64)) {
    HR_ASSERT(memcmp(a, b, (size_t)(count * size)) == 0);
    return;
  }
  for (int64_t i = 0; i < count * size / 4; ++i) {
    double p = (double)((const float *)(const void *)a)[i], q = (double)((const float *)(const void *)b)[i];
    HR_ASSERT(fabs(p - q) <= t->tolerance * (1 + fabs(q)));
  }
}

/* ---- a trial ---- */

typedef struct run {
  const trial *t;
  const hr_attrs *attrs;
  int input_count, output_count;
  operand outputs[OPERANDS];
  hr_tensor all[OPERANDS]; /* inputs, of all examples */
} run;

static void run_examples(const run *r, uint32_t mapped, hr_tensor *out_all) {
  hr_vmap *vmap;
  hr_tensor inputs[OPERANDS], outputs[OPERANDS];
  HR_ASSERT_OK(hr_vmap_begin(stream, EXAMPLES, &vmap));
  for (int i = 0; i < r->input_count; ++i) {
    inputs[i] = r->all[i].buffer != NULL ? example_of(&r->all[i], 0) : (hr_tensor){0};
    if ((mapped >> i & 1u) != 0 && r->all[i].buffer != NULL) {
      HR_ASSERT_OK(hr_vmap_split(vmap, &r->all[i], 0, &inputs[i]));
    } else {
      hr_buffer_retain(inputs[i].buffer);
    }
  }
  make_outputs(r->t, r->input_count, inputs, r->output_count, r->outputs, r->attrs, outputs);
  record(r->t, r->attrs, r->input_count, inputs, r->output_count, outputs);
  for (int i = 0; i < r->output_count; ++i) {
    out_all[i] = (hr_tensor){0};
    if (outputs[i].buffer != NULL) {
      HR_ASSERT_OK(hr_vmap_join(vmap, &outputs[i], 0, &out_all[i]));
    }
    hr_tensor_release(&outputs[i]);
  }
  hr_vmap_end(vmap);
  for (int i = 0; i < r->input_count; ++i) {
    hr_tensor_release(&inputs[i]);
  }
}

static void check_example(const run *r, uint32_t mapped, int k, const hr_tensor *all) {
  hr_tensor inputs[OPERANDS], outputs[OPERANDS];
  for (int i = 0; i < r->input_count; ++i) {
    inputs[i] = r->all[i].buffer != NULL ? example_of(&r->all[i], (mapped >> i & 1u) != 0 ? k : 0) : (hr_tensor){0};
  }
  make_outputs(r->t, r->input_count, inputs, r->output_count, r->outputs, r->attrs, outputs);
  record(r->t, r->attrs, r->input_count, inputs, r->output_count, outputs);
  for (int i = 0; i < r->output_count; ++i) {
    if (outputs[i].buffer != NULL) {
      hr_tensor one = example_of(&all[i], k);
      compare(r->t, &one, &outputs[i]);
    }
    hr_tensor_release(&outputs[i]);
  }
}

static void check_mapped(const run *r, uint32_t mapped) {
  hr_tensor all[OPERANDS];
  run_examples(r, mapped, all);
  for (int k = 0; k < EXAMPLES; ++k) {
    check_example(r, mapped, k, all);
  }
  for (int i = 0; i < r->output_count; ++i) {
    hr_tensor_release(&all[i]);
  }
}

/* All inputs, and each one. */
static void check_trial(const trial *t) {
  int64_t ints[12];
  hr_scalar scalars[4];
  for (int i = 0; i < t->int_count; ++i) {
    ints[i] = t->ints[i];
  }
  for (int i = 0; i < t->scalar_count; ++i) {
    bool is_whole = t->scalars[i] == (double)(int64_t)t->scalars[i];
    scalars[i] = is_whole ? hr_scalar_i64((int64_t)t->scalars[i]) : hr_scalar_f64(t->scalars[i]);
  }
  const hr_attrs attrs = {t->int_count, t->scalar_count, ints, scalars};
  operand inputs[OPERANDS];
  run r = {.t = t, .attrs = &attrs, .input_count = parse(t->inputs, inputs)};
  r.output_count = parse(t->outputs, r.outputs);
  for (int i = 0; i < r.input_count; ++i) {
    r.all[i] = inputs[i].dtype != HR_DTYPE_NONE ? all_examples(t, &inputs[i]) : (hr_tensor){0};
  }
  check_mapped(&r, (1u << r.input_count) - 1);
  for (int i = 0; r.input_count > 1 && i < r.input_count; ++i) {
    check_mapped(&r, 1u << i);
    check_mapped(&r, ~(1u << i));
  }
  for (int i = 0; i < r.input_count; ++i) {
    hr_tensor_release(&r.all[i]);
  }
}

HR_TEST(rules_agree_with_a_record_for_each_example) {
  open_stream();
  for (size_t i = 0; i < sizeof trials / sizeof *trials; ++i) {
    check_trial(&trials[i]);
  }
}

/* Row INDEX_SELECT has no negative indices, row INDEX, by which it is recorded, does. */
HR_TEST(offending_indices_are_found) {
  for (int bad = -1; bad <= 2; bad += 3) {
    hr_vmap *vmap;
    hr_tensor xs = new_tensor(HR_DTYPE_I64, DIMS(2, 2)), is = new_tensor(HR_DTYPE_I64, DIMS(2, 1)), x, i;
    hr_view view = hr_tensor_view(&xs), indices = hr_tensor_view(&is);
    HR_ASSERT_OK(hr_stream_write(stream, &view, (const int64_t[]){1, 2, 3, 4}));
    HR_ASSERT_OK(hr_stream_write(stream, &indices, (const int64_t[]){1, bad}));
    HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
    HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
    HR_ASSERT_OK(hr_vmap_split(vmap, &is, 0, &i));
    hr_tensor y = new_tensor(HR_DTYPE_I64, DIMS(1)), ys;
    const int64_t dim = 0;
    const hr_attrs attrs = {.int_count = 1, .ints = &dim};
    const hr_view inputs[2] = {hr_tensor_view(&x), hr_tensor_view(&i)}, output = hr_tensor_view(&y);
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_INDEX_SELECT, &attrs, 2, inputs, 1, &output));
    HR_ASSERT_OK(hr_vmap_join(vmap, &y, 0, &ys));
    hr_vmap_end(vmap);
    HR_ASSERT_ERROR(hr_stream_synchronize(stream), HR_STATUS_OUT_OF_RANGE, bad < 0 ? "-1" : "index 2");
    hr_tensor_release(&ys);
    hr_tensor_release(&y);
    hr_tensor_release(&x);
    hr_tensor_release(&i);
    hr_tensor_release(&xs);
    hr_tensor_release(&is);
  }
}

typedef struct watch {
  hr_hook hook; /* first */
  int rank;     /* of x in the last product with packed numbers */
} watch;

static hr_status watch_record(hr_hook *hook, hr_stream *of, const hr_hook_record *record) {
  if (record->op == HR_OP_QUANTIZED_MATMUL) {
    ((watch *)hook)->rank = record->inputs[0].rank;
  }
  return hr_hook_pass(hook, of, record);
}

/* Floats of 8 bits, each 1, with scales of 1 and no biases: x [3, 2, 32] gives sums of 32 elements. */
HR_TEST(numbers_without_biases_that_all_examples_share_are_multiplied_by_rows) {
  open_stream();
  watch w = {.hook = {.record = watch_record}};
  const int64_t ints[4] = {8, 32, 0, 1};
  const hr_attrs attrs = {.int_count = 4, .ints = ints};
  const hr_scalar word = hr_scalar_i64(0x38383838), one = hr_scalar_i64(1);
  hr_tensor xs = new_tensor(HR_DTYPE_F32, DIMS(EXAMPLES, 2, 32)), numbers = new_tensor(HR_DTYPE_U32, DIMS(5, 8)),
            scales = new_tensor(HR_DTYPE_F32, DIMS(5, 1)), x, ys;
  const hr_view all = hr_tensor_view(&xs), packed = hr_tensor_view(&numbers), scale = hr_tensor_view(&scales);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &(hr_view){.scalar = &one}, 1, &all));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &(hr_view){.scalar = &word}, 1, &packed));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &(hr_view){.scalar = &one}, 1, &scale));
  hr_hook_add(stream, &w.hook);
  hr_vmap *vmap;
  HR_ASSERT_OK(hr_vmap_begin(stream, EXAMPLES, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  hr_tensor y = new_tensor(HR_DTYPE_F32, DIMS(2, 5));
  const hr_view inputs[3] = {hr_tensor_view(&x), packed, scale}, output = hr_tensor_view(&y);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_QUANTIZED_MATMUL, &attrs, 3, inputs, 1, &output));
  HR_ASSERT_OK(hr_vmap_join(vmap, &y, 0, &ys));
  hr_vmap_end(vmap);
  hr_hook_remove(stream, &w.hook);
  HR_ASSERT_EQ(w.rank, 2);
  float sums[EXAMPLES * 2 * 5];
  const hr_view results = hr_tensor_view(&ys);
  HR_ASSERT_OK(hr_stream_read(stream, &results, sums));
  for (int i = 0; i < EXAMPLES * 2 * 5; ++i) {
    HR_ASSERT_EQ(sums[i], 32);
  }
  hr_tensor *const tensors[6] = {&xs, &numbers, &scales, &y, &x, &ys};
  for (int i = 0; i < 6; ++i) {
    hr_tensor_release(tensors[i]);
  }
}
