/* memory.c: the one memory of a device, and what clients attach to it. */
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

hr_status hrj_memory_init(pjrt_memory *memory, pjrt_device *device) {
  memory->table = &table, memory->device = device;
  snprintf(memory->text, sizeof memory->text, "%s memory of %s:%d", device->is_host ? "host" : "device", HRJ_PLATFORM,
           device->number);
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
  args->number = ((pjrt_memory *)args->self)->device->number;
  return NULL;
}

static const char kind[] = "device"; /* clients expect this kind of every device */

pjrt_error *hrj_Memory_Kind(pjrt_args_text *args) {
  args->text = kind, args->text_size = sizeof kind - 1;
  return NULL;
}

pjrt_error *hrj_Memory_Kind_Id(pjrt_args_int *args) {
  args->number = 0;
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
