/* Packages: written, read, and refused when they are damaged. */
#include "headrace/package.h"

#include <sys/stat.h>

#include "file_limits.h"
#include "graph/graph_test.h"
#include "headrace/session.h"
#include "session/package_format.h"

enum { ROOM = 1 << 16 };

static char path[64];

/* The path of a new file. */
static const char *temporary(void) {
  snprintf(path, sizeof path, "/tmp/package_test.XXXXXX");
  int descriptor = mkstemp(path);
  HR_ASSERT(descriptor >= 0);
  fclose(fdopen(descriptor, "r"));
  return path;
}

/* y = relu(x w + b) for x [n, 20]; w is beside the text, b a part of it. */
static hr_graph *layer(void) {
  static float weights[20 * 3];
  for (int i = 0; i < 60; ++i) {
    weights[i] = (float)(i % 7 - 3);
  }
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 20"), w = constant_of(g, HR_DTYPE_F32, "20 3", weights);
  hr_value b = constant_of(g, HR_DTYPE_F32, "3", weights + 4);
  uint8_t flags[200] = {1, 0, 1};
  hr_value mask = constant_of(g, HR_DTYPE_BOOL, "200", flags);
  hr_value y = ADD(g, RELU, VALUES(ADD(g, ADD, VALUES(ADD(g, MATMUL, VALUES(x, w), 0, NULL), b), 0, NULL)), 0, NULL);
  hr_graph_output(g, "y", y);
  hr_graph_output(g, "count", ADD(g, SUM, VALUES(mask), 0, NULL));
  HR_ASSERT_OK(hr_graph_status(g));
  return g;
}

static void write_layer(void) {
  const hr_package_note notes[2] = {{"producer", "package_test"}, {"licence", "any = all"}};
  hr_graph *g = layer();
  HR_ASSERT_OK(hr_package_write(g, temporary(), 2, notes));
  hr_graph_release(g);
}

static size_t read_file(char *bytes) {
  FILE *file = fopen(path, "rb");
  HR_ASSERT_NOT_NULL(file);
  size_t size = fread(bytes, 1, ROOM, file);
  fclose(file);
  HR_ASSERT(size > 0 && size < ROOM);
  return size;
}

HR_TEST(a_package_answers_as_its_graph) {
  write_layer();
  hr_package *package = NULL;
  hr_graph *g = NULL, *original = layer();
  hr_session *session = NULL;
  HR_ASSERT_OK(hr_package_open(path, &package));
  HR_ASSERT_OK(hr_package_verify(package));
  HR_ASSERT_EQ(hr_package_note_count(package), 2);
  HR_ASSERT_STR_EQ(hr_package_note_at(package, 1).key, "licence");
  HR_ASSERT_STR_EQ(hr_package_note_at(package, 1).value, "any = all");
  HR_ASSERT_OK(hr_package_graph(package, &g));
  char *text = print_of(original);
  expect_text(g, text);
  free(text);
  hr_package_close(package);
  remove(path);
  open_stream();
  HR_ASSERT_OK(hr_session_create(stream, g, &(hr_session_options){.keeps_operations = true}, &session));
  hr_session_stats stats;
  hr_session_stats_read(session, sizeof stats, &stats);
  HR_ASSERT_EQ(stats.constant_bytes_copied, 0); /* the mapping is the device's memory, also of small ones */
  hr_tensor x = counted(DIMS(2, 20)), out[2], expected[2];
  const hr_tensor *inputs[1] = {&x};
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 2, out));
  HR_ASSERT_OK(hr_graph_apply(original, stream, 1, inputs, 2, expected));
  float got[6], wanted[6];
  read(&out[0], got);
  read(&expected[0], wanted);
  HR_ASSERT_BYTES_EQ(got, wanted, sizeof got);
  EXPECT(&out[1], 2);
  hr_graph_release(g); /* results and the session keep the mapping */
  hr_session_release(session);
  RELEASE(&x, &out[0], &out[1], &expected[0], &expected[1]);
  hr_graph_release(original);
}

/* The format does not change: a file of its first version opens for ever. tests/data/layer_v1.hrpkg is what write_layer
 * wrote in November 2026. */
HR_TEST(a_package_of_version_1_opens) {
  hr_package *package = NULL;
  hr_graph *g = NULL, *original = layer();
  HR_ASSERT_OK(hr_package_open("tests/data/layer_v1.hrpkg", &package));
  HR_ASSERT_OK(hr_package_verify(package));
  HR_ASSERT_OK(hr_package_graph(package, &g));
  hr_package_close(package);
  hr_tensor x = counted(DIMS(1, 20)), out[2], expected[2];
  const hr_tensor *inputs[1] = {&x};
  HR_ASSERT_OK(hr_graph_apply(g, stream, 1, inputs, 2, out));
  HR_ASSERT_OK(hr_graph_apply(original, stream, 1, inputs, 2, expected));
  float got[3], wanted[3];
  read(&out[0], got);
  read(&expected[0], wanted);
  HR_ASSERT_BYTES_EQ(got, wanted, sizeof got);
  RELEASE(&x, &out[0], &out[1], &expected[0], &expected[1]);
  hr_graph_release(g);
  hr_graph_release(original);
}

HR_TEST(hashes_are_those_of_the_format) {
  HR_ASSERT(hr__package_hash(0, "", 0) == 0);
  HR_ASSERT(hr__package_hash(0, "a", 1) == UINT64_C(0xb703dfe1bb9b5f59));
  HR_ASSERT(hr__package_hash(0, "headrace package", 16) == UINT64_C(0xc1c4c64a1f32cb5d));
  HR_ASSERT(hr__package_hash(7, "headrace", 8) != hr__package_hash(7, "headrace\0", 9));
}

static void expect_refused(const char *bytes, size_t size, hr_status_code code, const char *part) {
  hr_package *package = NULL;
  HR_ASSERT_ERROR(hr_package_open_bytes("model", bytes, size, &package), code, part);
}

/* Sets the hash of the header after a change of it or of the table. */
static void seal(char *bytes) {
  uint64_t hash = hr__package_hash(0, bytes, HR__PACKAGE_HEADER - 8);
  hash = hr__package_hash(hash, bytes + HR__PACKAGE_HEADER, 4 * HR__PACKAGE_ENTRY);
  memcpy(bytes + 40, &hash, sizeof hash);
}

static void put(char *bytes, size_t at, uint64_t number, size_t size) {
  memcpy(bytes + at, &number, size);
}

HR_TEST(damaged_packages_are_refused) {
  static char bytes[ROOM], changed[ROOM];
  write_layer();
  size_t size = read_file(bytes);
  remove(path);
  expect_refused(bytes, 0, HR_STATUS_DATA_LOSS, "model: 0 bytes are no package");
  expect_refused(bytes, size - 1, HR_STATUS_DATA_LOSS, "its header says");
  for (size_t at = 0; at < 48 + 4 * 32; ++at) { /* each byte of the header and the table */
    memcpy(changed, bytes, size);
    changed[at] ^= 1;
    hr_package *package = NULL;
    hr_status status = hr_package_open_bytes("model", changed, size, &package);
    HR_ASSERT(status != HR_OK);
    hr_status_ignore(status);
  }
  memcpy(changed, bytes, size);
  put(changed, 8, 2, 4);
  expect_refused(changed, size, HR_STATUS_UNIMPLEMENTED, "version 2, expected at most 1");
  memcpy(changed, bytes, size);
  put(changed, 48 + 8, UINT64_MAX - 63, 8);
  seal(changed);
  expect_refused(changed, size, HR_STATUS_DATA_LOSS, "section 0 of kind 1");
  memcpy(changed, bytes, size);
  put(changed, 48 + 32, 1, 4);
  seal(changed);
  expect_refused(changed, size, HR_STATUS_DATA_LOSS, "section 1: a second one of kind 1");
  memcpy(changed, bytes, size);
  memcpy(changed + 48 + 3 * 32 + 8, changed + 48 + 8, 8); /* DATA begins with GRAPH */
  seal(changed);
  expect_refused(changed, size, HR_STATUS_DATA_LOSS, "sections of kinds 1 and 3 overlap");
  memcpy(changed, bytes, size);
  put(changed, 48, 77, 4); /* GRAPH is of a kind that is skipped */
  seal(changed);
  expect_refused(changed, size, HR_STATUS_DATA_LOSS, "its graph has 0 bytes");
}

/* Sets the hash of the index, which is section 1, after a change. */
static void seal_index(char *bytes) {
  uint64_t place = 0, size = 0;
  memcpy(&place, bytes + 48 + 32 + 8, sizeof place);
  memcpy(&size, bytes + 48 + 32 + 16, sizeof size);
  put(bytes, 48 + 32 + 24, hr__package_hash(0, bytes + place, (size_t)size), 8);
  seal(bytes);
}

/* The layer has the constants w f32[20, 3] and mask bool[200]: entries of 48 and 40 bytes. */
HR_TEST(wrong_constants_are_refused) {
  static const struct {
    size_t at;
    uint64_t number;
    size_t bytes;
    const char *part;
  } changes[] = {
      {0, 77, 4, "constant 0: 240 bytes of dtype 77 do not have its dims"},
      {4, 17, 4, "constant 0: its entry of 17 dims does not fit the index"},
      {8, (uint64_t)1 << 40, 8, "constant 0: 240 bytes of dtype"},
      {8, UINT64_MAX, 8, "constant 0: 240 bytes of dtype"},
      {24, 32, 8, "constant 0: 240 bytes at byte 32 do not fit"},
      {24, UINT64_MAX - 63, 8, "do not fit"},
      {48 + 16, 0, 8, "constant 1: begins at byte 0 of the data, before the end of another one at 240"},
  };
  static char bytes[ROOM], changed[ROOM];
  write_layer();
  size_t size = read_file(bytes);
  remove(path);
  uint64_t index = 0;
  memcpy(&index, bytes + 48 + 32 + 8, sizeof index);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; ++i) {
    memcpy(changed, bytes, size);
    put(changed, index + changes[i].at, changes[i].number, changes[i].bytes);
    seal_index(changed);
    expect_refused(changed, size, HR_STATUS_DATA_LOSS, changes[i].part);
  }
}

HR_TEST(verify_compares_constants) {
  static char bytes[ROOM];
  write_layer();
  size_t size = read_file(bytes);
  uint64_t data = 0;
  memcpy(&data, bytes + 48 + 3 * 32 + 8, sizeof data);
  bytes[data + 4] ^= 1;
  hr_package *package = NULL;
  HR_ASSERT_OK(hr_package_open_bytes("model", bytes, size, &package));
  HR_ASSERT_ERROR(hr_package_verify(package), HR_STATUS_DATA_LOSS, "model: constant 0 is damaged");
  hr_package_close(package);
  remove(path);
}

HR_TEST(a_failed_write_leaves_the_target) {
  write_layer();
  hr_graph *g = layer();
  const hr_package_note note = {"a=b", ""};
  struct stat before, after;
  HR_ASSERT_EQ(stat(path, &before), 0);
  HR_ASSERT_ERROR(hr_package_write(g, path, 1, &note), HR_STATUS_INVALID_ARGUMENT, "note 0 \"a=b\"");
  HR_ASSERT_EQ(stat(path, &after), 0);
  HR_ASSERT(before.st_size == after.st_size && before.st_ino == after.st_ino);
  HR_ASSERT_ERROR(hr_package_write(g, "/nowhere/x.hrpkg", 0, NULL), HR_STATUS_NOT_FOUND, "/nowhere/x.hrpkg: open");
  HR_ASSERT_ERROR(hr_package_write(g, "/tmp", 0, NULL), HR_STATUS_INVALID_ARGUMENT, "is no regular file");
  hr_package *package = NULL;
  HR_ASSERT_STATUS(hr_package_open("/nowhere/x.hrpkg", &package), HR_STATUS_NOT_FOUND);
  HR_ASSERT_STATUS(hr_package_open("/tmp", &package), HR_STATUS_UNAVAILABLE);
  remove(path);
  hr_graph_release(g);
}

static int told;
static int64_t told_done, told_all;

static void note_told(void *arg, int64_t done, int64_t all) {
  HR_ASSERT_EQ(*(const int *)arg, 7);
  HR_ASSERT(told == 0 || (done >= told_done && all == told_all));
  ++told, told_done = done, told_all = all;
}

/* A constant of 40 MB and one of 4 KB are hashed (2 calls), and written in pieces of 16 MB (4 calls). */
HR_TEST(progress_of_a_write_is_told) {
  enum { LARGE = 10 << 20, SMALL = 1 << 10 };
  float *elements = calloc(LARGE, sizeof *elements);
  hr_graph *g = new_graph();
  hr_graph_output(g, "y", constant_of(g, HR_DTYPE_F32, "10485760", elements));
  hr_graph_output(g, "z", constant_of(g, HR_DTYPE_F32, "1024", elements));
  HR_ASSERT_OK(hr_graph_status(g));
  temporary();
  int arg = 7;
  HR_ASSERT_OK(hr_package_write_with(g, path, &(hr_package_options){.progress = note_told, .progress_arg = &arg}));
  HR_ASSERT_EQ(told, 6);
  HR_ASSERT_EQ(told_done, (int64_t)(2 * (LARGE + SMALL) * sizeof(float)));
  HR_ASSERT_EQ(told_all, told_done);
  remove(path);
  hr_graph_release(g);
  free(elements);
}

HR_TEST(notes_are_lines_of_text) {
  static const hr_package_note wrong[] = {{NULL, "x"}, {"key", NULL}, {"", "x"}, {"key", "two\nlines"}};
  hr_graph *g = layer();
  temporary();
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_ERROR(hr_package_write(g, path, 1, &wrong[i]), HR_STATUS_INVALID_ARGUMENT, "note 0 ");
  }
  remove(path);
  hr_graph_release(g);
}

static void keep(void *arg) {
  (void)arg;
}

/* Writes a package of many constants. */
static hr_status write_many(int count) {
  static float elements[9];
  const hr_type type = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {9, 1}};
  hr_graph *g = new_graph();
  for (int i = 0; i < count; ++i) {
    hr_graph_constant_adopt(g, &type, elements, keep, NULL);
  }
  HR_ASSERT_OK(hr_graph_status(g));
  hr_status status = hr_package_write(g, temporary(), 0, NULL);
  hr_graph_release(g);
  return status;
}

HR_TEST(as_many_constants_are_written_as_are_read) {
  hr_package *package = NULL;
  HR_ASSERT_OK(write_many(HR__PACKAGE_CONSTANTS_MAX));
  HR_ASSERT_OK(hr_package_open(path, &package));
  hr_package_close(package);
  remove(path);
  HR_ASSERT_ERROR(write_many(HR__PACKAGE_CONSTANTS_MAX + 1), HR_STATUS_INVALID_ARGUMENT,
                  "262145 constants beside the text, expected at most 262144");
  remove(path);
}

/* ---- mutated packages ---- */

static uint64_t state = 1;

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

/* The place and size of a section by its number in the table. */
static size_t section_place(const char *bytes, int number, size_t *out_size) {
  uint64_t place = 0, size = 0;
  memcpy(&place, bytes + 48 + number * 32 + 8, 8);
  memcpy(&size, bytes + 48 + number * 32 + 16, 8);
  *out_size = (size_t)size;
  return (size_t)place;
}

/* Changes bytes of one section, and sets its hash and that of the header, so that the contents are read. */
static void mutate(char *bytes, int number) {
  static const char pieces[][12] = {"%x", "%0", "[", "]", ",", "-1", "=", "n", "999999999", "f32", "(", "#0", "\n"};
  size_t size = 0, place = section_place(bytes, number, &size);
  for (uint64_t i = 0; i <= draw(3); ++i) {
    size_t at = place + draw(size);
    const char *piece = pieces[draw(13)];
    size_t length = strlen(piece);
    if (number == 0 && draw(2) == 0 && at + length <= place + size) {
      memcpy(bytes + at, piece, length);
    } else {
      bytes[at] = (char)draw(256);
    }
  }
  put(bytes, 48 + (size_t)number * 32 + 24, hr__package_hash(0, bytes + place, size), 8);
  seal(bytes);
}

/* Opens the package and infers the results of its graph, if it is one. True if it is. */
static bool try_package(const char *bytes, size_t size) {
  hr_package *package = NULL;
  hr_graph *g = NULL;
  hr_status status = hr_package_open_bytes("model", bytes, size, &package);
  status = status == HR_OK ? hr_package_graph(package, &g) : status;
  bool is_right = status == HR_OK;
  hr_status_ignore(status);
  hr_tensor x = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {2, 20}, .strides = {20, 1}}, out[2];
  const hr_tensor *inputs[1] = {&x};
  if (is_right && hr_graph_input_count(g) == 1 && hr_graph_output_count(g) == 2) {
    hr_status_ignore(hr_graph_apply(g, NULL, 1, inputs, 2, out));
  }
  hr_graph_release(g);
  hr_package_close(package);
  return is_right;
}

HR_TEST(mutated_packages_open_or_are_refused) {
  static char bytes[ROOM];
  char *changed = malloc(ROOM);
  write_layer();
  size_t size = read_file(bytes);
  remove(path);
  int right = 0;
  const char *wanted = getenv("HEADRACE_TEST_FILES"), *first = getenv("HEADRACE_TEST_SEED");
  int64_t count = wanted != NULL ? atoll(wanted) : hr_test_count(100000);
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    state = (uint64_t)i + (first != NULL ? (uint64_t)atoll(first) : 0);
    file_limits_start((int64_t)state);
    memcpy(changed, bytes, size);
    mutate(changed, (int)draw(3));
    right += try_package(changed, size);
    file_limits_check(size);
  }
  file_limits_end();
  HR_ASSERT(right > 0 && right < count);
  for (size_t end = 0; end < size; end += 1 + size / 500) {
    HR_ASSERT(!try_package(bytes, end));
  }
  free(changed);
}

/* ---- memory ---- */

static char sample[ROOM];
static size_t sample_size;

static hr_status open_sample(void) {
  hr_package *package = NULL;
  hr_graph *g = NULL;
  HR_RETURN_IF_ERROR(hr_package_open_bytes("model", sample, sample_size, &package));
  hr_status status = hr_package_graph(package, &g);
  hr_package_close(package);
  if (status == HR_OK) {
    hr_graph_release(g);
  }
  return status;
}

static hr_graph *written_graph;

static hr_status write_sample(void) {
  return hr_package_write(written_graph, path, 0, NULL);
}

HR_TEST(packages_survive_failing_allocations) {
  write_layer();
  sample_size = read_file(sample);
  wait_for_kernels();
  HR_TEST_OOM(open_sample);
  written_graph = layer();
  HR_TEST_OOM(write_sample);
  hr_graph_release(written_graph);
  remove(path);
}
