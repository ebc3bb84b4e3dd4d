/* onnx_losses.c: losses of class numbers, along axis 1. */
#include "importers/onnx/onnx_importer.h"

static const char *const reductions[] = {"mean", "sum", "none"};

/* -scores at the targets, times the weights of their classes. Targets of ignore_index count nothing. */
static hr_value class_loss(hr__onnx_node *node, hr_value scores, hr_value targets, hr_value weights) {
  const hr__onnx_attribute *ignored = hr__onnx_find_attribute(node, "ignore_index");
  hr_dtype dtype = hr__onnx_dtype_of(node, scores);
  int reduction = hr__onnx_word(node, "reduction", 3, reductions);
  hr_value labels = hr__onnx_cast(node, targets, HR_DTYPE_I64), counts = 0, zero = hr__onnx_whole(node, 0);
  if (ignored != NULL) {
    counts = CALL(node, NOT_EQUAL, labels, hr__onnx_whole(node, ignored->i));
    labels = CALL(node, WHERE, counts, labels, zero);
  }
  hr_value places = hr__onnx_expand_dim(node, labels, 1);
  hr_value picked = ADD(node, TAKE_ALONG_AXIS, IN(scores, places), WITH(hr__with_int("axis", 1)));
  hr_value losses = CALL(node, NEGATIVE, hr__onnx_squeeze_dim(node, picked, 1));
  hr_value shares = weights != 0 ? ADD(node, TAKE, IN(weights, labels), WITH(hr__with_int("axis", 0))) : 0;
  if (counts != 0) {
    losses = CALL(node, WHERE, counts, losses, zero);
    shares = shares != 0 ? CALL(node, WHERE, counts, shares, zero) : hr__onnx_cast(node, counts, dtype);
  }
  losses = shares != 0 ? CALL(node, MULTIPLY, losses, shares) : losses;
  if (reduction != 0) {
    return reduction == 1 ? ADD(node, SUM, IN(losses), WITH(hr__with_dtype("dtype", dtype))) : losses;
  }
  return shares == 0 ? CALL(node, MEAN, losses) : CALL(node, DIVIDE, CALL(node, SUM, losses), CALL(node, SUM, shares));
}

void hr__onnx_map_nll_loss(hr__onnx_node *node) {
  hr__onnx_set(node, 0, class_loss(node, hr__onnx_input(node, 0), hr__onnx_input(node, 1), hr__onnx_input(node, 2)));
}

void hr__onnx_map_softmax_cross_entropy(hr__onnx_node *node) {
  hr_value scores = ADD(node, LOG_SOFTMAX, IN(hr__onnx_input(node, 0)), WITH(hr__with_int("axis", 1)));
  hr__onnx_set(node, 0, class_loss(node, scores, hr__onnx_input(node, 1), hr__onnx_input(node, 2)));
  hr__onnx_set(node, 1, scores);
}
