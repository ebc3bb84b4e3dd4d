/* package_write.c: graphs as packages. package_format.h has the format. */
#include "base/allocator.h"
#include "base/disk_file.h"
#include "base/integer.h"
#include "headrace/kernel_files.h"
#include "headrace/package.h"
#include "session/package_format.h"

typedef struct writer {
  hr__replacement to;
  hr_text graph, index, notes, kernels, header, table;
  hr_text block; /* bytes of a huge page that is not full yet */
  uint64_t at;   /* bytes written, with those of the block */
  const hr_package_options *options;
  int64_t done, all; /* bytes of constants: each is hashed, then written */
} writer;

static void put_u32(hr_text *text, uint32_t number) {
  hr_text_append_bytes(text, (const char *)&number, sizeof number);
}

static void put_u64(hr_text *text, uint64_t number) {
  hr_text_append_bytes(text, (const char *)&number, sizeof number);
}

static uint64_t aligned(uint64_t place) {
  return (place + HR__PACKAGE_ALIGNMENT - 1) / HR__PACKAGE_ALIGNMENT * HR__PACKAGE_ALIGNMENT;
}

static size_t bytes_of(const hr_graph_elements *elements) {
  size_t bytes = hr_dtype_size(elements->dtype);
  for (int d = 0; d < elements->rank; ++d) {
    bytes *= (size_t)elements->dims[d];
  }
  return bytes;
}

static void note_progress(writer *w, size_t bytes) {
  w->done += (int64_t)bytes;
  if (w->options->progress != NULL) {
    w->options->progress(w->options->progress_arg, w->done, w->all);
  }
}

static void count_bytes(writer *w, const hr_graph *graph) {
  for (int i = 0; i < hr_graph_data_count(graph); ++i) {
    const hr_graph_elements elements = hr_graph_data(graph, i);
    w->all += 2 * (int64_t)bytes_of(&elements);
  }
}

/* ---- sections ---- */

static hr_status append_text(void *arg, const void *bytes, size_t count) {
  hr_text *text = arg;
  hr_text_append_bytes(text, bytes, count);
  return hr_text_status(text);
}

static hr_status write_notes(int count, const hr_package_note *notes, hr_text *out) {
  for (int i = 0; i < count; ++i) {
    const char *key = notes[i].key, *value = notes[i].value;
    if (key == NULL || value == NULL || key[0] == '\0' || strpbrk(key, "=\n\r") != NULL ||
        strpbrk(value, "\n\r") != NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "note %d \"%.64s\": no text of one line without =", i,
                            key != NULL ? key : "");
    }
    hr_text_append_all(out, 4, (const char *const[]){key, "=", value, "\n"});
  }
  return hr_text_status(out);
}

static void pad_to_words(hr_text *text) {
  static const char zeros[8];
  hr_text_append_bytes(text, zeros, (8 - text->length % 8) % 8);
}

static hr_status write_kernel(void *arg, const hr_kernel_file *file) {
  hr_text *out = arg;
  put_u32(out, (uint32_t)strlen(file->name) + 1);
  put_u32(out, 0);
  put_u64(out, file->size);
  put_u64(out, file->text_size);
  hr_text_append_bytes(out, file->name, strlen(file->name) + 1);
  pad_to_words(out);
  hr_text_append_bytes(out, file->bytes, file->size);
  pad_to_words(out);
  return hr_text_status(out);
}

/* The index, and the bytes of all constants. */
static hr_status write_index(writer *w, const hr_graph *graph, uint64_t *out_bytes) {
  uint64_t place = 0;
  hr_text *out = &w->index;
  for (int i = 0; i < hr_graph_data_count(graph); ++i) {
    const hr_graph_elements elements = hr_graph_data(graph, i);
    size_t bytes = bytes_of(&elements);
    put_u32(out, (uint32_t)elements.dtype);
    put_u32(out, (uint32_t)elements.rank);
    for (int d = 0; d < elements.rank; ++d) {
      put_u64(out, (uint64_t)elements.dims[d]);
    }
    place = aligned(place);
    put_u64(out, place);
    put_u64(out, bytes);
    put_u64(out, hr__package_hash(0, elements.address, bytes));
    place += bytes;
    note_progress(w, bytes);
  }
  *out_bytes = place;
  return hr_text_status(out);
}

/* ---- the file ---- */

static void put_entry(writer *w, uint32_t kind, uint64_t place, uint64_t bytes, uint64_t hash) {
  put_u32(&w->table, kind);
  put_u32(&w->table, 0);
  put_u64(&w->table, place);
  put_u64(&w->table, bytes);
  put_u64(&w->table, hash);
}

static uint64_t put_text(writer *w, uint32_t kind, uint64_t place, const hr_text *text) {
  put_entry(w, kind, place, text->length, hr__package_hash(0, hr_text_chars(text), text->length));
  return aligned(place + text->length);
}

/* The table, and the header in front of it. */
static hr_status write_header(writer *w, uint64_t data_bytes) {
  uint32_t sections = HR__PACKAGE_META + (w->kernels.length > 0);
  uint64_t place = aligned(HR__PACKAGE_HEADER + sections * HR__PACKAGE_ENTRY);
  place = put_text(w, HR__PACKAGE_GRAPH, place, &w->graph);
  place = put_text(w, HR__PACKAGE_INDEX, place, &w->index);
  place = put_text(w, HR__PACKAGE_META, place, &w->notes);
  if (w->kernels.length > 0) {
    place = put_text(w, HR__PACKAGE_WARM, place, &w->kernels);
  }
  put_entry(w, HR__PACKAGE_DATA, place, data_bytes, 0);
  hr_text_append_bytes(&w->header, HR__PACKAGE_MAGIC, 8);
  put_u32(&w->header, HR_PACKAGE_VERSION);
  put_u32(&w->header, sections);
  put_u64(&w->header, HR__PACKAGE_HEADER);
  put_u64(&w->header, 0);
  put_u64(&w->header, place + data_bytes);
  HR_RETURN_IF_ERROR(hr_text_status(&w->header));
  HR_RETURN_IF_ERROR(hr_text_status(&w->table));
  uint64_t hash = hr__package_hash(0, w->header.data, w->header.length);
  put_u64(&w->header, hr__package_hash(hash, w->table.data, w->table.length));
  return hr_text_status(&w->header);
}

static hr_status write_block(writer *w) {
  hr_status status = hr__replacement_write(&w->to, w->block.data, w->block.length);
  hr_text_clear(&w->block);
  return status;
}

/* Adds as many bytes to the block as it has room for. */
static hr_status fill_block(writer *w, const char *bytes, size_t count) {
  hr_text_append_bytes(&w->block, bytes, count);
  HR_RETURN_IF_ERROR(hr_text_status(&w->block));
  return w->block.length == HR_HUGE_PAGE ? write_block(w) : HR_OK;
}

/* In writes that end at multiples of huge pages: systems which keep files in such pages then map them so. */
static hr_status write_bytes(writer *w, const void *bytes, size_t count) {
  w->at += count;
  for (const char *at = bytes; count > 0;) {
    size_t room = HR_HUGE_PAGE - w->block.length, part = hr_min(count, room);
    if (w->block.length == 0 && count >= HR_HUGE_PAGE) {
      part = count / HR_HUGE_PAGE * HR_HUGE_PAGE;
      HR_RETURN_IF_ERROR(hr__replacement_write(&w->to, at, part));
    } else {
      HR_RETURN_IF_ERROR(fill_block(w, at, part));
    }
    at += part, count -= part;
  }
  return HR_OK;
}

static hr_status write_padding(writer *w) {
  static const char zeros[HR__PACKAGE_ALIGNMENT];
  return write_bytes(w, zeros, (size_t)(aligned(w->at) - w->at));
}

static hr_status write_section(writer *w, const hr_text *text) {
  HR_RETURN_IF_ERROR(write_padding(w));
  return write_bytes(w, hr_text_chars(text), text->length);
}

/* Fails if the text is of a later version than may be. */
static hr_status check_version(const writer *w, int version_max) {
  static const char later[] = "graph 2";
  bool is_later = w->graph.length > strlen(later) && memcmp(w->graph.data, later, strlen(later)) == 0;
  return version_max != 1 || !is_later
             ? HR_OK
             : hr_status_make(
                   HR_STATUS_INVALID_ARGUMENT,
                   "the graph has functions, variables or dims that depend on data: version 1 can't read it");
}

/* In pieces, between which progress is told. */
static hr_status write_constant(writer *w, const hr_graph_elements *elements) {
  enum { PIECE = 1 << 24 };
  size_t bytes = bytes_of(elements);
  HR_RETURN_IF_ERROR(write_padding(w));
  for (size_t at = 0; at < bytes; at += PIECE) {
    size_t count = hr_min(bytes - at, (size_t)PIECE);
    HR_RETURN_IF_ERROR(write_bytes(w, (const char *)elements->address + at, count));
    note_progress(w, count);
  }
  return HR_OK;
}

static hr_status write_file(writer *w, const hr_graph *graph) {
  const hr_package_options *options = w->options;
  uint64_t data_bytes = 0;
  if (hr_graph_data_count(graph) > HR__PACKAGE_CONSTANTS_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d constants beside the text, expected at most %d",
                          hr_graph_data_count(graph), HR__PACKAGE_CONSTANTS_MAX);
  }
  HR_RETURN_IF_ERROR(hr_graph_print(graph, append_text, &w->graph));
  if (w->graph.length > HR__PACKAGE_TEXT_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the text has %zu bytes, expected at most %d", w->graph.length,
                          HR__PACKAGE_TEXT_MAX);
  }
  count_bytes(w, graph);
  HR_RETURN_IF_ERROR(write_index(w, graph, &data_bytes));
  HR_RETURN_IF_ERROR(check_version(w, options->text_version_max));
  HR_RETURN_IF_ERROR(write_notes(options->note_count, options->notes, &w->notes));
  if (options->has_kernels) {
    HR_RETURN_IF_ERROR(hr_kernel_files_each(options->kernels_since_ns, write_kernel, &w->kernels));
  }
  HR_RETURN_IF_ERROR(write_header(w, data_bytes));
  HR_RETURN_IF_ERROR(write_bytes(w, w->header.data, w->header.length));
  HR_RETURN_IF_ERROR(write_bytes(w, w->table.data, w->table.length));
  HR_RETURN_IF_ERROR(write_section(w, &w->graph));
  HR_RETURN_IF_ERROR(write_section(w, &w->index));
  HR_RETURN_IF_ERROR(write_section(w, &w->notes));
  HR_RETURN_IF_ERROR(write_section(w, &w->kernels));
  HR_RETURN_IF_ERROR(write_padding(w));
  for (int i = 0; i < hr_graph_data_count(graph); ++i) {
    const hr_graph_elements elements = hr_graph_data(graph, i);
    HR_RETURN_IF_ERROR(write_constant(w, &elements));
  }
  return write_block(w);
}

hr_status hr_package_write_with(const hr_graph *graph, const char *path, const hr_package_options *options) {
  writer w = {.options = options};
  hr_status status = hr__replacement_begin(path, &w.to);
  status = status == HR_OK ? write_file(&w, graph) : status;
  status = hr__replacement_end(&w.to, status);
  hr_text *texts[] = {&w.graph, &w.index, &w.notes, &w.kernels, &w.header, &w.table, &w.block};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    hr_text_fini(texts[i]);
  }
  return hr_status_annotate(status, "%s", path);
}

hr_status hr_package_write(const hr_graph *graph, const char *path, int note_count, const hr_package_note *notes) {
  return hr_package_write_with(graph, path, &(hr_package_options){.note_count = note_count, .notes = notes});
}
