/* host_view.h: views of memory that the host can read. */
#ifndef HEADRACE_ENGINE_HOST_VIEW_H_
#define HEADRACE_ENGINE_HOST_VIEW_H_

#include "core/ops/infer.h"

/* OK if a view may be read or written: a buffer, a dtype, a rank, and every element inside the buffer. */
HR_MUST_USE hr_status hr__view_check(const char *what, const hr_view *view);
/* Elements one after another in row-major order. */
bool hr__view_is_contiguous(const hr_view *view);
/* Contiguous, and the whole buffer. */
bool hr__view_is_whole(const hr_view *view);
/* Copies the elements, row-major, from the buffer's bytes at `base`. */
void hr__view_gather(const hr_view *view, const void *base, void *out_bytes);

#endif
