/* Mutated files of arrays: each one opens and its arrays can be read, or it is refused. Under the address sanitizer no
 * byte outside of a file is read. HEADRACE_TEST_FILES sets the number of files, HEADRACE_TEST_SEED the first of them.
 */
#include "file_limits.h"
#include "headrace/file.h"
#include "tensor_test.h"

enum { ROOM = 1024 };

typedef struct sample {
  char bytes[ROOM];
  size_t size;
} sample;

static uint64_t state;

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = state >> 33 ^ state >> 17;
  return x % below;
}

static void add_bytes(sample *to, const void *bytes, size_t count) {
  HR_ASSERT(to->size + count <= ROOM);
  memcpy(to->bytes + to->size, bytes, count);
  to->size += count;
}

static void make_npy_of(sample *to, const char *header, const char *elements) {
  const char head[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)strlen(header), 0};
  add_bytes(to, head, sizeof head);
  add_bytes(to, header, strlen(header));
  add_bytes(to, elements, strlen(elements));
}

static void make_npy(sample *to, const char *header) {
  make_npy_of(to, header, "0123456789abcdef01234567");
}

static void make_safetensors(sample *to, const char *header) {
  uint64_t length = strlen(header);
  add_bytes(to, &length, 8);
  add_bytes(to, header, length);
  add_bytes(to, "0123456789abcdef01234567", 24);
}

static void add_number(sample *to, uint64_t value, size_t bytes) {
  add_bytes(to, &value, bytes);
}

/* An archive of two members with a and b.npy: "12345678" in an npy file, stored, and the same deflated. */
static void make_npz(sample *to) {
  static const unsigned char deflated[] = {
      0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x60, 0xc5, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e,
      0xa5, 0xa0, 0x6e, 0x93, 0x69, 0xa1, 0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f,
      0x94, 0x92, 0x0a, 0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a,
      0x86, 0x3a, 0x9a, 0x3a, 0x0a, 0xb5, 0x5c, 0x86, 0x46, 0xc6, 0x26, 0xa6, 0x66, 0xe6, 0x16, 0x00};
  sample npy = {0};
  size_t places[2], sizes[2] = {0, sizeof deflated};
  uint32_t checksum = 0x57313e98;
  make_npy_of(&npy, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n", "12345678");
  sizes[0] = npy.size;
  for (int i = 0; i < 2; ++i) {
    places[i] = to->size;
    add_number(to, 0x04034b50, 4);
    add_number(to, 20, 4);
    add_number(to, i == 0 ? 0 : 8, 6);
    add_number(to, checksum, 4);
    add_number(to, sizes[i], 4);
    add_number(to, npy.size, 4);
    add_number(to, 5, 4);
    add_bytes(to, i == 0 ? "a.npy" : "b.npy", 5);
    add_bytes(to, i == 0 ? npy.bytes : (const char *)deflated, sizes[i]);
  }
  size_t directory = to->size;
  for (int i = 0; i < 2; ++i) {
    add_number(to, 0x02014b50, 4);
    add_number(to, 20 << 16, 6);
    add_number(to, i == 0 ? 0 : 8, 6);
    add_number(to, checksum, 4);
    add_number(to, sizes[i], 4);
    add_number(to, npy.size, 4);
    add_number(to, 5 | 20 << 16, 4); /* an extra field of 20 bytes */
    add_number(to, 0, 8);
    add_number(to, 0, 2);
    add_number(to, i == 0 ? places[0] : 0xffffffff, 4);
    add_bytes(to, i == 0 ? "a.npy" : "b.npy", 5);
    add_number(to, i == 0 ? 0x000c0099 : 0x00080001, 4);
    add_number(to, places[i], 8);
    add_number(to, i == 0 ? 0 : 0x00040099, 4);
    add_number(to, 0, 4);
  }
  size_t end = to->size;
  add_number(to, 0x06054b50, 4);
  add_number(to, 0, 4);
  add_number(to, 2 | 2 << 16, 4);
  add_number(to, end - directory, 4);
  add_number(to, directory, 4);
  add_number(to, 0, 2);
}

static void add_string(sample *to, const char *string) {
  add_number(to, strlen(string), 8);
  add_bytes(to, string, strlen(string));
}

/* Metadata of each kind, and tensors of type F32, Q4_1 and I16. */
static void make_gguf(sample *to, uint32_t version) {
  static const struct {
    const char *name;
    int rank, dims[2], type, offset;
  } tensors[] = {{"a", 2, {3, 1}, 0, 0}, {"b.weight", 2, {32, 2}, 3, 16}, {"c", 1, {2}, 25, 64}};
  add_bytes(to, "GGUF", 4);
  add_number(to, version, 4);
  add_number(to, 3, 8);
  add_number(to, 4, 8);
  add_string(to, "general.alignment");
  add_number(to, 4, 4);
  add_number(to, 16, 4);
  add_string(to, "s");
  add_number(to, 8, 4);
  add_string(to, "text");
  add_string(to, "strings");
  add_number(to, 9, 4);
  add_number(to, 8, 4);
  add_number(to, 2, 8);
  add_string(to, "x");
  add_string(to, "");
  add_string(to, "bools");
  add_number(to, 9, 4);
  add_number(to, 7, 4);
  add_number(to, 2, 8);
  add_number(to, 1, 2);
  for (int i = 0; i < 3; ++i) {
    add_string(to, tensors[i].name);
    add_number(to, (uint64_t)tensors[i].rank, 4);
    for (int d = 0; d < tensors[i].rank; ++d) {
      add_number(to, (uint64_t)tensors[i].dims[d], 8);
    }
    add_number(to, (uint64_t)tensors[i].type, 4);
    add_number(to, (uint64_t)tensors[i].offset, 8);
  }
  while (to->size % 16 != 0) {
    add_bytes(to, "", 1);
  }
  for (int i = 0; i < 68; ++i) {
    add_number(to, (uint64_t)i, 1);
  }
}

enum { SAMPLES = 8 };

static void make_samples(sample *samples) {
  make_npy(&samples[0], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n");
  make_npy(&samples[1], "{'descr': '>c8', 'fortran_order': True, 'shape': (3, 1), }\n");
  make_npy(&samples[2], "{'descr': '|b1', 'fortran_order': True, 'shape': (4, 3, 2), }\n");
  make_safetensors(&samples[3],
                   "{\"__metadata__\":{\"k\\u00e9\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":"
                   "[0,16]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[16,24]},\"c\":{\"dtype\":\"I64\","
                   "\"shape\":[0],\"data_offsets\":[24,24]}}   ");
  make_safetensors(&samples[4], "{\"\":{\"shape\":[3],\"data_offsets\":[0,24],\"dtype\":\"F64\"}}");
  make_npz(&samples[5]);
  make_gguf(&samples[6], 2);
  make_gguf(&samples[7], 3);
}

/* Words that matter to a parser. */
static void put_word(sample *s, size_t at) {
  static const char *const words[] = {"9223372036854775807",
                                      "18446744073709551615",
                                      "-1",
                                      "0",
                                      "4294967296",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "(",
                                      ")",
                                      ",",
                                      ":",
                                      "\"",
                                      "'",
                                      "\\u",
                                      "\\ud83d",
                                      "\xf0\x9f",
                                      "O",
                                      ">",
                                      "\0",
                                      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,",
                                      "__metadata__",
                                      "shape",
                                      "BF16",
                                      "1e9"};
  const char *word = words[draw(sizeof words / sizeof *words)];
  for (size_t i = 0; word[i] != '\0' && at + i < s->size; ++i) {
    s->bytes[at + i] = word[i];
  }
}

/* Numbers that matter to a parser of binary fields. */
static void put_number(sample *s, size_t at) {
  static const uint64_t numbers[] = {
      0,          1,          2,          3,          8,          9,         30,         0xffff,
      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 40, 1ull << 60, INT64_MAX, 1ull << 63, UINT64_MAX - 31,
      UINT64_MAX};
  uint64_t number = draw(2) == 0 ? numbers[draw(sizeof numbers / sizeof *numbers)] : draw(s->size + 16);
  size_t bytes = (size_t)1 << draw(4);
  memcpy(s->bytes + at, &number, bytes < s->size - at ? bytes : s->size - at);
}

/* Moves the bytes from `at` on by up to 8, so that what precedes them is longer or shorter. */
static void shift(sample *s, size_t at) {
  size_t by = 1 + draw(8);
  if (draw(2) == 0 && s->size + by <= ROOM) {
    memmove(s->bytes + at + by, s->bytes + at, s->size - at);
    s->size += by;
  } else if (at + by <= s->size) {
    memmove(s->bytes + at, s->bytes + at + by, s->size - at - by);
    s->size -= by;
  }
}

static void mutate(sample *s) {
  for (uint64_t n = 1 + draw(4); n > 0 && s->size > 0; --n) {
    size_t at = draw(s->size);
    switch (draw(7)) {
      case 0:
        s->bytes[at] = (char)draw(256);
        break;
      case 1:
        s->bytes[at] ^= (char)(1 << draw(8));
        break;
      case 2:
        s->size = draw(4) == 0 ? at : s->size;
        break;
      case 3:
        shift(s, at);
        break;
      case 4:
        s->bytes[draw(s->size < 12 ? s->size : 12)] = (char)draw(256);
        break;
      case 5:
        put_number(s, at);
        break;
      default:
        put_word(s, at);
    }
  }
}

/* True if it succeeded; else the reason must be that the file is damaged, or has what arrays have not. */
static bool succeeded(hr_status status) {
  if (status == HR_OK) {
    return true;
  }
  hr_status_code code = hr_status_code_of(status);
  HR_ASSERT(code == HR_STATUS_DATA_LOSS || code == HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "fuzz") != NULL);
  hr_status_free(status);
  return false;
}

/* A compressed byte may stand for 1,032. */
static void read_array(hr_file *file, int i) {
  static char elements[1100 * ROOM];
  hr_tensor x = {0};
  if (succeeded(hr_file_array(stream, file, i, &x))) {
    HR_ASSERT(hr_tensor_count(&x) * (int64_t)hr_dtype_size(x.dtype) <= (int64_t)sizeof elements);
    if (hr_tensor_count(&x) > 0) {
      HR_ASSERT_OK(hr_array_read(stream, &x, elements));
    }
    hr_tensor_release(&x);
  }
}

static void read_value(const hr_file_value *value) {
  size_t bytes = 0;
  for (int64_t i = 0; i < value->count && value->strings != NULL; ++i) {
    bytes += strnlen(value->strings[i].chars, ROOM);
    HR_ASSERT(value->strings[i].chars[value->strings[i].length] == '\0');
  }
  HR_ASSERT(bytes <= ROOM && value->count <= ROOM && strlen(value->key) <= ROOM);
}

/* True if the file opens. */
static bool visit(const sample *s) {
  hr_file *file;
  if (!succeeded(hr_file_open_bytes("fuzz", s->bytes, s->size, &file))) {
    return false;
  }
  for (int i = 0; i < hr_file_count(file); ++i) {
    read_array(file, i);
  }
  for (int i = 0; i < hr_file_value_count(file); ++i) {
    read_value(hr_file_value_at(file, i));
  }
  hr_file_close(file);
  return true;
}

HR_TEST(mutated_files_are_read_or_refused) {
  static sample samples[SAMPLES];
  const char *files = getenv("HEADRACE_TEST_FILES"), *seed = getenv("HEADRACE_TEST_SEED");
  int64_t count = files != NULL ? atoll(files) : hr_test_count(100000), opened = 0;
  uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 0;
  open_stream();
  make_samples(samples);
  for (int i = 0; i < SAMPLES; ++i) {
    HR_ASSERT(visit(&samples[i]));
  }
  int64_t live = 0;
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    state = (first + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    sample s = samples[draw(SAMPLES)];
    mutate(&s);
    file_limits_start((int64_t)first + i);
    opened += visit(&s);
    file_limits_check(s.size);
    if (i == count / 10) {
      HR_ASSERT_OK(hr_stream_synchronize(stream));
      live = hr__allocator_live();
    }
  }
  file_limits_end();
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  HR_ASSERT(hr__allocator_live() <= live + 1000); /* no leak */
  fprintf(stderr, "%lld of %lld files opened\n", (long long)opened, (long long)count);
  HR_ASSERT(opened > count / 50);
}
