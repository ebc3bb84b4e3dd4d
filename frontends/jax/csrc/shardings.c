/* shardings.c: how a program's inputs and outputs are divided among its devices, as XLA's OpSharding:
 *
 *   type 1 (0: replicated, 3: other, 6: terms of a sum), tile_assignment_dimensions 3, tile_assignment_devices 4,
 *   last_tile_dims 8 (types of dims that divide nothing); lists are packed
 */
#include <stdlib.h>
#include <string.h>

#include "executable.h"

enum { REPLICATED = 0, OTHER = 3, TERMS = 6, ROOM = 1024 };

typedef struct writer {
  unsigned char bytes[ROOM];
  size_t size;
} writer;

static void put_varint(writer *w, uint64_t number) {
  while (number >= 128 && w->size < ROOM) {
    w->bytes[w->size++] = (unsigned char)(number | 128);
    number >>= 7;
  }
  if (w->size < ROOM) {
    w->bytes[w->size++] = (unsigned char)number;
  }
}

static void put_list(writer *w, int field, int count, const int64_t *numbers) {
  writer list = {.size = 0};
  for (int i = 0; i < count; ++i) {
    put_varint(&list, (uint64_t)numbers[i]);
  }
  put_varint(w, (uint64_t)field << 3 | 2);
  put_varint(w, list.size);
  for (size_t i = 0; i < list.size && w->size < ROOM; ++i) {
    w->bytes[w->size++] = list.bytes[i];
  }
}

/* Dims behind those of the tensor, for its terms and its copies, and their types. */
static int add_dims(const hr_stablehlo_shards *shards, int64_t *dims, int64_t *types) {
  int64_t parts = 1;
  int count = 0;
  for (int d = 0; d < shards->rank; ++d) {
    dims[d] = shards->parts[d];
    parts *= dims[d];
  }
  int64_t copies = shards->device_count / (parts * shards->terms);
  if (shards->terms > 1) {
    dims[shards->rank + count] = shards->terms, types[count++] = TERMS;
  }
  if (copies > 1) {
    dims[shards->rank + count] = copies, types[count++] = REPLICATED;
  }
  return count;
}

static void write_sharding(writer *w, const hr_stablehlo_shards *shards) {
  int64_t dims[HR_RANK_MAX + 2], devices[HR_STABLEHLO_DEVICES_MAX], types[2];
  bool has_terms_alone = shards->device_count > 0 && shards->terms == shards->device_count;
  put_varint(w, 1 << 3);
  put_varint(w, shards->device_count == 0 ? REPLICATED : has_terms_alone ? TERMS : OTHER);
  if (shards->device_count == 0 || has_terms_alone) {
    return;
  }
  int more = add_dims(shards, dims, types);
  for (int i = 0; i < shards->device_count; ++i) {
    devices[i] = shards->devices[i];
  }
  put_list(w, 3, shards->rank + more, dims);
  put_list(w, 4, shards->device_count, devices);
  if (more > 0) {
    put_list(w, 8, more, types);
  }
}

static bool list(int count, const hr_stablehlo_shards *shards, char ***out_texts, size_t **out_sizes) {
  *out_texts = calloc((size_t)count + 1, sizeof(char *));
  *out_sizes = calloc((size_t)count + 1, sizeof(size_t));
  for (int i = 0; i < count && *out_texts != NULL && *out_sizes != NULL; ++i) {
    writer w = {.size = 0};
    write_sharding(&w, &shards[i]);
    (*out_texts)[i] = malloc(w.size + 1);
    if ((*out_texts)[i] == NULL) {
      return false;
    }
    memcpy((*out_texts)[i], w.bytes, w.size);
    (*out_sizes)[i] = w.size;
  }
  return *out_texts != NULL && *out_sizes != NULL;
}

hr_status hrj_list_shardings(pjrt_executable *executable) {
  const hr_stablehlo_main *main = &executable->main;
  bool has_room =
      list(main->input_count, main->input_shards, &executable->input_shardings, &executable->input_sharding_sizes) &&
      list(main->output_count, main->output_shards, &executable->output_shardings, &executable->output_sharding_sizes);
  return has_room ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for shardings");
}
