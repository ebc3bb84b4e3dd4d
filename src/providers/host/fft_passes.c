/* fft_passes.c: the passes of fft.h in f32 and f64, by single numbers and by vectors. */
#include <string.h>

#include "providers/host/fft.h"

#define NAME_(fn, form) fn##_##form
#define NAME__(fn, form) NAME_(fn, form)
#define NAME(fn) NAME__(fn, FORM)

typedef float floats __attribute__((vector_size(HR__FFT_LANE_BYTES), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(HR__FFT_LANE_BYTES), aligned(8), may_alias));

#define T float
#define V float
#define STEP 1
#define FORM one_f32
#include "providers/host/fft_pass.inc"
#undef V
#undef STEP
#undef FORM

#define V floats
#define STEP (HR__FFT_LANE_BYTES / 4)
#define FORM many_f32
#include "providers/host/fft_pass.inc"
#undef V
#undef STEP
#undef FORM

#define FORM f32
#define ONE(fn) fn##_one_f32
#define MANY(fn) fn##_many_f32
#define LANES (HR__FFT_LANE_BYTES / 4)
#include "providers/host/fft_passes.inc"
#undef T
#undef FORM
#undef ONE
#undef MANY
#undef LANES

#define T double
#define V double
#define STEP 1
#define FORM one_f64
#include "providers/host/fft_pass.inc"
#undef V
#undef STEP
#undef FORM

#define V doubles
#define STEP (HR__FFT_LANE_BYTES / 8)
#define FORM many_f64
#include "providers/host/fft_pass.inc"
#undef V
#undef STEP
#undef FORM

#define FORM f64
#define ONE(fn) fn##_one_f64
#define MANY(fn) fn##_many_f64
#define LANES (HR__FFT_LANE_BYTES / 8)
#include "providers/host/fft_passes.inc"
