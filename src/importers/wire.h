/* wire.h: reads messages in the wire format of protocol buffers, in the memory of the file.
 *
 *   hr__wire wire = hr__wire_of(message);
 *   for (hr__field field; hr__wire_next(&wire, &field);) { ... field.number ... }
 *   status = hr__wire_status(&wire);
 *
 * https://protobuf.dev/programming-guides/encoding/. Nothing is copied or allocated, and any bytes are safe. Fields of
 * unknown numbers are the caller's to skip; groups are refused. src/base/protobuf.h writes messages.
 */
#ifndef HEADRACE_IMPORTERS_WIRE_H_
#define HEADRACE_IMPORTERS_WIRE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "headrace/status.h"

/* Bytes of the file: a message, a text or packed numbers. */
typedef struct hr__span {
  const uint8_t *data;
  size_t size;
} hr__span;

typedef enum hr__wire_type {
  HR__WIRE_VARINT = 0,
  HR__WIRE_FIXED64 = 1,
  HR__WIRE_BYTES = 2,
  HR__WIRE_FIXED32 = 5
} hr__wire_type;

typedef struct hr__field {
  uint32_t number;
  hr__wire_type type;
  uint64_t value; /* of VARINT and FIXED */
  hr__span bytes; /* of BYTES */
} hr__field;

typedef struct hr__wire {
  const uint8_t *at, *end;
  const char *failure; /* NULL: none */
} hr__wire;

static inline hr__wire hr__wire_of(hr__span message) {
  return (hr__wire){message.data, message.data + message.size, NULL};
}
/* Reads the next field; false at the end, and after a failure. */
bool hr__wire_next(hr__wire *wire, hr__field *out_field);
/* Reads the next number of a packed field. */
bool hr__wire_number(hr__wire *packed, hr__wire_type type, uint64_t *out_number);
/* DATA_LOSS if a read failed. */
HR_MUST_USE hr_status hr__wire_status(const hr__wire *wire);

static inline float hr__wire_float(uint64_t value) {
  uint32_t bits = (uint32_t)value;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* True if the bytes are this text. */
static inline bool hr__span_is(hr__span span, const char *text) {
  return span.size == strlen(text) && (span.size == 0 || memcmp(span.data, text, span.size) == 0);
}
static inline bool hr__span_equal(hr__span a, hr__span b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
/* True for UTF-8 without control characters. */
bool hr__span_is_text(hr__span span);

#endif
