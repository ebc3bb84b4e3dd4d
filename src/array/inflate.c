/* inflate.c: decompression of deflate streams.
 *
 * A stream is a sequence of blocks: stored bytes, or symbols in a fixed or in its own Huffman code (RFC 1951). Codes of
 * up to 10 bits are found in a table, longer ones by counting: those of one length are consecutive numbers. Bits past
 * the end of the stream read as zeros and are refused when they are used.
 */
#include "array/inflate.h"

#include <string.h>

enum { FAST_BITS = 10, CODE_BITS_MAX = 15, LITERALS = 288, DISTANCES = 30, END_OF_BLOCK = 256, LENGTH_CODES = 19 };

typedef struct code {
  uint16_t fast[1 << FAST_BITS];     /* symbol << 4 | bits; 0 for longer codes and none */
  uint16_t count[CODE_BITS_MAX + 1]; /* codes of each length */
  uint16_t symbols[LITERALS];        /* by length, then by value */
} code;

typedef struct inflater {
  const unsigned char *at, *end;
  uint64_t bits; /* the next ones, from the lowest on */
  int available;
  unsigned char *begin, *to, *limit;
  code literals, distances;
} inflater;

static hr_status damaged(const char *what) {
  return hr_status_make(HR_STATUS_DATA_LOSS, "deflate: %s", what);
}

/* ---- bits ---- */

static void refill(inflater *in) {
  while (in->available <= 56 && in->at < in->end) {
    in->bits |= (uint64_t)*in->at++ << in->available;
    in->available += 8;
  }
}

static hr_status take(inflater *in, int count, unsigned *out) {
  *out = 0;
  refill(in);
  if (count > in->available) {
    return damaged("the stream ends within a block");
  }
  *out = (unsigned)(in->bits & ((1u << count) - 1));
  in->bits >>= count, in->available -= count;
  return HR_OK;
}

/* ---- codes ---- */

static unsigned reversed(unsigned value, int bits) {
  unsigned result = 0;
  for (int i = 0; i < bits; ++i) {
    result |= (value >> i & 1) << (bits - 1 - i);
  }
  return result;
}

/* Numbers the codes of these lengths, and fills the table with the short ones. */
static void number_codes(code *c, const uint8_t *lengths, int symbols) {
  unsigned next[CODE_BITS_MAX + 2] = {0}, place[CODE_BITS_MAX + 2] = {0};
  for (int bits = 1; bits <= CODE_BITS_MAX; ++bits) {
    next[bits + 1] = (next[bits] + c->count[bits]) << 1;
    place[bits + 1] = place[bits] + c->count[bits];
  }
  memset(c->fast, 0, sizeof c->fast);
  for (int symbol = 0; symbol < symbols; ++symbol) {
    int bits = lengths[symbol];
    if (bits == 0) {
      continue;
    }
    c->symbols[place[bits]++] = (uint16_t)symbol;
    unsigned first = reversed(next[bits]++, bits);
    for (unsigned i = first; bits <= FAST_BITS && i < 1 << FAST_BITS; i += 1u << bits) {
      c->fast[i] = (uint16_t)(symbol << 4 | bits);
    }
  }
}

/* A code must use all bit strings, but for one of a single symbol, and for an empty one, which is never used. */
static hr_status make_code(code *c, const uint8_t *lengths, int symbols) {
  int left = 1, used = 0;
  memset(c->count, 0, sizeof c->count);
  for (int i = 0; i < symbols; ++i) {
    c->count[lengths[i]] = (uint16_t)(c->count[lengths[i]] + 1);
  }
  c->count[0] = 0;
  for (int bits = 1; bits <= CODE_BITS_MAX; ++bits) {
    left = 2 * left - c->count[bits], used += c->count[bits];
    if (left < 0) {
      return damaged("a Huffman code has too many symbols");
    }
  }
  if (left > 0 && !(used == 0 || (used == 1 && c->count[1] == 1))) {
    return damaged("a Huffman code has too few symbols");
  }
  number_codes(c, lengths, symbols);
  return HR_OK;
}

/* The codes of one length are `first` to `first + count - 1`, read from the highest bit on. */
static hr_status take_long_symbol(inflater *in, const code *c, unsigned *out) {
  int value = 0, first = 0, index = 0;
  for (int bits = 1; bits <= CODE_BITS_MAX && bits <= in->available; ++bits) {
    value |= (int)(in->bits >> (bits - 1) & 1);
    if (value - first < c->count[bits]) {
      *out = c->symbols[index + value - first];
      in->bits >>= bits, in->available -= bits;
      return HR_OK;
    }
    index += c->count[bits], first = (first + c->count[bits]) << 1, value <<= 1;
  }
  *out = 0;
  return damaged(in->available < CODE_BITS_MAX ? "the stream ends within a block" : "no symbol has these bits");
}

static inline hr_status take_symbol(inflater *in, const code *c, unsigned *out) {
  refill(in);
  unsigned found = c->fast[in->bits & ((1 << FAST_BITS) - 1)];
  int bits = (int)(found & 15);
  if (bits == 0 || bits > in->available) {
    return take_long_symbol(in, c, out);
  }
  *out = found >> 4;
  in->bits >>= bits, in->available -= bits;
  return HR_OK;
}

/* ---- blocks ---- */

static hr_status copy_stored(inflater *in) {
  unsigned length, complement;
  in->bits >>= in->available % 8, in->available -= in->available % 8;
  HR_RETURN_IF_ERROR(take(in, 16, &length));
  HR_RETURN_IF_ERROR(take(in, 16, &complement));
  if ((length ^ complement) != 0xffff) {
    return damaged("the length of a stored block and its complement differ");
  }
  in->at -= in->available / 8, in->bits = 0, in->available = 0;
  size_t room = (size_t)(in->limit - in->to), count = length < room ? length : room;
  if (length > (size_t)(in->end - in->at)) {
    return damaged("the stream ends within a block");
  }
  if (count > 0) {
    memcpy(in->to, in->at, count);
  }
  in->to += count, in->at += length;
  return count == length ? HR_OK : damaged("the stream has more bytes than expected");
}

/* Copies from what was written `distance` bytes before. The ranges may overlap: a byte may be one of this copy. */
static hr_status copy_back(inflater *in, unsigned length, unsigned distance) {
  if (distance > (size_t)(in->to - in->begin)) {
    return damaged("a distance reaches before the first byte");
  }
  size_t room = (size_t)(in->limit - in->to), count = length < room ? length : room;
  const unsigned char *from = in->to - distance;
  if (distance >= count) {
    memcpy(in->to, from, count);
  } else {
    for (size_t i = 0; i < count; ++i) {
      in->to[i] = from[i];
    }
  }
  in->to += count;
  return count == length ? HR_OK : damaged("the stream has more bytes than expected");
}

/* Symbol 257 + i stands for lengths[i] and more, by the bits that follow; so do distances. */
static hr_status take_copy(inflater *in, unsigned symbol) {
  static const uint16_t lengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  unsigned more, place, far;
  if (symbol > 285) {
    return damaged("no length has this symbol");
  }
  HR_RETURN_IF_ERROR(take(in, length_bits[symbol - 257], &more));
  HR_RETURN_IF_ERROR(take_symbol(in, &in->distances, &place));
  if (place >= DISTANCES) {
    return damaged("no distance has this symbol");
  }
  int bits = place < 4 ? 0 : (int)place / 2 - 1;
  unsigned distance = place < 4 ? 1 + place : 1 + ((2 + place % 2) << bits);
  HR_RETURN_IF_ERROR(take(in, bits, &far));
  return copy_back(in, lengths[symbol - 257] + more, distance + far);
}

static hr_status copy_symbols(inflater *in) {
  for (;;) {
    unsigned symbol;
    HR_RETURN_IF_ERROR(take_symbol(in, &in->literals, &symbol));
    if (symbol == END_OF_BLOCK) {
      return HR_OK;
    }
    if (symbol > END_OF_BLOCK) {
      HR_RETURN_IF_ERROR(take_copy(in, symbol));
    } else if (in->to == in->limit) {
      return damaged("the stream has more bytes than expected");
    } else {
      *in->to++ = (unsigned char)symbol;
    }
  }
}

static hr_status use_fixed_codes(inflater *in) {
  uint8_t lengths[LITERALS];
  for (int i = 0; i < LITERALS; ++i) {
    lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  }
  HR_RETURN_IF_ERROR(make_code(&in->literals, lengths, LITERALS));
  memset(lengths, 5, 32);
  return make_code(&in->distances, lengths, 32);
}

/* The lengths of both codes, themselves in a code: 0 to 15, or repetitions of the last length or of 0. */
static hr_status take_lengths(inflater *in, uint8_t *lengths, int count) {
  for (int i = 0; i < count;) {
    unsigned symbol, more;
    HR_RETURN_IF_ERROR(take_symbol(in, &in->literals, &symbol));
    if (symbol < 16) {
      lengths[i++] = (uint8_t)symbol;
      continue;
    }
    HR_RETURN_IF_ERROR(take(in, symbol == 16 ? 2 : symbol == 17 ? 3 : 7, &more));
    int times = (int)more + (symbol == 18 ? 11 : 3);
    if (times > count - i || (symbol == 16 && i == 0)) {
      return damaged("the lengths of a Huffman code repeat too often");
    }
    memset(lengths + i, symbol == 16 ? lengths[i - 1] : 0, (size_t)times);
    i += times;
  }
  return HR_OK;
}

static hr_status use_own_codes(inflater *in) {
  static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  uint8_t lengths[LITERALS + 32] = {0};
  unsigned literals, distances, codes, bits;
  HR_RETURN_IF_ERROR(take(in, 5, &literals));
  HR_RETURN_IF_ERROR(take(in, 5, &distances));
  HR_RETURN_IF_ERROR(take(in, 4, &codes));
  literals += 257, distances += 1;
  if (literals > 286 || distances > DISTANCES) {
    return damaged("a Huffman code has too many symbols");
  }
  for (unsigned i = 0; i < codes + 4; ++i) {
    HR_RETURN_IF_ERROR(take(in, 3, &bits));
    lengths[order[i]] = (uint8_t)bits;
  }
  HR_RETURN_IF_ERROR(make_code(&in->literals, lengths, LENGTH_CODES));
  HR_RETURN_IF_ERROR(take_lengths(in, lengths, (int)(literals + distances)));
  if (lengths[END_OF_BLOCK] == 0) {
    return damaged("a block has no end");
  }
  HR_RETURN_IF_ERROR(make_code(&in->distances, lengths + literals, (int)distances));
  return make_code(&in->literals, lengths, (int)literals);
}

static hr_status take_block(inflater *in, bool *out_is_last) {
  unsigned is_last, kind;
  HR_RETURN_IF_ERROR(take(in, 1, &is_last));
  HR_RETURN_IF_ERROR(take(in, 2, &kind));
  *out_is_last = is_last != 0;
  if (kind == 0) {
    return copy_stored(in);
  }
  if (kind == 3) {
    return damaged("no block has kind 3");
  }
  HR_RETURN_IF_ERROR(kind == 1 ? use_fixed_codes(in) : use_own_codes(in));
  return copy_symbols(in);
}

hr_status hr__inflate(const void *packed, size_t packed_bytes, void *out, size_t bytes, bool is_prefix) {
  inflater in = {.at = packed,
                 .end = (const unsigned char *)packed + packed_bytes,
                 .begin = out,
                 .to = out,
                 .limit = (unsigned char *)out + bytes};
  hr_status status = HR_OK;
  for (bool is_last = false; !is_last && status == HR_OK && !(is_prefix && in.to == in.limit);) {
    status = take_block(&in, &is_last);
  }
  if (is_prefix && in.to == in.limit) {
    hr_status_free(status);
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(status);
  if (in.to != in.limit) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "deflate: the stream has %zu bytes, expected %zu",
                          (size_t)(in.to - in.begin), bytes);
  }
  size_t unused = (size_t)(in.end - in.at) + (size_t)in.available / 8;
  return unused == 0 ? HR_OK : hr_status_make(HR_STATUS_DATA_LOSS, "deflate: %zu bytes follow the last block", unused);
}

/* ---- checksum ---- */

/* Eight bytes a step, each by a table of its own: tables[k][b] is the checksum of b and k zeros behind it. */
uint32_t hr__crc32(uint32_t crc, const void *bytes, size_t count) {
  uint32_t tables[8][256];
  const unsigned char *at = bytes;
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t value = b;
    for (int bit = 0; bit < 8; ++bit) {
      value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    }
    tables[0][b] = value;
  }
  for (int k = 1; k < 8; ++k) {
    for (int b = 0; b < 256; ++b) {
      tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
    }
  }
  crc = ~crc;
  for (; count >= 8; count -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    word ^= crc, crc = 0;
    for (int k = 0; k < 8; ++k) {
      crc ^= tables[7 - k][word >> 8 * k & 255];
    }
  }
  for (; count > 0; --count) {
    crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 255];
  }
  return ~crc;
}
