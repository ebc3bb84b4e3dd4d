/* Checks of library rows: operands that `shapes` of ops.def accepts or rejects, with the messages. */
#include "core/ops/op.h"
#include "hr_test.h"

static hr_device *device;
static hr_buffer *buffer; /* 4,096 bytes */

__attribute__((destructor)) static void close_buffer(void) {
  hr_buffer_release(buffer);
  hr_device_release(device);
}

static hr_view view(hr_dtype dtype, int rank, const int64_t *dims) {
  static const int64_t strides[4] = {64, 16, 4, 1};
  if (buffer == NULL) {
    HR_ASSERT_OK(hr_device_open("null", &device));
    HR_ASSERT_OK(hr_buffer_create(device, 4096, &buffer));
  }
  return (hr_view){.buffer = buffer, .dtype = dtype, .rank = rank, .dims = dims, .strides = strides + 4 - rank};
}
#define VIEW(dtype, ...) \
  view(HR_DTYPE_##dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static void expect(const char *message, hr_op op, int int_count, hr_view x, int output_count, const hr_view *outputs) {
  const int64_t ints[2] = {0, 0};
  hr_attrs attrs = {.int_count = int_count, .ints = ints};
  hr_status status = hr_op_check(op, &attrs, 1, &x, output_count, outputs);
  if (message == NULL) {
    HR_ASSERT_OK(status);
    return;
  }
  HR_ASSERT_CONTAINS(hr_status_message(status), message);
  hr_status_free(status);
}

HR_TEST(letters_and_batches_have_one_value) {
  hr_view x = VIEW(F32, 2, 3, 4);
  expect(NULL, HR_OP_SORT, 1, x, 2, (hr_view[]){VIEW(F32, 2, 3, 4), VIEW(I64, 2, 3, 4)});
  expect("output 0 has dims [2,3,3]", HR_OP_SORT, 1, x, 1, (hr_view[]){VIEW(F32, 2, 3, 3)});
  expect("output 0 has dims [3,2,4]", HR_OP_SORT, 1, x, 1, (hr_view[]){VIEW(F32, 3, 2, 4)});
  expect("output 0 has dims [3,4]", HR_OP_SORT, 1, x, 1, (hr_view[]){VIEW(F32, 3, 4)});
  expect(NULL, HR_OP_TOPK, 1, x, 2, (hr_view[]){VIEW(F32, 2, 3, 1), VIEW(I64, 2, 3, 1)});
  expect("output 1 has dims [2,3,2]", HR_OP_TOPK, 1, x, 2, (hr_view[]){VIEW(F32, 2, 3, 1), VIEW(I64, 2, 3, 2)});
}

HR_TEST(dtypes_are_the_rows) {
  hr_view x = VIEW(F32, 2, 4);
  expect("output 0 is f64, expected f32", HR_OP_SORT, 1, x, 1, (hr_view[]){VIEW(F64, 2, 4)});
  expect("output 1 is i32, expected i64", HR_OP_SORT, 1, x, 2, (hr_view[]){VIEW(F32, 2, 4), VIEW(I32, 2, 4)});
}

HR_TEST(operands_and_attributes_are_counted) {
  hr_view x = VIEW(F32, 4), y = VIEW(F32, 4), places = VIEW(I64, 4),
          number = {.scalar = &(hr_scalar){HR_DTYPE_F64, {0}}};
  expect(NULL, HR_OP_SORT, 1, x, 2, (hr_view[]){{0}, places});
  expect("3 outputs, expected at most 2", HR_OP_SORT, 1, x, 3, (hr_view[]){y, places, y});
  expect("2 ints and 0 scalars, expected 1 and 0", HR_OP_SORT, 2, x, 1, &y);
  expect("input 0 is absent", HR_OP_SORT, 1, (hr_view){0}, 1, &y);
  expect("input 0 is a number", HR_OP_SORT, 1, number, 1, &y);
  expect("input 0 has dims []", HR_OP_SORT, 1, view(HR_DTYPE_F32, 0, NULL), 1, &y);
}
