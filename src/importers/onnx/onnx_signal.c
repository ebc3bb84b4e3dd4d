/* onnx_signal.c: window functions and Fourier transforms. */
#include <math.h>

#include "importers/onnx/onnx_importer.h"

/* ---- windows ---- */

/* sum of factors[k] cos(2 pi k i / n) for i below size, of which n is one less if the window is symmetric. */
static void map_window(hr__onnx_node *node, int count, const double *factors) {
  int64_t size = 0;
  hr_dtype dtype = hr__onnx_dtype(hr__onnx_int(node, "output_datatype", 1));
  if (hr__onnx_integers(node, hr__onnx_input(node, 0), "size", 1, &size) < 0) {
    return;
  }
  double period = (double)size - (hr__onnx_int(node, "periodic", 1) != 0 ? 0 : 1);
  hr_value place =
      ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)size), hr__with_dtype("dtype", HR_DTYPE_F64)));
  hr_value sum = CALL(node, MULTIPLY, place, hr__onnx_number(node, 0));
  sum = CALL(node, ADD, sum, hr__onnx_number(node, factors[0]));
  for (int k = 1; k < count; ++k) {
    hr_value angle = CALL(node, MULTIPLY, place, hr__onnx_number(node, 2 * M_PI * k / period));
    hr_value part = CALL(node, MULTIPLY, CALL(node, COS, angle), hr__onnx_number(node, factors[k]));
    sum = CALL(node, ADD, sum, part);
  }
  hr__onnx_set(node, 0, hr__onnx_cast(node, sum, dtype));
}

void hr__onnx_map_hann_window(hr__onnx_node *node) {
  map_window(node, 2, (const double[]){0.5, -0.5});
}
void hr__onnx_map_hamming_window(hr__onnx_node *node) {
  map_window(node, 2, (const double[]){25.0 / 46, -21.0 / 46});
}
void hr__onnx_map_blackman_window(hr__onnx_node *node) {
  map_window(node, 3, (const double[]){0.42, -0.5, 0.08});
}

/* ---- filters ---- */

enum { MEL_NUMBERS = 5, MEL_FILTERS_MAX = 1 << 12, MEL_LENGTH_MAX = 1 << 20 };

static double mel_of(double hertz) {
  return 2595 * log10(1 + hertz / 700);
}

/* The bins of the transform at which triangles begin, have their top, and end; false if one has none. */
static bool find_mel_bins(const double *numbers, int *out_bins) {
  int filters = (int)numbers[0], length = (int)numbers[1];
  double low = mel_of(numbers[3]), step = (mel_of(numbers[4]) - low) / (filters + 2);
  for (int i = 0; i < filters + 2; ++i) {
    double bin = floor((length + 1) * (700 * (pow(10, (low + i * step) / 2595) - 1)) / numbers[2]);
    if (!(bin >= 0 && bin <= length / 2)) {
      return false;
    }
    out_bins[i] = (int)bin;
  }
  return true;
}

/* Triangles of height 1: column i rises from bins[i] to bins[i + 1], and falls to bins[i + 2]. */
static void fill_mel_filters(int filters, const int *bins, double *out) {
  for (int i = 0; i < filters; ++i) {
    int begin = bins[i], top = bins[i + 1], end = bins[i + 2];
    for (int j = begin; j <= top; ++j) {
      out[(int64_t)j * filters + i] = top == begin ? 1 : (double)(j - begin) / (top - begin);
    }
    for (int j = top; j < end; ++j) {
      out[(int64_t)j * filters + i] = (double)(end - j) / (end - top);
    }
  }
}

static hr_value add_mel_filters(hr__onnx_node *node, const double *numbers) {
  int filters = (int)numbers[0];
  hr_type type = {.dtype = HR_DTYPE_F64, .rank = 2, .dims = {(int)numbers[1] / 2 + 1, filters}};
  int *bins = HR_ARENA_ARRAY(node->arena, int, (size_t)filters + 2);
  size_t count = (size_t)(type.dims[0] * type.dims[1]);
  double *elements = hr_calloc(count + 1, sizeof *elements);
  hr_value x = 0;
  if (bins == NULL || elements == NULL) {
    hr__onnx_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu numbers", count);
  } else if (!find_mel_bins(numbers, bins)) {
    HR__ONNX_WRONG(node, "edges of %g and %g Hz, expected 0 to half of the sample rate %g", numbers[3], numbers[4],
                   numbers[2]);
  } else {
    fill_mel_filters(filters, bins, elements);
    x = hr_graph_constant(node->graph, &type, elements);
  }
  hr_free(elements);
  return x;
}

void hr__onnx_map_mel_weight_matrix(hr__onnx_node *node) {
  static const char *const names[MEL_NUMBERS] = {"num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz",
                                                 "upper_edge_hertz"};
  double numbers[MEL_NUMBERS] = {0};
  for (int i = 0; i < MEL_NUMBERS; ++i) {
    if (hr__onnx_numbers(node, hr__onnx_input(node, i), names[i], 1, &numbers[i]) != 1) {
      HR__ONNX_WRONG(node, "%s is no number", names[i]);
      return;
    }
  }
  if (!(numbers[0] >= 0 && numbers[0] <= MEL_FILTERS_MAX && numbers[1] >= 1 && numbers[1] <= MEL_LENGTH_MAX)) {
    HR__ONNX_WRONG(node, "%g filters of %g elements, expected at most %d of 1 to %d", numbers[0], numbers[1],
                   MEL_FILTERS_MAX, MEL_LENGTH_MAX);
    return;
  }
  hr_dtype dtype = hr__onnx_dtype(hr__onnx_int(node, "output_datatype", 1));
  hr__onnx_set(node, 0, hr__onnx_cast(node, add_mel_filters(node, numbers), dtype));
}

/* ---- transforms of numbers whose last dim is their real, or real and imaginary parts ---- */

static hr_value part_of(hr__onnx_node *node, hr_value x, int axis, int index) {
  return hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, x, axis, index, 1), axis);
}

static hr_value to_complex(hr__onnx_node *node, hr_value x) {
  int last = hr__onnx_rank(node, x) - 1;
  int64_t parts = hr__onnx_known_dim(node, x, last);
  hr_value real = part_of(node, x, last, 0);
  hr_value imaginary = parts == 2 ? part_of(node, x, last, 1) : CALL(node, MULTIPLY, real, hr__onnx_whole(node, 0));
  return CALL(node, COMPLEX, real, imaginary);
}

static hr_value from_complex(hr__onnx_node *node, hr_value x) {
  return ADD(node, STACK, IN(CALL(node, REAL, x), CALL(node, IMAG, x)), WITH(hr__with_int("axis", -1)));
}

/* The length of the transform as an attribute; 0 elements: that of the axis. */
static int read_length(hr__onnx_node *node, int input, hr_graph_attribute *out) {
  int64_t length = 0;
  hr_value given = hr__onnx_input(node, input);
  if (given == 0 || hr__onnx_integers(node, given, "length", 1, &length) < 0) {
    return 0;
  }
  *out = hr__with_ints("n", 1, NULL);
  int64_t *number = hr_arena_dup(node->arena, &length, sizeof length);
  out->value.value.ints = number;
  return number != NULL;
}

void hr__onnx_map_dft(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), axis_input = node->since >= 20 ? hr__onnx_input(node, 2) : 0;
  bool is_inverse = hr__onnx_int(node, "inverse", 0) != 0, is_onesided = hr__onnx_int(node, "onesided", 0) != 0;
  int64_t axis = node->since >= 20 ? -2 : hr__onnx_int(node, "axis", 1);
  hr_graph_attribute with[2];
  if (axis_input != 0 && hr__onnx_integers(node, axis_input, "axis", 1, &axis) < 0) {
    return;
  }
  int rank = hr__onnx_rank(node, x);
  with[0] = hr__with_int("axis", hr__onnx_axis(node, axis, rank));
  int count = 1 + read_length(node, 1, &with[1]);
  if (is_inverse && is_onesided) {
    hr__onnx_set(node, 0, hr__onnx_expand_dim(node, ADD(node, IRFFT, IN(to_complex(node, x)), count, with), -1));
    return;
  }
  hr_value from = is_onesided ? part_of(node, x, rank - 1, 0) : to_complex(node, x);
  hr_functional function = is_inverse ? HR_FUNCTIONAL_IFFT : is_onesided ? HR_FUNCTIONAL_RFFT : HR_FUNCTIONAL_FFT;
  hr__onnx_set(node, 0, from_complex(node, hr__onnx_add(node, function, IN(from), count, with)));
}

/* Transforms of windows of a signal [B, L, 1 or 2]: [B, windows, bins, 2]. */
void hr__onnx_map_stft(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), window = hr__onnx_input(node, 2);
  int64_t stride = 1, size = hr__onnx_dim(node, window, 0), length = hr__onnx_known_dim(node, x, 1);
  bool is_onesided = hr__onnx_int(node, "onesided", 1) != 0 && hr__onnx_known_dim(node, x, 2) == 1;
  if (hr__onnx_integers(node, hr__onnx_input(node, 1), "frame_step", 1, &stride) < 0 ||
      (hr__onnx_input(node, 3) != 0 &&
       hr__onnx_integers(node, hr__onnx_input(node, 3), "frame_length", 1, &size) < 0) ||
      length < 0) {
    return;
  }
  if (size < 1 || stride < 1 || size > length) {
    HR__ONNX_WRONG(node, "windows of %lld elements, %lld apart, of %lld", (long long)size, (long long)stride,
                   (long long)length);
    return;
  }
  int64_t count = (length - size) / stride + 1;
  hr_graph_attribute i64 = hr__with_dtype("dtype", HR_DTYPE_I64);
  hr_value begin = ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)count), i64));
  hr_value place = ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)size), i64));
  hr_value row = hr__onnx_along(node, CALL(node, MULTIPLY, begin, hr__onnx_whole(node, stride)), 0, 2);
  hr_value frames = ADD(node, TAKE, IN(x, CALL(node, ADD, row, place)), WITH(hr__with_int("axis", 1)));
  hr_value real = is_onesided ? part_of(node, frames, 3, 0) : to_complex(node, frames);
  real = window != 0 ? CALL(node, MULTIPLY, real, window) : real;
  hr_graph_attribute axis = hr__with_int("axis", -1);
  hr__onnx_set(
      node, 0,
      from_complex(node, hr__onnx_add(node, is_onesided ? HR_FUNCTIONAL_RFFT : HR_FUNCTIONAL_FFT, IN(real), 1, &axis)));
}
