#include "base/protobuf.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, LENGTH_BYTES = 4 };

static void append_varint(hr_text *text, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    hr_text_char(text, (char)(0x80 | (value & 0x7f)));
  }
  hr_text_char(text, (char)value);
}

static void append_tag(hr_text *text, unsigned field, unsigned type) {
  append_varint(text, (uint64_t)field << 3 | type);
}

void hr_protobuf_int(hr_text *text, unsigned field, uint64_t value) {
  append_tag(text, field, VARINT);
  append_varint(text, value);
}

void hr_protobuf_fixed64(hr_text *text, unsigned field, uint64_t value) {
  append_tag(text, field, FIXED64);
  for (int i = 0; i < 8; ++i) {
    hr_text_char(text, (char)(value >> (8 * i)));
  }
}

void hr_protobuf_double(hr_text *text, unsigned field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  hr_protobuf_fixed64(text, field, bits);
}

void hr_protobuf_strings(hr_text *text, unsigned field, const char *first, const char *second) {
  append_tag(text, field, LENGTH);
  append_varint(text, strlen(first) + strlen(second));
  hr_text_append(text, first);
  hr_text_append(text, second);
}

void hr_protobuf_string(hr_text *text, unsigned field, const char *string) {
  hr_protobuf_strings(text, field, string, "");
}

size_t hr_protobuf_begin(hr_text *text, unsigned field) {
  append_tag(text, field, LENGTH);
  hr_text_append_bytes(text, "\0\0\0\0", LENGTH_BYTES);
  return text->length;
}

/* A varint may have more bytes than it needs. */
void hr_protobuf_end(hr_text *text, size_t message) {
  size_t length = text->length - message;
  for (int i = 0; i < LENGTH_BYTES && !text->failed; ++i) {
    size_t more = i < LENGTH_BYTES - 1 ? 0x80 : 0;
    text->data[message - LENGTH_BYTES + (size_t)i] = (char)(more | ((length >> (7 * i)) & 0x7f));
  }
}
