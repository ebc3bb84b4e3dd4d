/* Tests of the helpers for device texts (device_text.h). */
#include "providers/device_text.h"

#include "hr_test.h"

static hr_operand rows_of(hr_dtype dtype, int64_t offset, const int64_t dims[3], const int64_t strides[3]) {
  return (hr_operand){
      .kind = HR_OPERAND_VALUE, .dtype = dtype, .rank = 3, .offset = offset, .dims = dims, .strides = strides};
}

HR_TEST(rows_of_whole_vectors) {
  static const struct {
    hr_dtype dtype;
    int64_t offset, dims[3], strides[3];
    bool has_vectors;
  } cases[] = {{HR_DTYPE_F32, 0, {2, 3, 8}, {24, 8, 1}, true},    {HR_DTYPE_F32, 4, {2, 3, 8}, {0, 12, 1}, true},
               {HR_DTYPE_F32, 2, {2, 3, 8}, {24, 8, 1}, false},   {HR_DTYPE_F32, 0, {2, 3, 6}, {24, 8, 1}, false},
               {HR_DTYPE_F32, 0, {2, 3, 8}, {24, 10, 1}, false},  {HR_DTYPE_F32, 0, {2, 1, 8}, {24, 10, 1}, true},
               {HR_DTYPE_F32, 0, {2, 3, 8}, {48, 16, 2}, false},  {HR_DTYPE_BF16, 0, {2, 3, 8}, {24, 8, 1}, true},
               {HR_DTYPE_BF16, 4, {2, 3, 8}, {24, 8, 1}, false},  {HR_DTYPE_F16, 0, {2, 3, 4}, {16, 8, 1}, false},
               {HR_DTYPE_F16, -8, {2, 3, 16}, {-48, 16, 1}, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    hr_operand x = rows_of(cases[i].dtype, cases[i].offset, cases[i].dims, cases[i].strides);
    HR_ASSERT_EQ(hr__device_text_has_vectors(&x), cases[i].has_vectors);
  }
}

static hr_status write(void) {
  hr_device_source source = {.name = "nothing", .pass_count = 1}, given = {.name = NULL};
  hr_text_append_all(&source.text, 2, (const char *const[]){"void ", "nothing_0(void) {}"});
  hr_status status = hr__device_text_finish(&source, &given);
  HR_ASSERT((status == HR_OK) == (given.name != NULL));
  if (status == HR_OK) {
    HR_ASSERT_STR_EQ(hr_text_chars(&given.text), "void nothing_0(void) {}");
  }
  hr_text_fini(&given.text);
  return status;
}

HR_TEST(a_source_is_given_whole_or_not_at_all) {
  HR_TEST_OOM(write);
}
