/* safetensors.c: the header of safetensors files: eight bytes of length, then a JSON object with dtype, shape and
 * offsets of each array, and optional metadata. The parser knows this schema alone, so it needs no recursion. Arrays
 * follow each other without gaps and overlaps, as the format demands: a byte of the file has one meaning. */
#include <stdlib.h>
#include <string.h>

#include "array/array_file.h"
#include "base/allocator.h"

enum { LENGTH_BYTES = 8, HEADER_MAX = 100 << 20, ALIGNMENT = 64 };

static const struct {
  hr_dtype dtype;
  const char *name;
} names_of[] = {{HR_DTYPE_BOOL, "BOOL"},
                {HR_DTYPE_U8, "U8"},
                {HR_DTYPE_I8, "I8"},
                {HR_DTYPE_U16, "U16"},
                {HR_DTYPE_I16, "I16"},
                {HR_DTYPE_U32, "U32"},
                {HR_DTYPE_I32, "I32"},
                {HR_DTYPE_U64, "U64"},
                {HR_DTYPE_I64, "I64"},
                {HR_DTYPE_F16, "F16"},
                {HR_DTYPE_BF16, "BF16"},
                {HR_DTYPE_F32, "F32"},
                {HR_DTYPE_F64, "F64"},
                {HR_DTYPE_C64, "C64"},
                {HR_DTYPE_F8E4M3FN, "F8_E4M3"},
                {HR_DTYPE_F8E5M2, "F8_E5M2"},
                {HR_DTYPE_F8E8M0FNU, "F8_E8M0"}};
enum { NAMES = sizeof names_of / sizeof *names_of };

typedef struct parser {
  const char *begin;
  hr__cursor in;
  hr_text name, key, value; /* the strings read last */
} parser;

static hr_status refuse(const parser *p, const char *expected) {
  return hr_status_make(HR_STATUS_DATA_LOSS, "safetensors: byte %lld of the header: expected %s",
                        (long long)(p->in.at - p->begin), expected);
}

static hr_status want(parser *p, char character) {
  char expected[] = {'\'', character, '\'', '\0'};
  return hr__cursor_next_is(&p->in, character) ? HR_OK : refuse(p, expected);
}

/* Four hexadecimal digits; -1 if they are none. */
static int read_unit(parser *p) {
  int unit = 0;
  for (int i = 0; i < 4; ++i, ++p->in.at) {
    char c = p->in.at < p->in.end ? *p->in.at : '\0';
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) {
      return -1;
    }
    unit = unit * 16 + digit;
  }
  return unit;
}

static void append_code(hr_text *text, int code) {
  if (code < 0x80) {
    hr_text_char(text, (char)code);
    return;
  }
  int shift = code < 0x800 ? 6 : code < 0x10000 ? 12 : 18;
  static const int heads[] = {0, 0xc0, 0xe0, 0xf0};
  hr_text_char(text, (char)(heads[shift / 6] | code >> shift));
  for (shift -= 6; shift >= 0; shift -= 6) {
    hr_text_char(text, (char)(0x80 | (code >> shift & 63)));
  }
}

/* After "\u": a character, of which some have two units. A name is a C string, so it holds no zero. */
static hr_status read_code(parser *p, hr_text *text) {
  int code = read_unit(p);
  if (code >= 0xd800 && code < 0xdc00 && p->in.end - p->in.at > 2 && p->in.at[0] == '\\' && p->in.at[1] == 'u') {
    p->in.at += 2;
    int low = read_unit(p);
    code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
  }
  if (code <= 0 || (code >= 0xd800 && code < 0xe000)) {
    return refuse(p, "a character other than 0 after \\u");
  }
  append_code(text, code);
  return HR_OK;
}

static hr_status read_escape(parser *p, hr_text *text) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = p->in.at < p->in.end ? *p->in.at++ : '\0';
  if (c == 'u') {
    return read_code(p, text);
  }
  const char *found = c != '\0' ? strchr(from, c) : NULL;
  if (found == NULL) {
    return refuse(p, "an escape of JSON");
  }
  hr_text_char(text, to[found - from]);
  return HR_OK;
}

static hr_status read_string(parser *p, hr_text *text) {
  hr_text_clear(text);
  HR_RETURN_IF_ERROR(want(p, '"'));
  while (p->in.at < p->in.end && *p->in.at != '"') {
    const char *first = p->in.at;
    while (p->in.at < p->in.end && *p->in.at != '"' && *p->in.at != '\\' && (unsigned char)*p->in.at >= ' ') {
      ++p->in.at;
    }
    hr_text_append_bytes(text, first, (size_t)(p->in.at - first));
    if (p->in.at < p->in.end && *p->in.at == '\\') {
      ++p->in.at;
      HR_RETURN_IF_ERROR(read_escape(p, text));
    } else if (p->in.at < p->in.end && *p->in.at != '"') {
      return refuse(p, "no control character in a string");
    }
  }
  HR_RETURN_IF_ERROR(want(p, '"'));
  if (!hr__is_utf8(hr_text_chars(text), text->length)) {
    return refuse(p, "UTF-8 in the string before it");
  }
  return hr_text_status(text);
}

static hr_status read_integer(parser *p, uint64_t *out_number) {
  hr__cursor_skip_space(&p->in);
  const char *first = p->in.at;
  uint64_t number = 0;
  for (; p->in.at < p->in.end && *p->in.at >= '0' && *p->in.at <= '9'; ++p->in.at) {
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*p->in.at - '0'), &number) || number > INT64_MAX) {
      return refuse(p, "an integer below 2^63");
    }
  }
  *out_number = number;
  return p->in.at > first ? HR_OK : refuse(p, "an integer that is not negative");
}

/* "[1, 2]": at most `room` integers. */
static hr_status read_integers(parser *p, int room, uint64_t *out_numbers, int *out_count) {
  int count = 0;
  HR_RETURN_IF_ERROR(want(p, '['));
  if (!hr__cursor_next_is(&p->in, ']')) {
    do {
      if (count == room) {
        return refuse(p, room == 2 ? "two offsets" : "at most 16 dims");
      }
      HR_RETURN_IF_ERROR(read_integer(p, &out_numbers[count++]));
    } while (hr__cursor_next_is(&p->in, ','));
    HR_RETURN_IF_ERROR(want(p, ']'));
  }
  *out_count = count;
  return HR_OK;
}

static hr_status read_dtype(parser *p, hr_file_entry *entry) {
  HR_RETURN_IF_ERROR(read_string(p, &p->value));
  for (int i = 0; i < NAMES; ++i) {
    if (strcmp(names_of[i].name, hr_text_chars(&p->value)) == 0) {
      entry->dtype = names_of[i].dtype;
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "safetensors: dtype '%.40s' of '%.200s' is not supported",
                        hr_text_chars(&p->value), hr_text_chars(&p->name));
}

/* `out_end`: where the elements end, if the field is that of the offsets. */
static hr_status read_field(parser *p, hr_file_entry *entry, uint64_t *out_end, int *fields) {
  static const char *const names[] = {"dtype", "shape", "data_offsets"};
  uint64_t numbers[HR_RANK_MAX] = {0};
  int field = 0, count = 0;
  HR_RETURN_IF_ERROR(read_string(p, &p->key));
  HR_RETURN_IF_ERROR(want(p, ':'));
  while (field < 3 && strcmp(names[field], hr_text_chars(&p->key)) != 0) {
    ++field;
  }
  if (field == 3 || (*fields & 1 << field) != 0) {
    return refuse(p, "each of dtype, shape and data_offsets once");
  }
  *fields |= 1 << field;
  if (field == 0) {
    return read_dtype(p, entry);
  }
  HR_RETURN_IF_ERROR(read_integers(p, field == 1 ? HR_RANK_MAX : 2, numbers, &count));
  if (field == 2) {
    entry->begin = numbers[0], *out_end = numbers[1];
    return count == 2 ? HR_OK : refuse(p, "two offsets before it");
  }
  entry->rank = count;
  for (int d = 0; d < count; ++d) {
    entry->dims[d] = (int64_t)numbers[d];
  }
  return HR_OK;
}

/* Checks the offsets of an entry against its size and that of the data. */
static hr_status place(parser *p, uint64_t data, uint64_t size, uint64_t end, hr_file_entry *entry) {
  uint64_t begin = entry->begin;
  const char *name = hr_text_chars(&p->name);
  hr_status status = hr_status_annotate(hr__file_measure(entry), "safetensors: '%.200s'", name);
  HR_RETURN_IF_ERROR(status);
  if (begin > end || end > size || end - begin != entry->bytes) {
    return hr_status_make(HR_STATUS_DATA_LOSS,
                          "safetensors: data_offsets of '%.200s' are [%llu, %llu], expected %llu bytes of %llu", name,
                          (unsigned long long)begin, (unsigned long long)end, (unsigned long long)entry->bytes,
                          (unsigned long long)size);
  }
  entry->begin = data + begin;
  return HR_OK;
}

static hr_status read_entry(parser *p, hr_file *file, uint64_t data) {
  hr_file_entry entry = {0};
  int fields = 0;
  uint64_t end = 0;
  HR_RETURN_IF_ERROR(want(p, '{'));
  do {
    HR_RETURN_IF_ERROR(read_field(p, &entry, &end, &fields));
  } while (hr__cursor_next_is(&p->in, ','));
  HR_RETURN_IF_ERROR(want(p, '}'));
  if (fields != 7) {
    return refuse(p, "dtype, shape and data_offsets before it");
  }
  HR_RETURN_IF_ERROR(place(p, data, file->size - data, end, &entry));
  return hr__file_add(file, hr_text_chars(&p->name), &entry);
}

static hr_status read_metadata(parser *p, hr_file *file) {
  if (file->value_count > 0) {
    return refuse(p, "one __metadata__");
  }
  HR_RETURN_IF_ERROR(want(p, '{'));
  if (hr__cursor_next_is(&p->in, '}')) {
    return HR_OK;
  }
  do {
    HR_RETURN_IF_ERROR(read_string(p, &p->key));
    HR_RETURN_IF_ERROR(want(p, ':'));
    HR_RETURN_IF_ERROR(read_string(p, &p->value));
    HR_RETURN_IF_ERROR(hr__file_add_string(file, hr_text_chars(&p->key), hr_text_chars(&p->value), p->value.length));
  } while (hr__cursor_next_is(&p->in, ','));
  return want(p, '}');
}

static hr_status read_header(parser *p, hr_file *file, uint64_t data) {
  HR_RETURN_IF_ERROR(want(p, '{'));
  if (!hr__cursor_next_is(&p->in, '}')) {
    do {
      HR_RETURN_IF_ERROR(read_string(p, &p->name));
      HR_RETURN_IF_ERROR(want(p, ':'));
      bool is_metadata = strcmp(hr_text_chars(&p->name), "__metadata__") == 0;
      HR_RETURN_IF_ERROR(is_metadata ? read_metadata(p, file) : read_entry(p, file, data));
    } while (hr__cursor_next_is(&p->in, ','));
    HR_RETURN_IF_ERROR(want(p, '}'));
  }
  hr__cursor_skip_space(&p->in);
  return p->in.at == p->in.end ? HR_OK : refuse(p, "its end");
}

static hr_status check_gaps(const hr_file *file, uint64_t data) {
  const hr_file_entry **sorted = NULL;
  HR_RETURN_IF_ERROR(hr__file_sort(file, &sorted));
  hr_status status = HR_OK;
  uint64_t at = data;
  for (int i = 0; i < file->count && status == HR_OK; at = sorted[i]->begin + sorted[i]->bytes, ++i) {
    if (sorted[i]->begin != at) {
      status = hr_status_make(HR_STATUS_DATA_LOSS,
                              "safetensors: '%.200s' begins at byte %llu of the data, expected %llu", sorted[i]->name,
                              (unsigned long long)(sorted[i]->begin - data), (unsigned long long)(at - data));
    }
  }
  if (status == HR_OK && at != file->size) {
    status = hr_status_make(HR_STATUS_DATA_LOSS, "safetensors: the arrays end at byte %llu, the file at %llu",
                            (unsigned long long)at, (unsigned long long)file->size);
  }
  hr_free(sorted);
  return status;
}

hr_status hr__safetensors_read(hr_file *file) {
  uint64_t length = 0, rest = file->size - LENGTH_BYTES;
  if (file->size < LENGTH_BYTES) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "safetensors: %zu bytes, expected at least 8", file->size);
  }
  memcpy(&length, file->bytes, LENGTH_BYTES);
  if (length > rest || length > HEADER_MAX) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "safetensors: header length is %llu, expected at most %llu",
                          (unsigned long long)length, (unsigned long long)(rest < HEADER_MAX ? rest : HEADER_MAX));
  }
  const char *text = file->bytes + LENGTH_BYTES;
  parser p = {.begin = text, .in = {text, text + length}};
  hr_status status = read_header(&p, file, LENGTH_BYTES + length);
  hr_text_fini(&p.name);
  hr_text_fini(&p.key);
  hr_text_fini(&p.value);
  HR_RETURN_IF_ERROR(status);
  HR_RETURN_IF_ERROR(hr__file_check_names(file));
  return check_gaps(file, LENGTH_BYTES + length);
}

/* ---- writing ---- */

static void append_string(hr_text *text, const char *string) {
  hr_text_char(text, '"');
  for (; *string != '\0'; ++string) {
    if (*string == '"' || *string == '\\') {
      hr_text_char(text, '\\');
      hr_text_char(text, *string);
    } else if ((unsigned char)*string < ' ') {
      hr_text_printf(text, "\\u%04x", (unsigned)*string);
    } else {
      hr_text_char(text, *string);
    }
  }
  hr_text_char(text, '"');
}

/* Arrays of whole sixteens first, then those of large elements, so that as many as possible are aligned when the file
 * is mapped. */
static int rank_of(const hr_tensor *x) {
  int64_t size = (int64_t)hr_dtype_size(x->dtype);
  return hr_tensor_count(x) * size % 16 == 0 ? 0 : 17 - (int)size;
}

static void sort_arrays(int count, const hr_tensor *const *arrays, int *order) {
  int n = 0;
  for (int rank = 0; rank <= 16; ++rank) {
    for (int i = 0; i < count; ++i) {
      if (rank_of(arrays[i]) == rank) {
        order[n++] = i;
      }
    }
  }
}

static hr_status append_entry(hr_text *text, const char *name, const hr_tensor *x, uint64_t *at) {
  int i = 0;
  while (i < NAMES && names_of[i].dtype != x->dtype) {
    ++i;
  }
  if (i == NAMES) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "safetensors: '%.200s': the format has no arrays of %s", name,
                          hr_dtype_name(x->dtype));
  }
  uint64_t end = *at + (uint64_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  append_string(text, name);
  hr_text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[", names_of[i].name);
  for (int d = 0; d < x->rank; ++d) {
    hr_text_printf(text, d > 0 ? ",%lld" : "%lld", (long long)x->dims[d]);
  }
  hr_text_printf(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at, (unsigned long long)end);
  *at = end;
  return HR_OK;
}

static hr_status check_string(const char *string) {
  return hr__is_utf8(string, strlen(string))
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "safetensors: a name is no UTF-8");
}

static hr_status append_texts(hr_text *text, int count, const hr_file_value *values) {
  hr_text_append(text, "\"__metadata__\":{");
  for (int i = 0; i < count; ++i) {
    if (values[i].kind != HR_FILE_STRING) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "safetensors: metadata '%.200s' is no string", values[i].key);
    }
    HR_RETURN_IF_ERROR(check_string(values[i].key));
    HR_RETURN_IF_ERROR(check_string(values[i].strings[0].chars));
    hr_text_append(text, i > 0 ? "," : "");
    append_string(text, values[i].key);
    hr_text_char(text, ':');
    append_string(text, values[i].strings[0].chars);
  }
  hr_text_char(text, '}');
  return HR_OK;
}

hr_status hr__safetensors_header(const hr_file_contents *contents, int *out_order, hr_text *out_text) {
  uint64_t at = 0;
  int count = contents->count;
  sort_arrays(count, contents->arrays, out_order);
  hr_text_append_bytes(out_text, "\0\0\0\0\0\0\0\0{", LENGTH_BYTES + 1);
  if (contents->value_count > 0) {
    HR_RETURN_IF_ERROR(append_texts(out_text, contents->value_count, contents->values));
  }
  for (int i = 0; i < count; ++i) {
    const char *name = contents->names[out_order[i]];
    HR_RETURN_IF_ERROR(check_string(name));
    if (strcmp(name, "__metadata__") == 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "safetensors: an array can't have the name __metadata__");
    }
    hr_text_append(out_text, i > 0 || contents->value_count > 0 ? "," : "");
    HR_RETURN_IF_ERROR(append_entry(out_text, name, contents->arrays[out_order[i]], &at));
  }
  hr_text_char(out_text, '}');
  while (out_text->length % ALIGNMENT != 0 && hr_text_char(out_text, ' ')) {
  }
  HR_RETURN_IF_ERROR(hr_text_status(out_text));
  uint64_t length = out_text->length - LENGTH_BYTES;
  if (length > HEADER_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "safetensors: the header has %llu bytes, expected at most %d",
                          (unsigned long long)length, HEADER_MAX);
  }
  memcpy(out_text->data, &length, LENGTH_BYTES);
  return HR_OK;
}
