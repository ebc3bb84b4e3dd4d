/* Mutated files of arrays: each one opens and its arrays can be read, or it is refused. Under the address sanitizer no
 * byte outside of a file is read. HEADRACE_TEST_FILES sets the number of files, HEADRACE_TEST_SEED the first of them.
 */
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

static void make_npy(sample *to, const char *header) {
  const char head[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)strlen(header), 0};
  add_bytes(to, head, sizeof head);
  add_bytes(to, header, strlen(header));
  add_bytes(to, "0123456789abcdef01234567", 24);
}

static void make_safetensors(sample *to, const char *header) {
  uint64_t length = strlen(header);
  add_bytes(to, &length, 8);
  add_bytes(to, header, length);
  add_bytes(to, "0123456789abcdef01234567", 24);
}

enum { SAMPLES = 5 };

static void make_samples(sample *samples) {
  make_npy(&samples[0], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n");
  make_npy(&samples[1], "{'descr': '>c8', 'fortran_order': True, 'shape': (3, 1), }\n");
  make_npy(&samples[2], "{'descr': '|b1', 'fortran_order': True, 'shape': (4, 3, 2), }\n");
  make_safetensors(&samples[3],
                   "{\"__metadata__\":{\"k\\u00e9\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":"
                   "[0,16]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[16,24]},\"c\":{\"dtype\":\"I64\","
                   "\"shape\":[0],\"data_offsets\":[24,24]}}   ");
  make_safetensors(&samples[4], "{\"\":{\"shape\":[3],\"data_offsets\":[0,24],\"dtype\":\"F64\"}}");
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
    switch (draw(6)) {
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
      default:
        put_word(s, at);
    }
  }
}

/* True if the file opens. */
static bool visit(const sample *s) {
  hr_file *file;
  hr_status status = hr_file_open_bytes("fuzz", s->bytes, s->size, &file);
  if (status != HR_OK) {
    hr_status_code code = hr_status_code_of(status);
    HR_ASSERT(code == HR_STATUS_DATA_LOSS || code == HR_STATUS_UNIMPLEMENTED);
    HR_ASSERT(strstr(hr_status_message(status), "fuzz") != NULL);
    hr_status_free(status);
    return false;
  }
  for (int i = 0; i < hr_file_count(file); ++i) {
    hr_tensor x = {0};
    char elements[ROOM];
    HR_ASSERT_OK(hr_file_array(stream, file, i, &x));
    HR_ASSERT(hr_tensor_count(&x) * (int64_t)hr_dtype_size(x.dtype) <= ROOM);
    if (hr_tensor_count(&x) > 0) {
      HR_ASSERT_OK(hr_array_read(stream, &x, elements));
    }
    hr_tensor_release(&x);
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
  for (int64_t i = 0; i < count; ++i) {
    state = (first + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    sample s = samples[draw(SAMPLES)];
    mutate(&s);
    opened += visit(&s);
    if (i == count / 10) {
      HR_ASSERT_OK(hr_stream_synchronize(stream));
      live = hr__allocator_live();
    }
  }
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  HR_ASSERT(hr__allocator_live() <= live + 1000); /* no leak */
  fprintf(stderr, "%lld of %lld files opened\n", (long long)opened, (long long)count);
  HR_ASSERT(opened > count / 50);
}
