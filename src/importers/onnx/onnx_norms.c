/* onnx_norms.c: normalisation. */
#include "importers/onnx/onnx_importer.h"

static hr_graph_attribute epsilon(const hr__onnx_node *node) {
  return hr__with_real("eps", hr__onnx_real(node, "epsilon", 1e-5));
}

/* old * momentum + new * (1 - momentum) */
static hr_value running(hr__onnx_node *node, hr_value old, hr_value new, double momentum) {
  hr_dtype dtype = hr__onnx_dtype_of(node, old);
  hr_value kept = CALL(node, MULTIPLY, old, hr__onnx_number(node, momentum));
  hr_value added = CALL(node, MULTIPLY, hr__onnx_cast(node, new, dtype), hr__onnx_number(node, 1 - momentum));
  return CALL(node, ADD, kept, added);
}

/* Mean and variance of the channels in training mode. */
static void map_training(hr__onnx_node *node, hr_value x, hr_value weight, hr_value bias) {
  double momentum = hr__onnx_real(node, "momentum", 0.9);
  hr_value y = ADD(node, BATCH_NORM_TRAINING, IN(x, weight, bias), WITH(epsilon(node)));
  if (y != 0) {
    hr__onnx_set(node, 0, y);
    hr__onnx_set(node, 1, running(node, hr__onnx_input(node, 3), y + 1, momentum));
    hr__onnx_set(node, 2, running(node, hr__onnx_input(node, 4), y + 2, momentum));
  }
}

void hr__onnx_map_batch_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), bias = hr__onnx_input(node, 2);
  if (node->since >= 14 && hr__onnx_int(node, "training_mode", 0) != 0) {
    map_training(node, x, weight, bias);
    return;
  }
  hr_value y =
      ADD(node, BATCH_NORM, IN(x, hr__onnx_input(node, 3), hr__onnx_input(node, 4), weight, bias), WITH(epsilon(node)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, y, hr__onnx_dtype_of(node, x)));
}

void hr__onnx_map_instance_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr__onnx_set(node, 0,
               ADD(node, GROUP_NORM, IN(x, hr__onnx_input(node, 1), hr__onnx_input(node, 2)),
                   WITH(epsilon(node), hr__with_int("groups", hr__onnx_known_dim(node, x, 1)))));
}

/* Before version 21 there is one weight for each group. */
void hr__onnx_map_group_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), bias = hr__onnx_input(node, 2);
  int64_t groups = hr__onnx_int(node, "num_groups", 1), channels = hr__onnx_known_dim(node, x, 1);
  if (node->since < 21 && groups > 0 && channels > groups) {
    weight = ADD(node, REPEAT, IN(weight), WITH(hr__with_int("repeats", channels / groups)));
    bias = ADD(node, REPEAT, IN(bias), WITH(hr__with_int("repeats", channels / groups)));
  }
  hr__onnx_set(node, 0,
               ADD(node, GROUP_NORM, IN(x, weight, bias), WITH(epsilon(node), hr__with_int("groups", groups))));
}

/* Axes from `axis` to the last. */
static int last_axes(hr__onnx_node *node, hr_value x, int64_t *out_axes) {
  int rank = hr__onnx_rank(node, x), axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", -1), rank);
  for (int d = axis; d < rank; ++d) {
    out_axes[d - axis] = d;
  }
  return rank - axis;
}

/* In f32, or in f64 for such x, as attribute stash_type has it by default. */
void hr__onnx_map_layer_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), bias = hr__onnx_input(node, 2);
  int64_t axes[HR_RANK_MAX];
  int count = last_axes(node, x, axes);
  hr_dtype dtype = hr__onnx_dtype_of(node, x), wide = dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  hr_value from = hr__onnx_cast(node, x, wide);
  hr_value y = ADD(node, LAYER_NORM, IN(from, 0, 0), WITH(hr__with_int("dims", count), epsilon(node)));
  y = weight != 0 ? CALL(node, MULTIPLY, hr__onnx_cast(node, y, dtype), weight) : hr__onnx_cast(node, y, dtype);
  hr__onnx_set(node, 0, bias != 0 ? CALL(node, ADD, y, bias) : y);
  if (hr__onnx_wants(node, 1) || hr__onnx_wants(node, 2)) {
    hr_value mean = hr__onnx_reduce(node, HR_FUNCTIONAL_MEAN, from, count, axes, true);
    hr_value var = hr__onnx_reduce(node, HR_FUNCTIONAL_VAR, from, count, axes, true);
    hr_value moved = CALL(node, ADD, var, hr__onnx_number(node, hr__onnx_real(node, "epsilon", 1e-5)));
    hr__onnx_set(node, 1, mean);
    hr__onnx_set(node, 2, CALL(node, RSQRT, moved));
  }
}

void hr__onnx_map_rms_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1);
  int64_t axes[HR_RANK_MAX];
  int count = last_axes(node, x, axes);
  hr_dtype dtype = hr__onnx_dtype_of(node, x), wide = dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  hr_value from = hr__onnx_cast(node, x, wide);
  hr_value mean = hr__onnx_reduce(node, HR_FUNCTIONAL_MEAN, CALL(node, SQUARE, from), count, axes, true);
  hr_value moved = CALL(node, ADD, mean, hr__onnx_number(node, hr__onnx_real(node, "epsilon", 1e-5)));
  hr_value y = CALL(node, MULTIPLY, from, CALL(node, RSQRT, moved));
  hr__onnx_set(node, 0, CALL(node, MULTIPLY, hr__onnx_cast(node, y, dtype), weight));
}

void hr__onnx_map_lrn(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr__onnx_set(node, 0,
               ADD(node, LOCAL_RESPONSE_NORM, IN(x),
                   WITH(hr__with_int("size", hr__onnx_int(node, "size", 1)),
                        hr__with_real("alpha", hr__onnx_real(node, "alpha", 1e-4)),
                        hr__with_real("beta", hr__onnx_real(node, "beta", 0.75)),
                        hr__with_real("bias", hr__onnx_real(node, "bias", 1)))));
}

void hr__onnx_map_lp_norm(hr__onnx_node *node) {
  hr__onnx_set(node, 0,
               ADD(node, NORMALIZE, IN(hr__onnx_input(node, 0)),
                   WITH(hr__with_int("axis", hr__onnx_int(node, "axis", -1)),
                        hr__with_real("ord", (double)hr__onnx_int(node, "p", 2)))));
}

/* (x - mean) / (sqrt(mean of x^2 - mean^2) + 1e-9) */
void hr__onnx_map_mean_variance_norm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axes[HR_RANK_MAX] = {0, 2, 3};
  int given = hr__onnx_ints(node, "axes", axes), count = given < 0 ? 3 : given;
  hr_value mean = hr__onnx_reduce(node, HR_FUNCTIONAL_MEAN, x, count, axes, true);
  hr_value std = hr__onnx_reduce(node, HR_FUNCTIONAL_STD, x, count, axes, true);
  hr_value centred = CALL(node, SUBTRACT, x, mean);
  hr__onnx_set(node, 0, CALL(node, DIVIDE, centred, CALL(node, ADD, std, hr__onnx_number(node, 1e-9))));
}
