/* cpu.h: selects the code for the host's processor, from one table of CPU features.
 *
 * A build for many machines (HEADRACE_NATIVE=OFF on x86-64) compiles the files with hot loops once for each level of
 * x86-64:
 *
 *   level 2   SSE4.2, POPCNT                      the rest of the library is compiled for this level
 *   level 3   AVX2, FMA, F16C, BMI
 *   level 4   AVX-512 F, BW, CD, DQ, VL
 *
 * The level is a suffix of their entry points (HR_CPU_NAME); all other names are local to the level. Other builds have
 * one copy, for the machine that compiles. HEADRACE_CPU caps the level, also for kernels compiled at run time. Results
 * have the same bits at each level, except sums of products (matrix products, convolutions). Threads: any.
 */
#ifndef HEADRACE_BASE_CPU_H_
#define HEADRACE_BASE_CPU_H_

#include <stdbool.h>

#include "base/text.h"

/* The features in use: identifier, the compiler's name, the level that includes it. 5: none does. */
#define HR_CPU_FEATURES(X)       \
  X(SSE4_2, "sse4.2", 2)         \
  X(POPCNT, "popcnt", 2)         \
  X(AVX2, "avx2", 3)             \
  X(FMA, "fma", 3)               \
  X(BMI, "bmi", 3)               \
  X(BMI2, "bmi2", 3)             \
  X(AVX512F, "avx512f", 4)       \
  X(AVX512BW, "avx512bw", 4)     \
  X(AVX512CD, "avx512cd", 4)     \
  X(AVX512DQ, "avx512dq", 4)     \
  X(AVX512VL, "avx512vl", 4)     \
  X(AVX512VNNI, "avx512vnni", 5) \
  X(AVX512BF16, "avx512bf16", 5) \
  X(AVX512VBMI, "avx512vbmi", 5)

#define HR__CPU_ENUM(id, name, level) HR_CPU_##id,
typedef enum hr_cpu_feature { HR_CPU_FEATURES(HR__CPU_ENUM) HR_CPU_FEATURE_COUNT } hr_cpu_feature;
#undef HR__CPU_ENUM

/* The highest level (2, 3 or 4) that the processor supports and the cap allows; 0 if the processor is not x86-64. */
int hr_cpu_level(void);
/* True if the processor has the feature and the cap allows its level. */
bool hr_cpu_has(hr_cpu_feature feature);
/* The compiler's option for kernels: -march=native, or the cap's level. zig spells it differently. */
const char *hr_cpu_option(bool is_zig);
/* Appends the level in use and the names of the features, on one line. */
void hr_cpu_describe(hr_text *text);

/* The name of an entry point in a file that is compiled for each level. */
#if defined(HR_CPU_LEVEL)
#define HR__CPU_JOIN(name, level) name##_v##level
#define HR__CPU_NAME(name, level) HR__CPU_JOIN(name, level)
#define HR_CPU_NAME(name) HR__CPU_NAME(name, HR_CPU_LEVEL)
#else
#define HR_CPU_NAME(name) name
#endif

#endif
