/* Checks at record time: rejected operations, their messages, and each row's documented shapes. */
#include "core/ops/op.h"
#include "hr_test.h"

static hr_device *device;
static hr_buffer *buffer; /* 4,096 bytes */

static void open_buffer(void) {
  if (buffer == NULL) {
    HR_ASSERT_OK(hr_device_open("null", &device));
    HR_ASSERT_OK(hr_buffer_create(device, 4096, &buffer));
  }
}

__attribute__((destructor)) static void close_buffer(void) {
  hr_buffer_release(buffer);
  hr_device_release(device);
}

/* Views from text: "f32[2,3]" contiguous, "f32[2,3]{0,1}+5", "f64" (no dims), "-" absent, "=1.5" and "=3" numbers. */
typedef struct views {
  hr_view view[24];
  int64_t dims[24][HR_RANK_MAX + 1], strides[24][HR_RANK_MAX + 1];
  hr_scalar scalars[24];
  int count;
} views;

static int parse_list(const char **cursor, char close, int64_t *out) {
  int count = 0;
  ++*cursor;
  while (**cursor != close) {
    out[count++] = strtoll(*cursor, (char **)(uintptr_t)cursor, 10);
    *cursor += **cursor == ',';
  }
  ++*cursor;
  return count;
}

static void parse_views(const char *text, views *v) {
  memset(v, 0, sizeof *v);
  while (*text != '\0') {
    hr_view *view = &v->view[v->count];
    int64_t *dims = v->dims[v->count], *strides = v->strides[v->count], step = 1;
    if (*text == '-') {
      ++text;
    } else if (*text == '=') {
      const char *start = text + 1;
      double value = strtod(start, (char **)(uintptr_t)&text);
      bool is_real = memchr(start, '.', (size_t)(text - start)) != NULL;
      v->scalars[v->count] = is_real ? hr_scalar_f64(value) : hr_scalar_i64((int64_t)value);
      view->scalar = &v->scalars[v->count];
      view->dtype = view->scalar->dtype;
    } else {
      char name[8] = "";
      size_t length = strcspn(text, "[ ");
      memcpy(name, text, length < 7 ? length : 7);
      text += length;
      *view = (hr_view){.buffer = buffer, .dtype = hr_dtype_parse(name), .dims = dims, .strides = strides};
      view->rank = *text == '[' ? parse_list(&text, ']', dims) : 0;
      for (int d = view->rank - 1; d >= 0; --d) {
        strides[d] = step;
        step *= dims[d];
      }
      if (*text == '{') {
        parse_list(&text, '}', strides);
      }
      view->offset = *text == '+' ? strtoll(text + 1, (char **)(uintptr_t)&text, 10) : 0;
    }
    ++v->count;
    text += strspn(text, " ");
  }
}

static hr_tensor_type type_of(const hr_view *view) {
  hr_tensor_type type = {.dtype = view->dtype, .rank = view->rank, .is_number = view->scalar != NULL};
  for (int d = 0; d < view->rank; ++d) {
    type.dims[d] = view->dims[d], type.strides[d] = view->strides[d];
  }
  return type;
}

/* Infers the outputs of an operation that passes the check. Outputs that the inputs do not determine are given. */
static void expect_inferred(hr_op op, const hr_attrs *attrs, const views *in, const views *out) {
  hr_tensor_type inputs[24], outputs[24];
  for (int i = 0; i < in->count; ++i) {
    inputs[i] = type_of(&in->view[i]);
  }
  for (int i = 0; i < out->count; ++i) {
    outputs[i] = type_of(&out->view[i]);
  }
  HR_ASSERT_OK(hr_op_infer(op, attrs, in->count, inputs, out->count, outputs));
  for (int i = 0; i < out->count; ++i) {
    const hr_view *view = &out->view[i];
    HR_ASSERT(view->buffer == NULL || outputs[i].dtype == view->dtype);
    HR_ASSERT(view->buffer == NULL || outputs[i].rank == view->rank);
    for (int d = 0; d < view->rank; ++d) {
      HR_ASSERT_EQ(outputs[i].dims[d], view->dims[d]);
    }
  }
}

/* `ints` is a list in text; all scalars are 1.0. */
static hr_status check(hr_op op, const char *inputs, const char *outputs, const char *ints, int scalar_count) {
  static views in, out;
  int64_t values[32];
  hr_scalar scalars[8];
  hr_attrs attrs = {.scalar_count = scalar_count, .ints = values, .scalars = scalars};
  open_buffer();
  parse_views(inputs, &in);
  parse_views(outputs, &out);
  while (*ints != '\0') {
    values[attrs.int_count++] = strtoll(ints, (char **)(uintptr_t)&ints, 10);
    ints += strspn(ints, ", ");
  }
  for (int i = 0; i < 8; ++i) {
    scalars[i] = hr_scalar_f64(1);
  }
  hr_status status = hr_op_check(op, &attrs, in.count, in.view, out.count, out.view);
  if (status == HR_OK && hr_op_table(op)->family != HR_FAMILY_POINTWISE) {
    expect_inferred(op, &attrs, &in, &out);
  }
  return status;
}

#define PASS(op, inputs, outputs, ints, scalars) HR_ASSERT_OK(check(HR_OP_##op, inputs, outputs, ints, scalars))
#define REFUSE(op, inputs, outputs, ints, scalars, part) \
  HR_ASSERT_ERROR(check(HR_OP_##op, inputs, outputs, ints, scalars), HR_STATUS_INVALID_ARGUMENT, part)
#define LACK(op, inputs, outputs, ints, scalars, part) \
  HR_ASSERT_ERROR(check(HR_OP_##op, inputs, outputs, ints, scalars), HR_STATUS_UNIMPLEMENTED, part)

HR_TEST(element_wise_operands_are_broadcast) {
  PASS(ADD, "f32[2,3] f32[3]", "f32[2,3]", "", 0);
  PASS(ADD, "f32[2,3] =1.5", "f32[2,3]", "", 0);
  PASS(ADD, "f32[2,1]{1,0} f32", "f32[2,3]", "", 0);
  PASS(ADD, "f32[0,3] f32[1]", "f32[0,3]", "", 0);
  PASS(NEG, "f32[3]{-1}+2", "f32[3]", "", 0);
  REFUSE(ADD, "f32[2,3] f32[2]", "f32[2,3]", "", 0,
         "add: input 1 of dims [2] can't be broadcast to the output's [2,3]");
  REFUSE(ADD, "f32[2,3] f32[1,2,3]", "f32[2,3]", "", 0, "input 1 of dims [1,2,3]");
  REFUSE(ADD, "f32[2,3]", "f32[2,3]", "", 0, "add: 1 inputs for 1 outputs: 2 for each are needed");
  REFUSE(ADD, "f32[2,3] -", "f32[2,3]", "", 0, "add: input 1 is absent");
  REFUSE(ADD, "f32[2] f32[2]", "=1.0", "", 0, "output 0 is a number, not a tensor");
}

HR_TEST(lists_are_checked_element_by_element) {
  PASS(MUL, "f32[2] f32[5] =2.0 =2.0", "f32[2] f32[5]", "", 0);
  REFUSE(MUL, "f32[2] f32[5] =2.0", "f32[2] f32[5]", "", 0, "3 inputs for 2 outputs");
  REFUSE(MUL, "f32[2] f32[5] =2.0 f32[4]", "f32[2] f32[5]", "", 0, "input 3 of dims [4]");
}

HR_TEST(views_stay_in_their_buffer) {
  PASS(NEG, "f32[32,32]", "f32[32,32]{1,32}", "", 0);
  REFUSE(NEG, "f32[1024]+1", "f32[1024]", "", 0,
         "neg: input 0 of dims [1024] reaches elements 1 to 1024 of a buffer of 4096 bytes (1024 of f32)");
  REFUSE(NEG, "f32[4]{-1}+2", "f32[4]", "", 0, "reaches elements -1 to 2");
  REFUSE(NEG, "f32[4]", "f64[513]", "", 0, "output 0 of dims [513]");
  REFUSE(NEG, "f32[4]", "f32[2,4]{0,1}", "", 0, "expanded along dim 0");
  PASS(NEG, "f32[0]", "f32[2,0]{0,1}", "", 0); /* writes nothing */
  REFUSE(NEG, "f32[4]", "f32[-4]", "", 0, "output 0 has dims [-4]");
  REFUSE(NEG, "f99[4]", "f32[4]", "", 0, "input 0 has no dtype");
  REFUSE(NEG, "f32[4]{9223372036854775807}", "f32[4]", "", 0, "reaches elements");
  REFUSE(NEG, "f32[4]{1073741824}", "f32[4]", "", 0, "reaches elements 0 to 3221225472");
  /* 2^60 elements of 16 bytes: a product of 64 bits would be 0 */
  REFUSE(NEG,
         "c128[268435457,268435457,268435457,268435457,268435457,268435457,268435457,268435456,536870912]"
         "{536870912,536870912,536870912,536870912,536870912,536870912,536870912,536870912,1}",
         "c128[4]", "", 0, "reaches elements 0 to 1152921504606846975");
  REFUSE(NEG, "f32[1]", "f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "", 0, "has 17 dims: at most 16");
  PASS(NEG, "f32[0]+5000", "f32[0]", "", 0);
}

HR_TEST(dtypes_fit_the_row) {
  LACK(DIV, "i32[2] i32[2]", "i32[2]", "", 0, "div: not for inputs of i32, i32 and an output of i32");
  PASS(DIV, "i32[2] i32[2]", "f32[2]", "", 0);
  LACK(BIT_AND, "f32[2] f32[2]", "f32[2]", "", 0, "bit_and: not for");
  LACK(BIT_NOT, "bool[2]", "bool[2]", "", 0, "(bool: logical_not)");
  LACK(LT, "c64[2] f32[2]", "bool[2]", "", 0, "lt: not for inputs of c64, f32");
  PASS(EQ, "c64[2] f32[2]", "bool[2]", "", 0);
  LACK(ADD, "c64[2] f32[2]", "f32[2]", "", 0, "add: not for");
  PASS(COPY, "c64[2]", "i8[2]", "", 0);
  PASS(ABS_COMPLEX, "c64[2]", "f32[2]", "", 0);
  LACK(ABS_COMPLEX, "c64[2]", "c64[2]", "", 0, "not for");
  PASS(WHERE, "bool[2] f32[2] =1", "f32[2]", "", 0);
  PASS(PHILOX_UNIFORM, "i64[2] =1 =2", "f32[2]", "", 0);
  LACK(PHILOX_UNIFORM, "i64[2] =1.0 =2", "f32[2]", "", 0, "not for");
}

HR_TEST(reductions_keep_dims_as_one) {
  PASS(SUM, "f32[2,3]", "f32[2,1]", "2", 0);
  PASS(SUM, "f32", "f32", "0", 0);
  PASS(SUM, "u8[2,3]", "i64[1,1]", "3", 0);
  PASS(SUM, "f32[0]", "f32[1]", "1", 0);
  PASS(MEAN, "f32[2,3]", "f32[1,3]", "1", 0);
  PASS(VAR_MEAN, "f32[2,3]", "f32[2,1] f32[2,1]", "2,0", 1);
  REFUSE(SUM, "f32[2,3]", "f32[2]", "2", 0,
         "sum: an output of dims [2] for an input of [2,3]: expected 1 in the dims of mask 0x2");
  REFUSE(SUM, "f32[2,3]", "f32[2,1]", "4", 0, "mask 0x4");
  REFUSE(SUM, "f32[2,3]", "f32[2,1]", "", 0, "expected 1, 1, 1");
  REFUSE(AMAX, "f32[2,0]", "f32[2,1]", "2", 0, "amax: no elements to reduce in dims [2,0]");
  REFUSE(MEAN, "f32[2,3]", "f32[2,3]", "2", 0, "mean: an output of dims [2,3]");
  LACK(AMAX, "c64[2]", "c64[1]", "1", 0, "amax: not for");
  PASS(ARGMAX, "f32[2,3]", "i64[2,1]", "2", 0);
  PASS(ARGMAX, "f32[2,3] i64[3]", "i64[2,1]", "2", 0);
  LACK(ARGMAX, "f32[2,3]", "f32[2,1]", "2", 0, "argmax: not for");
  PASS(NORM, "f32[0,3]", "f32[1,3]", "1,3", 1);
  REFUSE(NORM, "f32[0,3]", "f32[1,3]", "1,4", 1, "no elements in the reduced dims");
}

HR_TEST(products) {
  PASS(MATMUL, "f32[2,4] f32[4,3]", "f32[2,3]", "", 0);
  PASS(MATMUL, "f32[5,1,2,4] f32[6,4,3] f32[3]", "f32[5,6,2,3]", "", 0);
  REFUSE(MATMUL, "f32[2,4] f32[5,3]", "f32[2,3]", "", 0, "matmul: inner sizes differ: 4 != 5");
  REFUSE(MATMUL, "f32[2,4] f32[4,3]", "f32[3,2]", "", 0, "matmul: the output has dims [3,2], expected [2,3]");
  REFUSE(MATMUL, "f32[2,2,4] f32[3,4,3]", "f32[2,2,3]", "", 0, "matmul: batch sizes differ in dim 0: 2 != 3");
  REFUSE(MATMUL, "f32[2,4] f32[4,3] f32[2]", "f32[2,3]", "", 0, "the bias of dims [2] can't be broadcast");
  REFUSE(MATMUL, "f32[4] f32[4,3]", "f32[3]", "", 0, "a has dims [4]");
  REFUSE(MATMUL, "f32[2,4] -", "f32[2,3]", "", 0, "matmul: input 1 is absent");
}

HR_TEST(convolutions) {
  PASS(CONV, "f32[1,4,8,8] f32[6,4,3,3] f32[6]", "f32[1,6,4,4]", "2,2,2,1,1,1,1,1", 0);
  PASS(CONV, "f32[1,4,8] f32[6,2,3]", "f32[1,6,4]", "1,1,0,2,2", 0);
  PASS(CONV_BACKWARD_DATA, "f32[1,6,4,4] f32[6,4,3,3]", "f32[1,4,8,8]", "2,2,2,1,1,1,1,1", 0);
  PASS(CONV_BACKWARD_WEIGHT, "f32[1,4,8,8] f32[1,6,4,4]", "f32[6,4,3,3]", "2,2,2,1,1,1,1,1", 0);
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,5,4]", "2,2,2,1,1,1,1,1", 0, "spatial dim 0: x 8, kernel 3");
  REFUSE(CONV, "f32[1,5,8,8] f32[6,4,3,3]", "f32[1,6,4,4]", "2,2,2,1,1,1,1,1", 0,
         "x has 5 channels, the weight expects 4");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,4,4]", "2,2,2,1,1,1,1,0", 0, "0 groups");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,4,4]", "2,0,2,1,1,1,1,1", 0, "stride 0");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,4,4]", "2,2,2,1,1", 0, "2 spatial dims and 5 ints");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,4,4]", "2,2,2,99999999999,1,1,1,1", 0, "expected 32 bits");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,1,1]", "2,2147483648,1,0,0,1,1,1", 0, "expected 32 bits");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,6,6]", "2,1,1,0,0,1,-2147483649,1", 0, "expected 32 bits");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "f32[1,6,6,6]", "2,1,0,0,0,1,1,1", 0,
         "stride 0, padding 0 and 0, dilation 1");
  REFUSE(CONV, "f32[1,0,8,8] f32[0,4,3,3]", "f32[1,0,6,6]", "2,1,1,0,0,1,1,4611686018427387904", 0, "expected 32 bits");
}

HR_TEST(normalisations) {
  PASS(SOFTMAX, "f32[2,3]", "f32[2,3]", "1", 0);
  REFUSE(SOFTMAX, "f32[2,3]", "f32[2,3]", "2", 0, "softmax: dim 2 of 2");
  REFUSE(SOFTMAX, "f32[2,3]", "f32[3,2]", "1", 0, "softmax: the output has dims [3,2], expected [2,3]");
  PASS(LAYER_NORM, "f32[2,3,4] f32[3,4] -", "f32[2,3,4] f32[2,1,1] -", "2", 1);
  REFUSE(LAYER_NORM, "f32[2,3,4] f32[4]", "f32[2,3,4]", "2", 1, "layer_norm: the weight has dims [4], expected [3,4]");
  REFUSE(LAYER_NORM, "f32[2,3,4]", "f32[2,3,4]", "2", 0, "1 ints and 0 scalars, expected 1 and 1");
  PASS(GROUP_NORM, "f32[2,6,4] f32[6] f32[6]", "f32[2,6,4] f32[2,3] f32[2,3]", "3", 1);
  REFUSE(GROUP_NORM, "f32[2,6,4]", "f32[2,6,4]", "4", 1, "6 channels don't divide into 4 groups");
  PASS(BATCH_NORM, "f32[2,3,4] f32[3] f32[3] f32[3] f32[3]", "f32[2,3,4] f32[3] f32[3] f32[3] f32[3]", "1", 2);
  REFUSE(BATCH_NORM, "f32[2,3,4]", "f32[2,3,4]", "0", 2, "running statistics are needed");
  REFUSE(BATCH_NORM, "f32[2,3,4] f32[4]", "f32[2,3,4]", "1", 2, "has dims [4], expected [3]");
}

HR_TEST(losses) {
  PASS(NLL_LOSS, "f32[2,3] i64[2]", "f32 f32", "1", 1);
  PASS(NLL_LOSS, "f32[2,3,4] i64[2,4] f32[3]", "f32[2,4] f32", "0", 1);
  PASS(NLL_LOSS, "f32[3] i64", "f32 f32", "1", 1);
  REFUSE(NLL_LOSS, "f32[2,3] f32[2]", "f32 f32", "1", 1, "the target is f32, expected integers");
  REFUSE(NLL_LOSS, "f32[2,3] i64[3]", "f32 f32", "1", 1, "the target has dims [3], expected [2]");
  REFUSE(NLL_LOSS, "f32[2,3] i64[2]", "f32[2] f32", "1", 1, "the loss has dims [2], expected one element");
  PASS(MSE_LOSS, "f32[2,3] f32[2,3]", "f32", "1", 0);
  REFUSE(MSE_LOSS, "f32[2,3] f32[2]", "f32", "1", 0, "the target of dims [2] can't be broadcast to [2,3]");
  PASS(MSE_LOSS_BACKWARD, "f32 f32[2,3] f32[2,3]", "f32[2,3]", "1", 0);
  REFUSE(NLL_LOSS, "f32[2,0] i64[2]", "f32", "1", 1, "no classes for 2 targets");
}

HR_TEST(windows) {
  PASS(MAX_POOL, "f32[1,2,8,8]", "f32[1,2,4,4] i64[1,2,4,4]", "2,2,2,2,0,0,1,1", 0);
  PASS(MAX_POOL, "f32[2,7,7]", "f32[2,4,3]", "2,2,2,2,0,0,1,1", 0); /* the last window is cut in one dim */
  REFUSE(MAX_POOL, "f32[1,2,8,8]", "f32[1,2,5,4]", "2,2,2,2,0,0,1,1", 0, "take 8 to 4, not 5");
  REFUSE(MAX_POOL, "f32[1,2,8,8]", "f32[1,3,4,4]", "2,2,2,2,0,0,1,1", 0, "dim 1 of the planes differs: 2 != 3");
  PASS(AVG_POOL_BACKWARD, "f32[1,2,4,4]", "f32[1,2,8,8]", "2,2,2,2,0,0,1,1,1,0", 0);
  PASS(MAX_POOL, "f32[2,3,7]", "f32[2,3,3]", "2,2,0,1", 0);
  PASS(AVG_POOL, "f32[2,6,6,6]", "f32[2,3,3,3]", "2,2,2,2,2,2,0,0,0,1,1,1,0,0", 0);
  REFUSE(AVG_POOL, "f32[1,2,8,8]", "f32[1,2,4,4]", "2,2,2,2,0,0,1,1", 0, "8 ints");
  REFUSE(ADAPTIVE_MAX_POOL, "f32[1,2,8,8]", "f32[1,2,4,4]", "4", 0, "planes of 4 dims");
  PASS(RESAMPLE, "f32[2,3,5]", "f32[2,7,5]", "1,2,0,0", 1);
  REFUSE(RESAMPLE, "f32[2,3,5]", "f32[2,7,6]", "1,2,0,0", 1, "y has dims [2,7,6], expected [2,7,5]");
  REFUSE(RESAMPLE, "f32[2,3]", "f32[2,7]", "1,7,0,0", 1, "kind 7");
  PASS(GRID_SAMPLE, "f32[2,3,4,5] f32[2,6,7,2]", "f32[2,3,6,7]", "0,0,0", 0);
  REFUSE(GRID_SAMPLE, "f32[2,3,4,5] f32[2,6,7,3]", "f32[2,3,6,7]", "0,0,0", 0, "expected [2,6,7,2]");
  PASS(IM2COL, "f32[2,4,4]", "f32[2,3,3,2,2]", "3,3,1,1,0,0,1,1", 0);
  REFUSE(IM2COL, "f32[2,4,4]", "f32[2,3,2,2,2]", "3,3,1,1,0,0,1,1", 0, "dim 2 of the columns is 2, the kernel 3");
  PASS(PAD_BORDER, "f32[2,3]", "f32[2,7]", "0,0,2,0,2", 0);
  REFUSE(PAD_BORDER, "f32[2,3]", "f32[2,8]", "0,0,3,0,2", 0, "dim 1 of 3 elements gets 3 before and 2 after");
  PASS(PAD_BORDER, "f32[2,3]", "f32[2,9]", "2,0,3,0,3", 0);
  PASS(PAD_BORDER, "f32[2,3]", "f32[2,9]", "3,0,3,0,3", 0);
  REFUSE(PAD_BORDER, "f32[2,3]", "f32[2,7]", "2,0,4,0,0", 0, "dim 1 of 3 elements gets 4 before and 0 after");
  REFUSE(PAD_BORDER, "f32[2,3]", "f32[2,7]", "3,0,0,0,4", 0, "dim 1 of 3 elements gets 0 before and 4 after");
  REFUSE(PAD_BORDER, "f32[2,3]", "f32[2,5]", "4,0,1,0,1", 0, "kind 4 of border, expected 0 to 3");
  REFUSE(PAD_BORDER, "f32[2,0]", "f32[2,1]", "1,0,1,0,0", 0, "dim 1 of 0 elements");
  PASS(UPSAMPLE_BILINEAR2D, "f32[1,2,4,4]", "f32[1,2,9,7]", "0", 2);
  REFUSE(UPSAMPLE_BILINEAR2D, "f32[4,4]", "f32[9,7]", "0", 2, "expected 3 to 4 of them");
  REFUSE(UPSAMPLE_NEAREST2D, "f32[2,1,0]", "f32[2,4,2]", "0", 2, "planes of 1 x 0 and 4 x 2: expected elements");
  PASS(UPSAMPLE_NEAREST2D, "f32[0,1,3]", "f32[0,4,2]", "0", 2);
}

HR_TEST(index_maps) {
  PASS(CAT, "f32[2,3] f32[2,1]", "f32[2,4]", "1", 0);
  REFUSE(CAT, "f32[2,3] f32[2,1]", "f32[2,5]", "1", 0, "dim 1 of the inputs is 4 in all, of the output 5");
  REFUSE(CAT, "f32[2,3] f32[3,1]", "f32[2,4]", "1", 0, "dim 0 of input 1 is 3, of the output 2");
  PASS(PAD, "f32[2,3]", "f32[3,2]", "1,0,0,-1", 1);
  REFUSE(PAD, "f32[2,3]", "f32[3,3]", "1,0,0,-1", 1, "dim 1: 3 + 0 before + -1 after != 3");
  PASS(INDEX_SELECT, "f32[5,4] i64[2,3]", "f32[2,3,4]", "0", 0);
  REFUSE(INDEX_SELECT, "f32[5,4] i64[2,3]", "f32[2,4]", "0", 0, "expected 3 of them");
  REFUSE(INDEX_SELECT, "f32[5,4] f32[2]", "f32[2,4]", "0", 0, "the index is f32");
  PASS(GATHER, "f32[5,4] i64[2,4]", "f32[2,4]", "0", 0);
  REFUSE(GATHER, "f32[5,4] i64[2,5]", "f32[2,5]", "0", 0, "the index's dims [2,5] don't fit into an input of [5,4]");
  PASS(SCATTER, "i64[2,4] f32[3,4]", "f32[5,4]", "0,1,0", 0);
  PASS(SCATTER, "i64[2,4] =1.0", "f32[5,4]", "0,1,0", 0);
  REFUSE(SCATTER, "i64[2,4] f32[1,4]", "f32[5,4]", "0,1,0", 0, "don't fit into a source of [1,4]");
  REFUSE(SCATTER, "i64[2,4] f32[2,4]", "f32[5,4]", "0,5,0", 0, "mode 5");
  PASS(INDEX, "f32[5,4,3] i64[2] i64[2]", "f32[2,4]", "5,0", 0);
  PASS(INDEX, "f32[5,4,3] i64[2,1] i64[1,6]", "f32[4,2,6]", "5,1", 0);
  REFUSE(INDEX, "f32[5,4,3] i64[2] i64[3]", "f32[2,4]", "5,0", 0, "dim 0 of the indices differs: 2 != 3");
  REFUSE(INDEX, "f32[5,4,3] i64[2]", "f32[2,4]", "5,0", 0, "mask 0x5 of 3 dims for 1 indices");
  PASS(INDEX_PUT, "f32[4] i64[2]", "f32[5,4]", "1,0,1", 0);
  REFUSE(INDEX_PUT, "f32[3] i64[2]", "f32[5,4]", "1,0,1", 0, "the values of dims [3] can't be broadcast to [2,4]");
  PASS(INDEX_ADD, "i64[2] f32[2,4]", "f32[5,4]", "0", 1);
  REFUSE(INDEX_ADD, "i64[3] f32[2,4]", "f32[5,4]", "0", 1, "the source has dims [2,4], expected [3,4]");
  PASS(EMBEDDING_BACKWARD, "f32[2,3,4] i64[2,3]", "f32[9,4]", "-1,0", 0);
  PASS(TRI, "f32[2,3]", "f32[2,3]", "1", 1);
  PASS(ARANGE, "", "i64[5]", "", 2);
  PASS(CUMSUM, "f32", "f32", "0", 0);
  PASS(CUMPROD, "f32", "f32", "0", 0);
  PASS(LOGCUMSUMEXP, "f32", "f32", "0", 0);
}

HR_TEST(random_fills_cells_attention_optimizers) {
  PASS(DROPOUT, "f32[2,3]", "f32[2,3] bool[2,3]", "", 3);
  PASS(NORMAL, "", "f32[2,3]", "", 4);
  PASS(NORMAL, "f32[3] -", "f32[2,3]", "", 4);
  REFUSE(UNIFORM, "", "f32[2]", "", 3, "0 ints and 3 scalars, expected 0 and 4");
  PASS(LSTM_CELL, "f32[2,12] f32[2,12] f32[2,3] f32[12] -", "f32[2,3] f32[2,3] f32[2,12]", "", 0);
  REFUSE(LSTM_CELL, "f32[2,9] f32[2,12] f32[2,3]", "f32[2,3] f32[2,3] f32[2,12]", "", 0,
         "the input gates has dims [2,9]");
  PASS(GRU_CELL, "f32[2,9] f32[2,9] f32[2,3]", "f32[2,3] f32[2,15]", "", 0);
  PASS(LSTM, "f32[5,2,12] f32[2,3] f32[2,3] f32[12,3]", "f32[5,2,3] - - f32[2,3] -", "0", 0);
  REFUSE(LSTM, "f32[5,2,12] f32[2,3] f32[2,3] f32[9,3]", "f32[5,2,3]", "0", 0, "the weight has dims [9,3]");
  REFUSE(LSTM, "f32[5,2,12] f32[1,3] f32[2,3] f32[12,3]", "f32[5,2,3]", "0", 0, "h has dims [1,3]");
  REFUSE(LSTM, "f32[2,12] f32[2,3] f32[2,3] f32[12,3]", "f32[5,2,3]", "0", 0, "the input gates");
  REFUSE(GRU, "f32[5,2,9] f32[2,3] f32[9,3] f32[9]", "f32[5,2,3] f32[5,2,12]", "0", 0,
         "the workspace has dims [5,2,12]");
  REFUSE(GRU_BACKWARD, "f32[4,2,3] - f32[5,2,15] f32[9,3]", "f32[5,2,9] f32[5,2,9]", "0", 0, "dh has dims [4,2,3]");
  PASS(ATTENTION, "f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6] bool[4,5]", "f32[1,2,4,6] f32[1,2,4]", "0", 1);
  REFUSE(ATTENTION, "f32[1,2,4,8] f32[1,2,5,7] f32[1,2,5,6]", "f32[1,2,4,6]", "0", 1,
         "k has dims [1,2,5,7], expected [1,2,5,8]");
  REFUSE(ATTENTION, "f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6]", "f32[1,2,4,6]", "0", 3, "3 scalars, expected 1, 2 or 4");
  PASS(ADAM, "f32[2] f32[3] f32 f32", "f32[2] f32[3] f32[2] f32[3] f32[2] f32[3]", "0,0,0", 5);
  REFUSE(ADAM, "f32[2] f32[3] f32 f32", "f32[2] f32[3] f32[2] f32[3] f32[2] f32[4]", "0,0,0", 5,
         "a state has dims [4], expected [3]");
  REFUSE(ADAM, "f32[2] f32[3] f32", "f32[2] f32[3] f32[2] f32[3] f32[2] f32[3]", "0,0,0", 5, "3 inputs and 6 outputs");
  PASS(SGD, "f32[2] f32[3]", "f32[2] f32[3] f32[2] f32[3]", "0,0,0,1", 4);
  PASS(CHECK_INDEX, "i64", "", "0,5,0", 0);
  REFUSE(CHECK_INDEX, "f32", "", "0,5,0", 0, "expected an i64 tensor");
}

/* Every row has a rule: without any operands each reports the missing one. */
HR_TEST(every_row_has_a_rule) {
  for (int op = HR_OP_NONE; op <= HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    bool has_own = row->family >= HR_FAMILY_CONTRACTION && row->family != HR_FAMILY_LIBRARY;
    HR_ASSERT(!has_own || row->infer != NULL);
    HR_ASSERT(row->family != HR_FAMILY_LIBRARY || row->shapes != NULL);
    hr_status status = hr_op_check((hr_op)op, NULL, 0, NULL, 0, NULL);
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_INVALID_ARGUMENT);
    hr_status_free(status);
  }
}
