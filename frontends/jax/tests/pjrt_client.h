/* pjrt_client.h: a client of the plug-in for the tests: calls the table as a PJRT client does, without Python. */
#ifndef HEADRACE_JAX_TESTS_PJRT_CLIENT_H_
#define HEADRACE_JAX_TESTS_PJRT_CLIENT_H_

#include <dlfcn.h>

#include "../csrc/pjrt.h"
#include "hr_test.h"

static const pjrt_table *table;
static pjrt_client *client;

/* Calls an entry: CALL(Buffer_Delete, &args). The struct's size is set first, as clients do. */
#define CALL(name, args) \
  ((args)->struct_size = sizeof *(args), ((pjrt_error * (*)(void *)) table->entries[PJRT_ENTRY_##name])(args))

/* Ends an error and gives its code; 0 for none. The message is copied. */
static char message[1024];
static inline int code_of(pjrt_error *error) {
  if (error == NULL) {
    return 0;
  }
  pjrt_args_text text = {.self = error};
  HR_ASSERT_NULL(CALL(Error_Message, &text));
  snprintf(message, sizeof message, "%.*s", (int)text.text_size, text.text);
  pjrt_args_int code = {.self = error};
  HR_ASSERT_NULL(CALL(Error_GetCode, &code));
  pjrt_args_payload payload = {.error = error};
  HR_ASSERT_NULL(CALL(Error_ForEachPayload, &payload));
  pjrt_args_self end = {.self = error};
  CALL(Error_Destroy, &end);
  return code.number;
}
#define ASSERT_CALL(name, args) assert_ok(__LINE__, #name, CALL(name, args))
static inline void assert_ok(int line, const char *name, pjrt_error *error) {
  if (code_of(error) != 0) {
    hr_test_fail(__FILE__, line, "%s: %s", name, message);
  }
}
#define ASSERT_CODE(name, args, code, part)        \
  do {                                             \
    HR_ASSERT_EQ(code_of(CALL(name, args)), code); \
    HR_ASSERT_CONTAINS(message, part);             \
  } while (0)

/* HEADRACE_TEST_PLUGIN is the library's path, from CMake. */
static inline void open_client(void) {
  if (table == NULL) {
    void *library = dlopen(HEADRACE_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      HR_FAIL("%s", dlerror());
    }
    const pjrt_table *(*get)(void) = (const pjrt_table *(*)(void))dlsym(library, "GetPjrtApi");
    HR_ASSERT_NOT_NULL(get);
    table = get();
    ASSERT_CALL(Plugin_Initialize, &(pjrt_args){0});
  }
  if (client == NULL) {
    pjrt_args_client_create create = {0};
    ASSERT_CALL(Client_Create, &create);
    client = create.client;
  }
}

static inline void close_client(void) {
  ASSERT_CALL(Client_Destroy, &(pjrt_args_self){.self = client});
  client = NULL;
}

static inline pjrt_device *first_device(void) {
  pjrt_args_list list = {.self = client};
  ASSERT_CALL(Client_AddressableDevices, &list);
  HR_ASSERT(list.count > 0);
  return ((pjrt_device *const *)list.list)[0];
}

/* Waits for an event and ends it; the code of its failure. */
static inline int await(pjrt_event *event) {
  int code = code_of(CALL(Event_Await, (&(pjrt_args_self){.self = event})));
  ASSERT_CALL(Event_Destroy, &(pjrt_args_self){.self = event});
  return code;
}

/* A buffer of dense elements, which are copied. */
static inline pjrt_buffer *put(pjrt_type type, size_t rank, const int64_t *dims, const void *data) {
  pjrt_args_from_host args = {.client = client, .data = data, .type = type, .dims = dims, .rank = rank};
  ASSERT_CALL(Client_BufferFromHostBuffer, &args);
  HR_ASSERT_EQ(await(args.done), 0);
  return args.buffer;
}

static inline void get(pjrt_buffer *buffer, void *data, size_t bytes) {
  pjrt_args_to_host args = {.buffer = buffer};
  ASSERT_CALL(Buffer_ToHostBuffer, &args);
  HR_ASSERT_EQ((int64_t)args.data_size, (int64_t)bytes);
  args.data = data;
  ASSERT_CALL(Buffer_ToHostBuffer, &args);
  HR_ASSERT_EQ(await(args.event), 0);
}

static inline void destroy(pjrt_buffer *buffer) {
  ASSERT_CALL(Buffer_Destroy, &(pjrt_args_self){.self = buffer});
}

#endif
