/* graph.c: a layer as a graph, whose batch is a symbol, and a session that runs it for two batches.
 * cc graph.c -lheadrace */
#include <stdio.h>

#include "headrace/array.h"
#include "headrace/session.h"

#define TRY(expression)                      \
  do {                                       \
    hr_status status_of_call = (expression); \
    if (status_of_call != HR_OK)             \
      return status_of_call;                 \
  } while (0)

static hr_status write_to(void *file, const void *bytes, size_t count) {
  return fwrite(bytes, 1, count, file) == count ? HR_OK : hr_status_make(HR_STATUS_UNAVAILABLE, "can't write");
}

/* softmax(x w) for x [n, 2] */
static hr_status build(hr_graph *graph) {
  const hr_type rows = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {-1, 2}, .symbols = {"n"}};
  const hr_type square = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {2, 2}};
  const float weights[4] = {1, -1, -1, 1};
  hr_value x = hr_graph_input(graph, "x", &rows), w = hr_graph_constant(graph, &square, weights);
  hr_value y = hr_graph_add(graph, HR_FUNCTIONAL_MATMUL, 2, (hr_value[]){x, w}, 0, NULL);
  const hr_graph_attribute axis = {.name = "axis", .value = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = 1}}};
  hr_graph_name(graph, w, "w");
  hr_graph_output(graph, "p", hr_graph_add(graph, HR_FUNCTIONAL_SOFTMAX, 1, &y, 1, &axis));
  return hr_graph_status(graph); /* the first failure of all these calls */
}

static hr_status answer(hr_stream *stream, hr_session *session, int64_t n) {
  const float numbers[6] = {0, 0, 1, 0, 0, 2};
  float p[6];
  hr_tensor x = {0}, y = {0};
  TRY(hr_array_from_host(stream, HR_DTYPE_F32, 2, (const int64_t[]){n, 2}, numbers, &x));
  const hr_tensor *inputs[1] = {&x};
  hr_status status = hr_session_run(session, 1, inputs, 1, &y);
  status = status == HR_OK ? hr_array_read(stream, &y, p) : status;
  for (int64_t i = 0; status == HR_OK && i < n; ++i) {
    printf(i == 0 ? "%.3f" : " %.3f", (double)p[2 * i]);
  }
  printf("\n");
  hr_tensor_release(&x), hr_tensor_release(&y);
  return status;
}

static hr_status run(hr_stream *stream, hr_graph *graph) {
  hr_session *session = NULL;
  TRY(build(graph));
  TRY(hr_graph_print(graph, write_to, stdout));
  TRY(hr_session_create(stream, graph, NULL, &session));
  hr_status status = answer(stream, session, 1);
  status = status == HR_OK ? answer(stream, session, 3) : status;
  hr_session_release(session);
  return status;
}

int main(void) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_graph *graph = NULL;
  hr_status status = hr_device_open("cpu", &device);
  status = status != HR_OK ? status : hr_stream_create(device, &stream);
  status = status != HR_OK ? status : hr_graph_create(&graph);
  status = status != HR_OK ? status : run(stream, graph);
  printf("%s\n", hr_status_message(status));
  hr_graph_release(graph), hr_stream_release(stream), hr_device_release(device), hr_status_free(status);
  return 0;
}
