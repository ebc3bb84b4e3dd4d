/* Models by their contents, whatever the name of the file. */
#include "graph/graph_test.h"
#include "headrace/importer.h"
#include "headrace/package.h"

static const char text[] = "graph 1\ninput %x f32[n]\n%y = negative(%x)\noutput y = %y\n";
static const char printed[] = "graph 1\ninput %x f32[n]\n%y = negative(%x)  ; f32[n]\noutput y = %y\n";

static void write_package(const char *path) {
  hr_graph *g = graph_of(text);
  HR_ASSERT_OK(hr_package_write(g, path, 0, NULL));
  hr_graph_release(g);
}

static void write_bytes(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  HR_ASSERT_NOT_NULL(file);
  HR_ASSERT_EQ(fwrite(bytes, 1, count, file), count);
  HR_ASSERT_EQ(fclose(file), 0);
}

/* A model of version 8 with an empty graph "g" that has an output "x" of an initializer: f32 [1] = 1. */
static const unsigned char onnx[] = {
    0x08, 0x08,                                                             /* ir_version */
    0x42, 0x04, 0x0a, 0x00, 0x10, 0x11,                                     /* opset_import: 17 */
    0x3a, 0x25,                                                             /* graph */
    0x12, 0x01, 'g',                                                        /* name */
    0x2a, 0x0d, 0x08, 0x01, 0x10, 0x01, 0x42, 0x01, 'x',  0x4a, 0x04, 0x00, /* initializer */
    0x00, 0x80, 0x3f,                                                       /* its bytes */
    0x62, 0x11, 0x0a, 0x01, 'x',  0x12, 0x0c, 0x0a, 0x0a, 0x08, 0x01, 0x12, /* output */
    0x06, 0x0a, 0x02, 0x08, 0x01, 0x0a, 0x00};

static void expect_input(hr_graph *g, int count) {
  HR_ASSERT_EQ(hr_graph_input_count(g), count);
  HR_ASSERT_EQ(hr_graph_output_count(g), 1);
  hr_graph_release(g);
}

HR_TEST(models_are_opened_by_their_contents) {
  char path[] = "/tmp/model_open_test.XXXXXX.onnx";
  HR_ASSERT(mkstemps(path, 5) >= 0);
  hr_graph *g = NULL;
  write_package(path);
  HR_ASSERT(hr_package_is_file(path));
  HR_ASSERT_OK(hr_model_open(path, NULL, &g));
  expect_text(g, printed);
  hr_graph_release(g);
  write_bytes(path, onnx, sizeof onnx);
  HR_ASSERT(!hr_package_is_file(path));
  HR_ASSERT_OK(hr_model_open(path, NULL, &g));
  expect_input(g, 0);
  HR_ASSERT_OK(hr_model_open_bytes("bytes", onnx, sizeof onnx, NULL, &g));
  expect_input(g, 0);
  remove(path);
  HR_ASSERT_ERROR(hr_model_open(path, NULL, &g), HR_STATUS_NOT_FOUND, path);
}

HR_TEST(packages_in_memory_and_their_options) {
  char path[] = "/tmp/model_open_test.XXXXXX", bytes[4096];
  HR_ASSERT(mkstemp(path) >= 0);
  hr_graph *g = NULL;
  write_package(path);
  FILE *file = fopen(path, "rb");
  size_t count = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  HR_ASSERT_OK(hr_model_open_bytes("bytes", bytes, count, &(hr_onnx_options){.dim_count = 0}, &g));
  expect_input(g, 1);
  const hr_onnx_dim dim = {"n", 3};
  HR_ASSERT_ERROR(hr_model_open(path, &(hr_onnx_options){.dim_count = 1, .dims = &dim}, &g), HR_STATUS_INVALID_ARGUMENT,
                  "hr_graph_derive");
  HR_ASSERT_ERROR(hr_model_open(path, &(hr_onnx_options){.has_variables = true}, &g), HR_STATUS_INVALID_ARGUMENT,
                  "hr_graph_derive");
  HR_ASSERT_ERROR(hr_model_open_bytes("bytes", bytes, count - 1, NULL, &g), HR_STATUS_DATA_LOSS, "bytes");
  remove(path);
}

HR_TEST(a_file_of_another_kind_is_neither) {
  char path[] = "/tmp/model_open_test.XXXXXX";
  HR_ASSERT(mkstemp(path) >= 0);
  hr_graph *g = NULL;
  write_bytes(path, "words", 5);
  HR_ASSERT_ERROR(hr_model_open(path, NULL, &g), HR_STATUS_DATA_LOSS,
                  "no package, no StableHLO artifact, and no ONNX model: /tmp/");
  remove(path);
}

HR_TEST(a_damaged_file_of_a_package_is_none) {
  char path[] = "/tmp/model_open_test.XXXXXX.hrpkg";
  HR_ASSERT(mkstemps(path, 6) >= 0);
  hr_graph *g = NULL;
  write_bytes(path, "no package", 10);
  HR_ASSERT_ERROR(hr_model_open(path, NULL, &g), HR_STATUS_DATA_LOSS, "no package");
  remove(path);
}
