/* fft_passes.c: the passes of fft.h in f32 and f64. */
#include <string.h>

#include "providers/host/fft.h"

#define NAME_(fn, form) fn##_##form
#define NAME__(fn, form) NAME_(fn, form)
#define NAME(fn) NAME__(fn, FORM)

#define FORM f32
#define T float
#include "providers/host/fft_passes.inc"
#undef FORM
#undef T

#define FORM f64
#define T double
#include "providers/host/fft_passes.inc"
