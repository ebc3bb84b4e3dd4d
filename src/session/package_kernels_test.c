/* Kernels in packages: nothing reads them but hr_package_trust. And how large packages are. */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/env.h"
#include "base/folder.h"
#include "graph/graph_test.h"
#include "headrace/kernel_files.h"
#include "headrace/package.h"
#include "session/package_format.h"

#define NAME "0123456789abcdef-0123456789abcdef0123456789abcdef.image"

enum { ROOM = 1 << 16, TEXT_BYTES = 4 };

static char path[64];
static const char code[] = "text and native code";

static void write_package(const hr_package_options *options) {
  hr_graph *g = graph_of("graph 1\ninput %x f32[n]\n%y = negative(%x)\noutput y = %y\n");
  snprintf(path, sizeof path, "/tmp/package_kernels.XXXXXX");
  HR_ASSERT(mkstemp(path) >= 0);
  HR_ASSERT_OK(hr_package_write_with(g, path, options));
  HR_ASSERT_EQ(chmod(path, 0600), 0);
  hr_graph_release(g);
}

/* A new folder for the cache of kernels. */
static void enter_folder(hr_text *folder) {
  HR_ASSERT_OK(hr_folder_make_temporary(folder));
  setenv("HEADRACE_CACHE", hr_text_chars(folder), 1);
  hr__env_reload();
}

static void leave_folder(hr_text *folder) {
  hr_text kernels = {0};
  hr_text_append_all(&kernels, 2, (const char *const[]){hr_text_chars(folder), "/headrace-kernels"});
  hr_folder_remove(hr_text_chars(&kernels));
  hr_folder_remove(hr_text_chars(folder));
  hr_text_fini(&kernels);
  hr_text_fini(folder);
  unsetenv("HEADRACE_CACHE");
  hr__env_reload();
}

static hr_status count_file(void *arg, const hr_kernel_file *file) {
  ++*(int *)arg;
  HR_ASSERT_STR_EQ(file->name, NAME);
  HR_ASSERT_EQ(file->size, sizeof code);
  HR_ASSERT_EQ(file->text_size, TEXT_BYTES);
  HR_ASSERT_BYTES_EQ(file->bytes, code, sizeof code);
  return HR_OK;
}

static int count_files(int64_t since) {
  int count = 0;
  HR_ASSERT_OK(hr_kernel_files_each(since, count_file, &count));
  return count;
}

/* A package with one kernel. */
static void write_kernel(void) {
  hr_text folder = {0};
  const hr_kernel_file file = {NAME, code, sizeof code, TEXT_BYTES};
  enter_folder(&folder);
  HR_ASSERT_OK(hr_kernel_files_add(&file));
  HR_ASSERT_OK(hr_kernel_files_add(&file)); /* it is there */
  HR_ASSERT_EQ(count_files(0), 1);
  HR_ASSERT_EQ(count_files(INT64_MAX), 0);
  write_package(&(hr_package_options){.has_kernels = true});
  leave_folder(&folder);
}

HR_TEST(kernels_are_used_if_the_user_trusts_the_file) {
  hr_text folder = {0};
  hr_package *package = NULL;
  hr_graph *g = NULL;
  int count = 0;
  write_kernel();
  enter_folder(&folder);
  HR_ASSERT_OK(hr_package_open(path, &package));
  HR_ASSERT(hr_package_kernel_bytes(package) > 100);
  HR_ASSERT_OK(hr_package_graph(package, &g));
  hr_graph_release(g);
  HR_ASSERT_EQ(count_files(0), 0);
  hr_package_close(package);
  for (int i = 0; i < 2; ++i) { /* at last nobody else can write it */
    HR_ASSERT_EQ(chmod(path, i == 0 ? 0620 : 0644), 0);
    HR_ASSERT_OK(hr_package_open(path, &package));
    HR_ASSERT_EQ(chmod(path, 0600), 0); /* too late */
    if (i == 0) {
      HR_ASSERT_ERROR(hr_package_trust(package, &count), HR_STATUS_PERMISSION_DENIED, "others may write the file");
      HR_ASSERT_EQ(count_files(0), 0);
      hr_package_close(package);
    }
  }
  HR_ASSERT_OK(hr_package_trust(package, &count));
  HR_ASSERT_EQ(count, 1);
  HR_ASSERT_EQ(count_files(0), 1);
  hr_package_close(package);
  remove(path);
  leave_folder(&folder);
}

static size_t read_file(char *bytes) {
  FILE *file = fopen(path, "rb");
  HR_ASSERT_NOT_NULL(file);
  size_t size = fread(bytes, 1, ROOM, file);
  fclose(file);
  return size;
}

/* The entry of the table for the kernels, which is the fourth of five. */
static char *kernel_entry(char *bytes) {
  return bytes + HR__PACKAGE_HEADER + 3 * HR__PACKAGE_ENTRY;
}

static hr_status trust(const char *bytes, size_t size) {
  hr_package *package = NULL;
  int count = 0;
  HR_ASSERT_OK(hr_package_open_bytes("model", bytes, size, &package));
  hr_status status = hr_package_trust(package, &count);
  hr_package_close(package);
  return status;
}

HR_TEST(damaged_kernels_do_not_matter_until_they_are_trusted) {
  static char bytes[ROOM], changed[ROOM];
  hr_text folder = {0};
  uint64_t place = 0, count = 0, state = 1;
  write_kernel();
  enter_folder(&folder);
  size_t size = read_file(bytes);
  HR_ASSERT_EQ(kernel_entry(bytes)[0], HR__PACKAGE_WARM);
  memcpy(&place, kernel_entry(bytes) + 8, 8);
  memcpy(&count, kernel_entry(bytes) + 16, 8);
  for (uint64_t i = 0; i < count; ++i) {
    memcpy(changed, bytes, size);
    changed[place + i] ^= 1;
    HR_ASSERT_ERROR(trust(changed, size), HR_STATUS_DATA_LOSS, "another hash");
  }
  for (int i = 0; i < 20000; ++i) { /* with the right hash */
    memcpy(changed, bytes, size);
    for (int k = 0; k < 3; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      changed[place + (state >> 33) % (i % 2 == 0 ? 24 : count)] = (char)(state >> 50);
    }
    uint64_t hash = hr__package_hash(0, changed + place, (size_t)count);
    memcpy(kernel_entry(changed) + 24, &hash, 8);
    hash = hr__package_hash(0, changed, HR__PACKAGE_HEADER - 8);
    hash = hr__package_hash(hash, changed + HR__PACKAGE_HEADER, 5 * HR__PACKAGE_ENTRY);
    memcpy(changed + HR__PACKAGE_HEADER - 8, &hash, 8);
    hr_status_ignore(trust(changed, size));
  }
  remove(path);
  leave_folder(&folder);
}

HR_TEST(names_of_other_files_are_refused) {
  hr_text folder = {0};
  enter_folder(&folder);
  static const char *const names[] = {"", "SIZE", "../../" NAME, NAME ".123456", "0123456789abcdef-0.image"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    HR_ASSERT_ERROR(hr_kernel_files_add(&(hr_kernel_file){names[i], code, sizeof code, TEXT_BYTES}),
                    HR_STATUS_INVALID_ARGUMENT, "is no file of a cache of kernels");
  }
  HR_ASSERT_ERROR(hr_kernel_files_add(&(hr_kernel_file){NAME, code, 3, 4}), HR_STATUS_INVALID_ARGUMENT, "3 bytes");
  leave_folder(&folder);
}

HR_TEST(a_package_without_kernels_has_no_section_for_them) {
  hr_package *package = NULL;
  int count = 1;
  write_kernel();
  remove(path);
  write_package(&(hr_package_options){.text_version_max = 1});
  HR_ASSERT_OK(hr_package_open(path, &package));
  HR_ASSERT_EQ(hr_package_kernel_bytes(package), 0);
  HR_ASSERT_OK(hr_package_trust(package, &count));
  HR_ASSERT_EQ(count, 0);
  hr_package_close(package);
  hr_graph *g = graph_of("graph 2\nvariable %w f32[1] = [1.0]\noutput w = %w\n");
  HR_ASSERT_ERROR(hr_package_write_with(g, path, &(hr_package_options){.text_version_max = 1}),
                  HR_STATUS_INVALID_ARGUMENT, "version 1 can't read it");
  HR_ASSERT_OK(hr_package_write_with(g, path, &(hr_package_options){.text_version_max = 2}));
  hr_graph_release(g);
  remove(path);
}

/* Layers of a network: their weights, 1 % and 64 KB. */
HR_TEST(a_package_is_as_large_as_its_constants) {
  enum { LAYERS = 300 };
  static float weights[64 * 64];
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 64");
  for (int i = 0; i < LAYERS; ++i) {
    weights[i] = (float)i;
    hr_value w = constant_of(g, HR_DTYPE_F32, "64 64", weights), b = constant_of(g, HR_DTYPE_F32, "64", weights);
    x = ADD(g, RELU, VALUES(ADD(g, ADD, VALUES(ADD(g, MATMUL, VALUES(x, w), 0, NULL), b), 0, NULL)), 0, NULL);
  }
  hr_graph_output(g, "y", x);
  snprintf(path, sizeof path, "/tmp/package_kernels.XXXXXX");
  HR_ASSERT(mkstemp(path) >= 0);
  HR_ASSERT_OK(hr_package_write(g, path, 0, NULL));
  struct stat info;
  HR_ASSERT_EQ(stat(path, &info), 0);
  int64_t constants = hr_graph_constant_bytes(g);
  HR_ASSERT_EQ(constants, LAYERS * 65 * 64 * 4);
  HR_ASSERT(info.st_size > constants && info.st_size <= constants + constants / 100 + (64 << 10));
  hr_graph_release(g);
  remove(path);
}
