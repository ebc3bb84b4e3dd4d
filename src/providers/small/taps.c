/* taps.c: convolutions of a few pixels on CUDA devices, mainly of one small image, by our own kernel (taps.text).
 *
 * A library's kernels are made for many pixels: 20 to 50 channels, 5 x 5, of one image of 14 x 14 take it 17 us or
 * more. Here a thread has a pixel and a few channels, and the warps of a block share the sums.
 *
 * f32, bf16 and f16 with sums in f32, one or two spatial dims, any strides. Rejects groups, bias, work for which a
 * library's tiles are better, and weights that need more shared memory than every device has.
 */
#include <string.h>

#include "base/integer.h"
#include "core/ir/dtype.h"
#include "providers/device_text.h"
#include "providers/small/small.h"

enum { CHANNELS_MOST = 4, BLOCKS_WANTED = 96, TILE = 32, WIDTH_MOST = 16, SHARED_FLOATS = 10240 };
static const int64_t PRODUCTS_MOST = 1 << 24, SIDE_MOST = 1 << 14;

enum { HIGH, WIDE, SPATIAL };
typedef struct window {
  const hr_operand *x, *w, *y;
  int64_t images, in, out;
  int64_t in_dims[SPATIAL], out_dims[SPATIAL], kernel[SPATIAL], stride[SPATIAL], padding[SPATIAL], dilation[SPATIAL];
  int channels;
  int64_t blocks;
} window;

/* A spatial dim; a single one is WIDE. */
static void set_dim(window *c, const int64_t *ints, int d) {
  int spatial = (int)ints[0], at = d + SPATIAL - spatial;
  c->in_dims[at] = c->x->dims[2 + d], c->out_dims[at] = c->y->dims[2 + d], c->kernel[at] = c->w->dims[2 + d];
  c->stride[at] = ints[1 + d], c->padding[at] = ints[1 + spatial + d], c->dilation[at] = ints[1 + 2 * spatial + d];
}

static bool is_small(const int64_t *sizes, int64_t least) {
  return sizes[HIGH] >= least && sizes[HIGH] <= SIDE_MOST && sizes[WIDE] >= least && sizes[WIDE] <= SIDE_MOST;
}

/* Bounds each factor below 2^14 before the work is multiplied out. */
static bool is_little(const window *c) {
  int64_t taps = c->in * c->kernel[HIGH] * c->kernel[WIDE], pixels = c->images * c->out_dims[HIGH] * c->out_dims[WIDE];
  return taps <= SHARED_FLOATS && pixels <= PRODUCTS_MOST && taps * pixels <= PRODUCTS_MOST &&
         taps * pixels * c->out <= PRODUCTS_MOST;
}

static void divide(window *c) {
  int64_t pixels = c->images * c->out_dims[HIGH] * c->out_dims[WIDE], tiles = hr_divide_up(pixels, TILE);
  int64_t taps = c->in * c->kernel[HIGH] * c->kernel[WIDE];
  c->channels = CHANNELS_MOST;
  while (c->channels > 1 &&
         (hr_divide_up(c->out, c->channels) * tiles < BLOCKS_WANTED || taps * c->channels > SHARED_FLOATS)) {
    c->channels /= 2;
  }
  c->blocks = hr_divide_up(c->out, c->channels) * tiles;
}

static bool is_window(const hr_node *node, window *out_window) {
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  if (node->op != HR_OP_CONV || has_bias || node->epilogue_count > 0 || node->scalar_count > 0 ||
      !hr__small_has_dtypes(node) || node->int_count < 2 || node->ints[0] < 1 || node->ints[0] > SPATIAL ||
      node->int_count != 2 + 3 * (int)node->ints[0] || node->ints[1 + 3 * node->ints[0]] != 1) {
    return false;
  }
  window c = {.x = &node->inputs[0], .w = &node->inputs[1], .y = &node->outputs[0]};
  c.images = c.x->dims[0], c.in = c.x->dims[1], c.out = c.y->dims[1];
  c.in_dims[HIGH] = c.out_dims[HIGH] = c.kernel[HIGH] = c.stride[HIGH] = c.dilation[HIGH] = 1;
  for (int d = 0; d < (int)node->ints[0]; ++d) {
    set_dim(&c, node->ints, d);
  }
  const int64_t counts[] = {c.images, c.in};
  if (!is_small(counts, 1) || c.out < 1 || c.out > SIDE_MOST || !is_small(c.in_dims, 1) || !is_small(c.out_dims, 1) ||
      !is_small(c.kernel, 1) || !is_small(c.stride, 1) || !is_small(c.dilation, 1) || !is_small(c.padding, 0) ||
      c.kernel[WIDE] > WIDTH_MOST || !is_little(&c)) {
    return false;
  }
  divide(&c);
  *out_window = c;
  return true;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  window c;
  return is_window(node, &c);
}

/* ---- the text ---- */

static const char *const texts[] = {
#include "providers/small/taps_text.inc"
};

static void write_text(const hr_program *program, const hr_node *node, const window *c, hr_text *text) {
  const hr__device_definition definitions[] = {{"N", c->images},
                                               {"IC", c->in},
                                               {"OC", c->out},
                                               {"IH", c->in_dims[HIGH]},
                                               {"IW", c->in_dims[WIDE]},
                                               {"OH", c->out_dims[HIGH]},
                                               {"OW", c->out_dims[WIDE]},
                                               {"KH", c->kernel[HIGH]},
                                               {"KW", c->kernel[WIDE]},
                                               {"SH", c->stride[HIGH]},
                                               {"SW", c->stride[WIDE]},
                                               {"PH", c->padding[HIGH]},
                                               {"PW", c->padding[WIDE]},
                                               {"DH", c->dilation[HIGH]},
                                               {"DW", c->dilation[WIDE]},
                                               {"CHANNELS", c->channels}};
  hr__small_write_definitions(program, node, text);
  hr__device_text_define(text, sizeof definitions / sizeof *definitions, definitions);
  hr_text_append_all(text, sizeof texts / sizeof *texts, texts);
}

static int64_t *write_place(int64_t *words, const hr_operand *x) {
  *words++ = x->offset;
  *words++ = x->strides[0];
  *words++ = x->strides[1];
  *words++ = x->rank > 3 ? x->strides[2] : 0;
  *words++ = x->strides[x->rank - 1];
  return words;
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  window c;
  hr_device_source source = {.name = "hr_taps", .pass_count = 1, .begins_early = true};
  if (!is_window(node, &c)) {
    return hr_status_make(HR_STATUS_INTERNAL, "taps: a convolution that it does not support");
  }
  write_text(program, node, &c, &source.text);
  int64_t *words = write_place(write_place(write_place(source.words, c.x), c.w), c.y);
  source.word_count = (int)(words - source.words);
  source.blocks[0] = c.blocks;
  source.threads[0] = HR_SMALL_THREADS;
  return hr__device_text_finish(&source, out_source);
}

const hr_provider hr__taps_provider = {
    .name = "taps",
    .dialect = HR_DIALECT_CUDA,
    .supports = supports,
    .write = write,
};
