/* Files of arrays: round trips, headers as other programs write them, and damaged ones. */
#include "headrace/file.h"

#include <unistd.h>

#include "base/text.h"
#include "tensor_test.h"

static char path[256];

static const char *target(const char *ending) {
  snprintf(path, sizeof path, "/tmp/headrace_file_test.%ld.%s", (long)getpid(), ending);
  return path;
}

static hr_tensor counted(int rank, const int64_t *dims) {
  static float values[256];
  hr_tensor x = {0};
  open_stream();
  for (int i = 0; i < 256; ++i) {
    values[i] = (float)i;
  }
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, rank, dims, values, &x));
  return x;
}

static hr_status write_arrays(const char *to, hr_file_format format, int count, const char *const *names,
                              const hr_tensor *const *arrays) {
  const hr_file_contents contents = {.format = format, .count = count, .names = names, .arrays = arrays};
  return hr_file_write(stream, to, &contents);
}

static void expect_floats(const hr_tensor *x, int count, const float *expected) {
  float values[256];
  HR_ASSERT_EQ(hr_tensor_count(x), count);
  if (count > 0) {
    HR_ASSERT_OK(hr_array_read(stream, x, values));
  }
  for (int i = 0; i < count; ++i) {
    HR_ASSERT_NEAR(values[i], expected[i], 0);
  }
}

HR_TEST(npy_comes_back_after_its_file_is_gone) {
  hr_tensor x = counted(DIMS(2, 3)), view = {0}, back = {0};
  const hr_tensor *arrays[] = {&view};
  hr_file *file;
  hr_index backwards[] = {{.kind = HR_INDEX_SLICE, .step = -1}, {.kind = HR_INDEX_SLICE, .step = 2}};
  HR_ASSERT_OK(hr_array_index(&x, 2, backwards, &view));
  HR_ASSERT_OK(write_arrays(target("npy"), HR_FILE_NPY, 1, NULL, arrays));
  HR_ASSERT_OK(hr_file_open(path, &file));
  HR_ASSERT_EQ(hr_file_count(file), 1);
  HR_ASSERT_OK(hr_file_array(stream, file, 0, &back));
  hr_file_close(file);
  HR_ASSERT_EQ(unlink(path), 0);
  HR_ASSERT(!hr_buffer_is_unique(stream, back.buffer)); /* adopted: writes go to a copy */
  expect_floats(&back, 4, (const float[]){3, 5, 0, 2});
  hr_tensor_release(&x);
  hr_tensor_release(&view);
  hr_tensor_release(&back);
}

HR_TEST(safetensors_keeps_names_texts_and_empty_arrays) {
  hr_tensor x = counted(DIMS(3)), y = counted(DIMS(0, 4)), z = counted(0, NULL), back = {0};
  const hr_tensor *arrays[] = {&x, &y, &z};
  const char *names[] = {"a \"b\"\\\n\x01/\xc3\xa9", "", "z"};
  const hr_file_string strings[] = {{"pt", 2}, {"\t", 1}};
  const hr_file_value values[] = {{.key = "format", .count = 1, .strings = &strings[0]},
                                  {.key = "\xf0\x9f\x98\x80", .count = 1, .strings = &strings[1]}};
  const hr_file_contents contents = {HR_FILE_SAFETENSORS, 3, 2, names, arrays, values};
  hr_file *file;
  HR_ASSERT_OK(hr_file_write(stream, target("safetensors"), &contents));
  HR_ASSERT_OK(hr_file_open(path, &file));
  HR_ASSERT_EQ(hr_file_count(file), 3);
  HR_ASSERT_EQ(hr_file_value_count(file), 2);
  HR_ASSERT_STR_EQ(hr_file_value_at(file, 1)->key, values[1].key);
  HR_ASSERT_STR_EQ(hr_file_value_at(file, 1)->strings[0].chars, "\t");
  for (int i = 0; i < 3; ++i) {
    int k = 0;
    while (strcmp(hr_file_name(file, i), names[k]) != 0) {
      HR_ASSERT(++k < 3);
    }
    HR_ASSERT_OK(hr_file_array(stream, file, i, &back));
    HR_ASSERT_EQ(back.rank, arrays[k]->rank);
    expect_floats(&back, k == 0 ? 3 : k == 1 ? 0 : 1, (const float[]){0, 1, 2});
  }
  hr_file_close(file);
  (void)unlink(path);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  hr_tensor_release(&back);
}

HR_TEST(a_failed_write_keeps_the_target) {
  hr_tensor x = counted(DIMS(3));
  const hr_tensor *arrays[] = {&x, &x};
  const char *names[] = {"x", "\xff"};
  hr_file *file;
  HR_ASSERT_OK(write_arrays(target("kept"), HR_FILE_NPY, 1, NULL, arrays));
  HR_ASSERT_ERROR(write_arrays(path, HR_FILE_SAFETENSORS, 2, names, arrays), HR_STATUS_INVALID_ARGUMENT, "UTF-8");
  HR_ASSERT_OK(hr_file_open(path, &file));
  hr_file_close(file);
  (void)unlink(path);
  HR_ASSERT_ERROR(write_arrays("/dev/null", HR_FILE_NPY, 1, NULL, arrays), HR_STATUS_INVALID_ARGUMENT,
                  "no regular file");
  HR_ASSERT_STATUS(write_arrays("/nowhere/x", HR_FILE_NPY, 1, NULL, arrays), HR_STATUS_NOT_FOUND);
  HR_ASSERT_STATUS(hr_file_open("/nowhere/x", &file), HR_STATUS_NOT_FOUND);
  HR_ASSERT_STATUS(hr_file_open("/tmp", &file), HR_STATUS_UNAVAILABLE);
  hr_tensor_release(&x);
}

/* An npy file with this header and so many bytes behind it. */
static hr_status open_npy(const char *header, size_t more, hr_file **out_file) {
  char bytes[1024] = "\x93NUMPY\x01";
  size_t length = strlen(header);
  bytes[8] = (char)length;
  memcpy(bytes + 10, header, length);
  for (size_t i = 0; i < more; ++i) {
    bytes[10 + length + i] = (char)i;
  }
  return hr_file_open_bytes("x.npy", bytes, 10 + length + more, out_file);
}

HR_TEST(npy_of_other_orders) {
  hr_file *file;
  hr_tensor x = {0};
  int16_t values[6];
  open_stream();
  HR_ASSERT_OK(open_npy("{'shape': (2, 3), 'fortran_order': True, 'descr': '>i2'}", 12, &file));
  HR_ASSERT_OK(hr_file_array(stream, file, 0, &x));
  hr_file_close(file);
  HR_ASSERT_OK(hr_array_read(stream, &x, values));
  for (int i = 0; i < 6; ++i) { /* element (row, column) is number 2 * column + row of the file */
    int n = 2 * (i % 3) + i / 3;
    HR_ASSERT_EQ(values[i], 2 * n << 8 | (2 * n + 1));
  }
  HR_ASSERT_OK(open_npy("{'shape': (4,), 'fortran_order': False, 'descr': '|b1'}", 4, &file));
  HR_ASSERT_OK(hr_file_array(stream, file, 0, &x));
  hr_file_close(file);
  HR_ASSERT_OK(hr_array_read(stream, &x, values));
  HR_ASSERT_BYTES_EQ(values, "\0\1\1\1", 4); /* bytes 2 and 3 are true, too */
  hr_tensor_release(&x);
}

HR_TEST(damaged_npy) {
  static const struct {
    const char *header, *part;
    hr_status_code code;
  } rows[] = {
      {"{'shape': (2,), 'fortran_order': False, 'descr': '|O'}", "pickle", HR_STATUS_UNIMPLEMENTED},
      {"{'shape': (2,), 'fortran_order': False, 'descr': [('a', '<f4')]}", "structured", HR_STATUS_UNIMPLEMENTED},
      {"{'shape': (2,), 'fortran_order': False, 'descr': '<U3'}", "<U3", HR_STATUS_UNIMPLEMENTED},
      {"{'shape': (9,), 'fortran_order': False, 'descr': '<f4'}", "36 bytes", HR_STATUS_DATA_LOSS},
      {"{'shape': (-2,), 'fortran_order': False, 'descr': '<f4'}", "shape", HR_STATUS_DATA_LOSS},
      {"{'shape': (4294967296, 4294967296), 'fortran_order': False, 'descr': '<f4'}", "2^63", HR_STATUS_DATA_LOSS},
      {"{'shape': (99999999999999999999,), 'fortran_order': False, 'descr': '<f4'}", "shape", HR_STATUS_DATA_LOSS},
      {"{'shape': (1,), 'shape': (1,), 'descr': '<f4'}", "twice", HR_STATUS_DATA_LOSS},
      {"{'shape': (1,), 'descr': '<f4'}", "dict", HR_STATUS_DATA_LOSS},
      {"{'shape': (1,), 'fortran_order': 1, 'descr': '<f4'}", "fortran_order", HR_STATUS_DATA_LOSS},
      {"{'shape': (1,), 'fortran_order': False, 'descr': '<f4'} + f()", "dict", HR_STATUS_DATA_LOSS},
      {"{'shape': (1,), 'fortran_order': False, 'descr': '<f4", "descr", HR_STATUS_DATA_LOSS},
      {"", "dict", HR_STATUS_DATA_LOSS},
  };
  hr_file *file;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    HR_ASSERT_ERROR(open_npy(rows[i].header, 8, &file), rows[i].code, rows[i].part);
  }
}

static hr_status open_safetensors(const char *header, size_t more, hr_file **out_file) {
  char bytes[1024] = {0};
  uint64_t length = strlen(header);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, length);
  return hr_file_open_bytes("x.safetensors", bytes, 8 + length + more, out_file);
}

HR_TEST(damaged_safetensors) {
#define ENTRY(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
  static const struct {
    const char *header, *part;
    hr_status_code code;
  } rows[] = {
      {"{\"x\":" ENTRY("F32", "[2]", "[0,4]") "}", "data_offsets of 'x' are [0, 4], expected 8", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[2]", "[8,16]") "}", "of 8", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[2]", "[8,0]") "}", "[8, 0]", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[1]", "[0,4]") "}", "end at byte", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[1]", "[4,8]") "}", "begins at byte 4", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[2]", "[0,8]") ",\"y\":" ENTRY("F32", "[1]", "[4,8]") "}", "'y' begins at byte 4",
       HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[1]", "[0,4]") ",\"x\":" ENTRY("F32", "[1]", "[4,8]") "}", "'x'", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F31", "[2]", "[0,8]") "}", "F31", HR_STATUS_UNIMPLEMENTED},
      {"{\"x\":" ENTRY("F32", "[4294967296,4294967296]", "[0,8]") "}", "2^63", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[9223372036854775808]", "[0,8]") "}", "below 2^63", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[-2]", "[0,8]") "}", "not negative", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") "}", "16 dims", HR_STATUS_DATA_LOSS},
      {"{\"x\":" ENTRY("F32", "[2]", "[0]") "}", "two offsets", HR_STATUS_DATA_LOSS},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets", HR_STATUS_DATA_LOSS},
      {"{\"\\u0000\":" ENTRY("F32", "[2]", "[0,8]") "}", "other than 0", HR_STATUS_DATA_LOSS},
      {"{\"\\ud800\":" ENTRY("F32", "[2]", "[0,8]") "}", "after \\u", HR_STATUS_DATA_LOSS},
      {"{\"\xc0\x80\":" ENTRY("F32", "[2]", "[0,8]") "}", "UTF-8", HR_STATUS_DATA_LOSS},
      {"{\"__metadata__\":{\"a\":1},\"x\":" ENTRY("F32", "[2]", "[0,8]") "}", "expected '\"'", HR_STATUS_DATA_LOSS},
      {"{\"x\":", "expected '{'", HR_STATUS_DATA_LOSS},
      {"{} x", "its end", HR_STATUS_DATA_LOSS},
  };
  hr_file *file;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    HR_ASSERT_ERROR(open_safetensors(rows[i].header, 8, &file), rows[i].code, rows[i].part);
  }
  HR_ASSERT_OK(open_safetensors("{\"\\u00e9\\ud83d\\ude00\":" ENTRY("F32", "[2]", "[0,8]") "}", 8, &file));
  HR_ASSERT_STR_EQ(hr_file_name(file, 0), "\xc3\xa9\xf0\x9f\x98\x80");
  hr_file_close(file);
  HR_ASSERT_ERROR(hr_file_open_bytes("x", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, &file), HR_STATUS_DATA_LOSS,
                  "x: safetensors: header length is 18446744073709551615, expected at most 2");
  HR_ASSERT_ERROR(hr_file_open_bytes("x", "", 0, &file), HR_STATUS_DATA_LOSS, "0 bytes");
}

/* An archive and a gguf file as hr_file_write makes them. */
static hr_status append_bytes(void *arg, const void *bytes, size_t count) {
  hr_text_append_bytes(arg, bytes, count);
  return hr_text_status(arg);
}

static void write_both(hr_text *npz, hr_text *gguf) {
  hr_tensor x = counted(DIMS(2, 3)), y = counted(DIMS(0));
  const hr_tensor *arrays[] = {&x, &y};
  const char *names[] = {"x", "\xc3\xa9"};
  const hr_file_string strings[] = {{"a\0b", 3}, {"", 0}};
  const hr_file_value values[] = {
      {.key = "list", .kind = HR_FILE_STRINGS, .count = 2, .strings = strings},
      {.key = "n", .kind = HR_FILE_NUMBER, .count = 1, .dtype = HR_DTYPE_F64, .numbers = &(double){1.5}}};
  HR_ASSERT_OK(
      hr_file_write_to(stream, append_bytes, npz,
                       &(hr_file_contents){.format = HR_FILE_NPZ, .count = 2, .names = names, .arrays = arrays}));
  HR_ASSERT_OK(
      hr_file_write_to(stream, append_bytes, gguf, &(hr_file_contents){HR_FILE_GGUF, 2, 2, names, arrays, values}));
  hr_tensor_release(&x);
  hr_tensor_release(&y);
}

HR_TEST(npz_and_gguf_come_back) {
  hr_text texts[2] = {0};
  write_both(&texts[0], &texts[1]);
  for (int k = 0; k < 2; ++k) {
    hr_file *file;
    hr_tensor back = {0};
    HR_ASSERT_OK(hr_file_open_bytes("x", texts[k].data, texts[k].length, &file));
    HR_ASSERT_EQ(hr_file_format_of(file), k == 0 ? HR_FILE_NPZ : HR_FILE_GGUF);
    HR_ASSERT_STR_EQ(hr_file_name(file, 1), "\xc3\xa9");
    HR_ASSERT_EQ(hr_file_value_count(file), 2 * k);
    if (k == 1) {
      const hr_file_value *list = hr_file_value_at(file, 0), *number = hr_file_value_at(file, 1);
      HR_ASSERT(list->kind == HR_FILE_STRINGS && list->count == 2 && number->kind == HR_FILE_NUMBER);
      HR_ASSERT_EQ(list->strings[0].length, 3);
      HR_ASSERT_BYTES_EQ(list->strings[0].chars, "a\0b", 4);
      HR_ASSERT_NEAR(*(const double *)number->numbers, 1.5, 0);
    }
    HR_ASSERT_OK(hr_file_array(stream, file, 0, &back));
    HR_ASSERT(!hr_buffer_is_unique(stream, back.buffer)); /* adopted, as both formats are aligned */
    expect_floats(&back, 6, (const float[]){0, 1, 2, 3, 4, 5});
    HR_ASSERT_OK(hr_file_array(stream, file, 1, &back));
    HR_ASSERT_EQ(hr_tensor_count(&back), 0);
    hr_file_close(file);
    hr_tensor_release(&back);
    hr_text_fini(&texts[k]);
  }
}

/* Each byte but the padding's matters to a checksum, a name or a place. */
HR_TEST(each_flipped_byte_of_an_npz_is_noticed) {
  hr_text npz = {0}, gguf = {0};
  write_both(&npz, &gguf);
  int unnoticed = 0;
  for (size_t at = 0; at < npz.length; ++at) {
    hr_file *file;
    hr_tensor back = {0};
    npz.data[at] ^= 0x40;
    hr_status status = hr_file_open_bytes("x", npz.data, npz.length, &file);
    if (status == HR_OK) {
      status = hr_file_array(stream, file, 0, &back);
      if (status == HR_OK) {
        expect_floats(&back, 6, (const float[]){0, 1, 2, 3, 4, 5});
        ++unnoticed;
      }
      hr_file_close(file);
    }
    hr_status_free(status);
    hr_tensor_release(&back);
    npz.data[at] ^= 0x40;
  }
  HR_ASSERT(unnoticed < (int)npz.length); /* fields that reading has no use for, such as dates, and the other array */
  hr_text_fini(&npz);
  hr_text_fini(&gguf);
}

static void add_number(hr_text *to, uint64_t value, size_t bytes) {
  hr_text_append_bytes(to, (const char *)&value, bytes);
}

static void add_name(hr_text *to, const char *name) {
  add_number(to, strlen(name), 8);
  hr_text_append(to, name);
}

/* A gguf file with one tensor of one dim, and so many bytes of data. */
static hr_text make_gguf(const char *name, int64_t dim, unsigned type, uint64_t offset, size_t more) {
  hr_text file = {0};
  hr_text_append(&file, "GGUF");
  add_number(&file, 3, 4);
  add_number(&file, 1, 8);
  add_number(&file, 0, 8);
  add_name(&file, name);
  add_number(&file, 1, 4);
  add_number(&file, (uint64_t)dim, 8);
  add_number(&file, type, 4);
  add_number(&file, offset, 8);
  while (file.length % 32 != 0) {
    hr_text_char(&file, '\0');
  }
  for (size_t i = 0; i < more; ++i) {
    hr_text_char(&file, (char)i);
  }
  return file;
}

HR_TEST(damaged_gguf) {
  static const struct {
    const char *name;
    int64_t dim;
    unsigned type;
    uint64_t offset;
    const char *part;
    hr_status_code code;
  } rows[] = {
      {"x", 9, 0, 0, "'x' has 36 bytes at offset 0, but the data has 32", HR_STATUS_DATA_LOSS},
      {"x", 1, 0, 64, "at offset 64, but", HR_STATUS_DATA_LOSS},
      {"x", 1, 0, UINT64_MAX - 31, "but the data", HR_STATUS_DATA_LOSS},
      {"x", 1, 0, 4, "a multiple of 32", HR_STATUS_DATA_LOSS},
      {"x", -1, 0, 0, "2^63", HR_STATUS_DATA_LOSS},
      {"x", INT64_MAX, 0, 0, "2^63", HR_STATUS_DATA_LOSS},
      {"x", INT64_MAX - 31, 2, 0, "2^63", HR_STATUS_DATA_LOSS},
      {"x", 33, 2, 0, "type Q4_0 has rows of 33", HR_STATUS_DATA_LOSS},
      {"x", 64, 2, 0, "'x' has 36 bytes", HR_STATUS_DATA_LOSS},
      {"x", 256, 12, 0, "type 12 (Q4_K)", HR_STATUS_UNIMPLEMENTED},
      {"x", 256, 99, 0, "type 99 (unknown)", HR_STATUS_UNIMPLEMENTED},
      {"\xff", 1, 0, 0, "UTF-8", HR_STATUS_DATA_LOSS},
  };
  hr_file *file;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    hr_text text = make_gguf(rows[i].name, rows[i].dim, rows[i].type, rows[i].offset, 32);
    HR_ASSERT_ERROR(hr_file_open_bytes("x", text.data, text.length, &file), rows[i].code, rows[i].part);
    hr_text_fini(&text);
  }
  HR_ASSERT_ERROR(hr_file_open_bytes("x", "GGUF\0\0\0\3", 8, &file), HR_STATUS_UNIMPLEMENTED, "expected 2 or 3");
  HR_ASSERT_ERROR(hr_file_open_bytes("x", "GGUF\3\0\0\0", 8, &file), HR_STATUS_DATA_LOSS, "number of tensors");
}

static hr_text valid_npz, valid_gguf, valid_blocks;

static hr_status open_and_close(const char *bytes, size_t size) {
  hr_file *file;
  HR_RETURN_IF_ERROR(hr_file_open_bytes("x", bytes, size, &file));
  hr_file_close(file);
  return HR_OK;
}

static hr_status open_valid(void) {
  hr_file *file;
  HR_RETURN_IF_ERROR(
      open_safetensors("{\"__metadata__\":{\"a\":\"b\"},\"x\":" ENTRY("F32", "[2]", "[0,8]") "}", 8, &file));
  hr_file_close(file);
  HR_RETURN_IF_ERROR(open_npy("{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", 8, &file));
  hr_file_close(file);
  HR_RETURN_IF_ERROR(open_and_close(valid_blocks.data, valid_blocks.length));
  HR_RETURN_IF_ERROR(open_and_close(valid_npz.data, valid_npz.length));
  return open_and_close(valid_gguf.data, valid_gguf.length);
}

HR_TEST(files_open_without_memory) {
  write_both(&valid_npz, &valid_gguf);
  valid_blocks = make_gguf("x.weight", 32, 2, 0, 32);
  HR_TEST_OOM(open_valid);
  hr_text_fini(&valid_blocks);
  hr_text_fini(&valid_npz);
  hr_text_fini(&valid_gguf);
}
