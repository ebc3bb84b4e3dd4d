/* memory.c: the memories of a device, and data that clients attach to them. A device of the host has memories of all
 * kinds of JAX's CPU backend, which differ by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

struct hrj_user_data {
  const void *key;
  void *data;
  void (*free)(void *data);
  hrj_user_data *next;
};

static void *get_user_data(pjrt_memory *memory, const void *key) {
  pthread_mutex_lock(&memory->lock);
  hrj_user_data *found = memory->user_data;
  while (found != NULL && found->key != key) {
    found = found->next;
  }
  void *data = found != NULL ? found->data : NULL;
  pthread_mutex_unlock(&memory->lock);
  return data;
}

/* Replaces older data of the key. Without memory the new data are dropped, which the client sees as none. */
static void set_user_data(pjrt_memory *memory, const void *key, void *data, void (*release)(void *data)) {
  pthread_mutex_lock(&memory->lock);
  hrj_user_data *entry = memory->user_data;
  while (entry != NULL && entry->key != key) {
    entry = entry->next;
  }
  hrj_user_data former = entry != NULL ? *entry : (hrj_user_data){0};
  if (entry == NULL && (entry = malloc(sizeof *entry)) != NULL) {
    entry->next = memory->user_data, memory->user_data = entry;
  }
  if (entry != NULL) {
    entry->key = key, entry->data = data, entry->free = release;
  } else {
    former.data = data, former.free = release;
  }
  pthread_mutex_unlock(&memory->lock);
  if (former.free != NULL) {
    former.free(former.data);
  }
}

static const pjrt_memory_table table = {.struct_size = sizeof table,
                                        .instance_size = sizeof(pjrt_memory),
                                        .get_user_data = get_user_data,
                                        .set_user_data = set_user_data};

const char *hrj_memory_kind(hr_stablehlo_memory kind) {
  static const char *const kinds[] = {"device", "pinned_host", "unpinned_host"}; /* each device has the first one */
  return kinds[kind];
}

pjrt_memory *hrj_memory_of(pjrt_device *device, hr_stablehlo_memory kind) {
  return &device->memories[(int)kind < device->memory_count ? kind : HR_STABLEHLO_DEVICE];
}

hr_status hrj_memory_init(pjrt_memory *memory, pjrt_device *device, hr_stablehlo_memory kind) {
  const char *name = kind != HR_STABLEHLO_DEVICE ? hrj_memory_kind(kind) : device->is_host ? "host" : "device";
  memory->table = &table, memory->device = device, memory->kind = kind;
  snprintf(memory->text, sizeof memory->text, "%s memory of %s:%d", name, HRJ_PLATFORM, device->number);
  return pthread_mutex_init(&memory->lock, NULL) == 0
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no lock for a memory");
}

void hrj_memory_fini(pjrt_memory *memory) {
  if (memory->table == NULL) {
    return;
  }
  while (memory->user_data != NULL) {
    hrj_user_data *next = memory->user_data->next;
    if (memory->user_data->free != NULL) {
      memory->user_data->free(memory->user_data->data);
    }
    free(memory->user_data);
    memory->user_data = next;
  }
  pthread_mutex_destroy(&memory->lock);
}

pjrt_error *hrj_Memory_Id(pjrt_args_int *args) {
  const pjrt_memory *memory = args->self;
  args->number = memory->device->number * memory->device->memory_count + (int)memory->kind;
  return NULL;
}

pjrt_error *hrj_Memory_Kind(pjrt_args_text *args) {
  args->text = hrj_memory_kind(((const pjrt_memory *)args->self)->kind), args->text_size = strlen(args->text);
  return NULL;
}

pjrt_error *hrj_Memory_Kind_Id(pjrt_args_int *args) {
  args->number = (int)((const pjrt_memory *)args->self)->kind;
  return NULL;
}

pjrt_error *hrj_Memory_ToString(pjrt_args_text *args) {
  args->text = ((const pjrt_memory *)args->self)->text, args->text_size = strlen(args->text);
  return NULL;
}

pjrt_error *hrj_Memory_DebugString(pjrt_args_text *args) {
  return hrj_Memory_ToString(args);
}

pjrt_error *hrj_Memory_AddressableByDevices(pjrt_args_list *args) {
  args->list = ((pjrt_memory *)args->self)->device->self, args->count = 1;
  return NULL;
}
