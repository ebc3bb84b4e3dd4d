/* pjrt_buffers_test.c: the table's devices, buffers and events, in the order of calls of a client that starts. */
#include <pthread.h>

#include "pjrt_client.h"

HR_TEST(table_is_complete) {
  open_client();
  HR_ASSERT_EQ((int64_t)table->struct_size, 1144);
  HR_ASSERT_EQ(table->version.minor, 114);
  for (int i = 0; i < PJRT_ENTRIES; ++i) {
    HR_ASSERT_NOT_NULL((void *)table->entries[i]);
  }
}

HR_TEST(entries_without_a_function_fail_with_their_name) {
  open_client();
  int count = 0;
#define DONE(name, args)
#define NONE(name)                                                                    \
  ASSERT_CODE(name, (&(pjrt_args){0}), HR_STATUS_UNIMPLEMENTED, "PJRT_" #name " is"); \
  ++count;
#include "../csrc/entries.def"
#undef DONE
#undef NONE
  HR_ASSERT_EQ(count, 6);
}

HR_TEST(client_starts_as_jax_starts_one) {
  open_client();
  pjrt_args_pointer topology = {.self = client};
  ASSERT_CALL(Client_TopologyDescription, &topology);
  pjrt_args_list kinds = {.self = topology.pointer};
  ASSERT_CALL(TopologyDescription_GetMemorySpaceKindIds, &kinds);
  HR_ASSERT(kinds.count == 3 && ((const int *)kinds.list)[2] == 2);
  pjrt_args_text text = {.self = client};
  ASSERT_CALL(Client_PlatformName, &text);
  HR_ASSERT_EQ((int64_t)text.text_size, 8);
  HR_ASSERT_BYTES_EQ(text.text, "headrace", 8);
  pjrt_args_list devices = {.self = client};
  ASSERT_CALL(Client_Devices, &devices);
  pjrt_device *device = ((pjrt_device *const *)devices.list)[0];
  pjrt_args_pointer description = {.self = device};
  ASSERT_CALL(Device_GetDescription, &description);
  pjrt_args_text name = {.self = description.pointer};
  ASSERT_CALL(DeviceDescription_ToString, &name);
  HR_ASSERT_BYTES_EQ(name.text, "headrace:0", 10);
  pjrt_args_list memories = {.self = device};
  ASSERT_CALL(Device_AddressableMemories, &memories);
  HR_ASSERT_EQ((int64_t)memories.count, 3);
  static const char *const names[] = {"device", "pinned_host", "unpinned_host"};
  for (int i = 0; i < 3; ++i) {
    pjrt_memory *memory = ((pjrt_memory *const *)memories.list)[i];
    pjrt_args_text kind = {.self = memory};
    ASSERT_CALL(Memory_Kind, &kind);
    HR_ASSERT_STR_EQ(kind.text, names[i]);
    pjrt_args_int id = {.self = memory};
    ASSERT_CALL(Memory_Id, &id);
    HR_ASSERT_EQ(id.number, i);
  }
  pjrt_args_attributes attributes = {0};
  ASSERT_CALL(Plugin_Attributes, &attributes);
  HR_ASSERT(attributes.count > 0);
  close_client();
}

HR_TEST(unknown_devices_and_options_are_refused) {
  open_client();
  pjrt_args_lookup lookup = {.client = client, .id = 12};
  ASSERT_CODE(Client_LookupDevice, &lookup, HR_STATUS_INVALID_ARGUMENT, "device 12");
  pjrt_named_value option = {.name = "speed", .name_size = 5};
  pjrt_args_client_create create = {.options = &option, .option_count = 1};
  ASSERT_CODE(Client_Create, &create, HR_STATUS_INVALID_ARGUMENT, "\"speed\"");
  pjrt_args_assignment assignment = {.client = client, .replicas = 64, .partitions = 64};
  ASSERT_CODE(Client_DefaultDeviceAssignment, &assignment, HR_STATUS_INVALID_ARGUMENT, "64 x 64");
}

/* The byte that comes back: numbers of fewer bits fill it with their sign or with zeros. */
static unsigned char returned(pjrt_type type, unsigned char byte) {
  bool is_signed = type == PJRT_TYPE_S4 || type == PJRT_TYPE_S2;
  int bits = type == PJRT_TYPE_S4 || type == PJRT_TYPE_U4 || type == PJRT_TYPE_F4E2M1FN ? 4
             : type == PJRT_TYPE_S2 || type == PJRT_TYPE_U2                             ? 2
                                                                                        : 8;
  unsigned low = byte & ((1u << bits) - 1);
  return (unsigned char)(is_signed && low >> (bits - 1) != 0 ? low | ~0u << bits : low);
}

HR_TEST(elements_of_all_types_come_back) {
  open_client();
  unsigned char data[6 * 16], back[6 * 16], wanted[6 * 16];
  for (size_t i = 0; i < sizeof data; ++i) {
    data[i] = (unsigned char)(i * 37);
  }
  for (pjrt_type type = PJRT_TYPE_PRED; type < PJRT_TYPE_COUNT; ++type) {
    if (type == PJRT_TYPE_TOKEN) {
      continue;
    }
    pjrt_buffer *buffer = put(type, 2, (int64_t[]){2, 3}, data);
    pjrt_args_size size = {.self = buffer};
    ASSERT_CALL(Buffer_OnDeviceSizeInBytes, &size);
    memset(back, 0, sizeof back);
    get(buffer, back, (size_t)size.size);
    for (size_t i = 0; i < sizeof data; ++i) {
      wanted[i] = returned(type, data[i]);
    }
    HR_ASSERT_BYTES_EQ(back, wanted, (size_t)size.size);
    destroy(buffer);
  }
  pjrt_args_from_host args = {.client = client, .data = data, .type = PJRT_TYPE_TOKEN};
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_UNIMPLEMENTED, "token");
  args.type = 1000;
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_UNIMPLEMENTED, "1000");
}

HR_TEST(strides_of_the_host_may_be_any) {
  open_client();
  const int32_t data[] = {1, 2, 3, 4, 5, 6}; /* [2, 3] */
  struct {
    int64_t dims[2], strides[2], start;
    int32_t expected[6];
  } cases[] = {
      {{3, 2}, {4, 12}, 0, {1, 4, 2, 5, 3, 6}},  /* transposed */
      {{2, 3}, {12, -4}, 2, {3, 2, 1, 6, 5, 4}}, /* backwards */
      {{2, 3}, {0, 4}, 0, {1, 2, 3, 1, 2, 3}},   /* broadcast */
      {{2, 2}, {12, 8}, 0, {1, 3, 4, 6}},        /* steps */
      {{2, 3}, {12, 4}, 0, {1, 2, 3, 4, 5, 6}},  /* dense */
      {{1, 3}, {999, 4}, 3, {4, 5, 6}},          /* any stride of a dim of 1 */
      {{0, 3}, {4, 4}, 0, {0}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    pjrt_args_from_host args = {.client = client,
                                .data = data + cases[i].start,
                                .type = PJRT_TYPE_S32,
                                .dims = cases[i].dims,
                                .rank = 2,
                                .byte_strides = cases[i].strides,
                                .stride_count = 2};
    ASSERT_CALL(Client_BufferFromHostBuffer, &args);
    HR_ASSERT_EQ(await(args.done), 0);
    int32_t back[6] = {0};
    size_t bytes = (size_t)(cases[i].dims[0] * cases[i].dims[1]) * sizeof(int32_t);
    get(args.buffer, back, bytes);
    HR_ASSERT_BYTES_EQ(back, cases[i].expected, bytes);
    destroy(args.buffer);
  }
}

/* [2, 3] of the host, as rows, in a buffer of columns. */
HR_TEST(buffers_have_their_own_layout) {
  open_client();
  const int32_t rows[] = {1, 2, 3, 4, 5, 6}, columns[] = {1, 4, 2, 5, 3, 6};
  pjrt_layout layout = {.kind = PJRT_LAYOUT_TILED};
  layout.of.tiled.minor_to_major = (int64_t[]){0, 1}, layout.of.tiled.rank = 2;
  pjrt_args_from_host args = {
      .client = client, .data = rows, .type = PJRT_TYPE_S32, .dims = (int64_t[]){2, 3}, .rank = 2, .layout = &layout};
  ASSERT_CALL(Client_BufferFromHostBuffer, &args);
  HR_ASSERT_EQ(await(args.done), 0);
  int32_t back[6];
  get(args.buffer, back, sizeof back); /* no layout: the buffer's own */
  HR_ASSERT_BYTES_EQ(back, columns, sizeof back);
  pjrt_args_raw_to_host raw = {.buffer = args.buffer, .data = back, .offset = 4, .size = 8};
  ASSERT_CALL(Buffer_CopyRawToHost, &raw);
  HR_ASSERT_EQ(await(raw.event), 0);
  HR_ASSERT_BYTES_EQ(back, columns + 1, 8);
  pjrt_args_layout own = {.buffer = args.buffer};
  ASSERT_CALL(Buffer_GetMemoryLayout, &own);
  HR_ASSERT_EQ(own.layout.of.tiled.minor_to_major[0], 0);
  pjrt_layout row_major = {.kind = PJRT_LAYOUT_TILED};
  row_major.of.tiled.minor_to_major = (int64_t[]){1, 0}, row_major.of.tiled.rank = 2;
  pjrt_args_to_host to_rows = {.buffer = args.buffer, .layout = &row_major, .data = back, .data_size = sizeof back};
  ASSERT_CALL(Buffer_ToHostBuffer, &to_rows);
  HR_ASSERT_EQ(await(to_rows.event), 0);
  HR_ASSERT_BYTES_EQ(back, rows, sizeof back);
  destroy(args.buffer);
  layout.of.tiled.rank = 1;
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "a layout of 1 dims");
  layout.of.tiled.rank = 2, layout.of.tiled.tile_count = 1;
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_UNIMPLEMENTED, "tiles");
}

/* Elements of the host in the buffer's order need no copy. */
HR_TEST(memory_in_the_order_of_a_layout_is_used_in_place) {
  enum { SIDE = 256 };
  open_client();
  float *data = aligned_alloc(64, SIDE * SIDE * sizeof *data);
  for (int i = 0; i < SIDE * SIDE; ++i) {
    data[i] = (float)i;
  }
  pjrt_layout layout = {.kind = PJRT_LAYOUT_TILED};
  layout.of.tiled.minor_to_major = (int64_t[]){0, 1}, layout.of.tiled.rank = 2;
  pjrt_args_from_host args = {.client = client,
                              .data = data,
                              .type = PJRT_TYPE_F32,
                              .dims = (int64_t[]){SIDE, SIDE},
                              .rank = 2,
                              .byte_strides = (int64_t[]){4, 4 * SIDE},
                              .stride_count = 2,
                              .semantics = PJRT_HOST_ZERO_COPY,
                              .layout = &layout};
  ASSERT_CALL(Client_BufferFromHostBuffer, &args);
  pjrt_args_pointer address = {.self = args.buffer};
  ASSERT_CALL(Buffer_OpaqueDeviceMemoryDataPointer, &address);
  HR_ASSERT(address.pointer == data);
  destroy(args.buffer);
  HR_ASSERT_EQ(await(args.done), 0);
  free(data);
}

HR_TEST(layouts_of_the_host_are_honoured) {
  open_client();
  const int16_t data[] = {1, 2, 3, 4, 5, 6}, columns[] = {1, 4, 2, 5, 3, 6};
  pjrt_buffer *buffer = put(PJRT_TYPE_S16, 2, (int64_t[]){2, 3}, data);
  pjrt_layout layout = {.kind = PJRT_LAYOUT_TILED};
  layout.of.tiled.minor_to_major = (int64_t[]){0, 1}, layout.of.tiled.rank = 2;
  int16_t back[6];
  pjrt_args_to_host args = {.buffer = buffer, .layout = &layout, .data = back, .data_size = sizeof back};
  ASSERT_CALL(Buffer_ToHostBuffer, &args);
  HR_ASSERT_EQ(await(args.event), 0);
  HR_ASSERT_BYTES_EQ(back, columns, sizeof back);
  layout.of.tiled.minor_to_major = (int64_t[]){0, 0};
  ASSERT_CODE(Buffer_ToHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "layout");
  args.layout = NULL, args.data_size = 3;
  ASSERT_CODE(Buffer_ToHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "3 bytes");
  pjrt_args_layout own = {.buffer = buffer};
  ASSERT_CALL(Buffer_GetMemoryLayout, &own);
  HR_ASSERT_EQ(own.layout.of.tiled.minor_to_major[0], 1);
  HR_ASSERT_EQ(own.layout.of.tiled.minor_to_major[1], 0);
  destroy(buffer);
}

HR_TEST(impossible_dims_are_refused) {
  open_client();
  pjrt_args_from_host args = {.client = client, .data = "", .type = PJRT_TYPE_F64, .rank = 3};
  args.dims = (int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40, 0};
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "dim 0");
  args.dims = (int64_t[]){2, -1, 2};
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "dim 1");
  int64_t many[17] = {0};
  args.dims = many, args.rank = 17;
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "17 dims");
  args.dims = (int64_t[]){INT64_C(1) << 50}, args.rank = 1; /* no machine has that much */
  ASSERT_CODE(Client_BufferFromHostBuffer, &args, HR_STATUS_RESOURCE_EXHAUSTED, "bytes");
}

/* ---- memory of the host in place ---- */

static int ready_calls;
static void count_ready(pjrt_error *error, void *arg) {
  HR_ASSERT_NULL(error);
  *(int *)arg += 1;
}

HR_TEST(aligned_memory_of_the_host_is_used_in_place) {
  open_client();
  static _Alignas(64) float data[1 << 14];
  ready_calls = 0;
  pjrt_args_from_host args = {.client = client,
                              .data = data,
                              .type = PJRT_TYPE_F32,
                              .dims = (int64_t[]){1 << 14},
                              .rank = 1,
                              .semantics = PJRT_HOST_ZERO_COPY};
  ASSERT_CALL(Client_BufferFromHostBuffer, &args);
  pjrt_args_on_ready on_ready = {.event = args.done, .callback = count_ready, .arg = &ready_calls};
  ASSERT_CALL(Event_OnReady, &on_ready);
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = args.done});
  ASSERT_CALL(Buffer_IncreaseExternalReferenceCount, &(pjrt_args_self){.self = args.buffer});
  pjrt_args_pointer address = {.self = args.buffer};
  ASSERT_CALL(Buffer_OpaqueDeviceMemoryDataPointer, &address);
  HR_ASSERT(address.pointer == data);
  ASSERT_CALL(Buffer_Delete, &(pjrt_args_self){.self = args.buffer});
  HR_ASSERT_EQ(ready_calls, 0); /* the external reference keeps the memory */
  ASSERT_CALL(Buffer_OpaqueDeviceMemoryDataPointer, &address);
  ASSERT_CALL(Buffer_DecreaseExternalReferenceCount, &(pjrt_args_self){.self = args.buffer});
  HR_ASSERT_EQ(ready_calls, 1);
  ASSERT_CODE(Buffer_DecreaseExternalReferenceCount, (&(pjrt_args_self){.self = args.buffer}),
              HR_STATUS_FAILED_PRECONDITION, "no external reference");
  destroy(args.buffer);
}

HR_TEST(memory_that_may_change_is_copied) {
  open_client();
  static _Alignas(64) float data[1024] = {1};
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){1024}, data);
  pjrt_args_pointer address = {.self = buffer};
  ASSERT_CALL(Buffer_OpaqueDeviceMemoryDataPointer, &address);
  HR_ASSERT(address.pointer != data);
  data[0] = 2;
  HR_ASSERT_EQ((int)((float *)address.pointer)[0], 1);
  destroy(buffer);
}

HR_TEST(copies_are_counted_until_they_are_gone) {
  open_client();
  pjrt_device *device = first_device();
  pjrt_args_memory_stats before = {.device = device}, during = before, after = before;
  ASSERT_CALL(Device_MemoryStats, &before);
  static float data[50000];
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){50000}, data);
  ASSERT_CALL(Device_MemoryStats, &during);
  destroy(buffer);
  ASSERT_CALL(Device_MemoryStats, &after);
  HR_ASSERT_EQ(during.bytes_in_use - before.bytes_in_use, 200000);
  HR_ASSERT_EQ(after.bytes_in_use, before.bytes_in_use);
  HR_ASSERT(after.peak_bytes_in_use.size >= during.bytes_in_use);
  HR_ASSERT(during.limit.is_set);
  HR_ASSERT(!during.largest_allocation.is_set);
  ASSERT_CALL(Device_ClearMemoryStats, &(pjrt_args_self){.self = device});
}

static void count_delete(void *address, void *arg) {
  (void)address;
  *(int *)arg += 1;
}

HR_TEST(memory_of_others_is_given_back) {
  open_client();
  static float data[] = {1, 2, 3};
  int calls = 0;
  pjrt_args_view args = {.client = client,
                         .address = data,
                         .dims = (int64_t[]){3},
                         .rank = 1,
                         .type = PJRT_TYPE_F32,
                         .on_delete = count_delete,
                         .arg = &calls};
  ASSERT_CALL(Client_CreateViewOfDeviceBuffer, &args);
  float back[3];
  get(args.buffer, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, data, sizeof back);
  HR_ASSERT_EQ(calls, 0);
  destroy(args.buffer);
  HR_ASSERT_EQ(calls, 1);
  args.address = NULL;
  ASSERT_CODE(Client_CreateViewOfDeviceBuffer, &args, HR_STATUS_INVALID_ARGUMENT, "no address");
  args.dims = (int64_t[]){0}; /* without elements the memory is given back at once */
  ASSERT_CALL(Client_CreateViewOfDeviceBuffer, &args);
  HR_ASSERT_EQ(calls, 2);
  destroy(args.buffer);
}

/* ---- deleted buffers ---- */

HR_TEST(deleted_buffers_are_refused_by_name) {
  open_client();
  float data[] = {1, 2};
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){2}, data);
  ASSERT_CALL(Buffer_Delete, &(pjrt_args_self){.self = buffer});
  ASSERT_CALL(Buffer_Delete, &(pjrt_args_self){.self = buffer}); /* twice is fine */
  pjrt_args_flag deleted = {.self = buffer};
  ASSERT_CALL(Buffer_IsDeleted, &deleted);
  HR_ASSERT(deleted.flag);
  pjrt_args_to_host to_host = {.buffer = buffer, .data = data, .data_size = sizeof data};
  ASSERT_CODE(Buffer_ToHostBuffer, &to_host, HR_STATUS_INVALID_ARGUMENT, "deleted");
  pjrt_args_pointer ready = {.self = buffer};
  ASSERT_CODE(Buffer_ReadyEvent, &ready, HR_STATUS_INVALID_ARGUMENT, "f32");
  ASSERT_CODE(Buffer_UnsafePointer, &ready, HR_STATUS_INVALID_ARGUMENT, "deleted");
  pjrt_args_copy copy = {.buffer = buffer, .target = first_device()};
  ASSERT_CODE(Buffer_CopyToDevice, &copy, HR_STATUS_INVALID_ARGUMENT, "deleted");
  ASSERT_CODE(Buffer_IncreaseExternalReferenceCount, (&(pjrt_args_self){.self = buffer}), HR_STATUS_INVALID_ARGUMENT,
              "deleted");
  destroy(buffer);
}

HR_TEST(copies_share_memory_and_outlive_the_original) {
  open_client();
  const uint32_t data[] = {0x3f800000, 0x40000000}; /* 1.0f, 2.0f */
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){2}, data);
  pjrt_args_copy copy = {.buffer = buffer, .target = first_device()};
  ASSERT_CALL(Buffer_CopyToDevice, &copy);
  pjrt_args_bitcast bitcast = {.buffer = buffer, .type = PJRT_TYPE_U32, .dims = (int64_t[]){2, 1}, .rank = 2};
  ASSERT_CALL(Buffer_Bitcast, &bitcast);
  bitcast.type = PJRT_TYPE_U16;
  pjrt_buffer *words = bitcast.out;
  ASSERT_CODE(Buffer_Bitcast, &bitcast, HR_STATUS_INVALID_ARGUMENT, "4 bytes");
  destroy(buffer);
  uint32_t back[2];
  get(copy.copy, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, data, sizeof back);
  get(words, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, data, sizeof back);
  uint32_t one;
  pjrt_args_raw_to_host raw = {.buffer = words, .data = &one, .offset = 4, .size = 4};
  ASSERT_CALL(Buffer_CopyRawToHost, &raw);
  HR_ASSERT_EQ(await(raw.event), 0);
  HR_ASSERT_EQ(one, data[1]);
  raw.offset = 5;
  ASSERT_CODE(Buffer_CopyRawToHost, &raw, HR_STATUS_INVALID_ARGUMENT, "bytes 5 to 9");
  destroy(copy.copy);
  destroy(words);
}

/* ---- events ---- */

static void *set_later(void *event) {
  pjrt_args_event_set set = {.event = event, .code = HR_STATUS_DATA_LOSS, .message = "torn", .message_size = 4};
  ASSERT_CALL(Event_Set, &set);
  return NULL;
}

static void keep_error(pjrt_error *error, void *arg) {
  *(int *)arg = code_of(error);
}

HR_TEST(events_are_set_once_and_keep_their_failure) {
  open_client();
  pjrt_args_self create = {0};
  ASSERT_CALL(Event_Create, &create);
  pjrt_event *event = create.self;
  pjrt_args_flag ready = {.self = event};
  ASSERT_CALL(Event_IsReady, &ready);
  HR_ASSERT(!ready.flag);
  ASSERT_CODE(Event_Error, (&(pjrt_args_self){.self = event}), HR_STATUS_FAILED_PRECONDITION, "not ready");
  int before = 0, behind = 0;
  ASSERT_CALL(Event_OnReady, (&(pjrt_args_on_ready){.event = event, .callback = keep_error, .arg = &before}));
  pthread_t thread;
  HR_ASSERT_EQ(pthread_create(&thread, NULL, set_later, event), 0);
  ASSERT_CODE(Event_Await, (&(pjrt_args_self){.self = event}), HR_STATUS_DATA_LOSS, "torn");
  pthread_join(thread, NULL);
  HR_ASSERT_EQ(before, HR_STATUS_DATA_LOSS);
  ASSERT_CODE(Event_Error, (&(pjrt_args_self){.self = event}), HR_STATUS_DATA_LOSS, "torn");
  ASSERT_CALL(Event_OnReady, (&(pjrt_args_on_ready){.event = event, .callback = keep_error, .arg = &behind}));
  HR_ASSERT_EQ(behind, HR_STATUS_DATA_LOSS);
  ASSERT_CODE(Event_Set, (&(pjrt_args_event_set){.event = event}), HR_STATUS_FAILED_PRECONDITION, "set already");
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = event});
}

/* ---- what clients attach to memories ---- */

static int freed;
static void count_free(void *data) {
  freed += data != NULL;
}

HR_TEST(data_of_clients_live_as_long_as_the_memory) {
  if (client != NULL) {
    close_client();
  }
  open_client();
  pjrt_args_pointer memory = {.self = first_device()};
  ASSERT_CALL(Device_DefaultMemory, &memory);
  const pjrt_memory_table *functions = *(const pjrt_memory_table *const *)memory.pointer;
  int key, data;
  freed = 0;
  HR_ASSERT_NULL(functions->get_user_data(memory.pointer, &key));
  functions->set_user_data(memory.pointer, &key, &data, count_free);
  HR_ASSERT(functions->get_user_data(memory.pointer, &key) == &data);
  functions->set_user_data(memory.pointer, &key, &key, count_free);
  HR_ASSERT_EQ(freed, 1);
  close_client();
  HR_ASSERT_EQ(freed, 2);
}

HR_TEST(an_error_buffer_has_its_failure) {
  open_client();
  pjrt_args_error_buffer args = {.client = client,
                                 .code = HR_STATUS_ABORTED,
                                 .message = "no such thing",
                                 .message_size = 13,
                                 .dims = (int64_t[]){3},
                                 .rank = 1,
                                 .type = PJRT_TYPE_F32};
  ASSERT_CALL(Client_CreateErrorBuffer, &args);
  pjrt_args_pointer ready = {.self = args.buffer};
  ASSERT_CALL(Buffer_ReadyEvent, &ready);
  ASSERT_CODE(Event_Await, (&(pjrt_args_self){.self = ready.pointer}), HR_STATUS_ABORTED, "no such thing");
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = ready.pointer});
  destroy(args.buffer);
}

HR_TEST(a_copy_gets_its_target_later) {
  open_client();
  static const float data[4] = {1, 2, 3, 4};
  pjrt_buffer *buffer = put(PJRT_TYPE_F32, 1, (int64_t[]){4}, data);
  pjrt_args_raw_future args = {.buffer = buffer, .offset = 4, .size = 8};
  float target[2] = {0};
  ASSERT_CALL(Buffer_CopyRawToHostFuture, &args);
  args.ready(&(pjrt_args_future){.data = args.data, .target = target});
  ASSERT_CALL(Event_Await, &(pjrt_args_self){.self = args.event});
  HR_ASSERT(target[0] == 2 && target[1] == 3);
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = args.event});
  destroy(buffer);
}
