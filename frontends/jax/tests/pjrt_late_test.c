/* pjrt_late_test.c: buffers whose contents come later, in the order of calls of a client that makes them. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "pjrt_client.h"

static const float one_to_six[] = {1, 2, 3, 4, 5, 6};

/* Two buffers, f32[2, 3] and s32[2]. */
static pjrt_transfers *open_transfers(void) {
  pjrt_args_pointer memory = {.self = first_device()};
  ASSERT_CALL(Device_DefaultMemory, &memory);
  const pjrt_shape shapes[] = {
      {.struct_size = sizeof *shapes, .dims = (int64_t[]){2, 3}, .rank = 2, .type = PJRT_TYPE_F32},
      {.struct_size = sizeof *shapes, .dims = (int64_t[]){2}, .rank = 1, .type = PJRT_TYPE_S32}};
  pjrt_args_transfers args = {.client = client, .shapes = shapes, .count = 2, .memory = memory.pointer};
  ASSERT_CALL(Client_CreateBuffersForAsyncHostToDevice, &args);
  return args.transfers;
}

static void close_transfers(pjrt_transfers *transfers) {
  ASSERT_CALL(AsyncHostToDeviceTransferManager_Destroy, &(pjrt_args_self){.self = transfers});
}

static pjrt_buffer *retrieve(pjrt_transfers *transfers, int number) {
  pjrt_args_transfer_buffer args = {.transfers = transfers, .number = number};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, &args);
  return args.buffer;
}

static void transfer(pjrt_transfers *transfers, int number, const void *data, int64_t offset, int64_t size, bool last) {
  pjrt_args_transfer_data args = {
      .transfers = transfers, .number = number, .data = data, .offset = offset, .size = size, .is_last = last};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_TransferData, &args);
  HR_ASSERT_EQ(await(args.done), 0);
}

HR_TEST(a_transfer_manager_describes_its_buffers) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  pjrt_args_size count = {.self = transfers};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_BufferCount, &count);
  HR_ASSERT_EQ(count.size, 2);
  pjrt_args_transfer_size size = {.transfers = transfers};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_BufferSize, &size);
  HR_ASSERT_EQ((int64_t)size.size, 24);
  size.number = 2;
  ASSERT_CODE(AsyncHostToDeviceTransferManager_BufferSize, &size, HR_STATUS_INVALID_ARGUMENT, "buffer 2");
  pjrt_args_pointer device = {.self = transfers};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_Device, &device);
  HR_ASSERT(device.pointer == first_device());
  ASSERT_CALL(AsyncHostToDeviceTransferManager_AddMetadata, (&(pjrt_args_transfer_metadata){.transfers = transfers}));
  destroy(retrieve(transfers, 1));
  pjrt_args_transfer_buffer again = {.transfers = transfers, .number = 1};
  ASSERT_CODE(AsyncHostToDeviceTransferManager_RetrieveBuffer, &again, HR_STATUS_FAILED_PRECONDITION, "retrieved");
  close_transfers(transfers);
}

HR_TEST(contents_come_in_pieces) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  pjrt_buffer *buffer = retrieve(transfers, 0);
  transfer(transfers, 0, one_to_six + 3, 12, 12, false);
  pjrt_args_transfer_data outside = {.transfers = transfers, .data = one_to_six, .offset = 20, .size = 8};
  ASSERT_CODE(AsyncHostToDeviceTransferManager_TransferData, &outside, HR_STATUS_INVALID_ARGUMENT, "bytes 20 to 28");
  transfer(transfers, 0, one_to_six, 0, 12, true);
  outside.offset = 0;
  ASSERT_CODE(AsyncHostToDeviceTransferManager_TransferData, &outside, HR_STATUS_FAILED_PRECONDITION, "already");
  float back[6];
  get(buffer, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  destroy(buffer);
  close_transfers(transfers);
}

HR_TEST(a_literal_is_a_transfer) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  pjrt_buffer *buffer = retrieve(transfers, 0);
  const float columns[] = {1, 4, 2, 5, 3, 6};
  pjrt_layout layout = {.kind = PJRT_LAYOUT_TILED};
  layout.of.tiled.minor_to_major = (int64_t[]){0, 1}, layout.of.tiled.rank = 2;
  pjrt_args_transfer_literal args = {.transfers = transfers,
                                     .data = columns,
                                     .dims = (int64_t[]){2, 2},
                                     .rank = 2,
                                     .type = PJRT_TYPE_F32,
                                     .layout = &layout};
  ASSERT_CODE(AsyncHostToDeviceTransferManager_TransferLiteral, &args, HR_STATUS_INVALID_ARGUMENT, "16 bytes");
  args.dims = (int64_t[]){2, 3};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_TransferLiteral, &args);
  HR_ASSERT_EQ(await(args.done), 0);
  float back[6];
  get(buffer, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  destroy(buffer);
  close_transfers(transfers);
}

static void *transfer_soon(void *transfers) {
  struct timespec moment = {.tv_nsec = 30000000};
  nanosleep(&moment, NULL);
  transfer(transfers, 0, one_to_six, 0, 24, true);
  return NULL;
}

HR_TEST(a_use_waits_for_the_contents) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  pjrt_buffer *buffer = retrieve(transfers, 0);
  pjrt_args_pointer ready = {.self = buffer};
  ASSERT_CALL(Buffer_ReadyEvent, &ready);
  pthread_t thread;
  HR_ASSERT_EQ(pthread_create(&thread, NULL, transfer_soon, transfers), 0);
  float back[6];
  get(buffer, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  HR_ASSERT_EQ(await(ready.pointer), 0);
  pthread_join(thread, NULL);
  destroy(buffer);
  close_transfers(transfers);
}

typedef struct reader {
  pjrt_buffer *buffer;
  void *address;
  atomic_bool has_read;
} reader;

static void read_address(pjrt_error *error, void *arg) {
  reader *r = arg;
  HR_ASSERT_EQ(code_of(error), 0);
  pjrt_args_pointer address = {.self = r->buffer};
  ASSERT_CALL(Buffer_OpaqueDeviceMemoryDataPointer, &address);
  r->address = address.pointer;
  atomic_store(&r->has_read, true);
}

/* An address waits for the work of the device, whose thread must not run the callback. */
HR_TEST(a_callback_may_want_an_address) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  reader r = {.buffer = retrieve(transfers, 0)};
  float back[6];
  pjrt_args_to_host args = {.buffer = r.buffer, .data = back, .data_size = sizeof back};
  ASSERT_CALL(Buffer_ToHostBuffer, &args);
  ASSERT_CALL(Event_OnReady, (&(pjrt_args_on_ready){.event = args.event, .callback = read_address, .arg = &r}));
  transfer(transfers, 0, one_to_six, 0, 24, true);
  HR_ASSERT_EQ(await(args.event), 0);
  while (!atomic_load(&r.has_read)) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  HR_ASSERT_BYTES_EQ(r.address, one_to_six, sizeof one_to_six);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  destroy(r.buffer);
  close_transfers(transfers);
}

HR_TEST(a_failed_transfer_fails_its_buffer_alone) {
  open_client();
  pjrt_transfers *transfers = open_transfers();
  pjrt_buffer *failed = retrieve(transfers, 0), *lost = retrieve(transfers, 1);
  pjrt_args_transfer_error args = {
      .transfers = transfers, .code = HR_STATUS_DATA_LOSS, .message = "the cable broke", .message_size = 15};
  ASSERT_CALL(AsyncHostToDeviceTransferManager_SetBufferError, &args);
  pjrt_args_pointer ready = {.self = failed};
  ASSERT_CALL(Buffer_ReadyEvent, &ready);
  ASSERT_CODE(Event_Await, (&(pjrt_args_self){.self = ready.pointer}), HR_STATUS_DATA_LOSS, "the cable broke");
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = ready.pointer});
  close_transfers(transfers);
  ready.self = lost;
  ASSERT_CALL(Buffer_ReadyEvent, &ready);
  ASSERT_CODE(Event_Await, (&(pjrt_args_self){.self = ready.pointer}), HR_STATUS_ABORTED, "buffer 1 ended");
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = ready.pointer});
  destroy(failed);
  destroy(lost);
  pjrt_buffer *sound = put(PJRT_TYPE_F32, 1, (int64_t[]){6}, one_to_six);
  float back[6];
  get(sound, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  destroy(sound);
}

static pjrt_args_alias open_alias(void) {
  pjrt_args_pointer memory = {.self = first_device()};
  ASSERT_CALL(Device_DefaultMemory, &memory);
  pjrt_args_alias alias = {
      .client = client, .memory = memory.pointer, .dims = (int64_t[]){6}, .rank = 1, .type = PJRT_TYPE_F32};
  ASSERT_CALL(Client_CreateAliasBuffer, &alias);
  return alias;
}

HR_TEST(an_alias_has_the_contents_that_fulfil_it) {
  open_client();
  pjrt_args_alias alias = open_alias(), other = open_alias(), early = open_alias();
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){6}, one_to_six);
  ASSERT_CALL(Client_FulfillAliasBuffer,
              (&(pjrt_args_fulfil){.client = client, .buffer = buffer, .promise = alias.promise}));
  float back[6];
  get(alias.buffer, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
  pjrt_buffer *small = put(PJRT_TYPE_F32, 1, (int64_t[]){2}, one_to_six);
  ASSERT_CODE(Client_FulfillAliasBuffer,
              (&(pjrt_args_fulfil){.client = client, .buffer = small, .promise = other.promise}),
              HR_STATUS_INVALID_ARGUMENT, "another device, type or layout");
  pjrt_args_pointer ready = {.self = early.buffer};
  ASSERT_CALL(Buffer_ReadyEvent, &ready);
  ASSERT_CODE(Event_Await, (&(pjrt_args_self){.self = ready.pointer}), HR_STATUS_FAILED_PRECONDITION, "before");
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = ready.pointer});
  ASSERT_CODE(Client_FulfillAliasBuffer,
              (&(pjrt_args_fulfil){.client = client, .buffer = buffer, .promise = early.promise}),
              HR_STATUS_FAILED_PRECONDITION, "used");
  pjrt_buffer *all[] = {buffer, small, alias.buffer, other.buffer, early.buffer};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    destroy(all[i]);
  }
}

HR_TEST(a_donated_buffer_waits_for_its_dependency) {
  open_client();
  for (int fails = 0; fails < 2; ++fails) {
    pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){6}, one_to_six);
    pjrt_args_donate args = {.buffer = buffer};
    ASSERT_CALL(Buffer_DonateWithControlDependency, &args);
    pjrt_args_flag deleted = {.self = buffer};
    ASSERT_CALL(Buffer_IsDeleted, &deleted);
    HR_ASSERT(deleted.flag);
    pjrt_args_pointer ready = {.self = args.out};
    ASSERT_CALL(Buffer_ReadyEvent, &ready);
    args.ready(&(pjrt_args_dependency){
        .data = args.data, .code = fails ? HR_STATUS_ABORTED : HR_STATUS_OK, .message = "no", .message_size = 2});
    HR_ASSERT_EQ(await(ready.pointer), fails ? HR_STATUS_ABORTED : 0);
    float back[6];
    if (!fails) {
      get(args.out, back, sizeof back);
      HR_ASSERT_BYTES_EQ(back, one_to_six, sizeof back);
    }
    destroy(args.out);
    destroy(buffer);
  }
}

HR_TEST(no_execution_waits_to_be_poisoned) {
  open_client();
  pjrt_args_poison args = {.device = first_device(), .launch_id = 3, .code = HR_STATUS_ABORTED, .is_poisoned = true};
  ASSERT_CALL(Device_PoisonExecution, &args);
  HR_ASSERT(!args.is_poisoned);
}
