/* Library rows of a device without a library for them, on a device whose memory the host must not touch. */
#include "engine/host_fallback.h"

#include "hr_test.h"

#include "base/allocator.h"
#include "engine/algorithms.h"

/* Addresses of the device are those of a copy, offset by AWAY. */
enum { AWAY = 1 << 20, LINE = 6, LINES = 3, GAP = 2 };

static int copies_in, copies_out;
static int64_t bytes_moved;

static hr_status copy_in(void *impl, void *to, const void *host, size_t bytes) {
  (void)impl;
  copies_in++, bytes_moved += (int64_t)bytes;
  memcpy((void *)((uintptr_t)to - AWAY), host, bytes);
  return HR_OK;
}
static hr_status copy_out(void *impl, void *host, const void *from, size_t bytes) {
  (void)impl;
  copies_out++, bytes_moved += (int64_t)bytes;
  memcpy(host, (const void *)((uintptr_t)from - AWAY), bytes);
  return HR_OK;
}
static void *far(void *address) {
  return (void *)((uintptr_t)address + AWAY);
}
static void *native(void *impl) {
  return impl;
}

static const hr_driver driver = {
    .name = "far", .dialect = HR_DIALECT_CUDA, .copy_in = copy_in, .copy_out = copy_out, .native = native};

typedef struct sort_step {
  hr_device device;
  hr_program program;
  hr_operand operands[3];
  int64_t dims[2], strides[2], ints[2];
  hr_node node;
  hr_ready ready;
} sort_step;

/* Sorts the lines of a buffer that begin `GAP` elements after its start. */
static void begin(sort_step *s, hr_provider *provider) {
  *s = (sort_step){.device = {.driver = &driver}, .dims = {LINES, LINE}, .strides = {LINE, 1}, .ints = {0, 1}};
  hr_program_init(&s->program);
  for (int i = 0; i < 3; ++i) {
    hr_dtype dtype = i == 2 ? HR_DTYPE_I64 : HR_DTYPE_F32;
    s->operands[i] = (hr_operand){.kind = HR_OPERAND_VALUE,
                                  .dtype = dtype,
                                  .index = hr_program_add_buffer(&s->program, 400, false, i > 0),
                                  .rank = 2,
                                  .offset = i == 0 ? GAP : 0,
                                  .dims = s->dims,
                                  .strides = s->strides,
                                  .fill = HR_NO_SCALAR};
  }
  s->node = (hr_node){.op = HR_OP_SORT,
                      .input_count = 1,
                      .output_count = 2,
                      .inputs = s->operands,
                      .outputs = s->operands + 1,
                      .int_count = hr_op_table(HR_OP_SORT)->int_count,
                      .ints = s->ints};
  const hr_algorithm algorithm = {provider, -1};
  HR_ASSERT_OK(hr__algorithm_prepare(&s->device, &s->program, &s->node, &algorithm, &s->ready));
}

static void end(sort_step *s) {
  hr__ready_fini(&s->ready);
  hr_program_fini(&s->program);
}

HR_TEST(a_row_runs_on_copies_of_its_operands) {
  sort_step s;
  float x[GAP + LINES * LINE], sorted[LINES * LINE + 1] = {0};
  int64_t order[LINES * LINE + 1] = {0};
  hr_provider host = hr__host_provider;
  begin(&s, &host);
  HR_ASSERT_NOT_NULL(s.ready.fallback);
  HR_ASSERT_EQ(s.ready.workspace_bytes, 0); /* of the device */
  for (int i = 0; i < GAP + LINES * LINE; ++i) {
    x[i] = (float)((i * 7 + 3) % 11);
  }
  sorted[LINES * LINE] = 77, order[LINES * LINE] = 77;
  void *args[3] = {far(x), far(sorted), far(order)};
  const uint64_t stamps[3] = {0};
  for (int run = 0; run < 2; ++run) {
    copies_in = copies_out = 0, bytes_moved = 0;
    HR_ASSERT_OK(hr__ready_run(s.device.driver, s.device.impl, &s.ready, args, stamps, NULL, NULL));
    HR_ASSERT(copies_out == 1 && copies_in == 2 && bytes_moved == LINES * LINE * (4 + 4 + 8));
    for (int i = 0; i < LINES * LINE; ++i) {
      HR_ASSERT(i % LINE == 0 || sorted[i - 1] <= sorted[i]);
      HR_ASSERT_EQ(sorted[i], x[GAP + i / LINE * LINE + order[i]]);
    }
    HR_ASSERT(sorted[LINES * LINE] == 77 && order[LINES * LINE] == 77);
  }
  end(&s);
}

static hr_status run_badly(hr_prepared *prepared, void *const *args, void *workspace, void *queue) {
  (void)prepared, (void)args, (void)workspace, (void)queue;
  return hr_status_make(HR_STATUS_ABORTED, "the data does not allow it");
}

HR_TEST(a_row_that_fails_writes_nothing) {
  sort_step s;
  float x[GAP + LINES * LINE] = {0}, sorted[LINES * LINE] = {5};
  int64_t order[LINES * LINE] = {6};
  hr_provider host = hr__host_provider;
  host.run = run_badly;
  begin(&s, &host);
  void *args[3] = {far(x), far(sorted), far(order)};
  const uint64_t stamps[3] = {0};
  HR_ASSERT_ERROR(hr__ready_run(s.device.driver, s.device.impl, &s.ready, args, stamps, NULL, NULL), HR_STATUS_ABORTED,
                  "does not allow");
  HR_ASSERT(sorted[0] == 5 && order[0] == 6);
  end(&s);
}

HR_TEST(devices_have_the_rows_of_the_host) {
  hr_device device = {.context = &hr__context_first, .driver = &driver};
  HR_ASSERT_OK(hr__library_check(&device, HR_OP_SORT));
  const hr_provider *const *providers = hr__algorithms_providers(HR_DIALECT_CUDA);
  for (int i = 0; providers[i] != NULL; ++i) {
    HR_ASSERT(providers[i]->dialect == HR_DIALECT_CUDA || providers[i]->has != NULL);
  }
}
