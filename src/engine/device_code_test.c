/* Kernels that providers have written, and those of shapes that change, on a device that counts its calls. */
#include "engine/device_code.h"

#include "hr_test.h"

#include <stdatomic.h>

#include "base/context.h"
#include "cache_folder.h"
#include "only_kernel.h"

static atomic_int compiled, loaded, unloaded; /* texts are compiled by several threads */
static atomic_int with_functions;             /* compiled texts that define the function that a sum calls */

static hr_status no_compiler(void *impl, hr_text *out_name) {
  (void)impl, (void)out_name;
  return hr_status_make(HR_STATUS_UNAVAILABLE, "so nothing is kept on disk");
}
static hr_status compile(void *impl, const char *text, size_t length, hr_text *out_image) {
  (void)impl;
  ++compiled;
  with_functions += strstr(text, "float hr_op_add_f32(") != NULL;
  (void)hr_text_append_bytes(out_image, text + length - 1, 1);
  return hr_text_status(out_image);
}
static hr_status load(void *impl, const void *image, size_t bytes, int count, const char *const *names,
                      void **out_module, void **out_functions) {
  (void)impl;
  HR_ASSERT(bytes == 1 && (count == 1 || (strcmp(names[0], "twice_0") == 0 && strcmp(names[1], "twice_1") == 0)));
  ++loaded;
  *out_module = malloc(1);
  HR_ASSERT_NOT_NULL(*out_module);
  for (int i = 0; i < count; ++i) {
    out_functions[i] = (void *)(uintptr_t) * (const char *)image;
  }
  return HR_OK;
}
static void unload(void *impl, void *module) {
  (void)impl;
  ++unloaded;
  free(module);
}

static const hr_driver driver = {.name = "counting",
                                 .dialect = HR_DIALECT_CUDA,
                                 .compiler = no_compiler,
                                 .compile = compile,
                                 .load = load,
                                 .unload = unload};

static hr_host_kernel *make(hr_device *device, const char *text, int64_t word) {
  hr_device_source source = {
      .name = "twice", .pass_count = 2, .blocks = {3, 0}, .threads = {32, 64}, .shared = {70, 0}};
  hr_host_kernel *kernel = NULL;
  source.word_count = 1, source.words[0] = word;
  HR_ASSERT(hr_text_append(&source.text, text));
  HR_ASSERT_OK(hr__device_kernel_create_written(&source, device, "title", 4, 1, &kernel));
  hr_text_fini(&source.text);
  return kernel;
}

HR_TEST(written_kernels_of_one_text_share_its_functions) {
  hr_device device = {.context = &hr__context_first, .driver = &driver};
  hr_host_kernel *kernels[] = {make(&device, "text a", 5), make(&device, "text a", 6), make(&device, "text b", 7)};
  const hr_host_kernel *const list[] = {kernels[0], kernels[1], kernels[2]};
  HR_ASSERT_OK(hr__device_kernels_load(&device, 3, list));
  HR_ASSERT(compiled == 2 && loaded == 2);
  for (int i = 0; i < 3; ++i) {
    const hr_device_kernel *kernel = (const hr_device_kernel *)kernels[i];
    HR_ASSERT(kernel->functions[0] == (void *)(uintptr_t)(i < 2 ? 'a' : 'b'));
    HR_ASSERT(kernel->arg_count == 4 && kernel->scalar_count == 1 && kernel->word_count == 1);
    HR_ASSERT(kernel->words[0] == 5 + i && kernel->shared[0] == 70 && kernel->blocks[0] == 3);
    HR_ASSERT_EQ(kernel->base.passes[0].units, 96);
  }
  hr_host_kernel *later = make(&device, "text a", 8);
  kernels[0]->destroy(kernels[0]);
  kernels[1]->destroy(kernels[1]);
  HR_ASSERT_OK(hr__device_kernels_load(&device, 1, (const hr_host_kernel *const[]){later}));
  HR_ASSERT(compiled == 2 && unloaded == 0);
  HR_ASSERT(((const hr_device_kernel *)later)->functions[1] == (void *)(uintptr_t)'a');
  later->destroy(later);
  kernels[2]->destroy(kernels[2]);
  HR_ASSERT_EQ(unloaded, 2);
}

static hr_device *memory_device;

static hr_status create_and_destroy(void) {
  static char text[] = "text c";
  hr_device_source source = {.text = {.data = text, .length = 6}, .name = "twice", .pass_count = 2};
  hr_host_kernel *kernel = NULL;
  HR_RETURN_IF_ERROR(hr__device_kernel_create_written(&source, memory_device, "title", 1, 0, &kernel));
  kernel->destroy(kernel);
  return HR_OK;
}

HR_TEST(written_kernels_report_memory_that_is_out) {
  hr_device device = {.context = &hr__context_first, .driver = &driver};
  memory_device = &device;
  HR_TEST_OOM(create_and_destroy);
}

/* x + y of `count` rows of 640 elements, of which one has a row alone. */
static const hr_kernel *sum_of(int count, hr_schedule *schedule) {
  hr_text text = {0};
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 2560 live\nbuffer %%2 %d live fresh\n"
                 "%%2:f32[%d,640]{640,1}+0 = add(%%0:f32[%d,640]{640,1}+0, %%1:f32[%d,640]{0,1}+0)\n",
                 count * 2560, count * 2560, count, count, count);
  const hr_kernel *form = hr__only_kernel(hr_text_chars(&text), schedule);
  hr_text_fini(&text);
  return form;
}

static hr_host_kernel *make_sum(hr_device *device, int count, uint64_t hash) {
  hr_schedule schedule;
  hr_host_kernel *kernel = NULL;
  HR_ASSERT_OK(hr__device_kernel_create(sum_of(count, &schedule), device, hash, &kernel));
  hr_schedule_fini(&schedule);
  return kernel;
}

HR_TEST(shapes_that_change_are_compiled_three_times) {
  enum { SHAPES = 6, FIRST = 300 };
  hr_device device = {.context = &hr__context_first, .driver = &driver};
  hr_host_kernel *kernels[SHAPES],
      *other = make_sum(&device, FIRST - 1, 99); /* one program has two of them: not a third shape */
  compiled = loaded = unloaded = with_functions = 0;
  for (int i = 0; i < SHAPES; ++i) {
    kernels[i] = make_sum(&device, FIRST + i, (uint64_t)i);
    HR_ASSERT_OK(hr__device_kernels_load(&device, 1, (const hr_host_kernel *const[]){kernels[i]}));
    HR_ASSERT_EQ(compiled, i < 3 ? i + 1 : 3);
    HR_ASSERT_EQ(with_functions, compiled);
    const hr_device_kernel *kernel = (const hr_device_kernel *)kernels[i];
    HR_ASSERT_EQ(kernel->word_count, i < 2 ? 0 : 2); /* the number of fours, and the length of a row */
    HR_ASSERT(i < 2 || kernel->words[0] == (FIRST + i) * 160 || kernel->words[1] == (FIRST + i) * 160);
    HR_ASSERT_EQ(kernel->blocks[0], ((FIRST + i) * 160 + 255) / 256);
  }
  for (int i = 0; i < SHAPES; ++i) {
    kernels[i]->destroy(kernels[i]);
  }
  other->destroy(other);
  HR_ASSERT_EQ(unloaded, 3);
}

HR_TEST(many_shapes_of_one_program_share_code) {
  enum { KERNELS = 40, LITERAL = 4, FIRST = 500 };
  hr_context *context;
  HR_ASSERT_OK(hr__context_create(&context)); /* which has not met the text yet */
  hr_context *before = hr__context_enter(context);
  hr_device device = {.context = context, .driver = &driver};
  hr_host_kernel *kernels[KERNELS];
  compiled = unloaded = 0;
  for (int i = 0; i < KERNELS; ++i) {
    kernels[i] = make_sum(&device, FIRST + i, (uint64_t)i);
    HR_ASSERT_EQ(((const hr_device_kernel *)kernels[i])->word_count, i < LITERAL ? 0 : 2);
  }
  HR_ASSERT_OK(hr__device_kernels_load(&device, KERNELS, (const hr_host_kernel *const *)kernels));
  HR_ASSERT_EQ(compiled, LITERAL + 1);
  for (int i = 0; i < KERNELS; ++i) {
    HR_ASSERT_NOT_NULL(((const hr_device_kernel *)kernels[i])->functions[0]);
    kernels[i]->destroy(kernels[i]);
  }
  HR_ASSERT_EQ(unloaded, LITERAL + 1);
  (void)hr__context_enter(before);
  hr__context_destroy(context);
}

HR_TEST(kernels_for_all_shapes_get_new_numbers_in_place) {
  enum { FIRST = 300, OTHER = 411 };
  hr_device device = {.context = &hr__context_first, .driver = &driver};
  hr_schedule first, other, few;
  hr_host_kernel *kernel = NULL;
  compiled = loaded = unloaded = 0;
  HR_ASSERT_OK(hr__device_kernel_create_general(sum_of(FIRST, &first), &device, &kernel));
  HR_ASSERT_OK(hr__device_kernels_load(&device, 1, (const hr_host_kernel *const[]){kernel}));
  const hr_device_kernel *made = (const hr_device_kernel *)kernel;
  void *function = made->functions[0];
  HR_ASSERT_EQ(made->word_count, 2);
  const hr_kernel *form = sum_of(OTHER, &other);
  HR_ASSERT(hr__device_kernel_renumber(kernel, form));
  HR_ASSERT(made->words[0] == OTHER * 160 || made->words[1] == OTHER * 160);
  HR_ASSERT_EQ(made->blocks[0], (OTHER * 160 + 255) / 256);
  HR_ASSERT(made->functions[0] == function && kernel->bytes == form->bytes && compiled == 1 && unloaded == 0);
  HR_ASSERT(!hr__device_kernel_renumber(kernel, sum_of(1, &few))); /* a row is not repeated: another text */
  HR_ASSERT_EQ(made->blocks[0], (OTHER * 160 + 255) / 256);
  kernel->destroy(kernel);
  hr_schedule_fini(&first);
  hr_schedule_fini(&other);
  hr_schedule_fini(&few);
}

static hr_status some_compiler(void *impl, hr_text *out_name) {
  (void)impl;
  return hr_text_append(out_name, "counting") ? HR_OK : hr_text_status(out_name);
}

/* The number of words of the sum of `count` rows, loaded. */
static int load_sum(hr_device *device, int count) {
  hr_host_kernel *kernel = make_sum(device, count, (uint64_t)count);
  HR_ASSERT_OK(hr__device_kernels_load(device, 1, (const hr_host_kernel *const[]){kernel}));
  int words = ((const hr_device_kernel *)kernel)->word_count;
  kernel->destroy(kernel);
  return words;
}

/* A process that begins with the code of an earlier one. */
HR_TEST(code_on_disk_is_taken_as_it_is) {
  hr_driver keeping = driver;
  keeping.compiler = some_compiler;
  make_root(NULL);
  for (int process = 0; process < 2; ++process) {
    hr_context *context;
    HR_ASSERT_OK(hr__context_create(&context));
    hr_context *before = hr__context_enter(context);
    hr_device device = {.context = context, .driver = &keeping};
    compiled = 0;
    for (int i = 0; process == 0 && i < 4; ++i) {
      HR_ASSERT_EQ(load_sum(&device, 300 + i), i < 2 ? 0 : 2);
    }
    HR_ASSERT_EQ(load_sum(&device, 300), process == 0 ? 2 : 0); /* the best code */
    HR_ASSERT_EQ(load_sum(&device, 400), 2);                    /* for any shape */
    HR_ASSERT_EQ(compiled, process == 0 ? 3 : 0);
    (void)hr__context_enter(before);
    hr__context_destroy(context);
  }
  remove_root();
}
