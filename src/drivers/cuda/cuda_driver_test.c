/* Tests particular to the CUDA driver: opening, copies and fills, parameters, errors, on a stand-in for libcuda
 * (cuda_stand_in.h); copies and fills also on a GPU, if there is one. Graphs are tested in cuda_graph_test.c, NVRTC in
 * cuda_kernel_test.c, the duties of every driver in tests/c/driver_conformance_test.c.
 */
#include "cuda_stand_in.h"

#include "headrace/share.h"

/* ---- the library and the device ---- */

static const char *const cuda_names[] = {
#define CUDA_SYMBOL(name, args) #name,
#include "drivers/cuda/cuda_edge_symbols.def"
#include "drivers/cuda/cuda_graph_symbols.def"
#include "drivers/cuda/cuda_symbols.def"
#undef CUDA_SYMBOL
};

HR_TEST(each_function_is_listed_once_and_the_stand_in_has_them_all) {
  size_t count = sizeof cuda_names / sizeof *cuda_names;
  void *functions[sizeof cuda_names / sizeof *cuda_names];
  HR_ASSERT_EQ(sizeof fake, sizeof functions);
  memcpy(functions, &fake, sizeof functions);
  for (size_t i = 0; i < count; ++i) {
    HR_ASSERT(strncmp(cuda_names[i], "cu", 2) == 0);
    HR_ASSERT_NOT_NULL(functions[i]);
    for (size_t j = 0; j < i; ++j) {
      HR_ASSERT(strcmp(cuda_names[i], cuda_names[j]) != 0);
    }
  }
}

HR_TEST(without_a_device_opening_says_why) {
  hr__cuda_replace(NULL, 0);
  if (DRIVER->count() > 0) {
    HR_SKIP("there is a CUDA device");
  }
  hr_device *device;
  void *impl = NULL;
  hr_status why = DRIVER->why_none();
  HR_ASSERT(why != HR_OK);
  HR_ASSERT(strstr(hr_status_message(why), "libcuda.so.1") != NULL || strstr(hr_status_message(why), "cuda: ") != NULL);
  HR_ASSERT_ERROR(hr_device_open("cuda", &device), HR_STATUS_NOT_FOUND, hr_status_message(why));
  hr_status_free(why);
  hr_status status = DRIVER->open(0, &impl);
  HR_ASSERT(status != HR_OK && impl == NULL);
  hr_status_free(status);
}

HR_TEST(an_instance_is_described_and_closes_without_a_trace) {
  hr_device_properties properties;
  int64_t free_bytes, total_bytes;
  void *impl = open_fake(), *other;
  HR_ASSERT_OK(DRIVER->open(0, &other));
  HR_ASSERT(impl != other);
  DRIVER->properties(impl, &properties);
  HR_ASSERT_STR_EQ(properties.description, "Stand-in, 4 GiB, compute capability 9.0");
  HR_ASSERT_EQ(properties.workers, 132);
  HR_ASSERT_EQ(properties.block_bytes, 232448);
  HR_ASSERT_NEAR(properties.memory_gbs, 3352.32, 0.01);
  HR_ASSERT(!properties.is_host && properties.has_contents);
  DRIVER->memory_info(impl, &free_bytes, &total_bytes);
  HR_ASSERT_EQ(free_bytes, (int64_t)3 << 30);
  HR_ASSERT_EQ(total_bytes, (int64_t)4 << 30);
  HR_ASSERT_NOT_NULL(DRIVER->native(impl));
  HR_ASSERT_EQ(fake_depth, 0); /* the caller's context stays */
  HR_ASSERT_OK(DRIVER->enter(impl));
  HR_ASSERT_EQ(fake_depth, 1);
  DRIVER->leave(impl);
  HR_ASSERT_EQ(fake_depth, 0);
  DRIVER->close(other);
  close_fake(impl);
}

HR_TEST(devices_reach_each_other_once_and_wait_for_the_copy) {
  enum { BYTES = 4096 };
  unsigned char sent[BYTES], back[BYTES] = {0};
  void *first = open_fake(), *second, *to, *from;
  HR_ASSERT_OK(DRIVER->open(1, &second));
  HR_ASSERT_OK(DRIVER->allocate(first, BYTES, &to));
  HR_ASSERT_OK(DRIVER->allocate(second, BYTES, &from));
  fake_accesses = 0;
  for (int i = 0; i < 3; ++i) {
    memset(sent, i + 1, BYTES);
    HR_ASSERT_OK(DRIVER->copy_in(second, from, sent, BYTES));
    HR_ASSERT_OK(DRIVER->flush(second));
    HR_ASSERT_OK(DRIVER->copy_peer(first, to, second, from, BYTES));
    HR_ASSERT_EQ(memcmp(to, sent, BYTES), 0); /* without a wait */
    HR_ASSERT_OK(DRIVER->copy_out(first, back, to, BYTES));
    HR_ASSERT_EQ(memcmp(back, sent, BYTES), 0);
  }
  HR_ASSERT_EQ(fake_accesses, 1);
  HR_ASSERT_OK(DRIVER->copy_peer(first, to, first, to, 0));
  HR_ASSERT_EQ(fake_depth, 0);
  DRIVER->free(second, from, BYTES);
  DRIVER->free(first, to, BYTES);
  DRIVER->close(second);
  close_fake(first);
}

HR_TEST(an_open_that_fails_leaves_nothing) {
  void *impl = NULL;
  hr__cuda_replace(&fake, 1);
  fake_live = 0;
  fake_error = CUDA_ERROR_OUT_OF_MEMORY;
  HR_ASSERT_ERROR(DRIVER->open(0, &impl), HR_STATUS_RESOURCE_EXHAUSTED, "cuStreamCreate");
  HR_ASSERT_NULL(impl);
  HR_ASSERT_EQ(fake_live, 0);
  HR_ASSERT_EQ(fake_depth, 0);
  fake_error = 0;
  hr__cuda_replace(NULL, 0);
}

/* ---- copies and fills, on both ---- */

enum { FILL_BYTES = 300000 };

static void check_fill(void *impl, const unsigned char *pattern, size_t size, size_t offset, size_t count) {
  static unsigned char expected[FILL_BYTES], back[FILL_BYTES];
  void *block;
  HR_ASSERT(offset + size * count <= FILL_BYTES);
  memset(expected, 0xee, FILL_BYTES);
  HR_ASSERT_OK(DRIVER->allocate(impl, FILL_BYTES, &block));
  HR_ASSERT_OK(DRIVER->copy_in(impl, block, expected, FILL_BYTES));
  for (size_t i = 0; i < size * count; ++i) {
    expected[offset + i] = pattern[i % size];
  }
  HR_ASSERT_OK(DRIVER->fill(impl, (char *)block + offset, pattern, size, count));
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, block, FILL_BYTES));
  for (size_t i = 0; i < FILL_BYTES; ++i) {
    if (back[i] != expected[i]) {
      HR_FAIL("pattern of %zu bytes, %zu times at %zu: byte %zu is %d, expected %d", size, count, offset, i, back[i],
              expected[i]);
    }
  }
  DRIVER->free(impl, block, FILL_BYTES);
}

static void check_fills(void *impl) {
  static const size_t counts[] = {0, 1, 2, 3, 1001, 4096, 4097, 17001};
  static const size_t offsets[] = {0, 1, 2, 3, 4, 8, 12, 16};
  static const unsigned char patterns[][16] = {
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, /* no repetition */
      {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4},
      {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f},
      {0}};
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; ++p) {
    for (size_t size = 1; size <= 16; size *= 2) {
      for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
        for (size_t o = 0; o < (counts[c] > 1001 ? 2 : sizeof offsets / sizeof *offsets); ++o) {
          check_fill(impl, patterns[p], size, offsets[o], counts[c]);
        }
      }
    }
  }
}

/* Long and short copies, across the ends of the slots; bytes around the copy stay unchanged. */
static void check_copies(void *impl) {
  static const size_t sizes[] = {1, 63, 64, 65, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) + 3, 9999999};
  enum { BYTES = 10 << 20 };
  unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
  void *block;
  HR_ASSERT_OK(DRIVER->allocate(impl, BYTES, &block));
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    for (size_t i = 0; i < sizes[s]; ++i) {
      host[i] = (unsigned char)(i * 31 + i / 253 + s);
    }
    HR_ASSERT_OK(DRIVER->copy_in(impl, (char *)block + s, host, sizes[s]));
    memset(back, 0x77, BYTES);
    HR_ASSERT_OK(DRIVER->copy_out(impl, back + 1, (char *)block + s, sizes[s]));
    HR_ASSERT(back[0] == 0x77 && back[sizes[s] + 1] == 0x77 && memcmp(back + 1, host, sizes[s]) == 0);
  }
  for (int i = 0; i < 100000; ++i) { /* many small ones: the slots go round, and the host's memory is free at once */
    HR_ASSERT_OK(DRIVER->copy_in(impl, (char *)block + (size_t)i * 4, &i, sizeof i));
  }
  HR_ASSERT_OK(DRIVER->copy_within(impl, (char *)block + (1 << 20), block, 400000));
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, (char *)block + (1 << 20), 400000));
  for (int i = 0, value; i < 100000; ++i) {
    memcpy(&value, back + (size_t)i * 4, sizeof value);
    HR_ASSERT_EQ(value, i);
  }
  DRIVER->free(impl, block, BYTES);
  free(host);
  free(back);
}

HR_TEST(fills_of_all_sizes_and_places) {
  void *impl = open_fake();
  check_fills(impl);
  close_fake(impl);
}

HR_TEST(copies_go_through_the_slots) {
  void *impl = open_fake();
  check_copies(impl);
  close_fake(impl);
}

/* ---- kernels, on the stand-in ---- */

HR_TEST(parameters_are_packed_in_the_order_of_the_contract) {
  void *impl = open_fake(), *module, *functions[2];
  const char *names[] = {"first", "second"};
  HR_ASSERT_OK(DRIVER->load(impl, "image", 5, 2, names, &module, functions));
  hr_device_kernel kernel = {.base = {.name = "packed", .pass_count = 3},
                             .functions = {functions[0], NULL, functions[1]},
                             .blocks = {7, 0, 1000000},
                             .threads = {32, 0, 256},
                             .shared = {100, 0, 200 << 10},
                             .arg_count = 3,
                             .scalar_count = 2,
                             .word_count = 2,
                             .words = {11, -12}};
  void *args[3] = {(void *)0x100, (void *)0x200, (void *)0x300};
  hr_scalar scalars[2] = {hr_scalar_f64(1.5), hr_scalar_i64(-7)};
  hr_host_call call = {.args = args, .scalars = scalars, .workspace = (void *)0x40};
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &(hr_host_launch){&kernel.base, call}));
  HR_ASSERT_EQ(fake_launches, 2); /* the pass of no blocks is none */
  HR_ASSERT_EQ(fake_grid, 1000000);
  HR_ASSERT_EQ(fake_block, 256);
  HR_ASSERT_EQ(fake_shared, 200 << 10);
  HR_ASSERT_EQ(fake_parameter_bytes, 8 + 3 * 8 + 2 * 24 + 2 * 8);
  struct {
    void *workspace, *args[3];
    hr_scalar scalars[2];
    int64_t words[2];
  } seen;
  memcpy(&seen, fake_parameters, sizeof seen);
  HR_ASSERT(seen.workspace == call.workspace && memcmp(seen.args, args, sizeof args) == 0);
  HR_ASSERT(seen.scalars[0].dtype == HR_DTYPE_F64 && seen.scalars[0].value.f[0] == 1.5);
  HR_ASSERT(seen.scalars[1].dtype == HR_DTYPE_I64 && seen.scalars[1].value.i == -7);
  HR_ASSERT(seen.words[0] == 11 && seen.words[1] == -12);
  DRIVER->unload(impl, module);
  close_fake(impl);
}

HR_TEST(launches_that_cannot_be_name_their_kernel) {
  void *impl = open_fake(), *args[512] = {0};
  hr_device_kernel kernel = {.base = {.name = "odd one", .pass_count = 1},
                             .functions = {impl},
                             .blocks = {1},
                             .threads = {64},
                             .arg_count = 511};
  hr_host_launch launch = {&kernel.base, {.args = args}};
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launch));
  HR_ASSERT_EQ(fake_parameter_bytes, 4096);
  kernel.arg_count = 512;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_UNIMPLEMENTED, "\"odd one\" has 4104 bytes");
  kernel.arg_count = 1;
  kernel.blocks[0] = (int64_t)1 << 31;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_INTERNAL, "\"odd one\", pass 0: 2147483648 blocks");
  kernel.blocks[0] = 1;
  kernel.threads[0] = 2048;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_INTERNAL, "kernel \"odd one\", pass 0, 1 blocks of 2048");
  HR_ASSERT_EQ(fake_depth, 0);
  close_fake(impl);
}

HR_TEST(a_missing_function_is_named_and_its_module_goes) {
  void *impl = open_fake(), *module = NULL, *functions[2];
  const char *names[] = {"there", "no_such"};
  int live = fake_live;
  HR_ASSERT_ERROR(DRIVER->load(impl, "image", 5, 2, names, &module, functions), HR_STATUS_INTERNAL, "\"no_such\"");
  HR_ASSERT_NULL(module);
  HR_ASSERT_EQ(fake_live, live);
  close_fake(impl);
}

/* ---- calls and errors ---- */

static hr_status call_back(void *arg) {
  *(int *)arg = fake_depth; /* the device is current */
  return hr_status_make(HR_STATUS_DATA_LOSS, "the library's own words");
}

HR_TEST(calls_use_the_device_and_report_their_errors) {
  void *impl = open_fake();
  int depth = 0;
  HR_ASSERT_ERROR(DRIVER->call(impl, call_back, &depth), HR_STATUS_DATA_LOSS, "own words");
  HR_ASSERT_EQ(depth, 1);
  close_fake(impl);
}

HR_TEST(an_error_of_the_device_is_every_later_calls_error) {
  void *impl = open_fake(), *block, *event, *begin;
  char bytes[64] = {0};
  HR_ASSERT_OK(DRIVER->allocate(impl, 64, &block));
  HR_ASSERT_OK(DRIVER->event_create(impl, &begin));
  HR_ASSERT_OK(DRIVER->event_record(impl, begin));
  fake_error = CUDA_ERROR_ILLEGAL_ADDRESS;
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_ERROR(DRIVER->flush(impl), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS (700): an error's text");
    HR_ASSERT_ERROR(DRIVER->copy_in(impl, block, bytes, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->copy_out(impl, bytes, block, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->fill(impl, block, bytes, 1, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->event_create(impl, &event), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->event_wait(impl, begin), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_EQ(fake_depth, 0);
  }
  DRIVER->event_destroy(impl, begin);
  DRIVER->free(impl, block, 64);
  close_fake(impl);
}

/* ---- on a GPU ---- */

HR_TEST(a_gpu_fills) {
  void *impl = open_gpu();
  check_fills(impl);
  DRIVER->close(impl);
}

HR_TEST(a_gpu_copies) {
  void *impl = open_gpu();
  check_copies(impl);
  DRIVER->close(impl);
}

/* ---- memory in other processes ---- */

HR_TEST(memory_is_named_by_its_block_and_closed_as_often_as_opened) {
  unsigned char name[HR_SHARED_NAME_BYTES];
  int64_t offset = 0;
  void *impl = open_fake(), *block, *first, *second;
  HR_ASSERT_OK(DRIVER->allocate(impl, 4096, &block));
  fake_range_offset = 768;
  HR_ASSERT_OK(DRIVER->share(impl, (char *)block + 768, name, &offset));
  HR_ASSERT_EQ(offset, 768);
  int live = fake_live;
  HR_ASSERT_OK(DRIVER->open_shared(impl, name, &first));
  HR_ASSERT_OK(DRIVER->open_shared(impl, name, &second));
  HR_ASSERT(first == block && second == block && fake_live == live + 2);
  DRIVER->close_shared(impl, first);
  DRIVER->close_shared(impl, second);
  HR_ASSERT_EQ(fake_live, live);
  DRIVER->free(impl, block, 4096);
  DRIVER->close(impl);
}
