/* array_file.c: open files of arrays: their mapping, their entries, and arrays on them. */
#include "array/array_file.h"

#include <stdlib.h>
#include <string.h>

#include "array/inflate.h"
#include "base/allocator.h"
#include "base/disk_file.h"

enum { ADOPTED_ALIGNMENT = 16 };

/* ---- for the readers ---- */

hr_status hr__file_no_memory(size_t bytes) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
}

void hr__cursor_skip_space(hr__cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r')) {
    ++c->at;
  }
}

bool hr__cursor_next_is(hr__cursor *c, char character) {
  hr__cursor_skip_space(c);
  if (c->at == c->end || *c->at != character) {
    return false;
  }
  ++c->at;
  return true;
}

/* ---- entries ---- */

static char *copy_string(const char *string) {
  size_t bytes = strlen(string) + 1;
  char *copy = hr_malloc(bytes);
  return copy != NULL ? memcpy(copy, string, bytes) : NULL;
}

/* Room for one more of `count` things. */
static hr_status make_room(int count, int *room, size_t size, void *things) {
  if (count < *room) {
    return HR_OK;
  }
  int more = *room > 0 ? 2 * *room : 4;
  void *former, *larger;
  memcpy(&former, things, sizeof former);
  larger = hr_realloc(former, (size_t)more * size);
  if (larger == NULL) {
    return hr__file_no_memory((size_t)more * size);
  }
  memcpy(things, &larger, sizeof larger);
  *room = more;
  return HR_OK;
}

hr_status hr__file_add(hr_file *file, const char *name, const hr_file_entry *entry) {
  HR_RETURN_IF_ERROR(make_room(file->count, &file->room, sizeof *file->entries, &file->entries));
  hr_file_entry *added = &file->entries[file->count];
  *added = *entry;
  added->name = copy_string(name);
  file->count += added->name != NULL;
  return added->name != NULL ? HR_OK : hr__file_no_memory(strlen(name) + 1);
}

hr_status hr__file_add_value(hr_file *file, const char *key, hr_file_value_kind kind, int64_t count, size_t bytes,
                             hr_file_value **out_value) {
  HR_RETURN_IF_ERROR(make_room(file->value_count, &file->value_room, sizeof *file->values, &file->values));
  bool is_text = kind == HR_FILE_STRING || kind == HR_FILE_STRINGS;
  bytes += is_text ? (size_t)count * sizeof(hr_file_string) : 0;
  void *own_key = copy_string(key), *block = hr_malloc(bytes);
  if (own_key == NULL || block == NULL) {
    hr_free(own_key);
    hr_free(block);
    return hr__file_no_memory(strlen(key) + bytes);
  }
  hr_file_value *value = &file->values[file->value_count++];
  *value = (hr_file_value){.key = own_key, .kind = kind, .count = count};
  value->strings = is_text ? block : NULL, value->numbers = is_text ? NULL : block;
  *out_value = value;
  return HR_OK;
}

hr_status hr__file_add_string(hr_file *file, const char *key, const char *chars, size_t length) {
  hr_file_value *value = NULL;
  HR_RETURN_IF_ERROR(hr__file_add_value(file, key, HR_FILE_STRING, 1, length + 1, &value));
  hr_file_string *string = (hr_file_string *)(uintptr_t)value->strings;
  char *copy = (char *)(string + 1);
  if (length > 0) {
    memcpy(copy, chars, length);
  }
  copy[length] = '\0';
  *string = (hr_file_string){copy, length};
  return HR_OK;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *hr__file_repeated_name(int count, const char **names) {
  qsort(names, (size_t)count, sizeof *names, compare_names);
  for (int i = 1; i < count; ++i) {
    if (strcmp(names[i - 1], names[i]) == 0) {
      return names[i];
    }
  }
  return NULL;
}

hr_status hr__file_check_names(const hr_file *file) {
  int count = file->count, values = file->value_count;
  const char **names = hr_calloc((size_t)(count > values ? count : values) + 1, sizeof *names);
  if (names == NULL) {
    return hr__file_no_memory((size_t)(count + values) * sizeof *names);
  }
  for (int i = 0; i < count; ++i) {
    names[i] = file->entries[i].name;
  }
  const char *name = hr__file_repeated_name(count, names), *key = NULL;
  if (name == NULL) {
    for (int i = 0; i < values; ++i) {
      names[i] = file->values[i].key;
    }
    key = hr__file_repeated_name(values, names);
  }
  hr_free(names);
  return name == NULL && key == NULL
             ? HR_OK
             : hr_status_make(HR_STATUS_DATA_LOSS, "two %s have the name '%.200s'",
                              name != NULL ? "arrays" : "values of the metadata", name != NULL ? name : key);
}

static int compare_begin(const void *a, const void *b) {
  const hr_file_entry *left = *(const hr_file_entry *const *)a, *right = *(const hr_file_entry *const *)b;
  if (left->begin != right->begin) {
    return left->begin < right->begin ? -1 : 1;
  }
  return left->packed < right->packed ? -1 : left->packed > right->packed; /* empty ones first */
}

hr_status hr__file_sort(const hr_file *file, const hr_file_entry ***out_entries) {
  const hr_file_entry **sorted = hr_calloc((size_t)file->count + 1, sizeof *sorted);
  if (sorted == NULL) {
    return hr__file_no_memory((size_t)file->count * sizeof *sorted);
  }
  for (int i = 0; i < file->count; ++i) {
    sorted[i] = &file->entries[i];
  }
  qsort(sorted, (size_t)file->count, sizeof *sorted, compare_begin);
  *out_entries = sorted;
  return HR_OK;
}

hr_status hr__file_check_overlap(const hr_file *file) {
  const hr_file_entry **sorted = NULL;
  HR_RETURN_IF_ERROR(hr__file_sort(file, &sorted));
  hr_status status = HR_OK;
  uint64_t end = 0;
  for (int i = 0; i < file->count && status == HR_OK; ++i) {
    if (sorted[i]->part > 0 || sorted[i]->packed == 0) {
      continue;
    }
    if (sorted[i]->begin < end) {
      status = hr_status_make(HR_STATUS_DATA_LOSS, "'%.200s' begins at byte %llu, but another array ends at %llu",
                              sorted[i]->name, (unsigned long long)sorted[i]->begin, (unsigned long long)end);
    }
    end = sorted[i]->begin + sorted[i]->packed;
  }
  hr_free(sorted);
  return status;
}

hr_status hr__file_measure(hr_file_entry *entry) {
  int64_t bytes = (int64_t)hr_dtype_size(entry->dtype);
  bool is_empty = false;
  for (int d = 0; d < entry->rank; ++d) {
    is_empty |= entry->dims[d] == 0;
    if (entry->dims[d] < 0 || __builtin_mul_overflow(bytes, entry->dims[d] > 1 ? entry->dims[d] : 1, &bytes)) {
      return hr_status_make(HR_STATUS_DATA_LOSS, "dim %d of the shape is %lld: more than 2^63 bytes", d,
                            (long long)entry->dims[d]);
    }
  }
  entry->bytes = entry->packed = entry->whole = is_empty ? 0 : (uint64_t)bytes;
  return HR_OK;
}

hr_status hr__file_check_bytes(const hr_file_entry *entry, const char *bytes) {
  uint32_t found = entry->has_checksum ? hr__crc32(0, bytes, entry->whole) : 0;
  return !entry->has_checksum || found == entry->checksum
             ? HR_OK
             : hr_status_make(HR_STATUS_DATA_LOSS, "its bytes have the checksum %08x, expected %08x", found,
                              entry->checksum);
}

bool hr__is_utf8(const char *text, size_t length) {
  const unsigned char *at = (const unsigned char *)text, *end = at + length;
  while (at < end) {
    int more = *at < 0x80                  ? 0
               : *at >= 0xc2 && *at < 0xe0 ? 1
               : *at >= 0xe0 && *at < 0xf0 ? 2
               : *at >= 0xf0 && *at < 0xf5 ? 3
                                           : -1;
    if (more < 0 || end - at <= more) {
      return false;
    }
    unsigned second = more > 0 ? at[1] : 0x80, head = *at++;
    for (int i = 0; i < more; ++i, ++at) {
      if ((*at & 0xc0) != 0x80) {
        return false;
      }
    }
    if ((head == 0xe0 && second < 0xa0) || (head == 0xed && second > 0x9f) || (head == 0xf0 && second < 0x90) ||
        (head == 0xf4 && second > 0x8f)) {
      return false;
    }
  }
  return true;
}

/* ---- files ---- */

static void release_file(void *arg) {
  hr_file *file = arg;
  if (!hr_refcount_release(&file->references)) {
    return;
  }
  for (int i = 0; i < file->count; ++i) {
    hr_free(file->entries[i].name);
  }
  for (int i = 0; i < file->value_count; ++i) {
    hr_free((void *)(uintptr_t)file->values[i].key);
    hr_free((void *)(uintptr_t)file->values[i].strings);
    hr_free((void *)(uintptr_t)file->values[i].numbers);
  }
  if (file->is_mapped) {
    hr__disk_unmap((void *)(uintptr_t)file->bytes, file->size);
  } else {
    hr_aligned_free((void *)(uintptr_t)file->bytes);
  }
  hr_free(file->entries);
  hr_free(file->values);
  hr_free(file->name);
  hr_free(file);
}

void hr_file_close(hr_file *file) {
  if (file != NULL) {
    release_file(file);
  }
}

static hr_status create_file(const char *name, hr_file **out_file) {
  hr_file *file = hr_calloc(1, sizeof *file);
  char *own = file != NULL ? copy_string(name) : NULL;
  if (own == NULL) {
    hr_free(file);
    return hr__file_no_memory(sizeof *file + strlen(name));
  }
  hr_refcount_init(&file->references);
  file->name = own;
  *out_file = file;
  return HR_OK;
}

static hr_status read_contents(hr_file *file) {
  const char *bytes = file->bytes;
  if (file->size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0) {
    hr_file_entry entry;
    file->format = HR_FILE_NPY;
    HR_RETURN_IF_ERROR(hr__npy_read(bytes, 0, file->size, &entry));
    return hr__file_add(file, "", &entry);
  }
  bool is_zip = file->size >= 4 && bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] + 1 == bytes[3];
  if (is_zip || (file->size >= 4 && memcmp(bytes, "PK\6\6", 4) == 0)) { /* a member, or the end of an empty one */
    file->format = HR_FILE_NPZ;
    return hr__npz_read(file);
  }
  if (file->size >= 4 && memcmp(bytes, "GGUF", 4) == 0) {
    file->format = HR_FILE_GGUF;
    return hr__gguf_read(file);
  }
  if (file->size > 8 && (bytes[8] == '{' || bytes[8] == ' ')) {
    file->format = HR_FILE_SAFETENSORS;
    return hr__safetensors_read(file);
  }
  return hr_status_make(HR_STATUS_DATA_LOSS, "%zu bytes are no file of arrays: expected npy, npz, safetensors or gguf",
                        file->size);
}

/* The file if its contents are right. */
static hr_status finish_open(hr_file *file, hr_status status, hr_file **out_file) {
  status = hr_status_annotate(status == HR_OK ? read_contents(file) : status, "%s", file->name);
  if (status != HR_OK) {
    hr_file_close(file);
    return status;
  }
  *out_file = file;
  return HR_OK;
}

hr_status hr_file_open(const char *path, hr_file **out_file) {
  hr_file *file = NULL;
  void *bytes = NULL;
  HR_RETURN_IF_ERROR(create_file(path, &file));
  hr_status status = hr__disk_map(path, &bytes, &file->size);
  file->bytes = bytes, file->is_mapped = bytes != NULL;
  return finish_open(file, status, out_file);
}

hr_status hr_file_open_bytes(const char *name, const void *bytes, size_t size, hr_file **out_file) {
  hr_file *file = NULL;
  HR_RETURN_IF_ERROR(create_file(name, &file));
  char *copy = hr_aligned_malloc(size, 64);
  if (copy != NULL && size > 0) {
    memcpy(copy, bytes, size);
  }
  file->bytes = copy, file->size = size;
  return finish_open(file, copy != NULL ? HR_OK : hr__file_no_memory(size), out_file);
}

hr_file_format hr_file_format_of(const hr_file *file) {
  return file->format;
}

int hr_file_count(const hr_file *file) {
  return file->count;
}

const char *hr_file_name(const hr_file *file, int index) {
  return file->entries[index].name;
}

int hr_file_value_count(const hr_file *file) {
  return file->value_count;
}

const hr_file_value *hr_file_value_at(const hr_file *file, int index) {
  return &file->values[index];
}

/* ---- arrays of files ---- */

static bool has_right_bools(const hr_file_entry *entry, const char *elements) {
  unsigned all = 0;
  for (uint64_t i = 0; entry->dtype == HR_DTYPE_BOOL && i < entry->bytes; ++i) {
    all |= (unsigned char)elements[i];
  }
  return all <= 1;
}

/* Numbers in the machine's order of bytes, and bools of 0 and 1. */
static void convert(const hr_file_entry *entry, const char *from, char *to) {
  bool is_complex = entry->dtype == HR_DTYPE_C64 || entry->dtype == HR_DTYPE_C128;
  uint64_t part = hr_dtype_size(entry->dtype) / (is_complex ? 2 : 1);
  for (uint64_t i = 0; i < entry->bytes; ++i) {
    to[i] = entry->dtype == HR_DTYPE_BOOL ? from[i] != 0 : from[i - i % part + part - 1 - i % part];
  }
}

static hr_status copy_converted(hr_stream *stream, const hr_file_entry *entry, const int64_t *dims,
                                const char *elements, hr_tensor *out) {
  char *converted = hr_malloc(entry->bytes);
  if (converted == NULL) {
    return hr__file_no_memory(entry->bytes);
  }
  convert(entry, elements, converted);
  hr_status status = hr_array_from_host(stream, entry->dtype, entry->rank, dims, converted, out);
  hr_free(converted);
  return status;
}

/* Elements in memory, which `release` gives back. */
typedef struct elements {
  char *address;
  void (*release)(void *arg);
  void *arg;
} elements;

static hr_status find_elements(hr_file *file, const hr_file_entry *entry, elements *out) {
  const char *at = file->bytes + entry->begin;
  if (entry->decode == NULL) {
    HR_RETURN_IF_ERROR(hr__file_check_bytes(entry, at));
    hr_refcount_retain(&file->references);
    *out = (elements){(char *)(uintptr_t)at + entry->head, release_file, file};
    return HR_OK;
  }
  char *block = hr_aligned_malloc(entry->whole, 64);
  if (block == NULL) {
    return hr__file_no_memory(entry->whole);
  }
  hr_status status = entry->decode(file, entry, block);
  if (status != HR_OK) {
    hr_aligned_free(block);
    return status;
  }
  *out = (elements){block + entry->head, hr_aligned_free, block};
  return HR_OK;
}

static hr_status make_array(hr_stream *stream, hr_file *file, const hr_file_entry *entry, const int64_t *dims,
                            hr_tensor *out) {
  elements from = {0};
  hr_device_info info;
  HR_RETURN_IF_ERROR(hr_status_annotate(find_elements(file, entry, &from), "'%.200s'", entry->name));
  hr_device_describe(hr_stream_device(stream), &info);
  bool is_right = !entry->is_swapped && has_right_bools(entry, from.address);
  if (is_right && info.is_host && entry->bytes > 0 && (uintptr_t)from.address % ADOPTED_ALIGNMENT == 0) {
    hr_status status =
        hr_array_adopt(stream, entry->dtype, entry->rank, dims, NULL, from.address, from.release, from.arg, out);
    if (status != HR_OK) {
      from.release(from.arg);
    }
    return status;
  }
  hr_status status = is_right ? hr_array_from_host(stream, entry->dtype, entry->rank, dims, from.address, out)
                              : copy_converted(stream, entry, dims, from.address, out);
  from.release(from.arg);
  return status;
}

/* Column-major elements are the row-major ones of the transposed array. */
hr_status hr_file_array(hr_stream *stream, hr_file *file, int index, hr_tensor *out) {
  if (index < 0 || index >= file->count) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "%s: array %d of %d", file->name, index, file->count);
  }
  const hr_file_entry *entry = &file->entries[index];
  int64_t dims[HR_RANK_MAX];
  int last = entry->rank - 1;
  for (int d = 0; d <= last; ++d) {
    dims[d] = entry->dims[entry->is_fortran ? last - d : d];
  }
  hr_status status = make_array(stream, file, entry, dims, out);
  if (status != HR_OK) {
    return hr_status_annotate(status, "%s", file->name);
  }
  for (int d = 0; entry->is_fortran && d < last - d; ++d) {
    int64_t dim = out->dims[d], stride = out->strides[d];
    out->dims[d] = out->dims[last - d], out->strides[d] = out->strides[last - d];
    out->dims[last - d] = dim, out->strides[last - d] = stride;
  }
  return HR_OK;
}
