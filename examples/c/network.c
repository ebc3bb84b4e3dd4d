/* network.c: trains a network of two layers on points inside and outside of a circle, saves its parameters and loads
 * them again. Gradients come from a tape. cc network.c -lheadrace */
#include <stdio.h>
#include <string.h>

#include "headrace/file.h"
#include "headrace/transform.h"

#define TRY(expression)                      \
  do {                                       \
    hr_status status_of_call = (expression); \
    if (status_of_call != HR_OK)             \
      return status_of_call;                 \
  } while (0)

enum { POINTS = 256, HIDDEN = 16, PARAMETERS = 4, STEPS = 400 };
static const char *const NAMES[PARAMETERS] = {"first.weight", "first.bias", "second.weight", "second.bias"};

typedef struct network {
  hr_tensor parameters[PARAMETERS];
} network;

/* Arrays that a function needs for itself; they are released together, also after a failure. */
typedef struct values {
  hr_tensor hidden, scores, differences, loss, gradients[PARAMETERS];
} values;

static void release(int count, hr_tensor *tensors) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&tensors[i]);
  }
}

/* A small generator, so that the example prints the same numbers everywhere. Between -1 and 1. */
static float draw(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static hr_status make_data(hr_stream *stream, hr_tensor *out_x, hr_tensor *out_y) {
  float points[POINTS][2], inside[POINTS][1];
  unsigned state = 1;
  for (int i = 0; i < POINTS; ++i) {
    points[i][0] = draw(&state), points[i][1] = draw(&state);
    inside[i][0] = points[i][0] * points[i][0] + points[i][1] * points[i][1] < 0.5f ? 1 : -1;
  }
  TRY(hr_array_from_host(stream, HR_DTYPE_F32, 2, (const int64_t[]){POINTS, 2}, points, out_x));
  return hr_array_from_host(stream, HR_DTYPE_F32, 2, (const int64_t[]){POINTS, 1}, inside, out_y);
}

static hr_status make_network(hr_stream *stream, network *out) {
  static const int64_t dims[PARAMETERS][2] = {{2, HIDDEN}, {HIDDEN, 1}, {HIDDEN, 1}, {1, 1}};
  static const int ranks[PARAMETERS] = {2, 1, 2, 1};
  float numbers[2 * HIDDEN];
  unsigned state = 2;
  for (int i = 0; i < PARAMETERS; ++i) {
    for (int k = 0; k < dims[i][0] * dims[i][1]; ++k) {
      numbers[k] = ranks[i] == 2 ? draw(&state) : 0; /* biases begin at 0 */
    }
    TRY(hr_array_from_host(stream, HR_DTYPE_F32, ranks[i], dims[i], numbers, &out->parameters[i]));
  }
  return HR_OK;
}

/* tanh(x w1 + b1) w2 + b2: a number for each point, positive inside of the circle. */
static hr_status apply(hr_stream *stream, const network *net, const hr_tensor *x, values *v) {
  const hr_tensor *p = net->parameters;
  TRY(hr_array_binary(stream, HR_FUNCTIONAL_MATMUL, x, &p[0], &v->hidden));
  TRY(hr_array_binary(stream, HR_FUNCTIONAL_ADD, &v->hidden, &p[1], &v->hidden));
  TRY(hr_array_unary(stream, HR_FUNCTIONAL_TANH, &v->hidden, &v->hidden));
  TRY(hr_array_binary(stream, HR_FUNCTIONAL_MATMUL, &v->hidden, &p[2], &v->scores));
  return hr_array_binary(stream, HR_FUNCTIONAL_ADD, &v->scores, &p[3], &v->scores);
}

/* The mean of squared differences. */
static hr_status measure(hr_stream *stream, const hr_tensor *y, values *v) {
  TRY(hr_array_binary(stream, HR_FUNCTIONAL_SUBTRACT, &v->scores, y, &v->differences));
  TRY(hr_array_unary(stream, HR_FUNCTIONAL_SQUARE, &v->differences, &v->differences));
  return hr_array_unary(stream, HR_FUNCTIONAL_MEAN, &v->differences, &v->loss);
}

/* The loss, and its gradients: the tape keeps the records that depend on the parameters. */
static hr_status differentiate(hr_stream *stream, const network *net, const hr_tensor *x, const hr_tensor *y,
                               values *v) {
  const hr_tensor *inputs[PARAMETERS], *loss = &v->loss;
  for (int i = 0; i < PARAMETERS; ++i) {
    inputs[i] = &net->parameters[i];
  }
  hr_tape *tape;
  TRY(hr_tape_begin(stream, &tape));
  hr_status status = hr_tape_watch(tape, PARAMETERS, inputs);
  status = status != HR_OK ? status : apply(stream, net, x, v);
  status = status != HR_OK ? status : measure(stream, y, v);
  hr_tape_end(tape);
  release(PARAMETERS, v->gradients);
  status = status != HR_OK ? status : hr_tape_gradient(tape, 1, &loss, NULL, PARAMETERS, inputs, v->gradients);
  hr_tape_destroy(tape);
  return status;
}

/* One step of gradient descent. Nothing runs here: the commit hands the step over as one program. */
static hr_status step(hr_stream *stream, network *net, const hr_tensor *x, const hr_tensor *y, values *v) {
  const hr_tensor rate = hr_tensor_number(hr_scalar_f64(0.2));
  TRY(differentiate(stream, net, x, y, v));
  for (int i = 0; i < PARAMETERS; ++i) {
    hr_tensor *p = &net->parameters[i], *g = &v->gradients[i];
    TRY(hr_array_binary(stream, HR_FUNCTIONAL_MULTIPLY, g, &rate, g));
    TRY(hr_array_binary(stream, HR_FUNCTIONAL_SUBTRACT, p, g, p));
  }
  return hr_stream_commit(stream);
}

static hr_status save(hr_stream *stream, const network *net, const char *path) {
  const hr_tensor *arrays[PARAMETERS];
  for (int i = 0; i < PARAMETERS; ++i) {
    arrays[i] = &net->parameters[i];
  }
  const hr_file_contents contents = {
      .format = HR_FILE_SAFETENSORS, .count = PARAMETERS, .names = NAMES, .arrays = arrays};
  return hr_file_write(stream, path, &contents);
}

/* Arrays of a file stand in the file's order, so they are found by their names. */
static hr_status load(hr_stream *stream, const char *path, network *out) {
  hr_file *file;
  TRY(hr_file_open(path, &file));
  hr_status status = HR_OK;
  for (int k = 0; k < hr_file_count(file) && status == HR_OK; ++k) {
    for (int i = 0; i < PARAMETERS && status == HR_OK; ++i) {
      status =
          strcmp(hr_file_name(file, k), NAMES[i]) == 0 ? hr_file_array(stream, file, k, &out->parameters[i]) : HR_OK;
    }
  }
  hr_file_close(file); /* the arrays keep the mapping */
  return status;
}

static hr_status count_right(hr_stream *stream, const network *net, const hr_tensor *x, const hr_tensor *y, values *v,
                             int *out_count) {
  float scores[POINTS], wanted[POINTS];
  TRY(apply(stream, net, x, v));
  TRY(hr_array_read(stream, &v->scores, scores));
  TRY(hr_array_read(stream, y, wanted));
  *out_count = 0;
  for (int i = 0; i < POINTS; ++i) {
    *out_count += scores[i] * wanted[i] > 0;
  }
  return HR_OK;
}

static hr_status run(hr_stream *stream, network *net, network *loaded, hr_tensor *data, values *v) {
  float loss;
  int right;
  TRY(make_data(stream, &data[0], &data[1]));
  TRY(make_network(stream, net));
  for (int i = 0; i < STEPS; ++i) {
    TRY(step(stream, net, &data[0], &data[1], v));
  }
  TRY(hr_array_read(stream, &v->loss, &loss));
  TRY(save(stream, net, "network.safetensors"));
  TRY(load(stream, "network.safetensors", loaded));
  (void)remove("network.safetensors");
  TRY(count_right(stream, loaded, &data[0], &data[1], v, &right));
  printf("loss %.2f, %d of %d points are right\n", loss, right, POINTS);
  return HR_OK;
}

int main(void) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  network net = {0}, loaded = {0};
  hr_tensor data[2] = {0};
  values v = {0};
  hr_status status = hr_device_open("cpu", &device);
  status = status != HR_OK ? status : hr_stream_create(device, &stream);
  status = status != HR_OK ? status : run(stream, &net, &loaded, data, &v);
  if (status != HR_OK) {
    fprintf(stderr, "network: %s\n", hr_status_message(status));
  }
  release(PARAMETERS, net.parameters), release(PARAMETERS, loaded.parameters), release(2, data);
  release(1, &v.hidden), release(1, &v.scores), release(1, &v.differences), release(1, &v.loss);
  release(PARAMETERS, v.gradients);
  hr_stream_release(stream), hr_device_release(device);
  int result = status != HR_OK;
  hr_status_free(status);
  return result;
}
