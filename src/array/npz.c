/* npz.c: NumPy's npz files: zip archives whose members NAME.npy are npy files, stored or deflated (PKWARE's APPNOTE.TXT
 * 6.3, and RFC 1951).
 *
 * Reading goes by the central directory at the end. Members must stand before it and may not overlap, so that a small
 * archive can't stand for much memory; archives of several parts or behind other bytes, and encrypted ones are refused.
 * Writing stores members, with elements at multiples of 64, so that they can be mapped.
 */
#include <string.h>

#include "array/array_file.h"
#include "array/inflate.h"
#include "base/allocator.h"

enum {
  LOCAL = 0x04034b50,
  CENTRAL = 0x02014b50,
  END = 0x06054b50,
  END64 = 0x06064b50,
  LOCATOR64 = 0x07064b50,
  LOCAL_BYTES = 30,
  CENTRAL_BYTES = 46,
  END_BYTES = 22,
  END64_BYTES = 56,
  LOCATOR64_BYTES = 20,
  COMMENT_MAX = 65535,
  SIZES_EXTRA = 1,        /* sizes and offset in 64 bits */
  PADDING_EXTRA = 0xd935, /* a multiple and zeros */
  ENCRYPTED = 1,          /* flags */
  UTF8_NAME = 1 << 11,
  STORED = 0, /* algorithms */
  DEFLATED = 8,
  VERSION64 = 45, /* of the format, with 64 bits */
  ALIGNMENT = 64,
  INFLATE_RATIO_MAX = 1032,             /* 258 bytes for two bits */
  HEADER_MAX = (1 << 20) + HR__NPY_HEAD /* npy.c's */
};

typedef unsigned long long ull;

/* A member of the archive. */
typedef struct member {
  const char *name;
  size_t name_length;
  unsigned flags, method;
  uint32_t checksum;
  uint64_t packed, whole, offset; /* bytes in the file, bytes of the npy file, place of the local header */
} member;

typedef struct directory {
  uint64_t begin, bytes, count;
} directory;

static uint64_t number(const char *at, int bytes) {
  uint64_t value = 0;
  memcpy(&value, at, (size_t)bytes);
  return value;
}

static hr_status damaged(const char *what, uint64_t value) {
  return hr_status_make(HR_STATUS_DATA_LOSS, "npz: %s (%llu)", what, (ull)value);
}

/* ---- the directory ---- */

/* The last record that a comment up to the file's end can follow. */
static hr_status find_end(const hr_file *file, uint64_t *out_at) {
  uint64_t size = file->size;
  for (uint64_t back = END_BYTES; back <= size && back <= END_BYTES + COMMENT_MAX; ++back) {
    const char *at = file->bytes + size - back;
    if (number(at, 4) == END && number(at + 20, 2) == back - END_BYTES) {
      *out_at = size - back;
      return HR_OK;
    }
  }
  return damaged("no directory is at the end of the archive; its bytes", size);
}

/* The record with 64 bits, if a locator of it stands before `end`. */
static hr_status read_end64(const hr_file *file, uint64_t *end, directory *d) {
  const char *locator = file->bytes + (*end >= LOCATOR64_BYTES ? *end - LOCATOR64_BYTES : 0);
  if (*end < LOCATOR64_BYTES || number(locator, 4) != LOCATOR64) {
    return HR_OK;
  }
  uint64_t at = number(locator + 8, 8), room = *end - LOCATOR64_BYTES;
  bool is_within = room >= END64_BYTES && at <= room - END64_BYTES;
  const char *record = file->bytes + (is_within ? at : 0);
  if (!is_within || number(record, 4) != END64) {
    return damaged("the 64-bit end of the directory is not at byte", at);
  }
  if (number(locator + 16, 4) > 1 || number(record + 16, 8) != 0) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "npz: an archive of several parts");
  }
  *end = at;
  *d = (directory){.count = number(record + 32, 8), .bytes = number(record + 40, 8), .begin = number(record + 48, 8)};
  return HR_OK;
}

static hr_status find_directory(const hr_file *file, directory *out) {
  uint64_t end = 0;
  HR_RETURN_IF_ERROR(find_end(file, &end));
  const char *at = file->bytes + end;
  directory d = {.count = number(at + 10, 2), .bytes = number(at + 12, 4), .begin = number(at + 16, 4)};
  if (number(at + 4, 4) != 0 && number(at + 4, 4) != 0xffffffff) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "npz: an archive of several parts");
  }
  HR_RETURN_IF_ERROR(read_end64(file, &end, &d));
  if (d.begin > end || d.bytes > end - d.begin) {
    return damaged("the directory is not within the archive; it begins at byte", d.begin);
  }
  if (d.count > d.bytes / CENTRAL_BYTES || d.count > INT32_MAX) {
    return damaged("the directory is too small for its number of members", d.count);
  }
  *out = d;
  return HR_OK;
}

/* Sizes and offset that 32 bits can't hold stand in an extra field, in their order. */
static void read_sizes(const char *at, uint64_t length, member *m) {
  uint64_t *wide[] = {&m->whole, &m->packed, &m->offset};
  while (length >= 4) {
    uint64_t kind = number(at, 2), bytes = number(at + 2, 2), used = 0;
    if (bytes > length - 4) {
      break;
    }
    for (int i = 0; kind == SIZES_EXTRA && i < 3; ++i) {
      if (*wide[i] == 0xffffffff && bytes - used >= 8) {
        *wide[i] = number(at + 4 + used, 8);
        used += 8;
      }
    }
    if (kind == SIZES_EXTRA) {
      break;
    }
    at += 4 + bytes, length -= 4 + bytes;
  }
}

/* The member at *at, which moves behind it. */
static hr_status read_member(const hr_file *file, uint64_t end, uint64_t *at, member *out) {
  const char *record = file->bytes + *at;
  uint64_t left = end - *at;
  if (left < CENTRAL_BYTES || number(record, 4) != CENTRAL) {
    return damaged("no member of the directory is at byte", *at);
  }
  uint64_t name = number(record + 28, 2), extra = number(record + 30, 2), comment = number(record + 32, 2);
  if (name + extra + comment > left - CENTRAL_BYTES) {
    return damaged("a name is longer than the directory", name);
  }
  *out = (member){.name = record + CENTRAL_BYTES,
                  .name_length = name,
                  .flags = (unsigned)number(record + 8, 2),
                  .method = (unsigned)number(record + 10, 2),
                  .checksum = (uint32_t)number(record + 16, 4),
                  .packed = number(record + 20, 4),
                  .whole = number(record + 24, 4),
                  .offset = number(record + 42, 4)};
  *at += CENTRAL_BYTES + name + extra + comment;
  read_sizes(out->name + name, extra, out);
  return HR_OK;
}

/* ---- members ---- */

static hr_status check_member(const member *m) {
  if (m->flags & ENCRYPTED) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "it is encrypted");
  }
  if (m->method != STORED && m->method != DEFLATED) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "algorithm %u, expected 0 (stored) or 8 (deflate)", m->method);
  }
  if (m->method == STORED ? m->packed != m->whole : m->whole / INFLATE_RATIO_MAX > m->packed) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "%llu bytes can't stand for %llu", (ull)m->packed, (ull)m->whole);
  }
  return HR_OK;
}

/* Sets *out_begin to the place of the member's bytes, between its local header and the directory. */
static hr_status place_member(const hr_file *file, const directory *d, const member *m, uint64_t *out_begin) {
  bool is_within = d->begin >= LOCAL_BYTES && m->offset <= d->begin - LOCAL_BYTES;
  const char *local = file->bytes + (is_within ? m->offset : 0);
  if (!is_within || number(local, 4) != LOCAL) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "it is not at byte %llu", (ull)m->offset);
  }
  uint64_t name = number(local + 26, 2), extra = number(local + 28, 2), begin = m->offset + LOCAL_BYTES + name + extra;
  if (begin > d->begin || m->packed > d->begin - begin) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "its %llu bytes from %llu on reach into the directory", (ull)m->packed,
                          (ull)begin);
  }
  if (name != m->name_length || memcmp(local + LOCAL_BYTES, m->name, name) != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "it has another name at byte %llu", (ull)m->offset);
  }
  *out_begin = begin;
  return HR_OK;
}

static hr_status decode(const hr_file *file, const hr_file_entry *entry, char *out) {
  HR_RETURN_IF_ERROR(hr__inflate(file->bytes + entry->begin, entry->packed, out, entry->whole, false));
  return hr__file_check_bytes(entry, out);
}

/* Reads the npy header of a compressed member, of which no more is decompressed. */
static hr_status read_deflated(const hr_file *file, uint64_t begin, const member *m, hr_file_entry *out) {
  char head[HR__NPY_HEAD] = {0};
  const char *packed = file->bytes + begin;
  if (m->whole < sizeof head) {
    return hr__npy_read(head, 0, m->whole, out);
  }
  HR_RETURN_IF_ERROR(hr__inflate(packed, m->packed, head, sizeof head, true));
  size_t bytes = hr__npy_header_size(head);
  if (bytes > m->whole || bytes > HEADER_MAX || bytes < sizeof head) {
    return hr__npy_read(head, 0, m->whole, out); /* which refuses it, or needs no more bytes */
  }
  char *header = hr_malloc(bytes);
  if (header == NULL) {
    return hr__file_no_memory(bytes);
  }
  hr_status status = hr__inflate(packed, m->packed, header, bytes, true);
  status = status == HR_OK ? hr__npy_read(header, 0, m->whole, out) : status;
  hr_free(header);
  out->head = out->begin;
  out->begin = begin, out->packed = m->packed, out->decode = decode;
  return status;
}

static hr_status read_array(const hr_file *file, const directory *d, const member *m, hr_file_entry *out) {
  uint64_t begin = 0;
  HR_RETURN_IF_ERROR(check_member(m));
  HR_RETURN_IF_ERROR(place_member(file, d, m, &begin));
  if (m->method == DEFLATED) {
    HR_RETURN_IF_ERROR(read_deflated(file, begin, m, out));
  } else {
    HR_RETURN_IF_ERROR(hr__npy_read(file->bytes, begin, begin + m->whole, out));
    out->head = out->begin - begin, out->begin = begin, out->packed = m->whole;
  }
  out->whole = m->whole, out->checksum = m->checksum, out->has_checksum = true;
  return HR_OK;
}

static hr_status add_member(hr_file *file, const directory *d, const member *m) {
  static const char ending[] = ".npy";
  size_t length = m->name_length, end = sizeof ending - 1;
  hr_text name = {0};
  hr_file_entry entry = {0};
  if (!hr__is_utf8(m->name, length) || memchr(m->name, '\0', length) != NULL) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npz: a member's name of %zu bytes is no UTF-8 without zeros", length);
  }
  bool is_npy = length >= end && memcmp(m->name + length - end, ending, end) == 0;
  hr_text_append_bytes(&name, m->name, is_npy ? length - end : length);
  hr_status status = hr_text_status(&name);
  if (status == HR_OK && !is_npy) {
    status = hr_status_make(HR_STATUS_UNIMPLEMENTED, "expected a name that ends with .npy");
  }
  status = status == HR_OK ? read_array(file, d, m, &entry) : status;
  status = hr_status_annotate(status, "npz: '%.200s'", hr_text_chars(&name));
  status = status == HR_OK ? hr__file_add(file, hr_text_chars(&name), &entry) : status;
  hr_text_fini(&name);
  return status;
}

hr_status hr__npz_read(hr_file *file) {
  directory d = {0};
  HR_RETURN_IF_ERROR(find_directory(file, &d));
  uint64_t at = d.begin, end = d.begin + d.bytes;
  for (uint64_t i = 0; i < d.count; ++i) {
    member m = {0};
    HR_RETURN_IF_ERROR(read_member(file, end, &at, &m));
    HR_RETURN_IF_ERROR(add_member(file, &d, &m));
  }
  if (at != end) {
    return damaged("the directory has more bytes than members need", end - at);
  }
  HR_RETURN_IF_ERROR(hr__file_check_names(file));
  return hr__file_check_overlap(file);
}

/* ---- writing ---- */

static void append(hr_text *text, uint64_t value, int bytes) {
  hr_text_append_bytes(text, (const char *)&value, (size_t)bytes);
}

/* The fields that a member's two headers share, from the version needed on; sizes stand in an extra field. The date is
 * 1 January 1980, so that equal arrays make equal files. */
static void append_common(hr_text *text, uint32_t checksum, size_t name_length, uint64_t extra) {
  append(text, VERSION64, 2);
  append(text, UTF8_NAME, 2);
  append(text, STORED, 2);
  append(text, (1 << 5 | 1) << 16, 4); /* time and date, in the halves */
  append(text, checksum, 4);
  append(text, UINT64_MAX, 8); /* both sizes */
  append(text, name_length, 2);
  append(text, extra, 2);
}

/* A member's local header. Padding puts its bytes to a multiple of 64, and so its elements, as npy headers are whole
 * 64s. */
static void append_local(hr_text *text, const char *name, uint32_t checksum, uint64_t bytes, uint64_t at) {
  uint64_t length = strlen(name) + 4, fixed = LOCAL_BYTES + length + 20 + 6;
  uint64_t padding = (ALIGNMENT - (at + fixed) % ALIGNMENT) % ALIGNMENT;
  append(text, LOCAL, 4);
  append_common(text, checksum, length, 20 + 6 + padding);
  hr_text_append_all(text, 2, (const char *const[]){name, ".npy"});
  append(text, SIZES_EXTRA | 16 << 16, 4);
  append(text, bytes, 8);
  append(text, bytes, 8);
  append(text, PADDING_EXTRA | (2 + padding) << 16, 4);
  append(text, ALIGNMENT, 2);
  for (uint64_t i = 0; i < padding; ++i) {
    hr_text_char(text, '\0');
  }
}

static void append_central(hr_text *text, const char *name, uint32_t checksum, uint64_t bytes, uint64_t at) {
  append(text, CENTRAL, 4);
  append(text, VERSION64 | 3 << 8, 2); /* made by a system with Unix's attributes */
  append_common(text, checksum, strlen(name) + 4, 28);
  append(text, 0, 8); /* comment, part, internal attributes, and the lower half of the external ones */
  append(text, 0100644, 2);
  append(text, UINT32_MAX, 4);
  hr_text_append_all(text, 2, (const char *const[]){name, ".npy"});
  append(text, SIZES_EXTRA | 24 << 16, 4);
  append(text, bytes, 8);
  append(text, bytes, 8);
  append(text, at, 8);
}

static void append_end(hr_text *text, uint64_t begin, uint64_t bytes, uint64_t count) {
  append(text, END64, 4);
  append(text, END64_BYTES - 12, 8);
  append(text, VERSION64 | 3 << 8, 2);
  append(text, VERSION64, 2);
  append(text, 0, 8);
  append(text, count, 8);
  append(text, count, 8);
  append(text, bytes, 8);
  append(text, begin, 8);
  append(text, LOCATOR64, 4);
  append(text, 0, 4);
  append(text, begin + bytes, 8);
  append(text, 1, 4);
  append(text, END, 4);
  append(text, 0, 4);
  append(text, count < 0xffff ? count : 0xffff, 2);
  append(text, count < 0xffff ? count : 0xffff, 2);
  append(text, bytes < UINT32_MAX ? bytes : UINT32_MAX, 4);
  append(text, begin < UINT32_MAX ? begin : UINT32_MAX, 4);
  append(text, 0, 2);
}

static hr_status write_member(hr__writer *to, const char *name, const hr_tensor *x, hr_text *central) {
  size_t bytes;
  char *elements = NULL;
  hr_text header = {0}, local = {0};
  hr_status status = hr__npy_header(x, &header);
  status = status == HR_OK ? hr__writer_read(to, x, &bytes, &elements) : status;
  if (status == HR_OK) {
    uint32_t checksum = hr__crc32(0, hr_text_chars(&header), header.length);
    checksum = hr__crc32(checksum, elements, bytes);
    append_central(central, name, checksum, header.length + bytes, to->at);
    append_local(&local, name, checksum, header.length + bytes, to->at);
    status = hr__write_text(to, &local);
  }
  status = status == HR_OK ? hr__write_text(to, &header) : status;
  status = status == HR_OK ? hr__write(to, elements, bytes) : status;
  hr_text_fini(&header);
  hr_text_fini(&local);
  hr_free(elements);
  return hr_status_annotate(status, "npz: '%.200s'", name);
}

static hr_status check_name(const char *name) {
  size_t length = strlen(name);
  return length <= 60000 && hr__is_utf8(name, length)
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "npz: a name of %zu bytes, expected UTF-8 of at most 60000",
                              length);
}

hr_status hr__npz_write(hr__writer *to) {
  hr_text central = {0};
  const hr_file_contents *contents = to->contents;
  hr_status status = HR_OK;
  for (int i = 0; i < contents->count && status == HR_OK; ++i) {
    status = check_name(contents->names[i]);
    status = status == HR_OK ? write_member(to, contents->names[i], contents->arrays[i], &central) : status;
  }
  uint64_t bytes = central.length;
  append_end(&central, to->at, bytes, (uint64_t)contents->count);
  status = status == HR_OK ? hr__write_text(to, &central) : status;
  hr_text_fini(&central);
  return status;
}
