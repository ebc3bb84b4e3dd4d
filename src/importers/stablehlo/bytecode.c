#include "importers/stablehlo/bytecode.h"

uint64_t hr__reader_fail(hr__reader *reader) {
  reader->at = reader->end, reader->has_failed = true;
  return 0;
}

uint8_t hr__read_byte(hr__reader *reader) {
  return reader->at < reader->end ? *reader->at++ : (uint8_t)hr__reader_fail(reader);
}

static uint64_t read_little_endian(hr__reader *reader, size_t bytes) {
  uint64_t value = 0;
  if (hr__reader_left(reader) < bytes) {
    return hr__reader_fail(reader);
  }
  for (size_t i = 0; i < bytes; ++i) {
    value |= (uint64_t)reader->at[i] << (8 * i);
  }
  reader->at += bytes;
  return value;
}

uint64_t hr__read_number(hr__reader *reader) {
  if (reader->at == reader->end) {
    return hr__reader_fail(reader);
  }
  uint8_t first = *reader->at;
  if (first == 0) {
    ++reader->at;
    return read_little_endian(reader, 8);
  }
  int more = __builtin_ctz(first);
  return read_little_endian(reader, (size_t)more + 1) >> (more + 1);
}

int64_t hr__read_signed(hr__reader *reader) {
  uint64_t value = hr__read_number(reader);
  return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

int hr__read_count(hr__reader *reader, int max) {
  uint64_t count = hr__read_number(reader);
  return max >= 0 && count <= (uint64_t)max ? (int)count : (int)hr__reader_fail(reader);
}

int hr__read_items(hr__reader *reader, int max) {
  uint64_t count = hr__read_number(reader), left = hr__reader_left(reader);
  return max >= 0 && count <= (uint64_t)max && count <= left ? (int)count : (int)hr__reader_fail(reader);
}

hr__span hr__read_span(hr__reader *reader, uint64_t size) {
  if (size > hr__reader_left(reader)) {
    hr__reader_fail(reader);
    return (hr__span){reader->end, 0};
  }
  hr__span span = {reader->at, (size_t)size};
  reader->at += size;
  return span;
}
