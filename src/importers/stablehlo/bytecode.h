/* bytecode.h: reads the numbers of MLIR's bytecode, within their bytes.
 *
 * https://mlir.llvm.org/docs/BytecodeFormat/. A reader that has failed is at its end and gives zeros. Threads: one at a
 * time.
 */
#ifndef HEADRACE_IMPORTERS_STABLEHLO_BYTECODE_H_
#define HEADRACE_IMPORTERS_STABLEHLO_BYTECODE_H_

#include "importers/wire.h"

typedef struct hr__reader {
  const uint8_t *at, *end;
  bool has_failed;
} hr__reader;

static inline hr__reader hr__reader_of(hr__span span) {
  return (hr__reader){span.data, span.data + span.size, false};
}
static inline size_t hr__reader_left(const hr__reader *reader) {
  return (size_t)(reader->end - reader->at);
}
static inline bool hr__reader_is_done(const hr__reader *reader) {
  return reader->at == reader->end && !reader->has_failed;
}
/* Ends the reader. Returns 0. */
uint64_t hr__reader_fail(hr__reader *reader);
uint8_t hr__read_byte(hr__reader *reader);
/* A number of 1 to 9 bytes; the zeros at the end of the first byte count those that follow. */
uint64_t hr__read_number(hr__reader *reader);
/* The same with the sign in the last bit. */
int64_t hr__read_signed(hr__reader *reader);
/* A number at most `max`; fails for others. */
int hr__read_count(hr__reader *reader, int max);
/* The number of items that follow, each of which has a byte or more; fails if the file has less, or for more than
 * `max`. So arrays of items take no more memory than a multiple of the file. */
int hr__read_items(hr__reader *reader, int max);
hr__span hr__read_span(hr__reader *reader, uint64_t size);

#endif
