/* Ranges for NVTX and ITT, as a collector of our own gets them: compiled here, it prints a letter for each call. */
#include "base/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/text.h"
#include "engine/host_compiler.h"
#include "engine/stream.h"
#include "hr_test.h"

/* N( and N) are NVTX's push and pop, I( and I) are ITT's. */
static const char collector[] =
    "#define API __attribute__((visibility(\"default\")))\n"
    "typedef void (*function)(void);\n"
    "typedef struct { unsigned long size; int (*get)(int, function ***, unsigned *); } callbacks;\n"
    "typedef struct { unsigned long long words[3]; } id;\n"
    "API char told[65536]; static int at;\n"
    "static void put(const char *text) { while (*text && at < 65000) told[at++] = *text++; }\n"
    "static int push(const char *name) { put(\"N(\"); put(name); return 0; }\n"
    "static int pop(void) { put(\"N)\"); return 0; }\n"
    "API int InitializeInjectionNvtx2(const void *(*get_table)(unsigned)) {\n"
    "  const callbacks *table = get_table(1); function **slots; unsigned count = 0;\n"
    "  if (get_table(999) || table->size < sizeof *table || table->get(7, &slots, &count)) return 0;\n"
    "  if (!table->get(1, &slots, &count) || count <= 11) return 0;\n"
    "  *slots[9] = (function)push; *slots[11] = (function)pop; return 1; }\n"
    "API void *__itt_domain_create(const char *name) { return (void *)name; }\n"
    "API void *__itt_string_handle_create(const char *name) { return (void *)name; }\n"
    "API void __itt_task_begin(const void *domain, id task, id parent, void *name) {\n"
    "  put(*(const char *)domain == 'h' && !task.words[0] && !parent.words[2] ? \"I(\" : \"?\"); put(name); }\n"
    "API void __itt_task_end(const void *domain) { put(\"I)\"); }\n";

static int count(const char *text, const char *part) {
  int found = 0;
  for (; (text = strstr(text, part)) != NULL; text += strlen(part)) {
    ++found;
  }
  return found;
}

static void add_and_read(void) {
  static const int64_t dims[1] = {4}, strides[1] = {1};
  const float values[4] = {1, 2, 3, 4};
  float sum[4];
  hr_device *device;
  hr_stream *stream;
  hr_view x = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides}, y = x;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  hr_stream_set_mode(stream, HR_MODE_FUSE);
  HR_ASSERT_OK(hr_buffer_create(device, sizeof values, &x.buffer));
  HR_ASSERT_OK(hr_buffer_create(device, sizeof values, &y.buffer));
  HR_ASSERT_OK(hr_stream_write(stream, &x, values));
  const hr_view inputs[2] = {x, x};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 2, inputs, 1, &y));
  HR_ASSERT_OK(hr_stream_read(stream, &y, sum));
  HR_ASSERT(sum[0] == 2 && sum[3] == 8);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_stream_release(stream);
  hr_device_release(device);
}

/* The environment is read at the first range, so that all is one test. */
HR_TEST(collectors_get_nested_ranges_of_commits_compiles_and_kernels) {
  hr_text path = {0};
  hr_dynlib library;
  void *told;
  hr_status status = hr__host_compile(NULL, collector, sizeof collector - 1, NULL, &path);
  if (hr_status_code_of(status) == HR_STATUS_NOT_FOUND) {
    hr_status_free(status);
    HR_SKIP("no compiler");
  }
  HR_ASSERT_OK(status);
  HR_ASSERT_OK(hr_dynlib_open(hr_text_chars(&path), &library));
  HR_ASSERT_OK(hr_dynlib_symbol(&library, "told", &told));
  HR_ASSERT_EQ(setenv("NVTX_INJECTION64_PATH", hr_text_chars(&path), 1), 0);
  HR_ASSERT_EQ(setenv("INTEL_LIBITTNOTIFY64", hr_text_chars(&path), 1), 0);
  add_and_read();
  HR_ASSERT(hr__ranges_are_on());
  HR_ASSERT_EQ(count(told, "N(commit"), 1);
  HR_ASSERT_EQ(count(told, "I(commit"), 1);
  HR_ASSERT_EQ(count(told, "N(compile"), 1);
  HR_ASSERT_EQ(count(told, "N(add"), 1);
  HR_ASSERT_EQ(count(told, "I(add"), 1);
  HR_ASSERT_EQ(count(told, "N("), count(told, "N)"));
  HR_ASSERT_EQ(count(told, "I("), count(told, "I)"));
  HR_ASSERT_EQ(count(told, "?"), 0);
  hr__host_compiler_remove(hr_text_chars(&path));
  hr_dynlib_close(&library);
  hr_text_fini(&path);
}
