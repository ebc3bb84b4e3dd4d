/* ops_resampling.c: rules of ScaleAndTranslate: images [N, H, W, C], resampled with weights of a kernel around each
 * place.
 *
 * An axis is a product with a matrix [output, input] of weights, which the host computes in f32 as TensorFlow does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

enum { PLANES = 2 };

/* ---- weights by distance ---- */

typedef struct sampler {
  const char *name;
  float (*weight)(float distance, float radius);
  float radius;
} sampler;

static float lanczos(float x, float radius) {
  const float pi = 3.14159265359f;
  if (x > radius) {
    return 0;
  }
  return x <= 1e-3f ? 1 : radius * sinf(pi * x) * sinf(pi * x / radius) / (pi * pi * x * x);
}

static float gaussian(float x, float radius) {
  float deviation = radius / 3;
  return x >= radius ? 0 : expf(-x * x / (2 * deviation * deviation));
}

static float box(float x, float radius) {
  (void)radius;
  return x < 0.5f ? 1 : x == 0.5f ? 0.5f : 0;
}

static float triangle(float x, float radius) {
  return x < radius ? 1 - x : 0;
}

static float keys_cubic(float x, float radius) {
  if (x >= radius) {
    return 0;
  }
  return x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
}

static float mitchell_cubic(float x, float radius) {
  if (x >= radius) {
    return 0;
  }
  return x >= 1 ? ((-7.0f / 18 * x + 2) * x - 10.0f / 3) * x + 16.0f / 9 : (7.0f / 6 * x - 2) * x * x + 8.0f / 9;
}

static const sampler samplers[] = {
    {"lanczos1", lanczos, 1},
    {"lanczos3", lanczos, 3},
    {"lanczos5", lanczos, 5},
    {"gaussian", gaussian, 1.5f},
    {"box", box, 1},
    {"triangle", triangle, 1},
    {"keyscubic", keys_cubic, 2},
    {"mitchellcubic", mitchell_cubic, 2},
};

static const sampler *find_sampler(htf_node *node) {
  const char *name = htf_text(node, "kernel_type");
  for (size_t i = 0; i < sizeof samplers / sizeof *samplers; ++i) {
    if (strcmp(samplers[i].name, name) == 0) {
      return &samplers[i];
    }
  }
  htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Unrecognized kernel type: %s", name);
  return NULL;
}

static int64_t bounded(float place, int64_t most) {
  return place < 0 ? 0 : place > (float)most ? most : (int64_t)place;
}

/* The weights of one output; none if its place is outside. */
static void fill_row(const sampler *s, float place, float width, int64_t inputs, float *row) {
  if (!(place >= 0 && place <= (float)inputs)) {
    return;
  }
  int64_t begin = bounded(ceilf(place - s->radius * width - 0.5f), inputs - 1);
  int64_t end = bounded(floorf(place + s->radius * width - 0.5f), inputs - 1) + 1;
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    row[i] = s->weight(fabsf(((float)i + 0.5f - place) * (1 / width)), s->radius);
    sum += row[i];
  }
  for (int64_t i = begin; i < end; ++i) {
    row[i] = fabsf(sum) >= 1000 * 1.17549435e-38f ? row[i] * (1 / sum) : 0;
  }
}

static htf_value weights_of(htf_node *node, const sampler *s, int64_t outputs, int64_t inputs, float scale,
                            float translation) {
  const int64_t dims[2] = {outputs, inputs};
  float *weights = htf_new_argument(node, (size_t)(outputs * inputs + 1) * sizeof *weights), step = 1 / scale;
  for (int64_t i = 0; i < outputs && !htf_has_failed(node); ++i) {
    float place = ((float)i + 0.5f) * step + -step * translation;
    fill_row(s, place, htf_flag(node, "antialias") ? fmaxf(step, 1) : 1, inputs, weights + i * inputs);
  }
  htf_value matrix = htf_reshape(node, htf_constant(node, HR_DTYPE_F32, outputs * inputs, weights), 2, dims);
  free(weights);
  return matrix;
}

/* ---- rules ---- */

/* x times the weights along both axes; `small` and `large`: the sizes of the sources and results of scaling. */
static void resample(htf_node *node, htf_value x, const int64_t *sources, const int64_t *results, int first,
                     bool is_gradient) {
  const sampler *s = find_sampler(node);
  double scale[PLANES], translation[PLANES];
  htf_value weights[PLANES];
  htf_host_reals(node, first, scale, PLANES);
  htf_host_reals(node, first + 1, translation, PLANES);
  for (int i = 0; i < PLANES && !htf_has_failed(node); ++i) {
    if (!(scale[i] > 0) || sources[i] < 1 || results[i] < 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: scale %g of %lld to %lld pixels, expected positive numbers",
               node->kernel->row->op, scale[i], (long long)sources[i], (long long)results[i]);
    }
  }
  for (int i = 0; i < PLANES && !htf_has_failed(node); ++i) {
    weights[i] = weights_of(node, s, results[i], sources[i], (float)scale[i], (float)translation[i]);
  }
  if (htf_has_failed(node)) {
    return;
  }
  const char *equation = is_gradient ? "oh,bopc,pw->bhwc" : "oh,bhwc,pw->bopc";
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_EINSUM, INPUTS(weights[0], htf_cast(node, x, HR_DTYPE_F32), weights[1]),
                      ATTRIBUTES(htf_attr_text(equation))));
}

static bool are_images(htf_node *node, htf_value x) {
  if (!htf_has_failed(node) && x->rank != 4) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must be 4-dimensional, it has %d dims", x->rank);
  }
  return !htf_has_failed(node);
}

/* Inputs: images, size, scale, translation. */
void htf_scale_and_translate(htf_node *node) {
  htf_value images = htf_input(node, 0);
  int64_t size[PLANES] = {0, 0};
  if (htf_host_ints(node, 1, size, PLANES) != PLANES) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ScaleAndTranslate: the size must be two numbers");
  }
  if (are_images(node, images)) {
    resample(node, images, images->dims + 1, size, 2, false);
  }
}

/* Inputs: gradients of the resampled images, the images, scale, translation. */
void htf_scale_and_translate_gradient(htf_node *node) {
  htf_value gradients = htf_input(node, 0), images = htf_input(node, 1);
  if (are_images(node, gradients) && are_images(node, images)) {
    resample(node, gradients, images->dims + 1, gradients->dims + 1, 2, true);
  }
}
