/* strided.c: copies between host memory of any strides and dense, row-major elements.
 *
 * Runs of elements that are neighbours on both sides are copied at once. Strides may be 0 or negative.
 */
#include <string.h>

#include "plugin.h"

/* One walk over the elements: the strided side, the dense side, and which of them is written. */
typedef struct walk {
  char *strided, *dense;
  const int64_t *dims, *strides;
  int rank; /* of the outer dims; the inner ones are runs */
  size_t run;
  bool packs;
} walk;

/* Elements of one size and stride along the innermost dim that is no run. */
#define COPY_ROW(type)                                        \
  for (int64_t i = 0; i < count; ++i) {                       \
    type value;                                               \
    memcpy(&value, w->packs ? strided : dense, sizeof value); \
    memcpy(w->packs ? dense : strided, &value, sizeof value); \
    strided += stride, dense += sizeof value;                 \
  }                                                           \
  w->dense = dense

static void copy_row(walk *w, char *strided, int64_t count, int64_t stride) {
  char *dense = w->dense;
  switch (w->run) {
    case 1:
      COPY_ROW(uint8_t);
      break;
    case 2:
      COPY_ROW(uint16_t);
      break;
    case 4:
      COPY_ROW(uint32_t);
      break;
    case 8:
      COPY_ROW(uint64_t);
      break;
    default:
      for (int64_t i = 0; i < count; ++i, strided += stride, dense += w->run) {
        memcpy(w->packs ? dense : strided, w->packs ? strided : dense, w->run);
      }
      w->dense = dense;
  }
}

static void copy_dims(walk *w, char *strided, int dim) {
  if (dim == w->rank) { /* a tensor that is one run */
    copy_row(w, strided, 1, 0);
  } else if (dim == w->rank - 1) {
    copy_row(w, strided, w->dims[dim], w->strides[dim]);
  } else {
    for (int64_t i = 0; i < w->dims[dim]; ++i) {
      copy_dims(w, strided + i * w->strides[dim], dim + 1);
    }
  }
}

static void copy(void *dense, char *strided, const hr_tensor *tensor, const int64_t *byte_strides, bool packs) {
  if (hr_tensor_count(tensor) == 0) {
    return;
  }
  walk w = {.strided = strided, .dense = dense, .dims = tensor->dims, .strides = byte_strides, .packs = packs};
  w.rank = tensor->rank, w.run = hr_dtype_size(tensor->dtype);
  while (w.rank > 0 && (w.dims[w.rank - 1] == 1 || w.strides[w.rank - 1] == (int64_t)w.run)) {
    w.run *= (size_t)w.dims[--w.rank];
  }
  copy_dims(&w, w.strided, 0);
}

void hrj_strided_pack(void *target, const void *source, const hr_tensor *tensor, const int64_t *byte_strides) {
  copy(target, (char *)source, tensor, byte_strides, true);
}

void hrj_strided_unpack(void *target, const int64_t *byte_strides, const void *source, const hr_tensor *tensor) {
  copy((void *)source, target, tensor, byte_strides, false);
}
