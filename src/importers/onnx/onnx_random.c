/* onnx_random.c: random numbers. ONNX leaves their sequence open. */
#include "importers/onnx/onnx_integer.h"

/* The key of a seed, which is a float in ONNX; without one of the place of the node. */
static hr_value key_of(hr__onnx_node *node) {
  const hr__onnx_attribute *seed = hr__onnx_find_attribute(node, "seed");
  int64_t number = node->importer->node_count;
  if (seed != NULL) {
    double given = seed->type == HR__ONNX_INT ? (double)seed->i : (double)seed->f;
    memcpy(&number, &given, sizeof number);
  }
  return ADD(node, KEY, 0, NULL, WITH(hr__with_int("seed", number)));
}

/* The dtype of the attribute, or `otherwise`. */
static hr_dtype dtype_of(hr__onnx_node *node, hr_dtype otherwise) {
  hr_dtype given = hr__onnx_dtype(hr__onnx_int(node, "dtype", 0));
  return given != HR_DTYPE_NONE ? given : otherwise;
}

static hr_graph_attribute shape_like(hr__onnx_node *node, hr_value x) {
  return hr__with_list("shape", hr_graph_shape(node->graph, x));
}

static void map_samples(hr__onnx_node *node, hr_graph_attribute shape, hr_dtype dtype) {
  bool is_uniform = node->function == HR_FUNCTIONAL_UNIFORM;
  hr_value key = key_of(node);
  hr_value x = is_uniform ? ADD(node, UNIFORM, IN(key),
                                WITH(shape, hr__with_real("low", hr__onnx_real(node, "low", 0)),
                                     hr__with_real("high", hr__onnx_real(node, "high", 1))))
                          : ADD(node, NORMAL, IN(key),
                                WITH(shape, hr__with_real("loc", hr__onnx_real(node, "mean", 0)),
                                     hr__with_real("scale", hr__onnx_real(node, "scale", 1))));
  hr__onnx_set(node, 0, hr__onnx_cast(node, x, dtype));
}

/* The function of the row. */
void hr__onnx_map_random(hr__onnx_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = hr__onnx_ints(node, "shape", dims);
  map_samples(node, hr__with_ints("shape", rank > 0 ? rank : 0, dims), dtype_of(node, HR_DTYPE_F32));
}

void hr__onnx_map_random_like(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  map_samples(node, shape_like(node, x), dtype_of(node, hr__onnx_dtype_of(node, x)));
}

void hr__onnx_map_bernoulli(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), p = hr__onnx_cast(node, x, HR_DTYPE_F32);
  hr_value is_one = ADD(node, BERNOULLI, IN(key_of(node), p), WITH(shape_like(node, x)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, is_one, dtype_of(node, hr__onnx_dtype_of(node, x))));
}

/* x: the logarithm of each class's probability, or more by a number. */
void hr__onnx_map_multinomial(hr__onnx_node *node) {
  hr_value x = hr__onnx_cast(node, hr__onnx_input(node, 0), HR_DTYPE_F32);
  int64_t samples = hr__onnx_int(node, "sample_size", 1);
  if (hr__onnx_rank(node, x) != 2 || samples < 0 || samples > INT32_MAX) {
    HR__ONNX_WRONG(node, "%d dims and %lld samples, expected 2 dims", hr__onnx_rank(node, x), (long long)samples);
    return;
  }
  hr__integer dims[3] = {hr__integer_dim(node, x, 0), hr__integer_of(samples), hr__integer_dim(node, x, 1)};
  int64_t numbers[3];
  hr_value values[3];
  hr_graph_attribute shape = hr__with_integers("shape", 3, dims, numbers, values);
  hr_value logits = ADD(node, BROADCAST_TO, IN(hr__onnx_expand_dim(node, x, 1)), WITH(shape));
  hr_value places = ADD(node, CATEGORICAL, IN(key_of(node), logits), WITH(hr__with_int("axis", 2)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, places, dtype_of(node, HR_DTYPE_I32)));
}

/* ---- dropout ---- */

/* True if the node drops elements: an input since version 12, before that never in inference. */
static bool drops(hr__onnx_node *node, double *out_ratio) {
  hr_value ratio = hr__onnx_input(node, 1), training = hr__onnx_input(node, 2);
  int64_t is_training = 0;
  *out_ratio = 0.5;
  if (node->since < 12 || training == 0 || hr__onnx_integers(node, training, "training_mode", 1, &is_training) < 0) {
    return false;
  }
  if (is_training != 0 && ratio != 0 && hr__onnx_numbers(node, ratio, "ratio", 1, out_ratio) < 0) {
    return false;
  }
  return is_training != 0 && *out_ratio > 0;
}

void hr__onnx_map_dropout(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), mask = 0;
  hr_dtype mask_dtype = node->since < 10 ? hr__onnx_dtype_of(node, x) : HR_DTYPE_BOOL;
  double ratio = 0;
  if (drops(node, &ratio)) {
    mask = ADD(node, BERNOULLI, IN(key_of(node), hr__onnx_number(node, 1 - ratio)), WITH(shape_like(node, x)));
    hr_value scaled = CALL(node, MULTIPLY, x, hr__onnx_number(node, ratio < 1 ? 1 / (1 - ratio) : 0));
    hr__onnx_set(node, 0, CALL(node, WHERE, mask, scaled, hr__onnx_number(node, 0)));
  } else {
    hr__onnx_set(node, 0, CALL(node, POSITIVE, x));
    mask =
        ADD(node, FULL, IN(hr__onnx_whole(node, 1)), WITH(shape_like(node, x), hr__with_dtype("dtype", HR_DTYPE_BOOL)));
  }
  hr__onnx_set(node, 1, hr__onnx_cast(node, mask, mask_dtype));
}
