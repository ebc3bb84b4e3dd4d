#include "importers/wire.h"

static bool fail(hr__wire *wire, const char *failure) {
  wire->failure = failure, wire->at = wire->end;
  return false;
}

static bool read_varint(hr__wire *wire, uint64_t *out_value) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (wire->at == wire->end) {
      return fail(wire, "a number is cut short");
    }
    uint8_t byte = *wire->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out_value = value;
      return true;
    }
  }
  return fail(wire, "a number has more than ten bytes");
}

static bool read_fixed(hr__wire *wire, size_t bytes, uint64_t *out_value) {
  if ((size_t)(wire->end - wire->at) < bytes) {
    return fail(wire, "a number is cut short");
  }
  *out_value = 0;
  memcpy(out_value, wire->at, bytes);
  wire->at += bytes;
  return true;
}

static bool read_bytes(hr__wire *wire, hr__span *out_bytes) {
  uint64_t size = 0;
  if (!read_varint(wire, &size)) {
    return false;
  }
  if (size > (uint64_t)(wire->end - wire->at)) {
    return fail(wire, "a field is longer than its message");
  }
  *out_bytes = (hr__span){wire->at, (size_t)size};
  wire->at += size;
  return true;
}

bool hr__wire_next(hr__wire *wire, hr__field *out_field) {
  uint64_t key = 0;
  if (wire->failure != NULL || wire->at == wire->end || !read_varint(wire, &key)) {
    return false;
  }
  enum { NUMBER_MAX = 0x1fffffff };
  if (key >> 3 == 0 || key >> 3 > NUMBER_MAX) {
    return fail(wire, "the number of a field is out of range");
  }
  *out_field = (hr__field){.number = (uint32_t)(key >> 3), .type = (hr__wire_type)(key & 7)};
  switch (out_field->type) {
    case HR__WIRE_VARINT:
      return read_varint(wire, &out_field->value);
    case HR__WIRE_FIXED64:
      return read_fixed(wire, 8, &out_field->value);
    case HR__WIRE_FIXED32:
      return read_fixed(wire, 4, &out_field->value);
    case HR__WIRE_BYTES:
      return read_bytes(wire, &out_field->bytes);
    default:
      return fail(wire, "a field has an unknown type");
  }
}

bool hr__wire_number(hr__wire *packed, hr__wire_type type, uint64_t *out_number) {
  if (packed->failure != NULL || packed->at == packed->end) {
    return false;
  }
  return type == HR__WIRE_VARINT ? read_varint(packed, out_number)
                                 : read_fixed(packed, type == HR__WIRE_FIXED64 ? 8 : 4, out_number);
}

hr_status hr__wire_status(const hr__wire *wire) {
  return wire->failure == NULL ? HR_OK : hr_status_make(HR_STATUS_DATA_LOSS, "the file is damaged: %s", wire->failure);
}

/* The bytes of the character at `at`; 0 if it is none. Shortest forms alone, no surrogates, at most U+10FFFF. */
static size_t character_size(const uint8_t *at, size_t left) {
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  size_t size = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
  if (size == 0 || size > left) {
    return 0;
  }
  uint32_t code = size == 1 ? at[0] : at[0] & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (at[i] >> 6 != 2) {
      return 0;
    }
    code = code << 6 | (at[i] & 0x3f);
  }
  bool is_surrogate = code >= 0xd800 && code < 0xe000;
  bool is_control = code < ' ' || code == 127;
  return code < least[size] || code > 0x10ffff || is_surrogate || is_control ? 0 : size;
}

bool hr__span_is_text(hr__span span) {
  for (size_t at = 0; at < span.size;) {
    size_t size = character_size(span.data + at, span.size - at);
    if (size == 0) {
      return false;
    }
    at += size;
  }
  return true;
}
