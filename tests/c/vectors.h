/* Vectors of COUNT floats, for tests of streams. A test defines COUNT before it includes this header. */
#pragma once

#include "hr_test.h"

#include "headrace/stream.h"

static const int64_t vector_dims[1] = {COUNT}, vector_strides[1] = {1};

static inline hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = vector_dims, .strides = vector_strides};
}

static inline hr_buffer *make_vector(hr_device *device) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(device, COUNT * sizeof(float), &buffer));
  return buffer;
}

/* out = op(in, value) */
static inline hr_status try_record(hr_stream *stream, hr_op op, hr_buffer *in, double value, hr_buffer *out) {
  hr_scalar scalar = hr_scalar_f64(value);
  hr_view inputs[2] = {view_of(in), {.scalar = &scalar, .dtype = scalar.dtype}}, output = view_of(out);
  return hr_stream_record(stream, op, NULL, 2, inputs, 1, &output);
}

static inline void record(hr_stream *stream, hr_op op, hr_buffer *in, double value, hr_buffer *out) {
  HR_ASSERT_OK(try_record(stream, op, in, value, out));
}

static inline void fill(hr_stream *stream, hr_buffer *buffer, double value) {
  hr_scalar scalar = hr_scalar_f64(value);
  hr_view input = {.scalar = &scalar, .dtype = scalar.dtype}, output = view_of(buffer);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
}

static inline void read_vector(hr_stream *stream, hr_buffer *buffer, float *out_values) {
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(stream, &view, out_values));
}

static inline float read_first(hr_stream *stream, hr_buffer *buffer) {
  float values[COUNT];
  read_vector(stream, buffer, values);
  return values[0];
}
