/* rows.c: rows of images transposed into lanes, [width][channels][lanes], and back. */
#include "base/integer.h"
#include "providers/batch_lanes/batch_lanes.h"

#if defined(HR_WIDE_VECTORS)

enum { VECTOR = HR__WIDE };

/* Transposes count neighbours of each image, `stride` apart, to count groups of lanes, `step` apart; absent images are
 * zeros. */
WIDE static void to_lanes(const float *x, int64_t stride, int64_t images, int64_t lanes, int64_t count, float *to,
                          int64_t step) {
  for (int64_t c = 0; c < count; c += VECTOR) {
    __mmask16 mask = hr__wide_mask(count - c);
    int64_t outs = hr_min(count - c, VECTOR);
    for (int64_t l = 0; l < lanes; l += VECTOR) {
      __m512 r[VECTOR];
#pragma GCC unroll 16
      for (int i = 0; i < VECTOR; ++i) {
        r[i] = l + i < images ? _mm512_maskz_loadu_ps(mask, x + (l + i) * stride + c) : _mm512_setzero_ps();
      }
      hr__wide_transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < VECTOR; ++i) {
        if (i < outs) {
          _mm512_store_ps(to + (c + i) * step + l, r[i]);
        }
      }
    }
  }
}

WIDE static void from_lanes(const float *lanes, int64_t step, int64_t count, float *y, int64_t stride, int64_t images) {
  for (int64_t l = 0; l < images; l += VECTOR) {
    for (int64_t c = 0; c < count; c += VECTOR) {
      __m512 r[VECTOR];
      __mmask16 mask = hr__wide_mask(count - c);
#pragma GCC unroll 16
      for (int i = 0; i < VECTOR; ++i) {
        r[i] = c + i < count ? _mm512_load_ps(lanes + (c + i) * step + l) : _mm512_setzero_ps();
      }
      hr__wide_transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < VECTOR; ++i) {
        if (l + i < images) {
          _mm512_mask_storeu_ps(y + (l + i) * stride + c, mask, r[i]);
        }
      }
    }
  }
}

void hr__lane_row_load(const hr__images *x, const hr__lane_row *row, const float *from, int64_t images, int64_t lanes,
                       float *to) {
  for (int64_t i = 0; i < row->outer; ++i) {
    for (int64_t j = 0; j < row->inner; ++j) {
      to_lanes(from + i * row->outer_stride + j * row->inner_stride, x->image_stride, images, lanes, row->length,
               to + i * row->outer_step + j * row->inner_step, row->step);
    }
  }
}

void hr__lane_row_store(const hr__images *y, const hr__lane_row *row, const float *from, int64_t images, float *to) {
  for (int64_t i = 0; i < row->outer; ++i) {
    for (int64_t j = 0; j < row->inner; ++j) {
      from_lanes(from + i * row->outer_step + j * row->inner_step, row->step, row->length,
                 to + i * row->outer_stride + j * row->inner_stride, y->image_stride, images);
    }
  }
}

hr__lane_row hr__lane_row_of(const hr__images *x, int64_t lanes) {
  hr__lane_row whole = {.outer = 1, .inner = 1, .length = x->width * x->channels, .step = lanes};
  bool channels = x->channels == 1 || x->channel_stride == 1;
  if (channels && (x->width == 1 || x->column_stride == x->channels)) {
    return whole;
  }
  hr__lane_row row = {.outer = x->width,
                      .outer_stride = x->column_stride,
                      .outer_step = x->channels * lanes,
                      .inner = 1,
                      .length = x->channels,
                      .step = lanes};
  if (!channels) {
    row.inner = x->channels, row.inner_stride = x->channel_stride, row.inner_step = lanes;
    row.length = 1;
    if (x->column_stride == 1) {
      row.outer = 1, row.length = x->width, row.step = x->channels * lanes;
    }
  }
  return row;
}

#endif
