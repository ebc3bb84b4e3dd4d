/* layouts.c: the orders of a tensor's dims in memory. There is one object for each order, which is never freed.
 *
 * Elements fill their buffer in any order, so that a tensor of any layout is the row-major one of its dims in the order
 * of the layout. Layouts with tiles are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pjrt_memory_layout *all; /* a list */

/* As XLA prints it. */
static void print(pjrt_memory_layout *layout) {
  size_t size = (size_t)snprintf(layout->text, sizeof layout->text, "{");
  for (int i = 0; i < layout->rank; ++i) {
    size += (size_t)snprintf(layout->text + size, sizeof layout->text - size, i > 0 ? ",%d" : "%d",
                             (int)layout->minor_to_major[i]);
  }
  snprintf(layout->text + size, sizeof layout->text - size, "}");
}

/* No lock is needed: clients ask for this layout of each buffer. */
static pjrt_memory_layout row_major[HR_RANK_MAX + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_row_major(void) {
  for (int rank = 0; rank <= HR_RANK_MAX; ++rank) {
    pjrt_memory_layout *layout = &row_major[rank];
    layout->rank = rank, layout->is_row_major = true;
    for (int i = 0; i < rank; ++i) {
      layout->minor_to_major[i] = rank - 1 - i;
    }
    print(layout);
    layout->next = all, all = layout;
  }
}

const pjrt_memory_layout *hrj_layout_row_major(int rank) {
  pthread_once(&once, make_row_major);
  return &row_major[rank >= 0 && rank <= HR_RANK_MAX ? rank : 0];
}

static pjrt_memory_layout *find(int rank, const int64_t *minor_to_major) {
  pjrt_memory_layout *found = all;
  while (found != NULL && (found->rank != rank ||
                           memcmp(found->minor_to_major, minor_to_major, (size_t)rank * sizeof *minor_to_major) != 0)) {
    found = found->next;
  }
  return found;
}

static pjrt_memory_layout *make(int rank, const int64_t *minor_to_major) {
  pjrt_memory_layout *made = calloc(1, sizeof *made);
  if (made != NULL) {
    made->rank = rank, made->is_row_major = true;
    for (int i = 0; i < rank; ++i) {
      made->minor_to_major[i] = minor_to_major[i];
      made->is_row_major &= minor_to_major[i] == rank - 1 - i;
    }
    print(made);
    made->next = all, all = made;
  }
  return made;
}

const pjrt_memory_layout *hrj_layout_find(int rank, const int64_t *minor_to_major) {
  pthread_once(&once, make_row_major);
  pthread_mutex_lock(&lock);
  pjrt_memory_layout *layout = find(rank, minor_to_major);
  layout = layout != NULL ? layout : make(rank, minor_to_major);
  pthread_mutex_unlock(&lock);
  return layout;
}

static hr_status check_order(const pjrt_layout *layout, size_t rank) {
  unsigned seen = 0;
  if (layout->kind != PJRT_LAYOUT_TILED || layout->of.tiled.tile_count > 0) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": a layout with %s, expected an order of dims",
                          layout->kind != PJRT_LAYOUT_TILED ? "strides" : "tiles");
  }
  if (layout->of.tiled.rank != rank) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": a layout of %zu dims for a buffer of %zu",
                          layout->of.tiled.rank, rank);
  }
  for (size_t i = 0; i < rank; ++i) {
    int64_t dim = layout->of.tiled.minor_to_major[i];
    if (dim < 0 || dim >= (int64_t)rank || (seen >> dim & 1) != 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            HRJ_PLATFORM
                            ": place %zu of a layout of %zu dims is dim %lld, which is no or another place's",
                            i, rank, (long long)dim);
    }
    seen |= 1u << dim;
  }
  return HR_OK;
}

hr_status hrj_layout_read(const pjrt_layout *layout, size_t rank, const pjrt_memory_layout **out_layout) {
  if (rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": a buffer of %zu dims, expected at most %d", rank,
                          HR_RANK_MAX);
  }
  *out_layout = hrj_layout_row_major((int)rank);
  if (layout == NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(check_order(layout, rank));
  *out_layout = hrj_layout_find((int)rank, layout->of.tiled.minor_to_major);
  return *out_layout != NULL
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a layout");
}

void hrj_layout_strides(const pjrt_memory_layout *layout, const int64_t *dims, int64_t element, int64_t *out_strides) {
  for (int i = 0; i < layout->rank; ++i) {
    out_strides[layout->minor_to_major[i]] = element;
    element *= dims[layout->minor_to_major[i]];
  }
}

hr_tensor hrj_layout_stored(const pjrt_memory_layout *layout, const hr_tensor *tensor, const int64_t *strides,
                            int64_t *out_strides) {
  hr_tensor stored = *tensor;
  for (int i = 0; i < layout->rank; ++i) {
    int64_t dim = layout->minor_to_major[layout->rank - 1 - i];
    stored.dims[i] = tensor->dims[dim], stored.strides[i] = tensor->strides[dim];
    if (strides != NULL) {
      out_strides[i] = strides[dim];
    }
  }
  return stored;
}
