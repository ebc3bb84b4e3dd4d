/* wide_pack.c: packs activations that are not channels-last for convolutions that need it, and unpacks their results.
 */
#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/wide_images.h"
#include "providers/wide_vectors.h"

#if defined(HR_WIDE_VECTORS)

enum { VECTOR = HR__WIDE };

/* A row of an image, [channels][columns], to [columns][channels]. If columns are not contiguous, one by one. */
WIDE static void pack_row(const hr__images *x, const float *from, float *to) {
  for (int64_t column = 0; x->channel_stride == 1 && column < x->width; ++column) {
    memcpy(to + column * x->channels, from + column * x->column_stride, (size_t)x->channels * sizeof *to);
  }
  if (x->channel_stride == 1) {
    return;
  }
  for (int64_t column = 0; column < x->width; column += VECTOR) {
    int64_t columns = hr_min(VECTOR, x->width - column);
    for (int64_t channel = 0; channel < x->channels; channel += VECTOR) {
      int64_t channels = hr_min(VECTOR, x->channels - channel);
      __m512 r[VECTOR];
      for (int i = 0; i < VECTOR; ++i) {
        float lanes[VECTOR] = {0};
        const float *at = from + (channel + (i < channels ? i : 0)) * x->channel_stride + column * x->column_stride;
        if (x->column_stride == 1) {
          r[i] = _mm512_maskz_loadu_ps(hr__wide_mask(columns), at);
          continue;
        }
        for (int64_t l = 0; l < columns; ++l) {
          lanes[l] = at[l * x->column_stride];
        }
        r[i] = _mm512_loadu_ps(lanes);
      }
      hr__wide_transpose(r);
      for (int64_t i = 0; i < columns; ++i) {
        _mm512_mask_storeu_ps(to + (column + i) * x->channels + channel, hr__wide_mask(channels), r[i]);
      }
    }
  }
}

WIDE static void unpack_row(const hr__images *y, const float *from, float *to) {
  for (int64_t column = 0; column < y->width; column += VECTOR) {
    int64_t columns = hr_min(VECTOR, y->width - column);
    for (int64_t channel = 0; channel < y->channels; channel += VECTOR) {
      int64_t channels = hr_min(VECTOR, y->channels - channel);
      __m512 r[VECTOR];
      for (int i = 0; i < VECTOR; ++i) {
        const float *at = from + (column + (i < columns ? i : 0)) * y->channels + channel;
        r[i] = _mm512_maskz_loadu_ps(hr__wide_mask(channels), at);
      }
      hr__wide_transpose(r);
      for (int64_t i = 0; i < channels; ++i) {
        float lanes[VECTOR], *at = to + (channel + i) * y->channel_stride + column * y->column_stride;
        if (y->column_stride == 1) {
          _mm512_mask_storeu_ps(at, hr__wide_mask(columns), r[i]);
          continue;
        }
        _mm512_storeu_ps(lanes, r[i]);
        for (int64_t l = 0; l < columns; ++l) {
          at[l * y->column_stride] = lanes[l];
        }
      }
    }
  }
}

/* The rows of images to copy. */
typedef struct copy {
  const hr__images *x;
  const float *from;
  float *to;
} copy;

/* The offset of row number i of all images. */
static int64_t row_at(const hr__images *x, int64_t i) {
  return i / x->height * x->image_stride + i % x->height * x->row_stride;
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy *c = arg;
  for (int64_t i = begin; i < end; ++i) {
    pack_row(c->x, c->from + row_at(c->x, i), c->to + i * c->x->width * c->x->channels);
  }
}

static void unpack_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy *c = arg;
  for (int64_t i = begin; i < end; ++i) {
    unpack_row(c->x, c->from + i * c->x->width * c->x->channels, c->to + row_at(c->x, i));
  }
}

bool hr__images_are_channels_last(const hr__images *x) {
  return x->channel_stride == 1 || x->channels == 1;
}

hr__images hr__images_packed(const hr__images *x) {
  hr__images packed = *x;
  packed.offset = 0, packed.channel_stride = 1, packed.column_stride = x->channels;
  packed.row_stride = x->width * x->channels, packed.image_stride = x->height * packed.row_stride;
  return packed;
}

int64_t hr__images_packed_floats(const hr__images *x, int64_t images) {
  return hr__images_are_channels_last(x) ? 0 : hr_round_up(images * x->height * x->width * x->channels, VECTOR);
}

void hr__images_pack(const hr__images *x, int64_t images, const float *from, float *to) {
  copy c = {x, from, to};
  hr_parallel_for(images * x->height, 1, pack_rows, &c);
}

void hr__images_unpack(const hr__images *x, int64_t images, const float *from, float *to) {
  copy c = {x, from, to};
  hr_parallel_for(images * x->height, 1, unpack_rows, &c);
}

#endif
