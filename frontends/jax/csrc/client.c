/* client.c: clients: the devices of one driver. HEADRACE_DEVICE selects them as elsewhere: "cpu", the default, "cuda"
 * for all of a driver, or "cuda:1" for one of them. A client is also the description of its topology. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/version.h"
#include "links.h"
#include "plugin.h"
#include "profiler.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
enum { TOPOLOGY_TEXT = 192 };
static const char platform[] = HRJ_PLATFORM;
static const char version[] =
    HRJ_PLATFORM " " TEXT(HR_VERSION_MAJOR) "." TEXT(HR_VERSION_MINOR) "." TEXT(HR_VERSION_PATCH);

const char *hrj_platform_version(void) {
  return version;
}

/* On other threads, while JAX traces and lowers its first program. They must end before exit() does. */
static void open_libraries(hr_stream *stream) {
  static atomic_int is_waited_for;
  hr_stream_open_libraries(stream);
  if (atomic_exchange(&is_waited_for, 1) == 0 && !hrj_call_at_exit(hr_libraries_wait)) {
    hr_libraries_wait();
  }
}

static hr_status open_device(pjrt_device *device, pjrt_client *client, const char *name, int number) {
  device->client = client, device->number = number, device->self[0] = device;
  const char *nop = getenv("HEADRACE_JAX_NOP");
  device->is_null = nop != NULL && strcmp(nop, "1") == 0;
  HR_RETURN_IF_ERROR(hr_device_open(name, &device->device));
  HR_RETURN_IF_ERROR(hr_stream_create(device->device, &device->stream));
  hr_stream_keep_failures_apart(device->stream);
  hr_stream_set_interrupt_check(device->stream, hrj_wants_interrupt, NULL);
  open_libraries(device->stream);
  hr_device_info info;
  hr_device_describe(device->device, &info);
  device->is_host = info.is_host;
  snprintf(device->name, sizeof device->name, "%s:%d", platform, number);
  snprintf(device->kind, sizeof device->kind, "%s", info.description);
  device->memory_count = device->is_host ? HRJ_MEMORIES_MAX : 1;
  for (int i = 0; i < device->memory_count; ++i) {
    HR_RETURN_IF_ERROR(hrj_memory_init(&device->memories[i], device, (hr_stablehlo_memory)i));
    device->memory_list[i] = &device->memories[i];
  }
  return HR_OK;
}

static struct {
  pthread_mutex_t lock;
  pjrt_client *first;
} open_clients = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void link_client(pjrt_client *client) {
  pthread_mutex_lock(&open_clients.lock);
  client->next = open_clients.first;
  open_clients.first = client;
  pthread_mutex_unlock(&open_clients.lock);
}

static void unlink_client(const pjrt_client *client) {
  pthread_mutex_lock(&open_clients.lock);
  pjrt_client **at = &open_clients.first;
  while (*at != NULL && *at != client) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = client->next;
  }
  pthread_mutex_unlock(&open_clients.lock);
}

static atomic_uint interrupts;

unsigned hrj_interrupt_count(void) {
  return atomic_load(&interrupts);
}

void headrace_jax_interrupt(void) {
  atomic_fetch_add(&interrupts, 1);
  pthread_mutex_lock(&open_clients.lock);
  for (pjrt_client *client = open_clients.first; client != NULL; client = client->next) {
    for (int i = 0; i < client->device_count; ++i) {
      hr_stream_interrupt(client->devices[i].stream);
    }
    for (int i = 0; i < client->device_count; ++i) {
      hrj_device_settle(&client->devices[i]);
    }
  }
  pthread_mutex_unlock(&open_clients.lock);
}

static void destroy(pjrt_client *client) {
  unlink_client(client);
  for (int i = 0; client->links != NULL && i < client->device_count; ++i) {
    hrj_device_settle(&client->devices[i]);
  }
  hrj_links_release(client); /* their queues are empty; streams outlive them */
  for (int i = 0; client->devices != NULL && i < client->device_count; ++i) {
    hr_stream_release(client->devices[i].stream);
    hr_device_release(client->devices[i].device);
    for (int k = 0; k < HRJ_MEMORIES_MAX; ++k) {
      hrj_memory_fini(&client->devices[i].memories[k]);
    }
  }
  free(client->devices);
  free(client->device_list);
  free(client->memory_list);
  pthread_mutex_destroy(&client->launching);
  pthread_mutex_destroy(&client->linking);
  free(client);
}

void hrj_client_retain(pjrt_client *client) {
  atomic_fetch_add(&client->references, 1);
}

void hrj_client_release(pjrt_client *client) {
  if (client != NULL && atomic_fetch_sub(&client->references, 1) == 1) {
    destroy(client);
  }
}

static hr_status open_devices(pjrt_client *client, const char *driver, bool is_one) {
  int count = 1;
  if (!is_one) {
    HR_RETURN_IF_ERROR(hr_device_count(driver, &count));
  }
  client->devices = calloc((size_t)count + 1, sizeof *client->devices);
  client->device_list = calloc((size_t)count + 1, sizeof(pjrt_device *));
  client->memory_list = calloc((size_t)count * HRJ_MEMORIES_MAX + 1, sizeof(pjrt_memory *));
  if (client->devices == NULL || client->device_list == NULL || client->memory_list == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for %d devices", count);
  }
  client->device_count = count;
  for (int i = 0; i < count; ++i) {
    char name[64];
    snprintf(name, sizeof name, is_one || count == 1 ? "%s" : "%s:%d", driver, i);
    HR_RETURN_IF_ERROR(open_device(&client->devices[i], client, name, i));
    client->device_list[i] = &client->devices[i];
    for (int k = 0; k < client->devices[i].memory_count; ++k) {
      client->memory_list[client->memory_count++] = &client->devices[i].memories[k];
    }
  }
  return count > 0 ? HR_OK : hr_status_make(HR_STATUS_NOT_FOUND, HRJ_PLATFORM ": there is no device of \"%s\"", driver);
}

static pjrt_error *create(size_t option_count, const pjrt_named_value *options, pjrt_client **out_client) {
  if (option_count > 0) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": unknown option \"%.*s\", expected none",
                          (int)options[0].name_size, options[0].name);
  }
  const char *chosen = getenv("HEADRACE_DEVICE");
  if (chosen == NULL || chosen[0] == '\0') {
    chosen = "cpu";
  }
  pjrt_client *client = calloc(1, sizeof *client);
  if (client == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a client");
  }
  atomic_init(&client->references, 1);
  pthread_mutex_init(&client->launching, NULL);
  pthread_mutex_init(&client->linking, NULL);
  hr_status status = open_devices(client, chosen, strchr(chosen, ':') != NULL);
  if (status != HR_OK) {
    destroy(client);
    return hrj_error(status);
  }
  link_client(client);
  hrj_places_begin();
  *out_client = client;
  return NULL;
}

pjrt_error *hrj_Client_Create(pjrt_args_client_create *args) {
  return create(args->option_count, args->options, &args->client);
}

pjrt_error *hrj_Client_Destroy(pjrt_args_self *args) {
  hrj_client_release(args->self);
  return NULL;
}

pjrt_device *hrj_device_of(pjrt_client *client, pjrt_device *device, pjrt_memory *memory) {
  return device != NULL ? device : memory != NULL ? memory->device : &client->devices[0];
}

pjrt_error *hrj_Client_PlatformName(pjrt_args_text *args) {
  args->text = platform, args->text_size = sizeof platform - 1;
  return NULL;
}

pjrt_error *hrj_Client_PlatformVersion(pjrt_args_text *args) {
  args->text = version, args->text_size = sizeof version - 1;
  return NULL;
}

pjrt_error *hrj_Client_ProcessIndex(pjrt_args_int *args) {
  args->number = 0;
  return NULL;
}

/* Of other processes, of which there are none. */
pjrt_error *hrj_Client_UpdateGlobalProcessInfo(pjrt_args *args) {
  (void)args;
  return NULL;
}

pjrt_error *hrj_Client_Devices(pjrt_args_list *args) {
  pjrt_client *client = args->self;
  args->list = client->device_list, args->count = (size_t)client->device_count;
  return NULL;
}

pjrt_error *hrj_Client_AddressableDevices(pjrt_args_list *args) {
  return hrj_Client_Devices(args);
}

pjrt_error *hrj_Client_AddressableMemories(pjrt_args_list *args) {
  pjrt_client *client = args->self;
  args->list = client->memory_list, args->count = (size_t)client->memory_count;
  return NULL;
}

pjrt_error *hrj_Client_LookupDevice(pjrt_args_lookup *args) {
  if (args->id < 0 || args->id >= args->client->device_count) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": there is no device %d; expected less than %d",
                          args->id, args->client->device_count);
  }
  args->device = &args->client->devices[args->id];
  return NULL;
}

pjrt_error *hrj_Client_LookupAddressableDevice(pjrt_args_lookup *args) {
  return hrj_Client_LookupDevice(args);
}

/* Replicas and partitions, replica after replica, one a device. */
pjrt_error *hrj_Client_DefaultDeviceAssignment(pjrt_args_assignment *args) {
  int64_t wanted = (int64_t)args->replicas * args->partitions;
  if (wanted < 1 || wanted > args->client->device_count || (int64_t)args->count < wanted) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": %d x %d devices are wanted, there are %d",
                          args->replicas, args->partitions, args->client->device_count);
  }
  for (int i = 0; i < (int)wanted; ++i) {
    args->devices[i] = i;
  }
  return NULL;
}

/* ---- topology ---- */

pjrt_error *hrj_Client_TopologyDescription(pjrt_args_pointer *args) {
  args->pointer = args->self;
  return NULL;
}

/* Without a client: a topology is that of the devices that are here. */
pjrt_error *hrj_TopologyDescription_Create(pjrt_args_topology *args) {
  pjrt_error *error = create(args->option_count, args->options, &args->topology);
  if (error == NULL) {
    args->topology->is_topology = true;
  }
  return error;
}

/* A client's topology is the client's. */
pjrt_error *hrj_TopologyDescription_Destroy(pjrt_args_self *args) {
  pjrt_client *client = args->self;
  if (client != NULL && client->is_topology) {
    hrj_client_release(client);
  }
  return NULL;
}

static void describe(const pjrt_client *client, char *text, size_t room) {
  snprintf(text, room, "%s %d %s", version, client->device_count, client->devices[0].kind);
}

static void free_text(void *owned) {
  free(owned);
}

pjrt_error *hrj_TopologyDescription_Serialize(pjrt_args_bytes *args) {
  char *text = malloc(TOPOLOGY_TEXT);
  if (text == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a topology");
  }
  describe(args->self, text, TOPOLOGY_TEXT);
  args->bytes = text, args->bytes_size = strlen(text);
  args->owned = text, args->free = free_text;
  return NULL;
}

pjrt_error *hrj_TopologyDescription_Deserialize(pjrt_args_topology_bytes *args) {
  char text[TOPOLOGY_TEXT];
  pjrt_client *client = NULL;
  pjrt_error *error = create(0, NULL, &client);
  if (error != NULL) {
    return error;
  }
  describe(client, text, sizeof text);
  if (args->bytes_size != strlen(text) || memcmp(args->bytes, text, args->bytes_size) != 0) {
    hrj_client_release(client);
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the topology \"%.*s\", this is \"%s\"",
                          (int)args->bytes_size, args->bytes, text);
  }
  client->is_topology = true;
  args->topology = client;
  return NULL;
}

pjrt_error *hrj_TopologyDescription_PlatformName(pjrt_args_text *args) {
  return hrj_Client_PlatformName(args);
}

pjrt_error *hrj_TopologyDescription_PlatformVersion(pjrt_args_text *args) {
  return hrj_Client_PlatformVersion(args);
}

pjrt_error *hrj_TopologyDescription_GetDeviceDescriptions(pjrt_args_list *args) {
  return hrj_Client_Devices(args);
}

pjrt_error *hrj_TopologyDescription_Attributes(pjrt_args_list *args) {
  args->list = NULL, args->count = 0;
  return NULL;
}

/* The ids are those of Memory_Kind_Id. */
pjrt_error *hrj_TopologyDescription_GetMemorySpaceKindIds(pjrt_args_list *args) {
  static const int kinds[] = {HR_STABLEHLO_DEVICE, HR_STABLEHLO_PINNED_HOST, HR_STABLEHLO_UNPINNED_HOST};
  const pjrt_client *client = args->self;
  args->list = kinds, args->count = client->device_count > 0 ? (size_t)client->devices[0].memory_count : 1;
  return NULL;
}

/* Of the version, and the number and the first description of the devices: FNV-1a. */
pjrt_error *hrj_TopologyDescription_Fingerprint(pjrt_args_size *args) {
  char text[TOPOLOGY_TEXT];
  describe(args->self, text, sizeof text);
  uint64_t hash = 14695981039346656037u;
  for (const char *at = text; *at != '\0'; ++at) {
    hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  }
  args->size = (int64_t)hash;
  return NULL;
}
