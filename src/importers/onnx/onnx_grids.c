/* onnx_grids.c: elements at places that a tensor has. */
#include "importers/onnx/onnx_integer.h"

enum { PLANES_MAX = 3, TAPS_MAX = 4 };
enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };

/* The neighbours of each place along one dim of the planes. */
typedef struct taps {
  int count;
  hr_value indices[TAPS_MAX], weights[TAPS_MAX]; /* weight 0: one */
} taps;

typedef struct sampling {
  int mode, padding, planes;
  bool aligns;
  int64_t sizes[PLANES_MAX];
  taps dims[PLANES_MAX];
} sampling;

static hr_value times(hr__onnx_node *node, hr_value x, double factor, double more) {
  hr_value product = CALL(node, MULTIPLY, x, hr__onnx_number(node, factor));
  return more != 0 ? CALL(node, ADD, product, hr__onnx_number(node, more)) : product;
}

static hr_value clamp(hr__onnx_node *node, hr_value x, double low, double high) {
  return CALL(node, MINIMUM, CALL(node, MAXIMUM, x, hr__onnx_number(node, low)), hr__onnx_number(node, high));
}

/* Places between low and high, mirrored at both as often as needed. */
static hr_value reflect(hr__onnx_node *node, hr_value x, double low, double high) {
  double range = high - low;
  if (range <= 0) {
    return CALL(node, MULTIPLY, x, hr__onnx_number(node, 0));
  }
  hr_value moved = CALL(node, REMAINDER, times(node, x, 1, -low), hr__onnx_number(node, 2 * range));
  hr_value mirrored = times(node, moved, -1, 2 * range);
  return times(node, CALL(node, MINIMUM, moved, mirrored), 1, low);
}

static double low_of(const sampling *s) {
  return s->aligns ? 0 : -0.5;
}
static double high_of(const sampling *s, int d) {
  return (double)s->sizes[d] - (s->aligns ? 1 : 0.5);
}

/* A neighbour: its index inside of the dim, and its weight, 0 outside if there are zeros. */
static void add_tap(hr__onnx_node *node, sampling *s, int d, hr_value index, hr_value weight) {
  taps *t = &s->dims[d];
  double last = (double)s->sizes[d] - 1;
  if (s->padding == REFLECTION) {
    index = reflect(node, index, low_of(s), high_of(s, d));
  } else if (s->padding == ZEROS) {
    hr_value is_inside = CALL(node, LOGICAL_AND, CALL(node, GREATER_EQUAL, index, hr__onnx_number(node, 0)),
                              CALL(node, LESS_EQUAL, index, hr__onnx_number(node, last)));
    hr_value share = hr__onnx_cast(node, is_inside, HR_DTYPE_F32);
    weight = weight != 0 ? CALL(node, MULTIPLY, weight, share) : share;
  }
  t->indices[t->count] = hr__onnx_cast(node, clamp(node, index, 0, last), HR_DTYPE_I64);
  t->weights[t->count++] = weight;
}

/* Weights of a cubic with a = -0.75 (Keys, 1981) for the distance t: |t| <= 1, and between 1 and 2. */
static hr_value cubic_near(hr__onnx_node *node, hr_value t) {
  hr_value square = CALL(node, SQUARE, t), slope = times(node, t, 1.25, -2.25);
  return times(node, CALL(node, MULTIPLY, slope, square), 1, 1);
}
static hr_value cubic_far(hr__onnx_node *node, hr_value t) {
  hr_value inner = times(node, CALL(node, MULTIPLY, times(node, t, -0.75, 3.75), t), 1, -6);
  return times(node, CALL(node, MULTIPLY, inner, t), 1, 3);
}

static void find_taps(hr__onnx_node *node, sampling *s, int d, hr_value place) {
  if (s->mode == NEAREST) {
    add_tap(node, s, d, CALL(node, ROUND, place), 0);
    return;
  }
  hr_value floor = CALL(node, FLOOR, place), rest = CALL(node, SUBTRACT, place, floor), less = times(node, rest, -1, 1);
  if (s->mode == LINEAR) {
    add_tap(node, s, d, floor, less);
    add_tap(node, s, d, times(node, floor, 1, 1), rest);
    return;
  }
  add_tap(node, s, d, times(node, floor, 1, -1), cubic_far(node, times(node, rest, 1, 1)));
  add_tap(node, s, d, floor, cubic_near(node, rest));
  add_tap(node, s, d, times(node, floor, 1, 1), cubic_near(node, less));
  add_tap(node, s, d, times(node, floor, 1, 2), cubic_far(node, times(node, less, 1, 1)));
}

/* Places in a dim from coordinates between -1 and 1. */
static void find_dim(hr__onnx_node *node, sampling *s, int d, hr_value coordinate) {
  double size = (double)s->sizes[d];
  hr_value place = s->aligns ? times(node, coordinate, (size - 1) / 2, (size - 1) / 2)
                             : times(node, coordinate, size / 2, (size - 1) / 2);
  if (s->padding == BORDER) {
    place = clamp(node, place, 0, size - 1);
  } else if (s->padding == REFLECTION) {
    place = reflect(node, place, low_of(s), high_of(s, d));
  }
  find_taps(node, s, d, place);
}

/* The sum over all combinations of taps. flat: [N, C, S]; indices and weights are [N, P]. */
static hr_value sum_taps(hr__onnx_node *node, const sampling *s, hr_value flat, const hr__integer *dims) {
  hr_value sum = 0;
  int combinations = 1;
  for (int d = 0; d < s->planes; ++d) {
    combinations *= s->dims[d].count;
  }
  for (int i = 0; i < combinations; ++i) {
    hr_value index = 0, weight = 0;
    for (int d = 0, rest = i; d < s->planes; rest /= s->dims[d++].count) {
      int tap = rest % s->dims[d].count;
      hr_value own = s->dims[d].indices[tap], share = s->dims[d].weights[tap];
      index = d == 0 ? own : CALL(node, ADD, CALL(node, MULTIPLY, index, hr__onnx_whole(node, s->sizes[d])), own);
      weight = weight == 0 ? share : share == 0 ? weight : CALL(node, MULTIPLY, weight, share);
    }
    int64_t numbers[3];
    hr_value values[3];
    hr_value places = ADD(node, BROADCAST_TO, IN(hr__onnx_expand_dim(node, index, 1)),
                          WITH(hr__with_integers("shape", 3, dims, numbers, values)));
    hr_value part = ADD(node, TAKE_ALONG_AXIS, IN(flat, places), WITH(hr__with_int("axis", 2)));
    part = weight != 0 ? CALL(node, MULTIPLY, part, hr__onnx_expand_dim(node, weight, 1)) : part;
    sum = sum == 0 ? part : CALL(node, ADD, sum, part);
  }
  return sum;
}

static bool read_sampling(hr__onnx_node *node, hr_value x, sampling *s) {
  static const char *const first_modes[] = {"bilinear", "nearest", "bicubic"};
  static const char *const modes[] = {"linear", "nearest", "cubic"};
  static const char *const paddings[] = {"zeros", "border", "reflection"};
  static const int numbers[] = {LINEAR, NEAREST, CUBIC};
  int mode = hr__onnx_word(node, "mode", 3, node->since < 20 ? first_modes : modes);
  s->mode = numbers[mode > 0 ? mode : 0], s->padding = hr__onnx_word(node, "padding_mode", 3, paddings);
  s->aligns = hr__onnx_int(node, "align_corners", 0) != 0, s->planes = hr__onnx_rank(node, x) - 2;
  if (s->planes < 1 || s->planes > PLANES_MAX) {
    HR__ONNX_REFUSE(node, "%d planes, expected 1 to %d", s->planes, PLANES_MAX);
    return false;
  }
  for (int d = 0; d < s->planes; ++d) {
    s->sizes[d] = hr__onnx_known_dim(node, x, d + 2);
  }
  return !hr__onnx_failed(node);
}

void hr__onnx_map_grid_sample(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), grid = hr__onnx_input(node, 1);
  sampling s = {.mode = LINEAR};
  if (!read_sampling(node, x, &s)) {
    return;
  }
  int n = s.planes;
  hr_dtype dtype = hr__onnx_dtype_of(node, x);
  hr__integer size = hr__integer_of(1), dims[3], rest = hr__integer_of(1), out[PLANES_MAX + 2];
  out[0] = hr__integer_dim(node, x, 0), out[1] = hr__integer_dim(node, x, 1);
  for (int d = 0; d < n; ++d) {
    size = INTEGER(node, MULTIPLY, size, hr__integer_of(s.sizes[d]));
    out[d + 2] = hr__integer_dim(node, grid, d + 1);
    rest = INTEGER(node, MULTIPLY, rest, out[d + 2]);
  }
  dims[0] = out[0], dims[1] = out[1], dims[2] = size;
  hr_value flat = hr__integer_reshape(node, hr__onnx_cast(node, x, HR_DTYPE_F32), 3, dims);
  const hr__integer points[3] = {out[0], rest, hr__integer_of(n)};
  hr_value places = hr__integer_reshape(node, hr__onnx_cast(node, grid, HR_DTYPE_F32), 3, points);
  for (int d = 0; d < n; ++d) { /* the last coordinate is that of the first plane */
    find_dim(node, &s, d, hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, places, 2, n - 1 - d, 1), 2));
  }
  dims[2] = rest;
  hr_value sum = sum_taps(node, &s, flat, dims);
  hr__onnx_set(node, 0, hr__onnx_cast(node, hr__integer_reshape(node, sum, n + 2, out), dtype));
}

/* Coordinates of the output's elements, between -1 and 1, times a matrix for each example. */
void hr__onnx_map_affine_grid(hr__onnx_node *node) {
  hr_value theta = hr__onnx_input(node, 0), parts[PLANES_MAX + 1] = {0};
  hr_dtype dtype = hr__onnx_dtype_of(node, theta);
  int64_t sizes[HR_RANK_MAX];
  int count = hr__onnx_integers(node, hr__onnx_input(node, 1), "size", HR_RANK_MAX, sizes), n = count - 2;
  bool aligns = hr__onnx_int(node, "align_corners", 0) != 0;
  if (count < 0 || n < 1 || n > PLANES_MAX) {
    HR__ONNX_WRONG(node, "a size of %d dims, expected 3 to 5", count);
    return;
  }
  for (int d = 0; d < n; ++d) {
    double size = (double)sizes[d + 2], step = aligns ? (size > 1 ? 2 / (size - 1) : 0) : 2 / size;
    hr_value place = ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", size), hr__with_dtype("dtype", dtype)));
    hr_value at = times(node, place, step, aligns ? -1 : step / 2 - 1);
    parts[n - 1 - d] =
        ADD(node, BROADCAST_TO, IN(hr__onnx_along(node, at, d, n)), WITH(hr__with_ints("shape", n, sizes + 2)));
  }
  parts[n] = times(node, parts[0], 0, 1);
  hr_value places = ADD(node, STACK, n + 1, parts, WITH(hr__with_int("axis", -1)));
  hr_value matrix = ADD(node, SWAPAXES, IN(theta), PLAIN);
  for (int d = 0; d < n - 1; ++d) {
    matrix = hr__onnx_expand_dim(node, matrix, 1);
  }
  hr__onnx_set(node, 0, CALL(node, MATMUL, places, matrix));
}
