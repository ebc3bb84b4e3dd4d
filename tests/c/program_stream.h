/* program_stream.h: generated programs through a stream, on any device. */
#ifndef HEADRACE_TESTS_PROGRAM_STREAM_H_
#define HEADRACE_TESTS_PROGRAM_STREAM_H_

#include "program_generator.h"
#include "runtime/device.h"

typedef struct hr__side {
  hr_device *device;
  hr_stream *stream;
  hr_buffer **buffers; /* of the program */
} hr__side;

/* Buffers with the program's contents; drop releases them. */
HR_MUST_USE hr_status hr__side_fill(hr__side *side, const generated *g);
/* The contents that the buffers had at first, again. */
HR_MUST_USE hr_status hr__side_refill(hr__side *side, const generated *g);
void hr__side_drop(hr__side *side, const generated *g);
/* The buffer's bytes as a tensor; dims and strides have room for one. */
hr_view hr__side_bytes(const hr__side *side, const generated *g, int buffer, int64_t *dims, int64_t *strides);
/* Records the program; returns the first failure. */
HR_MUST_USE hr_status hr__side_record(hr__side *side, const generated *g);
/* The same, and waits; returns the program's failure, from any operation that reports it. */
HR_MUST_USE hr_status hr__side_run(hr__side *side, const generated *g);

/* True if libraries may compute part of it, with other bits on other devices. */
bool hr__has_products(const hr_program *program);
/* True if the name of an operation contains `part`. */
bool hr__has_rows(const hr_program *program, const char *part);

#endif
