/* package.c: reads packages; package_format.h has the format. Any bytes are safe input: a place or size is compared
 * with the file before it is used. */
#include "headrace/package.h"

#include "base/allocator.h"
#include "base/disk_file.h"
#include "base/integer.h"
#include "base/refcount.h"
#include "headrace/kernel_files.h"
#include "session/package_format.h"

typedef struct section {
  const char *bytes; /* NULL: there is none */
  size_t size;
  uint64_t hash;
} section;

struct hr_package {
  hr_refcount refcount; /* the caller's, and one for each constant of its graphs */
  char *name;
  const char *bytes;
  size_t size;
  bool is_mapped, is_private;      /* is_private: when it was mapped, nobody else could write the file */
  char header[HR__PACKAGE_HEADER]; /* copies, read once: another program may write to a file that is mapped */
  char table[HR__PACKAGE_SECTIONS_MAX * HR__PACKAGE_ENTRY];
  section sections[HR__PACKAGE_KINDS];
  int constant_count, note_count;
  uint64_t data_end; /* of the constants so far, in section 3 */
  hr_graph_elements *constants;
  uint64_t *hashes;
  char *note_text; /* with zeros at the ends of keys and values */
  hr_package_note *notes;
};

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, __VA_ARGS__)

static uint32_t u32_at(const char *bytes) {
  uint32_t number;
  memcpy(&number, bytes, sizeof number);
  return number;
}

static uint64_t u64_at(const char *bytes) {
  uint64_t number;
  memcpy(&number, bytes, sizeof number);
  return number;
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to open it");
}

/* ---- header and table ---- */

bool hr_package_is_one(const void *bytes, size_t size) {
  return size >= 8 && memcmp(bytes, HR__PACKAGE_MAGIC, 8) == 0;
}

bool hr_package_is_file(const char *path) {
  char bytes[8];
  return hr_package_is_one(bytes, hr__disk_head(path, bytes, sizeof bytes));
}

/* Copies header and table. */
static hr_status read_header(hr_package *p) {
  bool is_long = p->size >= HR__PACKAGE_HEADER;
  if (is_long) {
    memcpy(p->header, p->bytes, HR__PACKAGE_HEADER);
  }
  if (!is_long || !hr_package_is_one(p->header, HR__PACKAGE_HEADER)) {
    return DAMAGED("%zu bytes are no package", p->size);
  }
  uint32_t version = u32_at(p->header + 8), sections = u32_at(p->header + 12);
  uint64_t table = u64_at(p->header + 16), bytes = u64_at(p->header + 32);
  if (version > HR_PACKAGE_VERSION) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the package has version %u, expected at most %d", version,
                          HR_PACKAGE_VERSION);
  }
  if (bytes != p->size) {
    return DAMAGED("the file has %zu bytes, its header says %llu", p->size, (unsigned long long)bytes);
  }
  if (sections > HR__PACKAGE_SECTIONS_MAX || table < HR__PACKAGE_HEADER || table > p->size ||
      p->size - table < sections * (uint64_t)HR__PACKAGE_ENTRY) {
    return DAMAGED("a table of %u sections at byte %llu does not fit the file", sections, (unsigned long long)table);
  }
  memcpy(p->table, p->bytes + table, sections * (size_t)HR__PACKAGE_ENTRY);
  uint64_t hash = hr__package_hash(0, p->header, HR__PACKAGE_HEADER - 8);
  hash = hr__package_hash(hash, p->table, sections * (size_t)HR__PACKAGE_ENTRY);
  return hash == u64_at(p->header + 40) ? HR_OK : DAMAGED("the header or the table is damaged: another hash");
}

static hr_status read_entry(hr_package *p, int index, const char *entry) {
  uint32_t kind = u32_at(entry);
  uint64_t place = u64_at(entry + 8), bytes = u64_at(entry + 16);
  if (place < HR__PACKAGE_HEADER || place > p->size || bytes > p->size - place || place % HR__PACKAGE_ALIGNMENT != 0) {
    return DAMAGED("section %d of kind %u: %llu bytes at byte %llu do not fit the file", index, kind,
                   (unsigned long long)bytes, (unsigned long long)place);
  }
  if (kind == 0 || kind >= HR__PACKAGE_KINDS) {
    return HR_OK;
  }
  section *to = &p->sections[kind];
  if (to->bytes != NULL) {
    return DAMAGED("section %d: a second one of kind %u", index, kind);
  }
  *to = (section){p->bytes + place, (size_t)bytes, u64_at(entry + 24)};
  if (kind != HR__PACKAGE_DATA && kind != HR__PACKAGE_WARM && hr__package_hash(0, to->bytes, to->size) != to->hash) {
    return DAMAGED("section %d of kind %u is damaged: another hash", index, kind);
  }
  return HR_OK;
}

static hr_status check_overlap(const hr_package *p) {
  for (int a = 1; a < HR__PACKAGE_KINDS; ++a) {
    for (int b = 1; b < a; ++b) {
      const section *x = &p->sections[a], *y = &p->sections[b];
      if (x->size > 0 && y->size > 0 && x->bytes < y->bytes + y->size && y->bytes < x->bytes + x->size) {
        return DAMAGED("sections of kinds %d and %d overlap", b, a);
      }
    }
  }
  return HR_OK;
}

static hr_status read_table(hr_package *p) {
  HR_RETURN_IF_ERROR(read_header(p));
  for (uint32_t i = 0; i < u32_at(p->header + 12); ++i) {
    HR_RETURN_IF_ERROR(read_entry(p, (int)i, p->table + i * HR__PACKAGE_ENTRY));
  }
  const section *graph = &p->sections[HR__PACKAGE_GRAPH];
  if (graph->bytes == NULL || graph->size > HR__PACKAGE_TEXT_MAX) {
    return DAMAGED("its graph has %zu bytes, expected 1 to %d", graph->size, HR__PACKAGE_TEXT_MAX);
  }
  return check_overlap(p);
}

/* ---- constants ---- */

enum { INDEX_FIXED = 32 }; /* bytes of an entry besides its dims */

/* The elements' bytes; false if they do not fit 63 bits or a dim is negative. */
static bool measure(const hr_graph_elements *x, uint64_t *out_bytes) {
  uint64_t bytes = hr_dtype_size(x->dtype);
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] < 0) {
      return false;
    }
    if (x->dims[d] == 0) {
      *out_bytes = 0;
      return true;
    }
    if (__builtin_mul_overflow(bytes, (uint64_t)x->dims[d], &bytes) || bytes > INT64_MAX) {
      return false;
    }
  }
  *out_bytes = bytes;
  return true;
}

/* Reads constant `index` at *at, which moves behind it. */
static hr_status read_constant(hr_package *p, int index, const char **at) {
  const section *table = &p->sections[HR__PACKAGE_INDEX], *data = &p->sections[HR__PACKAGE_DATA];
  size_t left = table->size - (size_t)(*at - table->bytes);
  uint32_t dtype = left >= 8 ? u32_at(*at) : 0, rank = left >= 8 ? u32_at(*at + 4) : 0;
  if (left < INDEX_FIXED || rank > HR_RANK_MAX || left < INDEX_FIXED + rank * 8) {
    return DAMAGED("constant %d: its entry of %u dims does not fit the index", index, rank);
  }
  hr_graph_elements *x = &p->constants[index];
  *x = (hr_graph_elements){.dtype = (hr_dtype)dtype, .rank = (int)rank};
  memcpy(x->dims, *at + 8, rank * sizeof *x->dims);
  const char *rest = *at + 8 + rank * 8;
  uint64_t place = u64_at(rest), bytes = u64_at(rest + 8), wanted = 0;
  if (dtype == 0 || dtype >= HR_DTYPE_COUNT || !measure(x, &wanted) || bytes != wanted) {
    return DAMAGED("constant %d: %llu bytes of dtype %u do not have its dims", index, (unsigned long long)bytes, dtype);
  }
  if (place % HR__PACKAGE_ALIGNMENT != 0 || place > data->size || bytes > data->size - place) {
    return DAMAGED("constant %d: %llu bytes at byte %llu do not fit %zu bytes of data", index,
                   (unsigned long long)bytes, (unsigned long long)place, data->size);
  }
  if (place < p->data_end) {
    return DAMAGED("constant %d: begins at byte %llu of the data, before the end of another one at %llu", index,
                   (unsigned long long)place, (unsigned long long)p->data_end);
  }
  p->data_end = place + bytes;
  x->address = data->bytes + place;
  for (uint64_t i = 0; x->dtype == HR_DTYPE_BOOL && i < bytes; ++i) {
    if ((unsigned char)data->bytes[place + i] > 1) {
      return DAMAGED("constant %d: byte %llu of bool is neither 0 nor 1", index, (unsigned long long)i);
    }
  }
  p->hashes[index] = u64_at(rest + 16);
  *at = rest + 24;
  return HR_OK;
}

static hr_status read_index(hr_package *p) {
  const section *table = &p->sections[HR__PACKAGE_INDEX];
  size_t most = table->size / INDEX_FIXED;
  most = most < HR__PACKAGE_CONSTANTS_MAX ? most : HR__PACKAGE_CONSTANTS_MAX;
  p->constants = hr_calloc(most + 1, sizeof *p->constants);
  p->hashes = hr_calloc(most + 1, sizeof *p->hashes);
  if (p->constants == NULL || p->hashes == NULL) {
    return no_memory();
  }
  if (table->size > 0 && p->sections[HR__PACKAGE_DATA].bytes == NULL) {
    return DAMAGED("it has constants and no data");
  }
  for (const char *at = table->bytes; at != NULL && at < table->bytes + table->size;) {
    if (p->constant_count == HR__PACKAGE_CONSTANTS_MAX) {
      return DAMAGED("an index of %zu bytes, expected at most %d constants", table->size, HR__PACKAGE_CONSTANTS_MAX);
    }
    HR_RETURN_IF_ERROR(read_constant(p, p->constant_count, &at));
    ++p->constant_count;
  }
  return HR_OK;
}

/* ---- notes ---- */

static hr_status read_notes(hr_package *p) {
  const section *meta = &p->sections[HR__PACKAGE_META];
  size_t lines = 0;
  for (size_t i = 0; i < meta->size; ++i) {
    lines += meta->bytes[i] == '\n';
  }
  p->note_text = hr_malloc(meta->size + 1);
  p->notes = hr_calloc(lines + 1, sizeof *p->notes);
  if (p->note_text == NULL || p->notes == NULL) {
    return no_memory();
  }
  if (meta->size > 0) {
    memcpy(p->note_text, meta->bytes, meta->size);
  }
  p->note_text[meta->size] = '\0';
  if (strlen(p->note_text) != meta->size || (meta->size > 0 && p->note_text[meta->size - 1] != '\n')) {
    return DAMAGED("its notes are no lines of text");
  }
  for (char *line = p->note_text; *line != '\0';) {
    char *end = strchr(line, '\n'), *equals = strchr(line, '=');
    if (equals == NULL || equals > end || equals == line) {
      return DAMAGED("note %d has no \"=\" after a key", p->note_count);
    }
    *end = *equals = '\0';
    p->notes[p->note_count++] = (hr_package_note){line, equals + 1};
    line = end + 1;
  }
  return HR_OK;
}

/* ---- packages ---- */

static void release_package(void *arg) {
  hr_package *p = arg;
  if (!hr_refcount_release(&p->refcount)) {
    return;
  }
  if (p->is_mapped) {
    hr__disk_unmap((void *)(uintptr_t)p->bytes, p->size);
  } else {
    hr_aligned_free((void *)(uintptr_t)p->bytes);
  }
  hr_free(p->name);
  hr_free(p->constants);
  hr_free(p->hashes);
  hr_free(p->note_text);
  hr_free(p->notes);
  hr_free(p);
}

static void retain_package(void *arg) {
  hr_package *p = arg;
  hr_refcount_retain(&p->refcount);
}

void hr_package_close(hr_package *package) {
  if (package != NULL) {
    release_package(package);
  }
}

static hr_status create_package(const char *name, hr_package **out_package) {
  size_t length = strlen(name) + 1;
  hr_package *p = hr_calloc(1, sizeof *p);
  char *copy = p != NULL ? hr_malloc(length) : NULL;
  if (copy == NULL) {
    hr_free(p);
    return no_memory();
  }
  hr_refcount_init(&p->refcount);
  p->name = memcpy(copy, name, length);
  *out_package = p;
  return HR_OK;
}

static hr_status finish_open(hr_package *p, hr_status status, hr_package **out_package) {
  status = status == HR_OK ? read_table(p) : status;
  status = status == HR_OK ? read_index(p) : status;
  status = status == HR_OK ? read_notes(p) : status;
  if (status != HR_OK) {
    status = hr_status_annotate(status, "%s", p->name);
    hr_package_close(p);
    return status;
  }
  *out_package = p;
  return HR_OK;
}

hr_status hr_package_open(const char *path, hr_package **out_package) {
  hr_package *p = NULL;
  void *bytes = NULL;
  HR_RETURN_IF_ERROR(create_package(path, &p));
  hr_status status = hr__disk_map_owned(path, &bytes, &p->size, &p->is_private);
  p->bytes = bytes, p->is_mapped = bytes != NULL;
  return finish_open(p, status, out_package);
}

hr_status hr_package_open_bytes(const char *name, const void *bytes, size_t size, hr_package **out_package) {
  hr_package *p = NULL;
  HR_RETURN_IF_ERROR(create_package(name, &p));
  char *copy = hr_aligned_malloc(size, HR__PACKAGE_ALIGNMENT);
  if (copy != NULL && size > 0) {
    memcpy(copy, bytes, size);
  }
  p->bytes = copy, p->size = size;
  return finish_open(p, copy != NULL ? HR_OK : no_memory(), out_package);
}

hr_status hr_package_graph(hr_package *package, hr_graph **out_graph) {
  const section *text = &package->sections[HR__PACKAGE_GRAPH];
  const hr_graph_source source = {.data_count = package->constant_count,
                                  .data = package->constants,
                                  .retain = retain_package,
                                  .release = release_package,
                                  .arg = package};
  return hr_status_annotate(hr_graph_parse(text->bytes, text->size, &source, out_graph), "%s: graph", package->name);
}

hr_status hr_package_verify(const hr_package *package) {
  for (int i = 0; i < package->constant_count; ++i) {
    uint64_t bytes = 0;
    (void)measure(&package->constants[i], &bytes);
    if (hr__package_hash(0, package->constants[i].address, (size_t)bytes) != package->hashes[i]) {
      return DAMAGED("%s: constant %d is damaged: another hash", package->name, i);
    }
  }
  return HR_OK;
}

/* ---- kernels ---- */

/* The next file at *at, which moves behind it. */
static hr_status read_kernel(const hr_package *p, size_t *at, hr_kernel_file *out) {
  const section *warm = &p->sections[HR__PACKAGE_WARM];
  size_t left = warm->size - *at;
  const char *entry = warm->bytes + *at;
  uint64_t name = left >= HR__PACKAGE_KERNEL ? u32_at(entry) : 0, bytes = 0, text = 0;
  if (name > 0) {
    bytes = u64_at(entry + 8), text = u64_at(entry + 16);
  }
  uint64_t room = left - HR__PACKAGE_KERNEL;
  if (name == 0 || name > HR__PACKAGE_KERNEL_NAME || hr_align_up(name, 8) > room ||
      bytes > room - hr_align_up(name, 8) || text > bytes || entry[HR__PACKAGE_KERNEL + name - 1] != '\0') {
    return DAMAGED("%s: the kernel at byte %zu of %zu is damaged", p->name, *at, warm->size);
  }
  const char *contents = entry + HR__PACKAGE_KERNEL + hr_align_up(name, 8);
  *out = (hr_kernel_file){entry + HR__PACKAGE_KERNEL, contents, (size_t)bytes, (size_t)text};
  size_t all = HR__PACKAGE_KERNEL + hr_align_up(name, 8) + hr_align_up((size_t)bytes, 8);
  *at += all < left ? all : left;
  return HR_OK;
}

int64_t hr_package_kernel_bytes(const hr_package *package) {
  return (int64_t)package->sections[HR__PACKAGE_WARM].size;
}

hr_status hr_package_trust(hr_package *package, int *out_count) {
  const section *warm = &package->sections[HR__PACKAGE_WARM];
  int count = 0;
  if (package->is_mapped && !package->is_private) {
    return hr_status_make(HR_STATUS_PERMISSION_DENIED, "%s: others may write the file: its kernels can't be trusted",
                          package->name);
  }
  if (warm->size > 0 && hr__package_hash(0, warm->bytes, warm->size) != warm->hash) {
    return DAMAGED("%s: its kernels are damaged: another hash", package->name);
  }
  for (size_t at = 0; at < warm->size; ++count) {
    hr_kernel_file file;
    HR_RETURN_IF_ERROR(read_kernel(package, &at, &file));
    HR_RETURN_IF_ERROR(hr_kernel_files_add(&file));
  }
  *out_count = count;
  return HR_OK;
}

/* ---- descriptions ---- */

int hr_package_note_count(const hr_package *package) {
  return package->note_count;
}
hr_package_note hr_package_note_at(const hr_package *package, int index) {
  bool exists = index >= 0 && index < package->note_count;
  return exists ? package->notes[index] : (hr_package_note){NULL, NULL};
}
int64_t hr_package_bytes(const hr_package *package) {
  return (int64_t)package->size;
}
int64_t hr_package_text_bytes(const hr_package *package) {
  return (int64_t)package->sections[HR__PACKAGE_GRAPH].size;
}
