/* Channels-last layouts: the same numbers as before, in the layout that convolutions request. */
#include <stdlib.h>

#include "hr_test.h"

#include "base/allocator.h"
#include "base/text.h"
#include "compiler/passes.h"
#include "program_runner.h"

static bool keep_convolutions(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx;
  (void)program;
  return node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA || node->op == HR_OP_CONV_BACKWARD_WEIGHT;
}

/* True for a provider that accepts convolutions in one format alone. */
static bool one_format;

static bool is_channels_last(const hr_operand *x) {
  int64_t expected = 1;
  static const int order[] = {1, 3, 2, 0};
  for (int i = 0; i < 4; ++i) {
    if (x->dims[order[i]] != 1 && x->strides[order[i]] != expected) {
      return false;
    }
    expected *= x->dims[order[i]];
  }
  return true;
}

static bool lies_channels_first(const hr_operand *x) {
  int64_t expected = 1;
  for (int d = 3; d >= 0; --d) {
    if (x->dims[d] != 1 && x->strides[d] != expected) {
      return false;
    }
    expected *= x->dims[d];
  }
  return true;
}

static bool keep_alike(void *ctx, const hr_program *program, const hr_node *node) {
  const hr_operand *operands[] = {&node->inputs[0], &node->inputs[1], &node->outputs[0]};
  bool is_first = true, is_last = true;
  for (int i = 0; i < 3; ++i) {
    is_first &= lies_channels_first(operands[i]);
    is_last &= is_channels_last(operands[i]);
  }
  return keep_convolutions(ctx, program, node) && (is_first || is_last);
}

static void value_form(const char *text, hr_program *out_program) {
  hr_program stream;
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_expand(&stream, keep_convolutions, NULL, out_program));
  hr_versions(out_program);
  hr_program_fini(&stream);
}

static const hr_target channels_last = {.channels_last = true};

static int count_relaid(const hr_program *program) {
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; !node->is_loop && i < node->input_count; ++i) {
      const hr_operand *x = &node->inputs[i];
      count += x->rank == 4 && x->dims[1] > 1 && x->strides[1] == 1 && x->dims[2] * x->dims[3] > 1;
    }
  }
  return count;
}

/* Permutes a buffer of floats from the default layout to its layout, or back. */
static void permute(const hr_program_buffer *buffer, float *values, bool is_back) {
  hr_buffer_layout layout = hr_layout_unpack(buffer->layout);
  size_t channels = (size_t)layout.channels, inner = (size_t)layout.inner, count = buffer->bytes / sizeof(float);
  float *copy = hr_malloc(buffer->bytes);
  HR_ASSERT_EQ(layout.element_bytes, sizeof(float));
  memcpy(copy, values, buffer->bytes);
  for (size_t plain = 0; plain < count; ++plain) {
    size_t lies = (plain / inner / channels * inner + plain % inner) * channels + plain / inner % channels;
    values[is_back ? plain : lies] = copy[is_back ? lies : plain];
  }
  hr_free(copy);
}

/* Evaluates the program as it is and with new layouts, on the same contents; live buffers must agree. Returns the
 * number of inputs of convolutions that are channels-last. */
static int check_same_results(const char *text) {
  hr_program programs[2];
  float *memory[2][32];
  for (int k = 0; k < 2; ++k) {
    value_form(text, &programs[k]);
    unsigned state = 1;
    for (int b = 0; b < programs[k].bound_count; ++b) {
      size_t count = programs[k].buffers[b].bytes / sizeof(float);
      memory[k][b] = hr_calloc(count + 2, sizeof(float)); /* some hold i64 */
      for (size_t i = 0; i < count && !programs[k].buffers[b].is_fresh; ++i) {
        state = state * 1664525u + 1013904223u;
        memory[k][b][i] = (float)(int)(state >> 8) / (float)(1 << 23) - 1;
      }
      if (k == 1 && programs[k].buffers[b].layout != 0) {
        permute(&programs[k].buffers[b], memory[k][b], false);
      }
    }
  }
  const hr_target target = {.channels_last = true, .one_format = one_format};
  HR_ASSERT_OK(hr_layout(&programs[1], &target, &(bool){false}));
  HR_ASSERT(!hr_layout_is_refused(&programs[1]));
  if (one_format) {
    HR_ASSERT_OK(hr_expand_again(&programs[1], keep_alike, NULL));
    hr_versions(&programs[1]);
    for (int n = 0; n < programs[1].node_count; ++n) {
      HR_ASSERT(programs[1].nodes[n].is_loop || keep_alike(NULL, &programs[1], &programs[1].nodes[n]));
    }
  }
  HR_ASSERT_OK(hr_program_verify(&programs[1]));
  const hr_scalar scalars[2] = {hr_scalar_f64(0.1), hr_scalar_f64(1e-5)};
  for (int k = 0; k < 2; ++k) {
    hr__to_stream_form(&programs[k]);
    HR_ASSERT_OK(hr_program_evaluate(&programs[k], (void *const *)memory[k], scalars));
  }
  for (int b = 0; b < programs[0].bound_count; ++b) {
    if (!programs[1].buffers[b].is_dead && programs[1].buffers[b].layout != 0) {
      permute(&programs[1].buffers[b], memory[1][b], true);
    }
    for (size_t i = 0; !programs[0].buffers[b].is_dead && i < programs[0].buffers[b].bytes / sizeof(float); ++i) {
      float expected = memory[0][b][i];
      HR_ASSERT_NEAR(memory[1][b][i], expected, 1e-4 * (1 + (expected < 0 ? -expected : expected)));
    }
  }
  int relaid = count_relaid(&programs[1]);
  for (int k = 0; k < 2; ++k) {
    for (int b = 0; b < programs[k].bound_count; ++b) {
      hr_free(memory[k][b]);
    }
    hr_program_fini(&programs[k]);
  }
  return relaid;
}

/* ---- making programs ---- */

typedef struct maker {
  hr_text buffers, nodes;
  int buffer_count;
} maker;

/* A tensor of the text: a dense [N, C, H, W] buffer, or a view of one. */
typedef struct tensor {
  int buffer, rank;
  const char *dtype;
  int64_t offset, dims[4], strides[4];
} tensor;

static tensor make(maker *m, const char *flags, const char *dtype, int rank, int64_t a, int64_t b, int64_t c,
                   int64_t d) {
  tensor t = {.buffer = m->buffer_count++, .rank = rank, .dtype = dtype, .dims = {a, b, c, d}};
  int64_t count = 1;
  for (int i = rank - 1; i >= 0; --i) {
    t.strides[i] = count;
    count *= t.dims[i];
  }
  HR_ASSERT(hr_text_printf(&m->buffers, "buffer %%%d %lld %s\n", t.buffer, (long long)count * (*dtype == 'i' ? 8 : 4),
                           flags));
  return t;
}

static void name(maker *m, const tensor *t) {
  HR_ASSERT(hr_text_printf(&m->nodes, "%%%d:%s[", t->buffer, t->dtype));
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < t->rank; ++i) {
      HR_ASSERT(hr_text_printf(&m->nodes, "%s%lld", i ? "," : "", (long long)(part ? t->strides[i] : t->dims[i])));
    }
    HR_ASSERT(hr_text_printf(&m->nodes, part ? "}+%lld" : "]{", (long long)t->offset));
  }
}

/* A line of the program; each @ in it is the next operand. */
static void node(maker *m, const char *line, const tensor *const *operands) {
  for (int next = 0; *line != 0; ++line) {
    if (*line == '@') {
      name(m, operands[next++]);
    } else {
      HR_ASSERT(hr_text_char(&m->nodes, *line));
    }
  }
  HR_ASSERT(hr_text_char(&m->nodes, '\n'));
}
#define NODE(m, line, ...) node((m), (line), (const tensor *const[]){__VA_ARGS__})

static int check_made(maker *m, const char *scalars) {
  hr_text text = {0};
  HR_ASSERT(hr_text_printf(&text, "%s%s%s", hr_text_chars(&m->buffers), scalars, hr_text_chars(&m->nodes)));
  int relaid = check_same_results(hr_text_chars(&text));
  hr_text_fini(&text);
  hr_text_fini(&m->buffers);
  hr_text_fini(&m->nodes);
  return relaid;
}

static tensor vector(maker *m, const char *flags, int64_t count) {
  return make(m, flags, "f32", 1, count, 0, 0, 0);
}

enum { C = 8 };

/* conv, batch norm, relu, max pool, conv: a training step of them. All activations die, or all live and may have any
 * layout. */
static int check_training(int64_t n, int64_t h, int64_t w, int kernel, int stride, int padding, const char *dead) {
  maker m = {.buffer_count = 0};
  int64_t ph = (h + 2 * padding - kernel) / stride + 1, pw = (w + 2 * padding - kernel) / stride + 1;
  const char *result = "live fresh";
  tensor x = make(&m, "live", "f32", 4, n, 3, h, w), w1 = make(&m, "live", "f32", 4, C, 3, 3, 3);
  tensor w2 = make(&m, "live", "f32", 4, 5, C, 3, 3);
  tensor gamma = vector(&m, "live", C), beta = vector(&m, "live", C);
  tensor y1 = make(&m, dead, "f32", 4, n, C, h, w), y2 = make(&m, dead, "f32", 4, n, C, h, w);
  tensor mean = vector(&m, dead, C), rstd = vector(&m, dead, C), y3 = make(&m, dead, "f32", 4, n, C, h, w);
  tensor pool = make(&m, dead, "f32", 4, n, C, ph, pw), index = make(&m, "dead fresh", "i64", 4, n, C, ph, pw);
  tensor y4 = make(&m, result, "f32", 4, n, 5, ph, pw), dpool = make(&m, dead, "f32", 4, n, C, ph, pw);
  tensor dw2 = make(&m, result, "f32", 4, 5, C, 3, 3), dy3 = make(&m, dead, "f32", 4, n, C, h, w);
  tensor dy2 = make(&m, dead, "f32", 4, n, C, h, w), dy1 = make(&m, dead, "f32", 4, n, C, h, w);
  tensor dgamma = vector(&m, result, C), dbeta = vector(&m, result, C);
  tensor dw1 = make(&m, result, "f32", 4, C, 3, 3, 3);
  char line[128];
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y1, &x, &w1);
  NODE(&m, "@, @, @, _, _ = batch_norm(@, @, @, _, _) ints(1) scalars($0, $1)", &y2, &mean, &rstd, &y1, &gamma, &beta);
  NODE(&m, "@ = relu(@)", &y3, &y2);
  snprintf(line, sizeof line, "@, @ = max_pool(@) ints(%d, %d, %d, %d, %d, %d, 1, 1)", kernel, kernel, stride, stride,
           padding, padding);
  NODE(&m, line, &pool, &index, &y3);
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y4, &pool, &w2);
  NODE(&m, "@ = conv_backward_weight(@, @) ints(2, 1, 1, 1, 1, 1, 1, 1)", &dw2, &pool, &y4);
  NODE(&m, "@ = conv_backward_data(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &dpool, &y4, &w2);
  snprintf(line, sizeof line, "@ = max_pool_backward(@, @) ints(%d, %d, %d, %d, %d, %d, 1, 1)", kernel, kernel, stride,
           stride, padding, padding);
  NODE(&m, line, &dy3, &dpool, &index);
  NODE(&m, "@ = mul(@, @)", &dy2, &dy3, &y3);
  NODE(&m, "@, @, @ = batch_norm_backward(@, @, @, _, _, @, @) ints(1) scalars($1)", &dy1, &dgamma, &dbeta, &dy2, &y1,
       &gamma, &mean, &rstd);
  NODE(&m, "@ = conv_backward_weight(@, @) ints(2, 1, 1, 1, 1, 1, 1, 1)", &dw1, &x, &dy1);
  return check_made(&m, "scalar $0 f64\nscalar $1 f64\n");
}

HR_TEST(a_training_step_keeps_its_results) {
  static const int pools[][3] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 0}, {3, 3, 0}, {2, 1, 0}};
  for (size_t k = 0; k < sizeof pools / sizeof *pools; ++k) {
    for (int64_t size = 5; size < 12; size += 2) {
      for (int free = 0; free < 2; ++free) {
        if (!hr_test_takes((int64_t)k + size / 2 + free)) {
          continue;
        }
        int relaid = check_training(1 + size % 3, size, size + (int64_t)k % 3, pools[k][0], pools[k][1], pools[k][2],
                                    free ? "live fresh free" : "dead fresh");
        HR_ASSERT_EQ(relaid, 3); /* of the second convolution, of its weight's gradient, and dy of the first's */
      }
    }
  }
}

HR_TEST(a_training_step_in_one_format_keeps_its_results) {
  one_format = true;
  for (int64_t size = 6; size < 9; ++size) {
    HR_ASSERT(check_training(2, size, size, 3, 2, 1, "dead fresh") <= 3);
    HR_ASSERT(check_training(2, size, size, 3, 2, 1, "live fresh free") <= 3);
  }
  one_format = false;
}

/* conv of few channels, relu, conv, whose result is visible or not. */
static int relaid_of_two(int64_t channels, int64_t width, bool is_seen) {
  maker m = {.buffer_count = 0};
  tensor x = make(&m, "live", "f32", 4, 2, channels, 6, 5), w1 = make(&m, "live", "f32", 4, width, channels, 3, 3);
  tensor y1 = make(&m, "dead fresh", "f32", 4, 2, width, 6, 5), a = make(&m, "dead fresh", "f32", 4, 2, width, 6, 5);
  tensor w2 = make(&m, "live", "f32", 4, 24, width, 3, 3), sum = make(&m, "live fresh", "f32", 4, 2, 24, 1, 1);
  tensor y2 = make(&m, is_seen ? "live fresh" : "dead fresh", "f32", 4, 2, 24, 6, 5);
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y1, &x, &w1);
  NODE(&m, "@ = relu(@)", &a, &y1);
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y2, &a, &w2);
  NODE(&m, "@ = sum(@) ints(12)", &sum, &y2);
  return check_made(&m, "");
}

HR_TEST(in_one_layout_all_moves_if_little_has_to_stay) {
  one_format = true;
  int unseen = relaid_of_two(2, 16, false), seen = relaid_of_two(16, 16, true), odd = relaid_of_two(2, 12, false);
  one_format = false;
  HR_ASSERT(unseen >= 2);
  HR_ASSERT_EQ(seen, 0);
  HR_ASSERT_EQ(odd, 0); /* fewer channels than the library processes at a time */
  HR_ASSERT(relaid_of_two(2, 12, false) >= 1);
}

/* A library that needs one format, and accepts sums and ReLU in channels-last alone. */
static bool keep_alike_with_sums(void *ctx, const hr_program *program, const hr_node *node) {
  bool is_kept = keep_alike(ctx, program, node);
  for (int i = 0; is_kept && i < node->epilogue_count; ++i) {
    is_kept = is_channels_last(&node->inputs[0]) && is_channels_last(&node->outputs[0]) &&
              (node->epilogues[i].op == HR_OP_ADD || node->epilogues[i].op == HR_OP_RELU);
  }
  return is_kept;
}

/* Inference: conv, batch norm, ReLU, conv, batch norm, residual, ReLU, mean. */
HR_TEST(scales_go_into_weights_that_were_laid_out_anew) {
  maker m = {.buffer_count = 0};
  tensor x = make(&m, "live", "f32", 4, 2, 2, 6, 6), w1 = make(&m, "live", "f32", 4, 16, 2, 3, 3);
  tensor w2 = make(&m, "live", "f32", 4, 16, 16, 3, 3), sum = make(&m, "live fresh", "f32", 4, 2, 16, 1, 1);
  tensor y[7], gamma = vector(&m, "live", 16), beta = vector(&m, "live", 16), mean = vector(&m, "live", 16);
  tensor variance = vector(&m, "live", 16);
  for (int i = 0; i < 7; ++i) {
    y[i] = make(&m, "dead fresh", "f32", 4, 2, 16, 6, 6);
  }
  const char *norm = "@, _, _, _, _ = batch_norm(@, @, @, @, @) ints(0) scalars($0, $1)";
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y[0], &x, &w1);
  NODE(&m, norm, &y[1], &y[0], &gamma, &beta, &mean, &variance);
  NODE(&m, "@ = relu(@)", &y[2], &y[1]);
  NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y[3], &y[2], &w2);
  NODE(&m, norm, &y[4], &y[3], &gamma, &beta, &mean, &variance);
  NODE(&m, "@ = add(@, @)", &y[5], &y[4], &y[2]);
  NODE(&m, "@ = relu(@)", &y[6], &y[5]);
  NODE(&m, "@ = sum(@) ints(12)", &sum, &y[6]);
  hr_program program;
  hr_schedule schedule;
  const hr_target target = {
      .keeps = keep_alike_with_sums, .channels_last = true, .one_format = true, .folds_scales = true, .verify = true};
  hr_text made = {0};
  HR_ASSERT(
      hr_text_printf(&made, "%sscalar $0 f64\nscalar $1 f64\n%s", hr_text_chars(&m.buffers), hr_text_chars(&m.nodes)));
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&made), &program));
  HR_ASSERT_OK(hr_compile(&program, &target, &schedule));
  int epilogues = 0;
  for (int i = 0; i < schedule.step_count; ++i) {
    epilogues += schedule.steps[i].kind == HR_STEP_LIBRARY ? schedule.steps[i].node->epilogue_count : 0;
  }
  HR_ASSERT_EQ(epilogues, 5);
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
  hr_text_fini(&made);
  hr_text_fini(&m.buffers);
  hr_text_fini(&m.nodes);
}

/* The gradients of activations that an earlier program left channels-last: conv, batch norm, relu, conv. */
static int check_backward(int64_t n, int64_t h, int64_t w, bool is_laid_out) {
  maker m = {.buffer_count = 0};
  char image[64], outcome[64];
  snprintf(image, sizeof image, is_laid_out ? "live layout(4,%d,%d)" : "live", C, (int)(h * w));
  snprintf(outcome, sizeof outcome, is_laid_out ? "dead layout(4,%d,%d)" : "dead", 16, (int)(h * w));
  tensor x = make(&m, image, "f32", 4, n, C, h, w), w2 = make(&m, "live", "f32", 4, 16, C, 3, 3);
  tensor y3 = make(&m, image, "f32", 4, n, C, h, w), dy4 = make(&m, outcome, "f32", 4, n, 16, h, w);
  tensor gamma = vector(&m, "live", C), mean = vector(&m, "live", C), rstd = vector(&m, "live", C);
  tensor dw2 = make(&m, "live fresh", "f32", 4, 16, C, 3, 3), dy3 = make(&m, "dead fresh", "f32", 4, n, C, h, w);
  tensor dy2 = make(&m, "live fresh free", "f32", 4, n, C, h, w), dx = make(&m, "live fresh", "f32", 4, n, C, h, w);
  tensor dgamma = vector(&m, "live fresh", C), dbeta = vector(&m, "live fresh", C), slice = y3;
  slice.dims[1] = 2, slice.offset = 3 * h * w;
  tensor sum = vector(&m, "live fresh", 1);
  sum.rank = 4, sum.dims[0] = sum.dims[1] = sum.dims[2] = sum.dims[3] = 1;
  sum.strides[0] = sum.strides[1] = sum.strides[2] = sum.strides[3] = 1;
  NODE(&m, "@ = conv_backward_weight(@, @) ints(2, 1, 1, 1, 1, 1, 1, 1)", &dw2, &y3, &dy4);
  NODE(&m, "@ = conv_backward_data(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &dy3, &dy4, &w2);
  NODE(&m, "@ = threshold_backward(@, @, $1)", &dy2, &dy3, &y3);
  NODE(&m, "@, @, @ = batch_norm_backward(@, @, @, _, _, @, @) ints(1) scalars($0)", &dx, &dgamma, &dbeta, &dy2, &x,
       &gamma, &mean, &rstd);
  NODE(&m, "@ = add(@, $1)", &slice, &slice);
  NODE(&m, "@ = sum(@) ints(15)", &sum, &slice);
  return check_made(&m, "scalar $0 f64\nscalar $1 f64\n");
}

HR_TEST(layouts_of_earlier_programs_are_followed) {
  for (int64_t size = 2; size < 8; ++size) {
    for (int format = 0; format < 2; ++format) {
      one_format = format == 1;
      int laid_out = check_backward(1 + size % 3, size, size + 1, true), plain = check_backward(2, size, size, false);
      one_format = false;
      HR_ASSERT(laid_out == 3 || format == 1); /* both operands of the weights' gradient, and dy of the data's */
      HR_ASSERT_EQ(plain, 0);
    }
  }
}

HR_TEST(views_that_cannot_propagate_are_rejected) {
  const char *text = "buffer %0 480 live layout(4,3,10)\nbuffer %1 480 live fresh\nbuffer %2 480 live layout(4,3,10)\n"
                     "%1:f32[120]{1}+0 = relu(%0:f32[120]{1}+0)\n"
                     "%1:f32[4,3,10]{30,10,1}+0 = relu(%2:f32[4,3,10]{30,10,1}+0)\n";
  hr_program program;
  value_form(text, &program);
  HR_ASSERT_OK(hr_layout(&program, &channels_last, &(bool){false}));
  HR_ASSERT(hr_layout_is_refused(&program));
  HR_ASSERT(program.buffers[0].is_refused && !program.buffers[2].is_refused);
  HR_ASSERT_EQ(program.nodes[1].inputs[0].strides[2], 1); /* nothing else has happened */
  hr_program_fini(&program);
}

/* Two results of convolutions, side by side, upsampled, turned round, averaged. */
HR_TEST(views_of_channels_and_of_the_plane_follow) {
  for (int64_t n = 1; n < 4; ++n) {
    maker m = {.buffer_count = 0};
    tensor x = make(&m, "live", "f32", 4, n, 4, 6, 5), w1 = make(&m, "live", "f32", 4, 3, 4, 1, 1);
    tensor w2 = make(&m, "live", "f32", 4, 2, 5, 3, 3), cat = make(&m, "dead fresh", "f32", 4, n, 5, 6, 5);
    tensor y1 = make(&m, "dead fresh", "f32", 4, n, 3, 6, 5), left = cat, right = cat, turned = cat;
    tensor up = make(&m, "dead fresh", "f32", 4, n, 5, 12, 10), y2 = make(&m, "dead fresh", "f32", 4, n, 2, 12, 10);
    tensor sum = make(&m, "live fresh", "f32", 4, n, 2, 1, 1), copy = make(&m, "live fresh", "f32", 4, n, 5, 6, 5);
    tensor half = make(&m, "dead fresh", "f32", 4, n, 2, 6, 5), last = make(&m, "live fresh", "f32", 4, n, 2, 6, 5);
    left.dims[1] = 3, right.dims[1] = 2, right.offset = 3 * 30;
    turned.offset = 29, turned.strides[2] = -5, turned.strides[3] = -1;
    tensor part = x, plane = y1;
    part.dims[1] = 2, plane.dims[1] = 2;
    NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 0, 0, 1, 1, 1)", &y1, &x, &w1);
    NODE(&m, "@ = tanh(@)", &left, &y1);
    NODE(&m, "@ = add(@, @)", &right, &part, &plane);
    NODE(&m, "@ = neg(@)", &copy, &turned);
    NODE(&m, "@ = upsample_bilinear2d(@) ints(0) scalars($0, $1)", &up, &cat);
    NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 1, 1, 1, 1, 1)", &y2, &up, &w2);
    NODE(&m, "@ = sum(@) ints(12)", &sum, &y2);
    NODE(&m, "@ = avg_pool(@) ints(2, 2, 2, 2, 0, 0, 1, 1, 0, 0)", &half, &y2);
    NODE(&m, "@ = exp(@)", &last, &half);
    HR_ASSERT_EQ(check_made(&m, "scalar $0 f64\nscalar $1 f64\n"), 1);
  }
}

/* Buffers that are live, or seen through a view that crosses the channels, stay. */
HR_TEST(live_and_flattened_buffers_stay) {
  for (int flat = 0; flat < 2; ++flat) {
    maker m = {.buffer_count = 0};
    tensor x = make(&m, "live", "f32", 4, 2, 3, 4, 4), w1 = make(&m, "live", "f32", 4, 5, 3, 1, 1);
    tensor w2 = make(&m, "live", "f32", 4, 2, 5, 1, 1);
    tensor y1 = make(&m, flat ? "dead fresh" : "live fresh", "f32", 4, 2, 5, 4, 4);
    tensor y2 = make(&m, "live fresh", "f32", 4, 2, 2, 4, 4), rows = make(&m, "live fresh", "f32", 2, 2, 80, 0, 0);
    tensor flattened = {.buffer = y1.buffer, .rank = 2, .dtype = "f32", .dims = {2, 80}, .strides = {80, 1}};
    NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 0, 0, 1, 1, 1)", &y1, &x, &w1);
    NODE(&m, "@ = conv(@, @, _) ints(2, 1, 1, 0, 0, 1, 1, 1)", &y2, &y1, &w2);
    NODE(&m, "@ = exp(@)", &rows, &flattened);
    HR_ASSERT_EQ(check_made(&m, ""), 0);
  }
}

HR_TEST(every_failing_allocation_is_an_error) {
  const char *text =
      "buffer %0 288 live layout(4,3,12)\nbuffer %1 48 live\nbuffer %2 384 dead fresh\nbuffer %3 384 dead fresh\n"
      "buffer %4 64 live\nbuffer %5 384 live fresh free\n"
      "%2:f32[2,4,3,4]{48,12,4,1}+0 = conv(%0:f32[2,3,3,4]{36,12,4,1}+0, %1:f32[4,3,1,1]{3,1,1,1}+0, _) "
      "ints(2, 1, 1, 0, 0, 1, 1, 1)\n"
      "%3:f32[2,4,3,4]{48,12,4,1}+0 = relu(%2:f32[2,4,3,4]{48,12,4,1}+0)\n"
      "%5:f32[2,4,3,4]{48,12,4,1}+0 = conv(%3:f32[2,4,3,4]{48,12,4,1}+0, %4:f32[4,4,1,1]{4,1,1,1}+0, _) "
      "ints(2, 1, 1, 0, 0, 1, 1, 1)\n";
  bool is_done = false;
  for (int n = 0; !is_done; ++n) {
    hr_program program;
    value_form(text, &program);
    hr__allocator_fail_after(n);
    hr_status status = hr_layout(&program, &channels_last, &(bool){false});
    hr__allocator_fail_after(-1);
    is_done = status == HR_OK;
    HR_ASSERT_EQ(hr_status_code_of(status), is_done ? HR_STATUS_OK : HR_STATUS_RESOURCE_EXHAUSTED);
    hr_status_free(status);
    hr_program_fini(&program);
  }
}
