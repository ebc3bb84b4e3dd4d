/* stream_record.h: what is checked of the buffers that an operation or a copy names. */
#ifndef HEADRACE_ENGINE_STREAM_RECORD_H_
#define HEADRACE_ENGINE_STREAM_RECORD_H_

#include "engine/stream.h"

/* INVALID_ARGUMENT for a buffer of another device. */
HR_MUST_USE hr_status hr__stream_check_device(const hr_stream *stream, hr_op op, const hr_buffer *buffer);
/* The failure of contents that were never made; what is written from end to end is valid again. */
HR_MUST_USE hr_status hr__check_contents(hr_op op, int input_count, const hr_view *inputs, int output_count,
                                         const hr_view *outputs);

#endif
