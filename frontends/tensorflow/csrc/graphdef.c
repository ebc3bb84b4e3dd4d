/* graphdef.c: a copy of protocol buffers' wire format that leaves out attributes.
 *
 * A message is fields: a varint with number and kind, then a varint, 4 or 8 bytes, or a length and bytes. Messages on
 * the way to attributes are copied field by field, others as they are. A length keeps its number of bytes: it may have
 * leading zeros, so nothing moves when a message gets shorter.
 */
#include "graphdef.h"

#include <stdbool.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef enum kind { OPAQUE = 0, GRAPH, LIBRARY, FUNCTION, NODE, ATTRIBUTE } kind;

/* The messages that matter, by the message that they are in and their number: GraphDef, FunctionDefLibrary, FunctionDef
 * and NodeDef. */
static kind kind_of(kind in, uint64_t number) {
  switch (in) {
    case GRAPH:
      return number == 1 ? NODE : number == 2 ? LIBRARY : OPAQUE;
    case LIBRARY:
      return number == 1 ? FUNCTION : OPAQUE;
    case FUNCTION:
      return number == 3 ? NODE : number == 5 ? ATTRIBUTE : OPAQUE;
    case NODE:
      return number == 5 ? ATTRIBUTE : OPAQUE;
    default:
      return OPAQUE;
  }
}

typedef struct span {
  const uint8_t *at, *end;
} span;

static bool read_varint(span *s, uint64_t *out_value) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (s->at == s->end) {
      return false;
    }
    uint8_t byte = *s->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) {
      *out_value = value;
      return true;
    }
  }
  return false;
}

/* A field: its bytes, and if it has a length, its contents. */
typedef struct field {
  uint64_t number;
  int wire;
  const uint8_t *begin, *length;
  span contents;
} field;

static bool skip(span *s, uint64_t bytes) {
  if ((uint64_t)(s->end - s->at) < bytes) {
    return false;
  }
  s->at += bytes;
  return true;
}

static bool read_field(span *s, field *out_field) {
  uint64_t tag, value = 0;
  out_field->begin = s->at;
  if (!read_varint(s, &tag)) {
    return false;
  }
  out_field->number = tag >> 3, out_field->wire = (int)(tag & 7), out_field->length = s->at;
  switch (out_field->wire) {
    case VARINT:
      return read_varint(s, &value);
    case FIXED64:
      return skip(s, 8);
    case FIXED32:
      return skip(s, 4);
    case BYTES:
      if (!read_varint(s, &value)) {
        return false;
      }
      out_field->contents.at = s->at;
      if (!skip(s, value)) {
        return false;
      }
      out_field->contents.end = s->at;
      return true;
    default:
      return false;
  }
}

/* True if an entry of a map has this key, its field 1. False for damaged ones, which are copied. */
static bool has_key(span entry, const char *key) {
  field f;
  while (entry.at < entry.end && read_field(&entry, &f)) {
    if (f.number == 1 && f.wire == BYTES) {
      size_t size = (size_t)(f.contents.end - f.contents.at);
      return size == strlen(key) && memcmp(f.contents.at, key, size) == 0;
    }
  }
  return false;
}

/* Writes a length in so many bytes. */
static void write_length(uint8_t *at, size_t bytes, uint64_t length) {
  for (size_t i = 0; i < bytes; ++i, length >>= 7) {
    at[i] = (uint8_t)((length & 0x7f) | (i + 1 < bytes ? 0x80 : 0));
  }
}

static uint8_t *copy_bytes(const uint8_t *begin, const uint8_t *end, uint8_t *out) {
  memcpy(out, begin, (size_t)(end - begin));
  return out + (end - begin);
}

/* Copies a message; NULL if it is damaged. The depth is that of `kind`. */
static uint8_t *copy_message(span message, kind in, const char *attribute, uint8_t *out) {
  field f;
  while (message.at < message.end) {
    if (!read_field(&message, &f)) {
      return NULL;
    }
    kind inner = f.wire == BYTES ? kind_of(in, f.number) : OPAQUE;
    if (inner == OPAQUE) {
      out = copy_bytes(f.begin, message.at, out);
    } else if (inner == ATTRIBUTE) {
      out = has_key(f.contents, attribute) ? out : copy_bytes(f.begin, message.at, out);
    } else {
      out = copy_bytes(f.begin, f.contents.at, out);
      uint8_t *begin = out;
      size_t bytes = (size_t)(f.contents.at - f.length);
      out = copy_message(f.contents, inner, attribute, out);
      if (out == NULL) {
        return NULL;
      }
      write_length(begin - bytes, bytes, (uint64_t)(out - begin));
    }
  }
  return out;
}

hr_status htf_graph_without(const uint8_t *graph, size_t size, const char *attribute, uint8_t *out, size_t *out_size) {
  span message = {.at = graph, .end = graph + size};
  uint8_t *end = copy_message(message, GRAPH, attribute, out);
  if (end == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "headrace: a damaged graph of %zu bytes", size);
  }
  *out_size = (size_t)(end - out);
  return HR_OK;
}
