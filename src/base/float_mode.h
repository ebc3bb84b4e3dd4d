/* float_mode.h: how the calling thread rounds.
 *
 * A program may let its threads round in another direction, or flush subnormal numbers to zero:
 * torch.set_flush_denormal and TensorFlow's executor do. Which thread runs a kernel is chance, so kernels run in the
 * default mode: to nearest, with subnormal numbers.
 */
#ifndef HEADRACE_BASE_FLOAT_MODE_H_
#define HEADRACE_BASE_FLOAT_MODE_H_

#include <stdint.h>

typedef uint64_t hr_float_mode;

static inline hr_float_mode hr_float_mode_get(void) {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
  hr_float_mode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

static inline void hr_float_mode_set(hr_float_mode mode) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr((uint32_t)mode);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
  (void)mode;
#endif
}

/* Sets the default mode; returns the one before, for hr_float_mode_end. */
static inline hr_float_mode hr_float_mode_begin(void) {
#if defined(__x86_64__)
  const hr_float_mode others = 0xe040; /* FZ, rounding, DAZ */
#elif defined(__aarch64__)
  const hr_float_mode others = 0x1c80003; /* FZ, rounding, FZ16, AH, FIZ */
#else
  const hr_float_mode others = 0;
#endif
  const hr_float_mode before = hr_float_mode_get();
  if ((before & others) != 0) {
    hr_float_mode_set(before & ~others);
  }
  return (before & others) != 0 ? before : 0;
}

static inline void hr_float_mode_end(hr_float_mode before) {
  if (before != 0) {
    hr_float_mode_set(before);
  }
}

#endif /* HEADRACE_BASE_FLOAT_MODE_H_ */
