/* protobuf.h: writes messages in the wire format of protocol buffers, into texts.
 *
 *   size_t message = hr_protobuf_begin(&text, 1);
 *   hr_protobuf_int(&text, 2, 150);
 *   hr_protobuf_end(&text, message);
 *
 * https://protobuf.dev/programming-guides/encoding/: a field is its number and type, then its value. A message within
 * another one has its length first; four bytes are reserved for it, so it may have 256 MB less one byte.
 * Failed appends are kept by the text. Threads: one at a time.
 */
#ifndef HEADRACE_BASE_PROTOBUF_H_
#define HEADRACE_BASE_PROTOBUF_H_

#include "base/text.h"

/* A varint: of the types int32 to uint64, bool and enum. Negative numbers take ten bytes. */
void hr_protobuf_int(hr_text *text, unsigned field, uint64_t value);
void hr_protobuf_fixed64(hr_text *text, unsigned field, uint64_t value);
void hr_protobuf_double(hr_text *text, unsigned field, double value);
/* Two strings as one. */
void hr_protobuf_strings(hr_text *text, unsigned field, const char *first, const char *second);
void hr_protobuf_string(hr_text *text, unsigned field, const char *string);
/* Begins a message that is a field; `end` takes the result. */
size_t hr_protobuf_begin(hr_text *text, unsigned field);
void hr_protobuf_end(hr_text *text, size_t message);

#endif
