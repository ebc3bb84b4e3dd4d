/* Inference of types: the results of each row, from PyTorch's documentation and the rows' own, with no outputs given
 * unless the row leaves a choice. Then the rejected operands and the messages. */
#include "core/ops/op.h"
#include "hr_test.h"

/* Types from text: "f32[2,3]" row-major, "f32[2,3]{1,2}", "f64" (no dims), "-" absent, "=f64" a number of that kind,
 * "[2,3]" dims without a dtype. */
typedef struct types {
  hr_tensor_type type[24];
  int count;
} types;

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

static const char *parse_type(const char *text, hr_tensor_type *type) {
  char name[16] = "";
  *type = (hr_tensor_type){.is_number = *text == '='};
  text += *text == '=' || *text == '-';
  size_t length = strcspn(text, "[ ");
  memcpy(name, text, length < sizeof name ? length : sizeof name - 1);
  text += length;
  type->dtype = hr_dtype_parse(name);
  type->rank = *text == '[' ? parse_list(&text, ']', type->dims) : 0;
  int64_t stride = 1;
  for (int d = type->rank - 1; d >= 0; --d) {
    type->strides[d] = stride;
    stride *= type->dims[d];
  }
  if (*text == '{') {
    parse_list(&text, '}', type->strides);
  }
  return text;
}

static types parse_types(const char *text) {
  types t = {.count = 0};
  while (*text != '\0') {
    text = parse_type(text, &t.type[t.count++]);
    text += strspn(text, " ");
  }
  return t;
}

/* inputs -> outputs; `given` are the outputs' parts that the caller chooses. Scalars in text: "1 2.5". */
typedef struct golden {
  hr_op op;
  const char *inputs, *ints, *scalars, *given, *outputs;
} golden;

static hr_status infer(const golden *g, int output_count, types *out) {
  types in = parse_types(g->inputs);
  int64_t ints[32];
  hr_scalar scalars[8];
  hr_attrs attrs = {.ints = ints, .scalars = scalars};
  for (const char *text = g->ints; *text != '\0'; text += strspn(text, ", ")) {
    ints[attrs.int_count++] = strtoll(text, (char **)(uintptr_t)&text, 10);
  }
  for (const char *text = g->scalars; *text != '\0'; text += strspn(text, " ")) {
    bool is_real = memchr(text, '.', strcspn(text, " ")) != NULL;
    double value = strtod(text, (char **)(uintptr_t)&text);
    scalars[attrs.scalar_count++] = is_real ? hr_scalar_f64(value) : hr_scalar_i64((int64_t)value);
  }
  *out = parse_types(g->given);
  out->count = output_count;
  return hr_op_infer(g->op, &attrs, in.count, in.type, out->count, out->type);
}

static void expect(const golden *g) {
  types wanted = parse_types(g->outputs), out;
  hr_status status = infer(g, wanted.count, &out);
  if (status != HR_OK) {
    hr_test_fail(__FILE__, __LINE__, "%s of %s: %s", hr_op_table(g->op)->name, g->inputs, hr_status_message(status));
  }
  for (int i = 0; i < wanted.count; ++i) {
    const hr_tensor_type *a = &out.type[i], *b = &wanted.type[i];
    bool is_equal = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; is_equal && d < b->rank; ++d) {
      is_equal = a->dims[d] == b->dims[d] && (b->dims[d] <= 1 || a->strides[d] == b->strides[d]);
    }
    if (!is_equal) {
      hr_test_fail(__FILE__, __LINE__, "%s of %s: output %d is %s of rank %d, dims %lld, %lld, .., expected %s",
                   hr_op_table(g->op)->name, g->inputs, i, hr_dtype_name(a->dtype), a->rank, (long long)a->dims[0],
                   (long long)a->dims[1], g->outputs);
    }
  }
}

#define ROW(op, ...) \
  { HR_OP_##op, __VA_ARGS__ }

static const golden goldens[] = {
    /* products; the sizes of convolutions are examples of PyTorch's documentation */
    ROW(MATMUL, "f32[2,4] f32[4,3]", "", "", "", "f32[2,3]"),
    ROW(MATMUL, "bf16[5,1,2,4] f32[6,4,3] f32[3]", "", "", "", "f32[5,6,2,3]"),
    ROW(CONV, "f32[20,16,50,100] f32[33,16,3,3] f32[33]", "2,2,2,0,0,1,1,1", "", "", "f32[20,33,24,49]"),
    ROW(CONV, "f32[20,16,50,100] f32[33,16,3,5]", "2,2,1,4,2,1,1,1", "", "", "f32[20,33,28,100]"),
    ROW(CONV, "f32[20,16,50,100] f32[33,16,3,5]", "2,2,1,4,2,3,1,1", "", "", "f32[20,33,26,100]"),
    ROW(CONV, "f16[20,16,50] f16[33,16,3]", "1,2,0,1,1", "", "", "f16[20,33,24]"),
    ROW(CONV, "f32[20,16,10,50,100] f32[33,16,3,5,2]", "3,2,1,1,4,2,0,1,1,1,1", "", "", "f32[20,33,8,50,99]"),
    ROW(CONV, "f32[1,4,8] f32[6,2,3]", "1,1,0,2,2", "", "", "f32[1,6,4]"),
    ROW(CONV, "f32[1,1,2] f32[1,1,5]", "1,1,0,1,1", "", "", "f32[1,1,0]"),
    ROW(CONV_BACKWARD_DATA, "f32[20,16,50,100] f32[16,33,3,3]", "2,2,2,0,0,1,1,1", "", "", "f32[20,33,101,201]"),
    ROW(CONV_BACKWARD_DATA, "f32[20,16,50,100] f32[16,33,3,5] f32[33]", "2,2,1,4,2,1,1,1", "", "", "f32[20,33,93,100]"),
    ROW(CONV_BACKWARD_DATA, "f32[1,16,6,6] f32[16,16,3,3]", "2,2,2,1,1,1,1,1", "", "[1,16,12,12]", "f32[1,16,12,12]"),
    ROW(CONV_BACKWARD_WEIGHT, "f32[20,16,50,100] f32[20,33,48,98]", "2,1,1,0,0,1,1,1", "", "", "f32[33,16,3,3]"),
    ROW(CONV_BACKWARD_WEIGHT, "f32[1,4,8,8] f32[1,6,4,4]", "2,2,2,1,1,1,1,2", "", "[6,2,3,3]", "f32[6,2,3,3]"),

    /* reductions and normalisations */
    ROW(SUM, "f32[2,3]", "2", "", "", "f32[2,1]"),
    ROW(SUM, "u8[2,3]", "3", "", "", "i64[1,1]"),
    ROW(SUM, "bool[2,3]", "0", "", "f64", "f64[2,3]"),
    ROW(PROD, "i32[2]", "1", "", "", "i64[1]"),
    ROW(AMAX, "i16[2,3]", "1", "", "", "i16[1,3]"),
    ROW(AMIN, "f16[2,3]", "1", "", "", "f16[1,3]"),
    ROW(ANY, "f32[2,3]", "1", "", "", "bool[1,3]"),
    ROW(ALL, "i64[0]", "1", "", "", "bool[1]"),
    ROW(XOR, "i8[4]", "1", "", "", "i8[1]"),
    ROW(ARGMAX, "f32[2,3]", "2", "", "", "i64[2,1]"),
    ROW(ARGMIN, "f32[2,3] i64[3]", "2", "", "", "i64[2,1]"),
    ROW(MEAN, "f32[2,3]", "1", "", "", "f32[1,3]"),
    ROW(MEAN, "i64[2,3]", "3", "", "", "f32[1,1]"),
    ROW(VAR_MEAN, "c64[2,3]", "2,0", "1", "", "f32[2,1] c64[2,1]"),
    ROW(NORM, "c128[2,3]", "2", "2.", "", "f64[2,1]"),
    ROW(LOGSUMEXP, "f32[2,3]", "2", "", "", "f32[2,1]"),
    ROW(SOFTMAX, "f16[2,3]", "1", "", "", "f16[2,3]"),
    ROW(LOG_SOFTMAX, "f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(SOFTMAX_BACKWARD, "f32[2,3] f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(LOG_SOFTMAX_BACKWARD, "f32[2,3] f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(LAYER_NORM, "f32[20,5,10,10] f32[10,10] f32[10,10]", "2", "1e-5", "",
        "f32[20,5,10,10] f32[20,5,1,1] f32[20,5,1,1]"),
    ROW(LAYER_NORM, "bf16[2,3] - -", "1", "1e-5", "", "bf16[2,3] f32[2,1] f32[2,1]"),
    ROW(LAYER_NORM_BACKWARD, "bf16[2,3] bf16[2,3] f32[2,1] f32[2,1] f32[3]", "1", "", "", "bf16[2,3] f32[3] f32[3]"),
    ROW(GROUP_NORM, "f32[20,6,10,10] f32[6] f32[6]", "3", "1e-5", "", "f32[20,6,10,10] f32[20,3] f32[20,3]"),
    ROW(GROUP_NORM_BACKWARD, "f32[2,6,4] f32[2,6,4] f32[2,3] f32[2,3] f32[6]", "3", "", "", "f32[2,6,4] f32[6] f32[6]"),
    ROW(BATCH_NORM, "f32[2,3,4] f32[3] f32[3] f32[3] f32[3]", "1", "1 1", "", "f32[2,3,4] f32[3] f32[3] f32[3] f32[3]"),
    ROW(BATCH_NORM_BACKWARD, "f32[2,3,4] f32[2,3,4] f32[3] - - f32[3] f32[3]", "1", "1", "",
        "f32[2,3,4] f32[3] f32[3]"),

    /* losses */
    ROW(NLL_LOSS, "f32[3,5] i64[3]", "1", "1", "", "f32 f32"),
    ROW(NLL_LOSS, "f32[5,4,8,8] i64[5,8,8] f32[4]", "0", "1", "", "f32[5,8,8] f32"),
    ROW(NLL_LOSS_BACKWARD, "f32 i64[2] - f32", "1", "1", "[2,3]", "f32[2,3]"),
    ROW(BCE_LOSS, "f32[3] f32[3]", "1", "", "", "f32"),
    ROW(BCE_LOSS_BACKWARD, "f32 f32[3] f32[3]", "1", "", "", "f32[3]"),
    ROW(MSE_LOSS, "f32[3,5] f32[3,5]", "0", "", "", "f32[3,5]"),
    ROW(MSE_LOSS_BACKWARD, "f32 f32[3,5] f32[3,5]", "1", "", "", "f32[3,5]"),
    ROW(SMOOTH_L1_LOSS, "f32[3] f32[3]", "2", "1", "", "f32"),
    ROW(SMOOTH_L1_LOSS_BACKWARD, "f32 f32[3] f32[3]", "2", "1", "", "f32[3]"),
    ROW(HUBER_LOSS, "f64[3] f64[3]", "2", "1", "", "f64"),
    ROW(HUBER_LOSS_BACKWARD, "f64 f64[3] f64[3]", "2", "1", "", "f64[3]"),

    /* windows; again from PyTorch's documentation: MaxPool2d((3, 2), stride=(2, 1)) and its like */
    ROW(MAX_POOL, "f32[20,16,50,32]", "3,2,2,1,0,0,1,1", "", "", "f32[20,16,24,31] i64[20,16,24,31]"),
    ROW(MAX_POOL, "f32[20,16,50]", "3,2,0,1", "", "", "f32[20,16,24]"),
    ROW(MAX_POOL, "f32[20,16,50]", "3,2,0,1", "", "[20,16,25]", "f32[20,16,25]"),
    ROW(MAX_POOL, "f32[20,16,50,44,31]", "3,2,2,2,1,2,0,0,0,1,1,1", "", "", "f32[20,16,24,43,15]"),
    ROW(MAX_POOL_BACKWARD, "f32[1,2,4,4] i64[1,2,4,4]", "2,2,2,2,0,0,1,1", "", "", "f32[1,2,8,8]"),
    ROW(AVG_POOL, "f32[20,16,50,32]", "3,2,2,1,0,0,1,1,1,0", "", "", "f32[20,16,24,31]"),
    ROW(AVG_POOL_BACKWARD, "f32[2,3,3]", "3,3,2,2,1,1,1,1,1,0", "", "[2,6,5]", "f32[2,6,5]"),
    ROW(ADAPTIVE_AVG_POOL, "f32[1,64,8,9]", "2", "", "[1,64,5,7]", "f32[1,64,5,7]"),
    ROW(ADAPTIVE_AVG_POOL_BACKWARD, "f32[1,64,5,7]", "2", "", "[1,64,8,9]", "f32[1,64,8,9]"),
    ROW(ADAPTIVE_MAX_POOL, "f32[1,64,8]", "1", "", "[1,64,5]", "f32[1,64,5] i64[1,64,5]"),
    ROW(UPSAMPLE_NEAREST2D, "f32[1,1,2,2]", "0", "2. 2.", "", "f32[1,1,4,4]"),
    ROW(UPSAMPLE_NEAREST2D, "f32[1,1,2,2]", "0", "0. 0.", "[1,1,5,3]", "f32[1,1,5,3]"),
    ROW(UPSAMPLE_NEAREST2D_BACKWARD, "f32[1,1,4,4]", "0", "2. 2.", "[1,1,2,2]", "f32[1,1,2,2]"),
    ROW(UPSAMPLE_BILINEAR2D, "f32[1,3,3]", "1", "1.5 2.", "", "f32[1,4,6]"),
    ROW(UPSAMPLE_BILINEAR2D_BACKWARD, "f32[1,4,6]", "1", "1.5 2.", "[1,3,3]", "f32[1,3,3]"),
    ROW(RESAMPLE, "f32[2,3,5]", "1,2,0,0", "2.", "", "f32[2,6,5]"),
    ROW(RESAMPLE, "f32[2,3,5]", "1,2,0,0", "0.", "[2,7,5]", "f32[2,7,5]"),
    ROW(RESAMPLE_BACKWARD, "f32[2,7,5]", "1,2,0,0,0", "0.", "[2,3,5]", "f32[2,3,5]"),
    ROW(GRID_SAMPLE, "f32[2,3,4,5] f32[2,6,7,2]", "0,0,0", "", "", "f32[2,3,6,7]"),
    ROW(GRID_SAMPLE_BACKWARD, "f32[2,3,6,7] f32[2,3,4,5] f32[2,6,7,2]", "0,0,0", "", "", "f32[2,3,4,5] f32[2,6,7,2]"),
    ROW(IM2COL, "f32[2,5,3,4]", "2,3,1,1,0,0,1,1", "", "", "f32[2,5,2,3,2,2]"),
    ROW(COL2IM, "f32[2,5,2,3,2,2]", "2,3,1,1,0,0,1,1", "", "", "f32[2,5,3,4]"),
    ROW(PAD_BORDER, "f32[2,3]", "0,0,2,0,2", "", "", "f32[2,7]"),
    ROW(PAD_BORDER_BACKWARD, "f32[2,7]", "0,0,2,0,2", "", "", "f32[2,3]"),

    /* index maps */
    ROW(CAT, "f32[2,3] f16[2,1] i64[2,2]", "1", "", "", "f32[2,6]"),
    ROW(PAD, "f32[2,3]", "1,0,0,-1", "0", "", "f32[3,2]"),
    ROW(INDEX_SELECT, "f32[5,4] i64[2,3]", "0", "", "", "f32[2,3,4]"),
    ROW(GATHER, "f32[5,4] i64[2,4]", "0", "", "", "f32[2,4]"),
    ROW(SCATTER, "i64[2,4] f32[3,4]", "0,1,0", "", "[5,4]", "f32[5,4]"),
    ROW(SCATTER, "i64 =f64", "0,1,0", "", "", "f32"),
    ROW(INDEX, "f32[5,4,3] i64[2,1] i64[1,6]", "5,1", "", "", "f32[4,2,6]"),
    ROW(INDEX_PUT, "f32[4] i64[2]", "1,0,1", "", "[5,4]", "f32[5,4]"),
    ROW(INDEX_ADD, "i64[2] f32[2,4]", "0", "1", "[5,4]", "f32[5,4]"),
    ROW(EMBEDDING_BACKWARD, "f32[2,3,4] i64[2,3]", "-1,0", "", "[9,4]", "f32[9,4]"),
    ROW(SEGMENTS, "f32[9,4] i64[3] i64[3]", "1,-1", "0", "", "f32[3,4]"),
    ROW(TRI, "f32[2,3]", "1", "0", "", "f32[2,3]"),
    ROW(ARANGE, "", "", "0 1", "[5]", "i64[5]"),
    ROW(ARANGE, "", "", "0 0.5", "[5]", "f32[5]"),
    ROW(EYE, "", "", "", "[3,4]", "f32[3,4]"),
    ROW(CUMSUM, "i32[2,3]", "0", "", "", "i64[2,3]"),
    ROW(CUMPROD, "f16[2,3]", "0", "", "", "f16[2,3]"),
    ROW(LOGCUMSUMEXP, "f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(CHECK_INDEX, "i64", "0,5,0", "", "", ""),

    /* random numbers, cells, attention, optimizers */
    ROW(DROPOUT, "bf16[2,3]", "", "0.5 1 0", "", "bf16[2,3] bool[2,3]"),
    ROW(UNIFORM, "", "", "0. 1. 1 0", "f64[2,3]", "f64[2,3]"),
    ROW(NORMAL, "f32[3] f32[2,1]", "", "0. 1. 1 0", "", "f32[2,3]"),
    ROW(BERNOULLI, "f32[3]", "", "0.5 1 0", "", "f32[3]"),
    ROW(RANDOM_INT, "", "", "0 9 1 0", "[4]", "i64[4]"),
    ROW(EXPONENTIAL, "", "", "1. 1 0", "[4]", "f32[4]"),
    ROW(QUANTIZED_MATMUL, "f16[3,64] u32[5,8] f16[5,2] f16[5,2]", "4,32", "", "", "f16[3,5]"),
    ROW(QUANTIZED_MATMUL, "f16[3,64] u32[5,6] f32[5,2] f16[5,2]", "3,32", "", "", "f32[3,5]"),
    ROW(QUANTIZED_MATMUL, "bf16[3,64] u32[5,8] f8e8m0fnu[5,2]", "4,32,0,1", "", "", "bf16[3,5]"),
    ROW(QUANTIZED_MATMUL, "f16[3,5] u32[5,8] f16[5,2] f16[5,2]", "4,32,1,0", "", "", "f16[3,64]"),
    ROW(QUANTIZED_MATMUL, "f16[7,3,64] u32[7,5,8] f16[7,5,2] f16[7,5,2]", "4,32", "", "", "f16[7,3,5]"),
    ROW(LSTM_CELL, "f32[2,12] f32[2,12] f32[2,3] f32[12] f32[12]", "", "", "", "f32[2,3] f32[2,3] f32[2,12]"),
    ROW(LSTM_CELL_BACKWARD, "f32[2,3] - f32[2,3] f32[2,3] f32[2,12]", "", "", "", "f32[2,12] f32[2,3]"),
    ROW(GRU_CELL, "f32[2,9] f32[2,9] f32[2,3] - -", "", "", "", "f32[2,3] f32[2,15]"),
    ROW(GRU_CELL_BACKWARD, "f32[2,3] f32[2,15]", "", "", "", "f32[2,9] f32[2,9] f32[2,3]"),
    ROW(LSTM, "f16[5,2,12] f16[2,3] f16[2,3] f16[12,3]", "1", "", "",
        "f16[5,2,3] f16[5,2,3] f16[5,2,12] f16[2,3] f16[2,3]"),
    ROW(LSTM_BACKWARD, "- f32[2,3] - f32[2,3] f32[5,2,3] f32[5,2,12] f32[12,3]", "0", "", "",
        "f32[5,2,12] f32[2,3] f32[2,3]"),
    ROW(GRU, "f32[5,2,9] f32[2,3] f32[9,3] f32[9]", "0", "", "", "f32[5,2,3] f32[5,2,15] f32[2,3]"),
    ROW(GRU_BACKWARD, "f32[5,2,3] - f32[5,2,15] f32[9,3]", "0", "", "", "f32[5,2,9] f32[5,2,9] f32[2,3]"),
    ROW(ATTENTION, "f16[1,2,4,8] f16[1,2,5,8] f16[1,2,5,6] bool[4,5]", "0", "1.", "", "f16[1,2,4,6] f32[1,2,4]"),
    ROW(ATTENTION_BACKWARD, "f32[1,2,4,6] f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6] f32[4,5] f32[1,2,4,6] f32[1,2,4]", "0",
        "1.", "", "f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6] f32[4,5]"),
    ROW(ATTENTION_BACKWARD, "f32[1,2,4,6] f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6] - f32[1,2,4,6] f32[1,2,4]", "0", "1.",
        "", "f32[1,2,4,8] f32[1,2,5,8] f32[1,2,5,6] -"),
    ROW(ADAM, "f32[2] f32[3] f32 f32", "0,0,0", "1. 1. 1. 1. 1.", "", "f32[2] f32[3] f32[2] f32[3] f32[2] f32[3]"),
    ROW(SGD, "f32[2] f32[3]", "0,0,0,1", "1. 1. 1. 1.", "", "f32[2] f32[3] f32[2] f32[3]"),

    /* library rows; matrices are column-major: [.., N, M] is M x N */
    ROW(SORT, "f32[2,5]", "0", "", "", "f32[2,5] i64[2,5]"),
    ROW(TOPK, "f32[2,5]", "1", "", "[2,3]", "f32[2,3] i64[2,3]"),
    ROW(KTH, "f32[2,5]", "0,3", "", "", "f32[2] i64[2]"),
    ROW(MODE, "i32[2,5]", "", "", "", "i32[2] i64[2]"),
    ROW(UNIQUE, "f32[6,3]", "0", "", "", "i64[6] i64[6] i64[6] i64[1]"),
    ROW(SEARCH, "f32[2,5] f32[2,3]", "0", "", "", "i64[2,3]"),
    ROW(SEARCH, "f32[2,5] f32[2,3]", "0", "", "i32", "i32[2,3]"),
    ROW(CUMMAX, "f32[2,5]", "", "", "", "f32[2,5] i64[2,5]"),
    ROW(CUMMIN, "f32[2,5]", "", "", "", "f32[2,5] i64[2,5]"),
    ROW(FFT, "c64[2,5]", "0,0", "1.", "", "c64[2,5]"),
    ROW(FFT_REAL, "f32[2,6]", "", "1.", "", "c64[2,4]"),
    ROW(FFT_REAL, "f32[2,6]", "", "1.", "[2,6]", "c64[2,6]"),
    ROW(FFT_HALF, "c128[2,4]", "", "1.", "", "f64[2,6]"),
    ROW(FFT_HALF, "c128[2,4]", "", "1.", "[2,7]", "f64[2,7]"),
    ROW(CHOLESKY, "f32[7,3,3]", "0", "", "", "f32[7,3,3] i32[7]"),
    ROW(CHOLESKY_INVERSE, "f32[3,3]", "0", "", "", "f32[3,3] i32"),
    ROW(CHOLESKY_SOLVE, "f32[2,3] f32[3,3]", "0", "", "", "f32[2,3]"),
    ROW(LU, "f32[7,3,5]", "", "", "", "f32[7,3,5] i32[7,3] i32[7]"),
    ROW(LU_SOLVE, "f32[3,3] i32[3] f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(LU_PERMUTATION, "i32[7,3]", "", "", "[7,5]", "i64[7,5]"),
    ROW(LDL, "f32[3,3]", "0", "", "", "f32[3,3] i32[3] i32"),
    ROW(LDL_SOLVE, "f32[3,3] i32[3] f32[2,3]", "0", "", "", "f32[2,3]"),
    ROW(QR, "f64[3,5]", "", "", "", "f64[3,5] f64[3]"),
    ROW(REFLECTORS, "f64[3,5] f64[3]", "", "", "", "f64[3,5]"),
    ROW(QR_PIVOTED, "f32[3,5] i32[3]", "", "", "", "f32[3,5] i32[3] f32[3]"),
    ROW(TRIDIAGONAL_SOLVE, "f64[2,4] f64[2,4] f64[2,4] f64[2,3,4]", "", "", "",
        "f64[2,3,4] f64[2,4] f64[2,4] f64[2,4] i32[2]"),
    ROW(SCHUR, "f32[3,3]", "", "", "", "f32[3,3] f32[3,3] c64[3] i32[]"),
    ROW(HESSENBERG, "c64[3,3]", "1,3", "", "", "c64[3,3] c64[2]"),
    ROW(TRIDIAGONAL, "c64[2,3,3]", "0", "", "", "c64[2,3,3] f32[2,3] f32[2,2] c64[2,2]"),
    ROW(TRIDIAGONAL, "f32[1,1]", "1", "", "", "f32[1,1] f32[1] f32[0] f32[0]"),
    ROW(REFLECT, "f64[3,5] f64[3] f64[4,5]", "1,0", "", "", "f64[4,5]"),
    ROW(TRIANGULAR_SOLVE, "f32[3,3] f32[2,3]", "0,0,0,1", "", "", "f32[2,3]"),
    ROW(LEAST_SQUARES, "f32[3,5] f32[2,5]", "0", "0.", "", "f32[2,5] i64 f32[3]"),
    ROW(SVD, "c64[3,5]", "0", "", "", "c64[3,5] f32[3] c64[3,3]"),
    ROW(SVD, "f32[3,5]", "1", "", "", "f32[5,5] f32[3] f32[3,3]"),
    ROW(SVD, "f32[5,3]", "0", "", "", "f32[3,3] f32[3] f32[5,3]"),
    ROW(EIGH, "c128[3,3]", "0", "", "", "f64[3] c128[3,3] i32[]"),
    ROW(EIG, "f32[3,3]", "", "", "", "c64[3] c64[3,3] c64[3,3] i32[]"),
    ROW(MATRIX_EXP, "f32[3,3]", "", "", "", "f32[3,3]"),
    ROW(PLACES, "bool[20]", "", "", "[6]", "i64[6]"),
    ROW(CALL, "f32[2,3] i32[4]", "1,1,0,6,1,1,0,0,0", "1.", "f32[2,3] u8[5]", "f32[2,3] u8[5]"),
};

HR_TEST(each_row_infers_its_documented_outputs) {
  for (size_t k = 0; k < sizeof goldens / sizeof *goldens; ++k) {
    expect(&goldens[k]);
  }
}

/* Three inputs, one of which has all dims of the output; all element-wise rows behave alike. */
HR_TEST(every_element_wise_row_broadcasts) {
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    if (row->family != HR_FAMILY_POINTWISE) {
      continue;
    }
    static const char *const f32[] = {"", "f32[2,4,3]", "f32[2,1,3] f32[4,1]", "f32[2,1,3] f32[4,1] =f64",
                                      "f32[2,1,3] f32[4,1] =f64 =f64"};
    static const char *const i64[] = {"", "i64[2,4,3]", "i64[2,1,3] i64[4,1]", "i64[2,1,3] =i64 i64[4,1]",
                                      "i64[2,1,3] =i64 i64[4,1] =i64"};
    bool is_integer = !row->has_real && row->has_integer && row->rule == HR_RULE_SAME;
    golden g = {(hr_op)op, (is_integer || row->rule == HR_RULE_SEEDED ? i64 : f32)[row->arity], "", "", "", ""};
    switch (row->rule) {
      case HR_RULE_COMPARE:
      case HR_RULE_LOGICAL:
        g.outputs = "bool[2,4,3]";
        break;
      case HR_RULE_SEEDED:
        g.outputs = row->has_real ? "f32[2,4,3]" : "i64[2,4,3]";
        break;
      case HR_RULE_WHERE:
        g.inputs = "bool[2,1,3] f32[4,1] =f64", g.outputs = "f32[2,4,3]";
        break;
      default:
        g.outputs = is_integer                                   ? "i64[2,4,3]"
                    : row->has_real || row->rule == HR_RULE_PART ? "f32[2,4,3]"
                                                                 : "c64[2,4,3]";
        break;
    }
    expect(&g);
  }
}

/* Like at::result_type: numbers are weak, a higher category wins. */
HR_TEST(dtypes_are_promoted) {
  static const golden rows[] = {
      ROW(ADD, "f16[2] =f64", "", "", "", "f16[2]"),
      ROW(ADD, "i32[2] =f64", "", "", "", "f32[2]"),
      ROW(ADD, "i32[2] =i64", "", "", "", "i32[2]"),
      ROW(ADD, "bool[2] =i64", "", "", "", "i64[2]"),
      ROW(ADD, "u8[2] i8[2]", "", "", "", "i16[2]"),
      ROW(ADD, "f16[2] bf16[2]", "", "", "", "f32[2]"),
      ROW(ADD, "f64[2] =c128", "", "", "", "c128[2]"),
      ROW(ADD, "=i64 =f64", "", "", "", "f32"),
      ROW(ADD, "u64[2] =u64", "", "", "", "u64[2]"),
      ROW(ADD, "f32[2] f32[2]", "", "", "f64", "f64[2]"),
      ROW(DIV, "i32[2] i32[2]", "", "", "", "f32[2]"),
      ROW(SQRT, "i64[2]", "", "", "", "f32[2]"),
      ROW(COPY, "u8[2]", "", "", "", "u8[2]"),
      ROW(COPY, "c64[2]", "", "", "i8", "i8[2]"),
      ROW(REAL, "c128[2]", "", "", "", "f64[2]"),
      ROW(COMPLEX, "f64[2] f64[2]", "", "", "", "c128[2]"),
      ROW(EQ, "c64[2] f32[2]", "", "", "", "bool[2]"),
      ROW(ADD, "f32[2] f32[5] =f64 =f64", "", "", "", "f32[2] f32[5]"), /* lists */
  };
  for (size_t k = 0; k < sizeof rows / sizeof *rows; ++k) {
    expect(&rows[k]);
  }
}

HR_TEST(element_wise_outputs_follow_dense_inputs) {
  static const golden rows[] = {
      ROW(NEG, "f32[2,3]{1,2}", "", "", "", "f32[2,3]{1,2}"),
      ROW(ADD, "f32[3] f32[2,3]{1,2}", "", "", "", "f32[2,3]{1,2}"),
      ROW(NEG, "f32[2,3]{0,1}", "", "", "", "f32[2,3]"),  /* expanded */
      ROW(NEG, "f32[2,3]{6,2}", "", "", "", "f32[2,3]"),  /* with gaps */
      ROW(NEG, "f32[2,3]{3,-1}", "", "", "", "f32[2,3]"), /* reversed */
      ROW(NEG, "f32[2,3,4,5]{60,1,15,3}", "", "", "", "f32[2,3,4,5]{60,1,15,3}"),
      ROW(SUM, "f32[2,3]{1,2}", "0", "", "", "f32[2,3]"),
  };
  for (size_t k = 0; k < sizeof rows / sizeof *rows; ++k) {
    expect(&rows[k]);
  }
}

static void expect_same(const hr_tensor_type *a, const hr_tensor_type *b) {
  HR_ASSERT(a->dtype == b->dtype && a->rank == b->rank);
  HR_ASSERT(memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
  HR_ASSERT(memcmp(a->strides, b->strides, (size_t)a->rank * sizeof *a->strides) == 0);
}

/* With attributes, here none, an operation goes by the rules. Without, it may take the short path of equal tensors, as
 * may one over lists: of these operands, and of others whose results have another shape. */
static void expect_as_by_rules(hr_op op, int arity, const hr_tensor_type *inputs) {
  static const hr_attrs none;
  const hr_tensor_type other = parse_types("f32[7]").type[0];
  hr_tensor_type rules = {0}, one = {0}, two[2] = {{0}}, lists[6];
  for (int i = 0; i < arity; ++i) {
    lists[2 * i] = other, lists[2 * i + 1] = inputs[i];
  }
  hr_status expected = hr_op_infer(op, &none, arity, inputs, 1, &rules),
            alone = hr_op_infer(op, NULL, arity, inputs, 1, &one),
            listed = hr_op_infer(op, NULL, 2 * arity, lists, 2, two);
  HR_ASSERT_EQ(hr_status_code_of(alone), hr_status_code_of(expected));
  if (expected == HR_OK) {
    expect_same(&one, &rules);
  }
  if (expected == HR_OK && listed == HR_OK) { /* not every row has floats */
    expect_same(&two[1], &rules);
    HR_ASSERT(two[0].rank == 1 && two[0].dims[0] == 7);
  }
  HR_ASSERT(expected == HR_OK || listed != HR_OK);
  hr_status_free(expected), hr_status_free(alone), hr_status_free(listed);
}

/* Inputs of one shape, of which some are numbers, or tensors without dims. */
HR_TEST(equal_tensors_are_inferred_as_by_the_rules) {
  static const hr_dtype numbers[] = {HR_DTYPE_BOOL, HR_DTYPE_I64, HR_DTYPE_U64, HR_DTYPE_F64, HR_DTYPE_C128};
  static const char *const shapes[] = {"[]", "f32[2,3]", "f32[2,3]{1,2}", "f32[0,3]", "f32[2,1,3]{7,9,1}"};
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    int arity = hr_op_table((hr_op)op)->family == HR_FAMILY_POINTWISE ? hr_op_table((hr_op)op)->arity : 4;
    for (int k = 0; arity <= 3 && k < HR_DTYPE_COUNT * 120; ++k) {
      hr_tensor_type inputs[3];
      int chosen = k / 5 % 8, kind = k / 40 % 3;
      for (int i = 0; i < arity; ++i) {
        bool is_chosen = (chosen >> i & 1) != 0;
        inputs[i] = parse_types(is_chosen && kind > 0 ? "f32" : shapes[k % 5]).type[0];
        inputs[i].dtype = is_chosen && kind == 2 ? HR_DTYPE_F32 : (hr_dtype)(k / 120);
        if (is_chosen && kind == 0) {
          inputs[i] = (hr_tensor_type){.dtype = numbers[(k + i) % 5], .is_number = true};
        }
      }
      expect_as_by_rules((hr_op)op, arity, inputs);
    }
  }
}

HR_TEST(no_row_is_left_out) {
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    bool is_known = hr_op_table((hr_op)op)->family == HR_FAMILY_POINTWISE;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; ++k) {
      is_known |= goldens[k].op == (hr_op)op;
    }
    if (!is_known) {
      hr_test_fail(__FILE__, __LINE__, "%s has no line in `goldens`", hr_op_table((hr_op)op)->name);
    }
  }
}

static void refuse(hr_op op, const char *inputs, const char *ints, const char *scalars, const char *given, int outputs,
                   hr_status_code code, const char *part) {
  golden g = {op, inputs, ints, scalars, given, ""};
  types out;
  HR_ASSERT_ERROR(infer(&g, outputs, &out), code, part);
}
#define REFUSE(op, inputs, ints, scalars, given, outputs, part) \
  refuse(HR_OP_##op, inputs, ints, scalars, given, outputs, HR_STATUS_INVALID_ARGUMENT, part)

HR_TEST(errors_name_the_actual_and_the_expected_value) {
  REFUSE(ADD, "f32[2,3] f32[4]", "", "", "", 1,
         "add: input 1 of dims [4] can't be broadcast: dim 0 is 4, expected 1 or 3");
  REFUSE(ADD, "f32[2,3]", "", "", "", 1, "add: 1 inputs for 1 outputs: 2 for each are needed");
  REFUSE(ADD, "f32[2,3] -", "", "", "", 1, "add: input 1 is absent");
  REFUSE(SUM, "f32[2,3]", "4", "", "", 1, "sum: mask 0x4 names dims past those of [2,3]");
  REFUSE(AMAX, "f32[2,0]", "2", "", "", 1, "amax: no elements to reduce in dims [2,0]");
  REFUSE(MATMUL, "f32[2,4] f32[5,3]", "", "", "", 1, "matmul: inner sizes differ: 4 != 5");
  REFUSE(MATMUL, "f32[2,4]", "", "", "", 1, "matmul: input 1 is absent");
  REFUSE(MATMUL, "f32[2,4] f32[4,3] f32[2]", "", "", "", 1, "the bias of dims [2] can't be broadcast to [2,3]");
  REFUSE(CONV, "f32[1,5,8,8] f32[6,4,3,3]", "2,1,1,0,0,1,1,1", "", "", 1,
         "conv: x has 5 channels, the weight expects 4");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "2,0,1,0,0,1,1,1", "", "", 1,
         "conv: stride 0, padding 0 and 0, dilation 1");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "2,1,1,0,0,1,1", "", "", 1, "2 spatial dims and 7 ints");
  REFUSE(CONV, "f32[1,4,8,8] f32[6,4,3,3]", "2,1,1,0,0,1,1,1,2,-1", "", "", 1, "padding 0 and -1, dilation 1");
  REFUSE(CONV, "f32[1,4,8] f32[6,4,3,3]", "2,1,1,0,0,1,1,1", "", "", 1, "conv: x has dims [1,4,8], expected 4 of them");
  REFUSE(CONV_BACKWARD_DATA, "f32[1,16,6,6] f32[16,16,3,3]", "2,2,2,1,1,1,1,1", "", "[1,16,14,12]", 1,
         "spatial dim 0: x 14, kernel 3, stride 2, padding 1 and 1, dilation 1 give 7, y has 6");
  REFUSE(MAX_POOL, "f32[1,2,8,8]", "2,2,2,2,0,0,1,1", "", "[1,2,6,4]", 1, "take 8 to 4, not 6");
  REFUSE(AVG_POOL, "f32[1,2,8,8]", "2,2,2,2,0,0,1,1", "", "", 1,
         "avg_pool: 8 ints, expected four for each dim of the plane and 2 more");
  REFUSE(ADAPTIVE_AVG_POOL, "f32[1,2,8,8]", "2", "", "", 1, "do not determine the dims of output 0: give them");
  REFUSE(UPSAMPLE_NEAREST2D, "f32[1,2,8,8]", "0", "0. 0.", "", 1, "do not determine the dims of output 0: give them");
  REFUSE(TOPK, "f32[5]", "1", "", "", 1, "topk: the inputs do not determine the dims of output 0: give them");
  REFUSE(TOPK, "f32[2,5]", "1", "", "[3,3]", 1, "topk: output 0 has dims [3,3]");
  REFUSE(QUANTIZED_MATMUL, "f16[7,3,64] u32[5,8] f16[5,2] f16[5,2]", "4,32", "", "", 1,
         "the numbers has dims [5,8], expected 3 of them");
  REFUSE(QUANTIZED_MATMUL, "f16[7,3,64] u32[6,5,8] f16[6,5,2] f16[6,5,2]", "4,32", "", "", 1,
         "quantized_matmul: 7 matrices of x and 6 of numbers");
  REFUSE(QUANTIZED_MATMUL, "f16[3,64] u32[5,8] f16[5,2] f16[5,2]", "7,32", "", "", 1, "7 bits, expected 2 to 6 or 8");
  REFUSE(QUANTIZED_MATMUL, "f16[3,64] u32[5,6] f16[5,2] f16[5,2]", "3,32,0,1", "", "", 1,
         "3 bits of floats, expected 4 or 8");
  REFUSE(QUANTIZED_MATMUL, "f8e4m3fn[3,64] u32[5,8] f16[5,2]", "4,32,0,1", "", "", 1,
         "x has dtype f8e4m3fn and the scales f16, expected floating ones");
  REFUSE(QUANTIZED_MATMUL, "f16[3,48] u32[5,9] f16[5,3] f16[5,3]", "6,16", "", "", 1,
         "groups of 16, expected a multiple of 32");
  REFUSE(QUANTIZED_MATMUL, "f32[3,64] u32[5,16] f32[5,1]", "8,2305843009213693952", "", "", 1,
         "quantized_matmul: int 1 is 2305843009213693952, expected 32 bits");
  REFUSE(QUANTIZED_MATMUL, "f32[3,64] u32[5,8] f32[5,1]", "4,4611686018427387904", "", "", 1,
         "int 1 is 4611686018427387904, expected 32 bits");
  REFUSE(QUANTIZED_MATMUL, "f32[3,64] u32[5,16] f32[5,1]", "8,0", "", "", 1, "groups of 0, expected a multiple of 16");
  REFUSE(QUANTIZED_MATMUL, "f32[3,64] u32[5,16] f32[5,1]", "8,-64", "", "", 1,
         "groups of -64, expected a multiple of 16");
  REFUSE(QUANTIZED_MATMUL, "f16[3,64] u32[5,8] f16[5,2] f16[5,2]", "4,32,1,0", "", "", 1,
         "64 numbers in each of 5 rows and groups of 32 for x with rows of 64");
  REFUSE(SORT, "f32[5]", "0", "", "f32 f32", 2, "sort: output 1 is f32, expected i64");
  REFUSE(LU, "f32[3,5]", "", "", "[3,5] [5]", 2, "lu: output 1 has dims [5]");
  REFUSE(CAT, "f32[2,3] f32[3,3]", "1", "", "", 1, "cat: dim 0 of input 1 is 3, of the output 2");
  REFUSE(INDEX_SELECT, "f32[2,3] f32[2]", "0", "", "", 1, "the index is f32, expected integers");
  REFUSE(CALL, "f32[2,3]", "1,2,0,6,1,1,0,0,0", "", "f32[2,3]", 1,
         "call: 2 updated operands of 1 inputs and 1 outputs");
  REFUSE(CALL, "f32[2,3]", "1,1,0,6,1,1,0,0,0", "", "f32[3,2]", 1, "an updated output has dims [3,2]");
  REFUSE(CALL, "f32[2,3] -", "1,0,0,6,1,1,0,0,0", "", "f32[3,2]", 1, "call: input 1 is absent");
  REFUSE(PAD, "f32[2,3]", "0,-2,0,-2", "0", "", 1, "pad: dim 1: 3 + -2 before + -2 after != 0");
  refuse(HR_OP_BIT_AND, "f32[2] f32[2]", "", "", "", 1, HR_STATUS_UNIMPLEMENTED, "bit_and: not for inputs of f32, f32");
  refuse(HR_OP_LT, "c64[2] f32[2]", "", "", "", 1, HR_STATUS_UNIMPLEMENTED, "lt: not for inputs of c64, f32");
  refuse(HR_OP_SOFTMAX, "c64[2,2]", "1", "", "", 1, HR_STATUS_UNIMPLEMENTED, "softmax: x is c64, expected real");
  refuse(HR_OP_LOGSUMEXP, "c64[2,2]", "1", "", "", 1, HR_STATUS_UNIMPLEMENTED, "logsumexp: x is c64, expected real");
  refuse(HR_OP_LAYER_NORM, "c128[2,2] - -", "1", "1e-5", "", 1, HR_STATUS_UNIMPLEMENTED, "layer_norm: x is c128");
  refuse(HR_OP_GROUP_NORM, "c128[2,2] - -", "1", "1e-5", "", 1, HR_STATUS_UNIMPLEMENTED, "group_norm: x is c128");
  refuse(HR_OP_MAX_POOL, "c64[1,1,4]", "2,2,0,1", "", "", 1, HR_STATUS_UNIMPLEMENTED, "max_pool: x is c64");
  refuse(HR_OP_MATMUL, "f8e5m2[2,2] f8e5m2[2,2]", "", "", "", 1, HR_STATUS_UNIMPLEMENTED, "matmul: not for f8e5m2");
}

HR_TEST(invalid_types_are_rejected) {
  hr_tensor_type x = {.dtype = HR_DTYPE_F32, .rank = 17}, y = {.dtype = HR_DTYPE_NONE};
  HR_ASSERT_ERROR(hr_op_infer(HR_OP_NEG, NULL, 1, &x, 1, &y), HR_STATUS_INVALID_ARGUMENT, "neg: input 0 has dtype");
  x = (hr_tensor_type){.dtype = HR_DTYPE_F32, .rank = 1, .dims = {-1}};
  HR_ASSERT_ERROR(hr_op_infer(HR_OP_NEG, NULL, 1, &x, 1, &y), HR_STATUS_INVALID_ARGUMENT, "dim 0 of input 0 is -1");
  x = (hr_tensor_type){.dtype = HR_DTYPE_F64, .rank = 1, .is_number = true};
  HR_ASSERT_ERROR(hr_op_infer(HR_OP_NEG, NULL, 1, &x, 1, &y), HR_STATUS_INVALID_ARGUMENT, "a number has none");
  HR_ASSERT_ERROR(hr_op_infer(HR_OP_COUNT, NULL, 1, &x, 1, &y), HR_STATUS_INVALID_ARGUMENT, "operation");
}
