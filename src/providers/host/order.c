/* order.c: see order.h. Radix sort by 8-bit digits of the keys; short lines by insertion. */
#include "providers/host/order.h"

#include <string.h>

#define NAME_(fn, form) fn##_##form
#define NAME__(fn, form) NAME_(fn, form)
#define NAME(fn) NAME__(fn, FORM)

#define FORM packed
#define E uint64_t
#define LESS(a, b) ((a) < (b))
#define DIGIT(e, shift) ((e) >> (32 + (shift)) & 0xff)
#include "providers/host/order.inc"
#undef FORM
#undef E
#undef LESS
#undef DIGIT

#define FORM pairs
#define E hr__pair
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
#define DIGIT(e, shift) ((e).key >> (shift)&0xff)
#include "providers/host/order.inc"
#undef FORM
#undef E
#undef LESS
#undef DIGIT

/* ---- keys ---- */

static inline uint64_t key_signed(int64_t value, int bits) {
  return ((uint64_t)value ^ (UINT64_C(1) << (bits - 1))) & (bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX);
}

/* Bits of a floating point number whose finite values are below `infinity`. */
static inline uint64_t key_real(uint64_t pattern, int bits, uint64_t infinity) {
  uint64_t sign = UINT64_C(1) << (bits - 1), all = sign | (sign - 1), size = pattern & ~sign;
  if (size > infinity) {
    return all;
  }
  return size == 0 ? sign : (pattern & sign) != 0 ? ~pattern & all : pattern | sign;
}

static inline uint64_t bits_f32(const void *at) {
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

static inline uint64_t bits_f64(const void *at) {
  uint64_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

/* X(dtype, type, bits of a key, the key of *at) */
#define EACH_KEY(X)                                                  \
  X(HR_DTYPE_BOOL, uint8_t, 8, *at != 0)                             \
  X(HR_DTYPE_U8, uint8_t, 8, *at)                                    \
  X(HR_DTYPE_I8, int8_t, 8, key_signed(*at, 8))                      \
  X(HR_DTYPE_U16, uint16_t, 16, *at)                                 \
  X(HR_DTYPE_I16, int16_t, 16, key_signed(*at, 16))                  \
  X(HR_DTYPE_F16, uint16_t, 16, key_real(*at, 16, 0x7c00))           \
  X(HR_DTYPE_BF16, uint16_t, 16, key_real(*at, 16, 0x7f80))          \
  X(HR_DTYPE_U32, uint32_t, 32, *at)                                 \
  X(HR_DTYPE_I32, int32_t, 32, key_signed(*at, 32))                  \
  X(HR_DTYPE_F32, float, 32, key_real(bits_f32(at), 32, 0x7f800000)) \
  X(HR_DTYPE_U64, uint64_t, 64, *at)                                 \
  X(HR_DTYPE_I64, int64_t, 64, key_signed(*at, 64))                  \
  X(HR_DTYPE_F64, double, 64, key_real(bits_f64(at), 64, UINT64_C(0x7ff0000000000000)))

static int key_bits_of(hr_dtype dtype) {
  switch (dtype) {
#define CASE(dtype_, type, bits, key) \
  case dtype_:                        \
    return bits;
    EACH_KEY(CASE)
#undef CASE
    default:
      return 0;
  }
}

uint64_t hr__order_key_of(hr_dtype dtype, const void *value) {
  switch (dtype) {
#define CASE(dtype_, type, bits, key) \
  case dtype_: {                      \
    const type *at = value;           \
    return key;                       \
  }
    EACH_KEY(CASE)
#undef CASE
    default:
      return 0;
  }
}

int64_t hr__order_search(hr_dtype dtype, const void *line, const int64_t *places, int64_t count, uint64_t key,
                         bool behind) {
  int64_t low = 0, left = count;
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)                            \
  case dtype_:                                                    \
    while (left > 0) {                                            \
      int64_t half = left / 2, place = low + half;                \
      if (places != NULL) {                                       \
        place = places[place];                                    \
        if (place < 0 || place >= count) {                        \
          return -1;                                              \
        }                                                         \
      }                                                           \
      const type *at = (const type *)line + place;                \
      uint64_t bound = (uint64_t)(key_);                          \
      bool is_before = (bound < key) | ((bound == key) & behind); \
      low = is_before ? low + half + 1 : low;                     \
      left = is_before ? left - half - 1 : half;                  \
    }                                                             \
    break;
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
  return low;
}

enum { GROUP = 32, TABLE = 1024 }; /* values that are searched together; boundaries whose keys are computed once */

/* The keys of short lines and of a group's values, compared directly: lanes of vectors. */
#define DEFINE_SEARCH_KEYS(TYPE)                                                                                      \
  static inline __attribute__((always_inline)) void steps_##TYPE(const TYPE *bounds, int64_t count, const TYPE *keys, \
                                                                 const bool behind, TYPE *low) {                      \
    for (TYPE left = (TYPE)count, half; left > 0; left -= half) {                                                     \
      half = left - left / 2;                                                                                         \
      for (int i = 0; i < GROUP; ++i) {                                                                               \
        const TYPE bound = bounds[low[i] + half - 1];                                                                 \
        low[i] += half & -(TYPE)(behind ? bound <= keys[i] : bound < keys[i]);                                        \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  static void search_##TYPE(const TYPE *bounds, int64_t count, const TYPE *keys, int64_t here, bool behind,           \
                            int64_t *out_found) {                                                                     \
    TYPE low[GROUP] = {0};                                                                                            \
    if (behind) {                                                                                                     \
      steps_##TYPE(bounds, count, keys, true, low);                                                                   \
    } else {                                                                                                          \
      steps_##TYPE(bounds, count, keys, false, low);                                                                  \
    }                                                                                                                 \
    for (int64_t i = 0; i < here; ++i) {                                                                              \
      out_found[i] = (int64_t)low[i];                                                                                 \
    }                                                                                                                 \
  }
DEFINE_SEARCH_KEYS(uint32_t)
DEFINE_SEARCH_KEYS(uint64_t)

/* The keys of `count` values of a line, as TYPE. */
#define FILL_KEYS(TYPE, type, key_, line, count, keys) \
  for (int64_t k = 0; k < (count); ++k) {              \
    const type *at = (const type *)(line) + k;         \
    (keys)[k] = (TYPE)(key_);                          \
  }

static void search_short(hr_dtype dtype, const void *line, int64_t count, const void *values, int64_t value_count,
                         bool behind, int64_t *out_found) {
  uint32_t bounds32[TABLE], keys32[GROUP] = {0};
  uint64_t bounds64[TABLE], keys64[GROUP] = {0};
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)                                                \
  case dtype_:                                                                        \
    if (bits == 64) {                                                                 \
      FILL_KEYS(uint64_t, type, key_, line, count, bounds64)                          \
    } else {                                                                          \
      FILL_KEYS(uint32_t, type, key_, line, count, bounds32)                          \
    }                                                                                 \
    for (int64_t first = 0; first < value_count; first += GROUP) {                    \
      const int64_t here = value_count - first < GROUP ? value_count - first : GROUP; \
      if (bits == 64) {                                                               \
        FILL_KEYS(uint64_t, type, key_, (const type *)values + first, here, keys64)   \
        search_uint64_t(bounds64, count, keys64, here, behind, out_found + first);    \
      } else {                                                                        \
        FILL_KEYS(uint32_t, type, key_, (const type *)values + first, here, keys32)   \
        search_uint32_t(bounds32, count, keys32, here, behind, out_found + first);    \
      }                                                                               \
    }                                                                                 \
    break;
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
}

/* Values are searched in groups: all of a group take the same number of steps, so that no branch depends on a
 * comparison. */
void hr__order_search_all(hr_dtype dtype, const void *line, int64_t count, const void *values, int64_t value_count,
                          bool behind, int64_t *out_found) {
  if (count <= TABLE && count <= value_count) {
    search_short(dtype, line, count, values, value_count, behind, out_found);
    return;
  }
  uint64_t keys[GROUP] = {0};
  int64_t low[GROUP];
  for (int64_t first = 0; first < value_count; first += GROUP) {
    const int64_t here = value_count - first < GROUP ? value_count - first : GROUP;
    memset(low, 0, sizeof low);
    switch (dtype) {
#define CASE(dtype_, type, bits, key_)                                                  \
  case dtype_:                                                                          \
    FILL_KEYS(uint64_t, type, key_, (const type *)values + first, here, keys)           \
    for (int64_t left = count, half; left > 0; left -= half) {                          \
      half = left - left / 2;                                                           \
      for (int64_t i = 0; i < GROUP; ++i) {                                             \
        const type *at = (const type *)line + low[i] + half - 1;                        \
        const uint64_t bound = (uint64_t)(key_);                                        \
        low[i] += half & -(int64_t)((bound < keys[i]) | ((bound == keys[i]) & behind)); \
      }                                                                                 \
    }                                                                                   \
    break;
      EACH_KEY(CASE)
#undef CASE
      default:
        break;
    }
    memcpy(out_found + first, low, (size_t)here * sizeof *low);
  }
}

void hr__order_differ(hr_dtype dtype, const void *line, int64_t count, bool *out_differs) {
  out_differs[0] = true;
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)                                                              \
  case dtype_: {                                                                                    \
    const uint64_t nan = hr_dtype_is_real(dtype_) ? UINT64_MAX >> (64 - bits) : 0, real = nan != 0; \
    for (int64_t i = 1; i < count; ++i) {                                                           \
      const type *at = (const type *)line + i;                                                      \
      const uint64_t key = (uint64_t)(key_);                                                        \
      --at;                                                                                         \
      out_differs[i] = (key != (uint64_t)(key_)) | ((key == nan) & real);                           \
    }                                                                                               \
    break;                                                                                          \
  }
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
}

/* ---- orders ---- */

bool hr__order_supports(hr_dtype dtype, int64_t count) {
  return key_bits_of(dtype) > 0 && count < UINT32_MAX;
}

size_t hr__order_bytes(hr_dtype dtype, int64_t count) {
  return (size_t)count * (key_bits_of(dtype) <= 32 ? sizeof(uint64_t) : sizeof(hr__pair));
}

hr__order hr__order_make(hr_dtype dtype, int64_t count, void *elements, void *other) {
  int bits = key_bits_of(dtype);
  return (hr__order){.is_packed = bits <= 32, .key_bits = bits, .count = count, .elements = elements, .other = other};
}

void hr__order_fill(hr__order *order, hr_dtype dtype, const void *line, bool descending, int64_t begin, int64_t end) {
  uint64_t flip = !descending ? 0 : order->key_bits == 64 ? UINT64_MAX : (UINT64_C(1) << order->key_bits) - 1;
  uint64_t *packed = order->elements;
  hr__pair *pairs = order->elements;
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)           \
  case dtype_:                                   \
    for (int64_t i = begin; i < end; ++i) {      \
      const type *at = (const type *)line + i;   \
      uint64_t key = (uint64_t)(key_) ^ flip;    \
      if (bits == 64) {                          \
        pairs[i] = (hr__pair){key, (uint64_t)i}; \
      } else {                                   \
        packed[i] = key << 32 | (uint64_t)i;     \
      }                                          \
    }                                            \
    break;
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
}

enum { BLOCK = 256, LANES = 64 };

/* A packed element that bounds the `first` smallest from above: of the smallest in each of LANES lanes, `first` are not
 * after it. */
static uint64_t least_limit(hr__order *part, hr_dtype dtype, const void *line, int64_t all, bool descending,
                            int64_t first) {
  const uint64_t *block = part->elements;
  const size_t size = hr_dtype_size(dtype);
  uint64_t least[LANES];
  memset(least, 0xff, sizeof least);
  for (int64_t begin = 0; begin + BLOCK <= all; begin += BLOCK) {
    hr__order_fill(part, dtype, (const char *)line + (size_t)begin * size, descending, 0, BLOCK);
    for (int64_t i = 0; i < BLOCK; i += LANES) {
      for (int64_t k = 0; k < LANES; ++k) {
        const uint64_t element = block[i + k] + (uint64_t)begin;
        least[k] = element < least[k] ? element : least[k];
      }
    }
  }
  select_packed(least, LANES, first);
  return largest_packed(least, first);
}

static bool has_less(const uint64_t *elements, int64_t count, uint64_t limit) {
  uint64_t least = UINT64_MAX;
  for (int64_t i = 0; i < count; ++i) {
    least = elements[i] < least ? elements[i] : least;
  }
  return least < limit;
}

/* Collects elements that are below the largest of the `first` smallest so far; when the room is full the surplus is
 * discarded. */
void hr__order_fill_least(hr__order *order, hr_dtype dtype, const void *line, bool descending, int64_t first) {
  int64_t all = order->count, room = hr__order_least_room(first), kept = 0;
  size_t size = hr_dtype_size(dtype);
  union {
    uint64_t packed[BLOCK];
    hr__pair pairs[BLOCK];
  } block;
  hr__order part = hr__order_make(dtype, BLOCK, &block, NULL);
  uint64_t limit = UINT64_MAX; /* of packed elements, or of keys: equal keys come after all that were kept */
  if (order->is_packed && first <= LANES / 2 && all >= 2 * BLOCK) {
    limit = least_limit(&part, dtype, line, all, descending, first) + 1;
  }
  for (int64_t begin = 0; begin < all; begin += BLOCK) {
    int64_t count = all - begin < BLOCK ? all - begin : BLOCK;
    hr__order_fill(&part, dtype, (const char *)line + (size_t)begin * size, descending, 0, count);
    if (order->is_packed && limit != UINT64_MAX && !has_less(block.packed, count, limit - (uint64_t)begin)) {
      continue;
    }
    if (kept + count > room) {
      order->count = kept;
      hr__order_select(order, first);
      kept = first;
      limit = order->is_packed ? largest_packed(order->elements, kept) : largest_pairs(order->elements, kept).key;
    }
    if (order->is_packed) {
      for (int64_t i = 0; i < count; ++i) {
        ((uint64_t *)order->elements)[kept] = block.packed[i] + (uint64_t)begin;
        kept += block.packed[i] + (uint64_t)begin < limit;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        ((hr__pair *)order->elements)[kept] = (hr__pair){block.pairs[i].key, block.pairs[i].place + (uint64_t)begin};
        kept += block.pairs[i].key < limit || limit == UINT64_MAX;
      }
    }
  }
  order->count = kept;
  if (kept > first) {
    hr__order_select(order, first);
  }
}

static int bin_shift(int key_bits) {
  return key_bits > HR__ORDER_BIN_BITS ? key_bits - HR__ORDER_BIN_BITS : 0;
}

void hr__order_count(hr_dtype dtype, const void *line, int64_t count, uint32_t *out_counts, int64_t *out_nans) {
  int64_t nans = 0;
  memset(out_counts, 0, (sizeof *out_counts) << HR__ORDER_BIN_BITS);
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)                                             \
  case dtype_:                                                                     \
    for (int64_t i = 0; i < count; ++i) {                                          \
      const type *at = (const type *)line + i;                                     \
      uint64_t key = (uint64_t)(key_);                                             \
      ++out_counts[key >> bin_shift(bits)];                                        \
      nans += key == (bits == 64 ? UINT64_MAX : (UINT64_C(1) << (bits % 64)) - 1); \
    }                                                                              \
    break;
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
  *out_nans = hr_dtype_is_real(dtype) ? nans : 0;
}

void hr__order_fill_bin(hr__order *order, hr_dtype dtype, const void *line, uint64_t bin) {
  int64_t count = order->count, kept = 0;
  uint64_t *packed = order->elements;
  hr__pair *pairs = order->elements;
  switch (dtype) {
#define CASE(dtype_, type, bits, key_)              \
  case dtype_:                                      \
    for (int64_t i = 0; i < count; ++i) {           \
      const type *at = (const type *)line + i;      \
      uint64_t key = (uint64_t)(key_);              \
      if (bits == 64) {                             \
        pairs[kept] = (hr__pair){key, (uint64_t)i}; \
      } else {                                      \
        packed[kept] = key << 32 | (uint64_t)i;     \
      }                                             \
      kept += key >> bin_shift(bits) == bin;        \
    }                                               \
    break;
    EACH_KEY(CASE)
#undef CASE
    default:
      break;
  }
  order->count = kept;
}

bool hr__order_sort_range(const hr__order *order, int64_t begin, int64_t end) {
  if (order->is_packed) {
    return sort_packed((uint64_t *)order->elements + begin, (uint64_t *)order->other + begin, end - begin,
                       order->key_bits);
  }
  return sort_pairs((hr__pair *)order->elements + begin, (hr__pair *)order->other + begin, end - begin,
                    order->key_bits);
}

void hr__order_sort(hr__order *order) {
  if (hr__order_sort_range(order, 0, order->count)) {
    void *swap = order->elements;
    order->elements = order->other;
    order->other = swap;
  }
}

void hr__order_select(hr__order *order, int64_t first) {
  if (order->is_packed) {
    keep_packed(order->elements, order->other, order->count, first);
  } else {
    keep_pairs(order->elements, order->other, order->count, first);
  }
  order->count = first;
}

void hr__order_merge(const hr__order *order, int64_t a, int64_t b, int64_t c, int64_t from, int64_t to) {
  if (order->is_packed) {
    const uint64_t *e = order->elements;
    merge_packed(e + a, b - a, e + b, c - b, from, to, (uint64_t *)order->other + a);
  } else {
    const hr__pair *e = order->elements;
    merge_pairs(e + a, b - a, e + b, c - b, from, to, (hr__pair *)order->other + a);
  }
}
