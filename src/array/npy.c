/* npy.c: the header of NumPy's npy files: a magic number, a version, a length, and a Python dict of three fields, which
 * is parsed here by its grammar and never evaluated. */
#include <string.h>

#include "array/array_file.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { HEADER_MAX = 1 << 20, ALIGNMENT = 64 };

/* kind and bytes of an element; V2 is bfloat16, as ml_dtypes writes it */
static const struct {
  hr_dtype dtype;
  char code[3];
} codes[] = {{HR_DTYPE_BOOL, "b1"}, {HR_DTYPE_U8, "u1"},   {HR_DTYPE_I8, "i1"},  {HR_DTYPE_U16, "u2"},
             {HR_DTYPE_I16, "i2"},  {HR_DTYPE_U32, "u4"},  {HR_DTYPE_I32, "i4"}, {HR_DTYPE_U64, "u8"},
             {HR_DTYPE_I64, "i8"},  {HR_DTYPE_F16, "f2"},  {HR_DTYPE_F32, "f4"}, {HR_DTYPE_F64, "f8"},
             {HR_DTYPE_C64, "c8"},  {HR_DTYPE_C128, "cx"}, {HR_DTYPE_BF16, "V2"}};
enum { CODES = sizeof codes / sizeof *codes };

/* A string in either kind of quotes, without escapes, of at most 31 characters. */
static bool read_string(hr__cursor *c, char out[32]) {
  hr__cursor_skip_space(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
    return false;
  }
  const char *first = c->at + 1, *last = memchr(first, *c->at, (size_t)(c->end - first));
  if (last == NULL || last - first > 31) {
    return false;
  }
  memcpy(out, first, (size_t)(last - first));
  out[last - first] = '\0', c->at = last + 1;
  return memchr(out, '\\', strlen(out)) == NULL;
}

static bool read_word(hr__cursor *c, const char *word) {
  size_t length = strlen(word);
  hr__cursor_skip_space(c);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) {
    return false;
  }
  c->at += length;
  return true;
}

static bool read_size(hr__cursor *c, int64_t *out_size) {
  hr__cursor_skip_space(c);
  const char *first = c->at;
  int64_t size = 0;
  for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; ++c->at) {
    if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *c->at - '0', &size)) {
      return false;
    }
  }
  *out_size = size;
  return c->at > first;
}

/* "(3, 4)", "(3,)", "()" */
static hr_status read_shape(hr__cursor *c, hr_file_entry *entry) {
  bool is_right = hr__cursor_next_is(c, '(');
  while (is_right && !hr__cursor_next_is(c, ')')) {
    if (entry->rank == HR_RANK_MAX) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "npy: shape has more than %d dims", HR_RANK_MAX);
    }
    is_right = read_size(c, &entry->dims[entry->rank]);
    ++entry->rank;
    if (is_right && !hr__cursor_next_is(c, ',')) {
      is_right = hr__cursor_next_is(c, ')');
      break;
    }
  }
  return is_right ? HR_OK
                  : hr_status_make(HR_STATUS_DATA_LOSS, "npy: shape is no tuple of sizes at dim %d", entry->rank);
}

static hr_status refuse_descr(const char *descr) {
  if (descr[0] == 'O' || (descr[0] != '\0' && descr[1] == 'O')) {
    return hr_status_make(
        HR_STATUS_UNIMPLEMENTED,
        "npy: descr '%s': an array of Python objects is pickled, and pickles are not read, as they can "
        "run code",
        descr);
  }
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "npy: descr '%s' is no dtype of arrays", descr);
}

static hr_status read_descr(hr__cursor *c, hr_file_entry *entry) {
  char descr[32];
  if (!read_string(c, descr)) {
    hr__cursor_skip_space(c);
    return c->at < c->end && *c->at == '['
               ? hr_status_make(HR_STATUS_UNIMPLEMENTED, "npy: descr has fields: structured arrays are not read")
               : hr_status_make(HR_STATUS_DATA_LOSS, "npy: descr is no short string");
  }
  bool has_order = descr[0] != '\0' && strchr("<>|=", descr[0]) != NULL;
  const char *code = strcmp(descr + has_order, "c16") == 0 ? "cx" : descr + has_order;
  for (int i = 0; i < CODES; ++i) {
    if (strcmp(codes[i].code, code) == 0) {
      entry->dtype = codes[i].dtype;
      entry->is_swapped = descr[0] == '>' && hr_dtype_size(entry->dtype) > 1;
      return HR_OK;
    }
  }
  return refuse_descr(descr);
}

static hr_status read_field(hr__cursor *c, hr_file_entry *entry, int *fields) {
  static const char *const names[] = {"descr", "fortran_order", "shape"};
  char name[32];
  int field = 0;
  if (!read_string(c, name) || !hr__cursor_next_is(c, ':')) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: header is no dict of names");
  }
  while (field < 3 && strcmp(name, names[field]) != 0) {
    ++field;
  }
  if (field == 3 || (*fields & 1 << field) != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: field '%s' is %s", hr__is_utf8(name, strlen(name)) ? name : "?",
                          field == 3 ? "unknown" : "there twice");
  }
  *fields |= 1 << field;
  if (field == 1) {
    entry->is_fortran = read_word(c, "True");
    return entry->is_fortran || read_word(c, "False")
               ? HR_OK
               : hr_status_make(HR_STATUS_DATA_LOSS, "npy: fortran_order is neither True nor False");
  }
  return field == 0 ? read_descr(c, entry) : read_shape(c, entry);
}

static hr_status read_fields(hr__cursor c, hr_file_entry *entry) {
  int fields = 0;
  bool is_right = hr__cursor_next_is(&c, '{');
  while (is_right && !hr__cursor_next_is(&c, '}')) {
    HR_RETURN_IF_ERROR(read_field(&c, entry, &fields));
    if (!hr__cursor_next_is(&c, ',')) {
      is_right = hr__cursor_next_is(&c, '}');
      break;
    }
  }
  hr__cursor_skip_space(&c);
  if (!is_right || fields != 7 || c.at != c.end) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: header is no dict of descr, fortran_order and shape");
  }
  return HR_OK;
}

/* Version 1 has two bytes of length, later ones four. */
static size_t start_of(const unsigned char *head) {
  return head[6] == 1 ? 10 : 12;
}

size_t hr__npy_header_size(const char *bytes) {
  const unsigned char *head = (const unsigned char *)bytes;
  if (memcmp(head, magic, sizeof magic) != 0) {
    return 0;
  }
  size_t length = head[8] | (size_t)head[9] << 8;
  return start_of(head) + (head[6] == 1 ? length : length | (size_t)head[10] << 16 | (size_t)head[11] << 24);
}

hr_status hr__npy_read(const char *bytes, uint64_t begin, uint64_t end, hr_file_entry *out_entry) {
  const unsigned char *head = (const unsigned char *)bytes + begin;
  uint64_t size = end - begin;
  if (size < HR__NPY_HEAD || memcmp(head, magic, sizeof magic) != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: %llu bytes don't begin with NumPy's magic",
                          (unsigned long long)size);
  }
  if (head[6] < 1 || head[6] > 3) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "npy: version %d.%d, expected 1 to 3", head[6], head[7]);
  }
  uint64_t start = start_of(head), length = hr__npy_header_size(bytes + begin) - start;
  if (length > size - start || length > HEADER_MAX) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: header length is %llu, expected at most %llu",
                          (unsigned long long)length,
                          (unsigned long long)(size - start < HEADER_MAX ? size - start : HEADER_MAX));
  }
  hr_file_entry entry = {.begin = begin + start + length};
  const char *text = bytes + begin + start;
  HR_RETURN_IF_ERROR(read_fields((hr__cursor){text, text + length}, &entry));
  HR_RETURN_IF_ERROR(hr__file_measure(&entry));
  if (entry.bytes > end - entry.begin) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "npy: shape and descr need %llu bytes, but %llu follow the header",
                          (unsigned long long)entry.bytes, (unsigned long long)(end - entry.begin));
  }
  *out_entry = entry;
  return HR_OK;
}

hr_status hr__npy_header(const hr_tensor *x, hr_text *out_text) {
  int i = 0;
  while (i < CODES && codes[i].dtype != x->dtype) {
    ++i;
  }
  if (i == CODES) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "npy: the format has no arrays of %s", hr_dtype_name(x->dtype));
  }
  hr_text fields = {0};
  bool is_byte = hr_dtype_size(x->dtype) == 1;
  hr_text_printf(&fields, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", is_byte ? '|' : '<',
                 codes[i].dtype == HR_DTYPE_C128 ? "c16" : codes[i].code);
  for (int d = 0; d < x->rank; ++d) {
    hr_text_printf(&fields, d == 0 && x->rank == 1 ? "%lld," : d == 0 ? "%lld" : ", %lld", (long long)x->dims[d]);
  }
  hr_text_append(&fields, "), }");
  while ((10 + fields.length + 1) % ALIGNMENT != 0 && hr_text_char(&fields, ' ')) {
  }
  hr_text_char(&fields, '\n');
  char head[10] = {magic[0], 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(fields.length & 255), (char)(fields.length >> 8)};
  hr_text_append_bytes(out_text, head, sizeof head);
  hr_text_append_bytes(out_text, hr_text_chars(&fields), fields.length);
  hr_status status = hr_text_status(&fields);
  hr_text_fini(&fields);
  return status == HR_OK ? hr_text_status(out_text) : status;
}
