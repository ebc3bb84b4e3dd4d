/* stream_record.h: checks the buffers of an operation or a copy. */
#ifndef HEADRACE_ENGINE_STREAM_RECORD_H_
#define HEADRACE_ENGINE_STREAM_RECORD_H_

#include "engine/stream.h"

/* INVALID_ARGUMENT for a buffer of another device. */
HR_MUST_USE hr_status hr__stream_check_device(const hr_stream *stream, hr_op op, const hr_buffer *buffer);
/* Returns the failure of an input whose contents were never made. An output that is written completely becomes valid
 * again. */
HR_MUST_USE hr_status hr__check_contents(hr_op op, int input_count, const hr_view *inputs, int output_count,
                                         const hr_view *outputs);
/* UNIMPLEMENTED if the stream has hooks: `what` is no record. */
HR_MUST_USE hr_status hr__stream_refuse_hooks(const hr_stream *stream, const char *what);

#endif
