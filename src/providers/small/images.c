/* images.c: convolutions of many small images and both of their gradients on CUDA devices: our own kernels for tensor
 * cores (images.text, image_weights.text).
 *
 * A library's tensor-core kernels need channel counts that are multiples of 8, contiguous in memory. Otherwise it uses
 * other kernels, or makes copies first. Small images fit into a block's shared memory, a few channels of several of
 * them at a time. Each element of the window reads its pixels there.
 *
 * f32 with factors of 11 significant bits, as convolutions may have (HEADRACE_TF32), sums in f32; two spatial dims,
 * weights of any strides, images with dense planes. Rejects strides above 1, groups, bias, and more than 112 output
 * channels. Also rejects multiples of 8 channels on both sides, for which libraries are good.
 */
#include <string.h>

#include "base/env.h"
#include "core/ir/dtype.h"
#include "providers/cuda_limits.h"
#include "providers/device_text.h"
#include "providers/small/small.h"

enum { HIGH, WIDE, SPATIAL };
enum { WARPS = 8, TILE_ROWS = 16, TILE_COLUMNS = 8, TILES_MOST = 42, MT_MOST = 6, NT_MOST = 7, WN_MOST = 2 };
enum { TAPS_MOST = 64, SUMMED = 32, STARTED_CYCLES = 3000 }; /* SUMMED: weights of a block that adds sums */
static const int64_t SIDE_MOST = 1 << 10, ELEMENTS_MOST = INT32_MAX;

/* A convolution, or the gradient by data as one of the output's gradient, or the gradient of weights, in elements. */
typedef struct images {
  bool is_weights;
  const hr_operand *x, *w, *y;
  int64_t count, in, out; /* images, channels */
  int64_t in_dims[SPATIAL], out_dims[SPATIAL], kernel[SPATIAL], padding[SPATIAL], dilation[SPATIAL];
  int64_t mt, nt, wm, wn, wk, steps, pitch, plane, blocks, shared; /* as in the texts; shared: floats */
  int64_t vector, pad, copies;
  int64_t beside, image, held, stages;                /* of images.text */
  int64_t each, together, channels, line, parts, run; /* of image_weights.text */
  bool is_four;
} images;

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* The smallest number from `x` on that is `rest` more than a multiple of `multiple`. */
static int64_t raise_to(int64_t x, int64_t multiple, int64_t rest) {
  return x + ((rest - x) % multiple + multiple) % multiple;
}

static int64_t area_of(const int64_t dims[SPATIAL]) {
  return dims[HIGH] * dims[WIDE];
}

/* ---- supported nodes ---- */

/* True if offsets within it fit an int. */
static bool is_small(const hr_operand *x) {
  int64_t reach = 1;
  for (int d = 0; d < x->rank; ++d) {
    int64_t stride = x->strides[d] < 0 ? -x->strides[d] : x->strides[d];
    if (x->dims[d] < 1 || x->dims[d] > ELEMENTS_MOST || stride > ELEMENTS_MOST / x->dims[d]) {
      return false;
    }
    reach += x->dims[d] * stride;
  }
  return reach <= ELEMENTS_MOST;
}

/* True if planes are dense, at any offsets. */
static bool has_planes(const hr_operand *x) {
  return (x->dims[1 + SPATIAL] == 1 || x->strides[1 + SPATIAL] == 1) &&
         (x->dims[SPATIAL] == 1 || x->strides[SPATIAL] == x->dims[1 + SPATIAL]);
}

/* True if vectors of the operand's planes begin at multiples of their size. */
static bool is_aligned(const hr_operand *x, int64_t vector) {
  return x->offset % vector == 0 && (x->dims[0] == 1 || x->strides[0] % vector == 0) &&
         (x->dims[1] == 1 || x->strides[1] % vector == 0);
}

static bool has_form(const hr_node *node) {
  enum { INTS = 2 + 3 * SPATIAL };
  bool is_convolution =
      node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA || node->op == HR_OP_CONV_BACKWARD_WEIGHT;
  bool has_bias = is_convolution && node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  return is_convolution && !has_bias && node->epilogue_count == 0 && node->scalar_count == 0 &&
         node->int_count == INTS && node->ints[0] == SPATIAL && node->ints[1] == 1 && node->ints[2] == 1 &&
         node->ints[INTS - 1] == 1 && hr__small_has_dtypes(node) && node->outputs[0].dtype == HR_DTYPE_F32 &&
         hr_env_choice(HR_ENV_TF32) != HR_ENV_TF32_OFF;
}

/* False if something is too large for ints, or the output's size is not that of the window. */
static bool find_sizes(const hr_node *node, images *c) {
  bool is_data = node->op == HR_OP_CONV_BACKWARD_DATA;
  c->is_weights = node->op == HR_OP_CONV_BACKWARD_WEIGHT;
  c->x = &node->inputs[0];
  c->w = c->is_weights ? &node->outputs[0] : &node->inputs[1];
  c->y = c->is_weights ? &node->inputs[1] : &node->outputs[0];
  if (c->x->rank != 2 + SPATIAL || !is_small(c->x) || !is_small(c->w) || !is_small(c->y) || !has_planes(c->x) ||
      !has_planes(c->y)) {
    return false;
  }
  c->count = c->x->dims[0], c->in = c->x->dims[1], c->out = c->y->dims[1];
  bool is = c->y->dims[0] == c->count && c->w->dims[is_data] == c->out && c->w->dims[!is_data] == c->in;
  for (int d = 0; d < SPATIAL; ++d) {
    int64_t padding = node->ints[1 + SPATIAL + d], dilation = node->ints[1 + 2 * SPATIAL + d];
    c->in_dims[d] = c->x->dims[2 + d], c->out_dims[d] = c->y->dims[2 + d], c->kernel[d] = c->w->dims[2 + d];
    if (c->in_dims[d] > SIDE_MOST || c->kernel[d] > SIDE_MOST || dilation < 1 || dilation > SIDE_MOST || padding < 0 ||
        padding > SIDE_MOST) {
      return false;
    }
    int64_t reach = dilation * (c->kernel[d] - 1);
    c->dilation[d] = dilation;
    c->padding[d] = is_data ? reach - padding : padding;
    is = is && c->padding[d] >= 0 && c->padding[d] <= SIDE_MOST &&
         c->out_dims[d] == c->in_dims[d] + 2 * c->padding[d] - reach;
  }
  int64_t taps = area_of(c->kernel);
  return is && taps > 1 && taps <= TAPS_MOST && (c->in % TILE_COLUMNS != 0 || c->out % TILE_COLUMNS != 0);
}

/* ---- division of the work ---- */

/* Warps of a block, and the products of each; false: they need too many registers. */
static bool set_warps(images *c, int64_t mt, int64_t wk) {
  int64_t tiles = divide_up(c->out, TILE_COLUMNS);
  c->wn = tiles > NT_MOST ? WN_MOST : 1, c->nt = divide_up(tiles, c->wn);
  c->mt = mt, c->wk = wk, c->wm = WARPS / (c->wn * wk);
  return c->nt <= NT_MOST && c->mt * c->nt <= TILES_MOST && c->wm >= 1;
}

/* Cycles of a step of a block: its products, or their reads of shared memory. */
static int64_t cycles_of_step(const images *c) {
  int64_t multiplied = 2 * c->mt * c->nt, read = 4 * c->mt + 2 * c->nt;
  return WARPS * (multiplied > read ? multiplied : read);
}

static int64_t rounds_of(const images *c) {
  return divide_up(c->blocks, hr__cuda_limits_known()->processors > 0 ? hr__cuda_limits_known()->processors : 1);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Floats for adding up the warps' sums. */
static int64_t sums_of(const images *c) {
  return (c->wk - 1) * c->wm * c->wn * 32 * c->mt * c->nt * 4;
}

/* Elements of an input row that are copied at once, if rows and planes in shared memory are multiples of `multiple`. */
static void set_vector(images *c, int64_t multiple) {
  c->vector = 4;
  while (c->in_dims[WIDE] % c->vector != 0 || multiple % c->vector != 0 || !is_aligned(c->x, c->vector)) {
    c->vector /= 2;
  }
  c->pad = raise_to(c->padding[WIDE], c->vector, 0);
}

/* The width of an image in shared memory. */
static int64_t width_of(const images *c) {
  return c->pad + c->in_dims[WIDE] + c->padding[WIDE];
}

static int64_t height_of(const images *c) {
  return c->in_dims[HIGH] + 2 * c->padding[HIGH];
}

enum { COPY_FLOATS = 2 }; /* a struct copy */

static int64_t divide_images(images *c) {
  int64_t area = area_of(c->out_dims), pixels = TILE_ROWS * c->mt * c->wm, wide = c->out_dims[WIDE] % 8;
  c->blocks = divide_up(c->count * area, pixels);
  c->beside = c->in < 4 ? 1 : 4;
  c->steps = divide_up(area_of(c->kernel), 8 / c->beside);
  c->stages = divide_up(divide_up(c->in, c->beside), c->wk);
  c->held = (pixels + area - 2) / area + 1;
  set_vector(c, area % 4 == 0 && wide % 4 == 0 ? 4 : area % 2 == 0 && wide % 2 == 0 ? 2 : 1);
  c->pitch = raise_to(width_of(c), 8, wide);
  c->plane = raise_to(c->pitch * height_of(c), 32, 8);
  c->image = raise_to(c->beside * c->plane, 8, area % 8);
  c->copies = c->wk * c->held * c->beside * c->in_dims[HIGH] * c->in_dims[WIDE] / c->vector;
  int64_t weights = c->wk * c->steps * c->wn * c->nt * 64;
  c->shared = larger(2 * (raise_to(c->wk * c->held * c->image, 4, 0) + weights) + COPY_FLOATS * c->copies, sums_of(c));
  return rounds_of(c) * (c->stages * (c->steps * cycles_of_step(c) + c->copies) + STARTED_CYCLES);
}

/* Sets how the output's gradient is copied: channels apart, so that eight of them are in different banks, or an image
 * without changes. */
static void set_lines(images *c) {
  int64_t area = area_of(c->out_dims), image = c->out * area;
  bool is_dense = c->out == 1 || c->y->strides[1] == area;
  bool is_whole = area % 4 != 0 && image % 4 == 0 && is_dense && c->y->offset % 4 == 0 &&
                  (c->count == 1 || c->y->strides[0] % 4 == 0);
  c->run = is_whole ? image : area;
  c->is_four = is_whole || (area % 4 == 0 && is_aligned(c->y, 4));
  c->line = is_whole ? area : raise_to(area, 32, 4);
}

static int64_t divide_weights(images *c, int64_t together) {
  int64_t area = area_of(c->out_dims), taps = area_of(c->kernel);
  int64_t rows = c->in * taps, members = TILE_ROWS * c->mt * c->wm;
  c->parts = divide_up(rows, members);
  int64_t most = hr__cuda_limits_known()->processors / c->parts;
  c->each = divide_up(c->count, most > 1 ? most : 1);
  c->together = together < c->each ? together : c->each;
  c->blocks = c->parts * divide_up(c->count, c->each);
  c->channels = (members - 2) / taps + 2;
  c->channels = c->channels < c->in ? c->channels : c->in;
  c->steps = divide_up(c->together * area, 8);
  set_vector(c, 4);
  int64_t beside = c->kernel[WIDE] + 3, rest = width_of(c) % 32; /* rows of the window in different banks */
  int64_t more = rest < beside ? beside - rest : rest >= 32 - beside ? 32 + beside - rest : 0;
  c->pitch = raise_to(width_of(c) + more, c->vector, 0);
  c->plane = c->pitch * height_of(c);
  c->copies = c->together * c->channels * c->in_dims[HIGH] * c->in_dims[WIDE] / c->vector;
  set_lines(c);
  int64_t planes = raise_to(c->together * c->channels * c->plane, 4, 0);
  int64_t lines = c->together * raise_to(c->wn * c->nt * TILE_COLUMNS * c->line, 4, 0);
  c->shared = larger(2 * (planes + lines) + COPY_FLOATS * c->copies, sums_of(c));
  int64_t copied = c->copies + c->together * c->out * area / (c->is_four ? 4 : 1);
  return rounds_of(c) *
         (divide_up(c->each, c->together) * (divide_up(c->steps, c->wk) * cycles_of_step(c) + copied) + STARTED_CYCLES);
}

/* The division with the lowest estimated time among those that fit. */
static bool divide(images *c) {
  enum { TOGETHER_MOST = 4 };
  int64_t best = INT64_MAX;
  for (int64_t wk = 1; wk <= WARPS; wk *= 2) {
    for (int64_t mt = 1; mt <= MT_MOST; ++mt) {
      for (int64_t together = 1; together <= (c->is_weights ? TOGETHER_MOST : 1); ++together) {
        images tried = *c;
        if (!set_warps(&tried, mt, wk)) {
          continue;
        }
        int64_t cycles = c->is_weights ? divide_weights(&tried, together) : divide_images(&tried);
        if (cycles < best && tried.shared * (int64_t)sizeof(float) <= hr__cuda_limits_known()->shared_bytes) {
          best = cycles;
          *c = tried;
        }
      }
    }
  }
  return best != INT64_MAX && c->blocks <= INT32_MAX && c->count * area_of(c->out_dims) <= ELEMENTS_MOST / 2;
}

static bool is_images(const hr_node *node, images *out_images) {
  images c = {.count = 0};
  if (!has_form(node) || !find_sizes(node, &c) || !divide(&c)) {
    return false;
  }
  *out_images = c;
  return true;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  images c;
  return is_images(node, &c);
}

/* ---- the text ---- */

static const char *const images_texts[] = {
#include "providers/small/images_text.inc"
};
static const char *const weights_texts[] = {
#include "providers/small/image_weights_text.inc"
};

static void write_text(const hr_program *program, const hr_node *node, const images *c, hr_text *text) {
  const hr__device_definition definitions[] = {{"N", c->count},
                                               {"IC", c->in},
                                               {"OC", c->out},
                                               {"IH", c->in_dims[HIGH]},
                                               {"IW", c->in_dims[WIDE]},
                                               {"OH", c->out_dims[HIGH]},
                                               {"OW", c->out_dims[WIDE]},
                                               {"KH", c->kernel[HIGH]},
                                               {"KW", c->kernel[WIDE]},
                                               {"PH", c->padding[HIGH]},
                                               {"PW", c->padding[WIDE]},
                                               {"DH", c->dilation[HIGH]},
                                               {"DW", c->dilation[WIDE]},
                                               {"MT", c->mt},
                                               {"NT", c->nt},
                                               {"WM", c->wm},
                                               {"WN", c->wn},
                                               {"WK", c->wk},
                                               {"PITCH", c->pitch},
                                               {"PLANE", c->plane},
                                               {"BESIDE", c->beside},
                                               {"IMAGE", c->image},
                                               {"HELD", c->held},
                                               {"EACH", c->each},
                                               {"TOGETHER", c->together},
                                               {"CHANNELS", c->channels},
                                               {"LINE", c->line},
                                               {"VECTOR", c->vector},
                                               {"PAD", c->pad},
                                               {"RUN", c->run},
                                               {"IS_FOUR", c->is_four}};
  hr__small_write_definitions(program, node, text);
  hr__device_text_define(text, sizeof definitions / sizeof *definitions, definitions);
  const char *const *texts = c->is_weights ? weights_texts : images_texts;
  size_t count =
      c->is_weights ? sizeof weights_texts / sizeof *weights_texts : sizeof images_texts / sizeof *images_texts;
  for (size_t i = 0; i < count; ++i) {
    hr_text_append(text, texts[i]);
  }
}

static int64_t *write_place(int64_t *words, const hr_operand *x) {
  *words++ = x->offset;
  for (int d = 0; d < x->rank; ++d) {
    *words++ = x->strides[d];
  }
  return words;
}

/* The weights of a gradient by data: channels exchanged, the window reversed. */
static int64_t *write_turned(int64_t *words, const hr_operand *w) {
  int64_t *next = write_place(words, w);
  words[1] = w->strides[1], words[2] = w->strides[0];
  for (int d = 0; d < SPATIAL; ++d) {
    words[0] += (w->dims[2 + d] - 1) * w->strides[2 + d];
    words[3 + d] = -w->strides[2 + d];
  }
  return next;
}

static void write_grids(const images *c, hr_device_source *source) {
  int64_t weights = c->in * c->out * area_of(c->kernel);
  int64_t factors = c->stages * c->wk * c->steps * c->wn * c->nt * 64;
  int main = c->is_weights ? 0 : 1, other = 1 - main;
  source->pass_count = 2;
  source->blocks[main] = c->blocks;
  source->threads[main] = 32 * WARPS;
  source->shared[main] = (int)(c->shared * (int64_t)sizeof(float));
  source->blocks[other] = c->is_weights ? divide_up(weights, SUMMED) : divide_up(factors, HR_SMALL_THREADS);
  source->threads[other] = HR_SMALL_THREADS;
  source->workspace_bytes = (size_t)(c->is_weights ? c->blocks / c->parts * weights : factors) * sizeof(float);
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  images c;
  hr_device_source source = {.begins_early = true};
  if (!is_images(node, &c)) {
    return hr_status_make(HR_STATUS_INTERNAL, "images: a convolution that it does not support");
  }
  source.name = c.is_weights ? "hr_weights" : "hr_images";
  write_text(program, node, &c, &source.text);
  int64_t *words = write_place(source.words, &node->inputs[0]);
  words = node->op == HR_OP_CONV_BACKWARD_DATA ? write_turned(words, c.w) : write_place(words, &node->inputs[1]);
  words = write_place(words, &node->outputs[0]);
  source.word_count = (int)(words - source.words);
  write_grids(&c, &source);
  return hr__device_text_finish(&source, out_source);
}

static hr_status open_provider(void) {
  enum { ARCHITECTURE_MIN = 8 }; /* asynchronous copies, and TF32 in tensor cores */
  return hr__cuda_limits_find("images", ARCHITECTURE_MIN);
}

const hr_provider hr__images_provider = {
    .name = "images",
    .dialect = HR_DIALECT_CUDA,
    .open = open_provider,
    .supports = supports,
    .write = write,
};
