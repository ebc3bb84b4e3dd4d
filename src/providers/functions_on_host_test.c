/* Functions of the host beside a device with memory of its own: copies of their operands, in the order of the device's
 * queue. Blocks of the host stand in for the device's memory. */
#include "hr_test.h"

#include <string.h>

#include "providers/functions/functions.h"

extern const hr_provider hr__device_closures_provider;

enum { MAIN_QUEUE = 1, LANE_QUEUE = 2 };

/* An opening of the stand-in: what is copied, and by whom. */
typedef struct opening {
  int queue, copies_in, copies_out;
  int64_t bytes;
  bool fails;
} opening;

static void *queue_of(void *impl) {
  return &((opening *)impl)->queue;
}

static hr_status copy_in(void *impl, void *to, const void *host, size_t bytes) {
  opening *o = impl;
  memcpy(to, host, bytes);
  ++o->copies_in, o->bytes += (int64_t)bytes;
  return HR_OK;
}

static hr_status copy_out(void *impl, void *host, const void *from, size_t bytes) {
  opening *o = impl;
  memcpy(host, from, bytes);
  ++o->copies_out, o->bytes += (int64_t)bytes;
  return o->fails ? hr_status_make(HR_STATUS_INTERNAL, "the copy failed") : HR_OK;
}

static const hr_driver driver = {.name = "copies", .native = queue_of, .copy_in = copy_in, .copy_out = copy_out};

/* The operands of a call in the device's memory: an updated vector, a mask, an empty one, and what is new. */
typedef struct memory {
  float updated[4];
  bool mask[4];
  double made[4];
} memory;

static memory there;
static int runs;

static bool is_there(const void *address) {
  return (const char *)address >= (const char *)&there && (const char *)address < (const char *)(&there + 1);
}

/* updated += 1 and made = 2 * updated where the mask is set, else 0. */
static hr_status step(const hr_function_call *call) {
  float *updated = call->outputs[0];
  const bool *mask = call->inputs[0];
  double *made = call->outputs[1];
  HR_ASSERT(call->queue == NULL && call->input_count == 2 && call->output_count == 2);
  HR_ASSERT(!is_there(updated) && !is_there(mask) && !is_there(made));
  for (int i = 0; i < 4; ++i) {
    made[i] = mask[i] ? 2.0 * (double)updated[i] : 0;
    updated[i] += 1;
  }
  ++runs;
  return updated[0] < 100 ? HR_OK : hr_status_make(HR_STATUS_ABORTED, "step: too much");
}

static hr_operand operand_of(hr_dtype dtype, const int64_t *dims, const int64_t *strides) {
  return (hr_operand){
      .kind = HR_OPERAND_VALUE, .dtype = dtype, .rank = 1, .dims = (int64_t *)dims, .strides = (int64_t *)strides};
}

static hr_status run(hr_device *device, int *queue) {
  static const int64_t one[1] = {1}, four[1] = {4}, none[1] = {0}, bytes[1] = {sizeof(hr__closure)};
  const int64_t ints[HR__CALL_INTS] = {[HR__CALL_UPDATED] = 1};
  hr__closure closure = {.run = step, .device = device};
  hr_operand inputs[] = {operand_of(HR_DTYPE_F32, four, one), operand_of(HR_DTYPE_BOOL, four, one),
                         operand_of(HR_DTYPE_I32, none, one), operand_of(HR_DTYPE_U8, bytes, one)};
  hr_operand outputs[] = {operand_of(HR_DTYPE_F32, four, one), operand_of(HR_DTYPE_F64, four, one)};
  const hr_node node = {.op = HR_OP_CALL,
                        .input_count = 4,
                        .output_count = 2,
                        .inputs = inputs,
                        .outputs = outputs,
                        .int_count = HR__CALL_INTS,
                        .ints = ints};
  void *args[] = {there.updated, there.mask, NULL, &closure, there.updated, there.made};
  const hr_provider *provider = &hr__device_closures_provider;
  hr_prepared *prepared = NULL;
  size_t workspace = 0;
  HR_ASSERT(provider->supports(NULL, &node));
  HR_ASSERT_OK(provider->prepare(NULL, &node, 0, NULL, &prepared, &workspace));
  hr_status status = provider->run(prepared, args, NULL, queue);
  provider->release(prepared);
  return status;
}

HR_TEST(operands_are_copied_there_and_back) {
  opening own = {.queue = MAIN_QUEUE}, lane = {.queue = LANE_QUEUE};
  hr_device device = {.driver = &driver, .impl = &own, .lanes[2].impl = &lane};
  there = (memory){.updated = {1, 2, 3, 4}, .mask = {true, false, true, true}};
  runs = 0;
  HR_ASSERT_OK(run(&device, &own.queue));
  HR_ASSERT(there.updated[0] == 2 && there.updated[3] == 5);
  HR_ASSERT(there.made[0] == 2 && there.made[1] == 0 && there.made[3] == 8);
  HR_ASSERT_OK(run(&device, &lane.queue));
  HR_ASSERT(there.updated[0] == 3 && there.made[0] == 4 && runs == 2);
  HR_ASSERT(own.copies_in == 2 && own.copies_out == 3 && own.bytes == 2 * 16 + 4 + 32);
  HR_ASSERT(lane.copies_in == 2 && lane.copies_out == 3 && lane.bytes == own.bytes);
}

HR_TEST(a_queue_of_no_lane_is_refused) {
  opening own = {.queue = MAIN_QUEUE};
  hr_device device = {.driver = &driver, .impl = &own};
  int other = 0;
  HR_ASSERT_ERROR(run(&device, &other), HR_STATUS_INTERNAL, "none of the device's");
}

HR_TEST(a_failure_leaves_the_device_s_memory_alone) {
  opening own = {.queue = MAIN_QUEUE, .fails = true};
  hr_device device = {.driver = &driver, .impl = &own};
  there = (memory){.updated = {99, 2, 3, 4}};
  runs = 0;
  HR_ASSERT_ERROR(run(&device, &own.queue), HR_STATUS_INTERNAL, "the copy failed");
  HR_ASSERT_EQ(runs, 0);
  own.fails = false;
  HR_ASSERT_ERROR(run(&device, &own.queue), HR_STATUS_ABORTED, "step: too much");
  HR_ASSERT(runs == 1 && own.copies_in == 0 && there.updated[0] == 99);
}
