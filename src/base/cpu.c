#include "base/cpu.h"

#include "base/env.h"

/* In the order of HEADRACE_CPU's values. */
static int cap(void) {
  static const int levels[] = {5, 4, 3, 2};
  return levels[hr_env_choice(HR_ENV_CPU)];
}

#if defined(__x86_64__)
/* Bit i: the processor has feature i, and the operating system saves its registers. */
static unsigned features(void) {
#define HR__BIT(id, name, level) | (__builtin_cpu_supports(name) ? 1u << HR_CPU_##id : 0)
  return 0 HR_CPU_FEATURES(HR__BIT);
#undef HR__BIT
}
#else
static unsigned features(void) {
  return 0;
}
#endif

static int level_of(hr_cpu_feature feature) {
#define HR__LEVEL(id, name, level) level,
  static const unsigned char levels[] = {HR_CPU_FEATURES(HR__LEVEL)};
#undef HR__LEVEL
  return levels[feature];
}

int hr_cpu_level(void) {
#if defined(__x86_64__)
  unsigned has = features();
  int level = 4;
  for (int f = 0; f < HR_CPU_FEATURE_COUNT; ++f) {
    if ((has & 1u << f) == 0 && level_of((hr_cpu_feature)f) <= level) {
      level = level_of((hr_cpu_feature)f) - 1;
    }
  }
  level = level < 2 ? 2 : level;
  return level < cap() ? level : cap();
#else
  return 0;
#endif
}

bool hr_cpu_has(hr_cpu_feature feature) {
  return level_of(feature) <= cap() && (features() & 1u << feature) != 0;
}

const char *hr_cpu_option(bool is_zig) {
#if defined(__x86_64__)
  static const char *const options[] = {"-march=native", "-march=x86-64-v4", "-march=x86-64-v3", "-march=x86-64-v2"};
  static const char *const zig_options[] = {"-march=native", "-march=x86_64_v4", "-march=x86_64_v3",
                                            "-march=x86_64_v2"};
  return (is_zig ? zig_options : options)[hr_env_choice(HR_ENV_CPU)];
#else
  (void)is_zig;
  return "-march=native";
#endif
}

void hr_cpu_describe(hr_text *text) {
  hr_text_printf(text, "level %d:", hr_cpu_level());
#define HR__NAME(id, name, level)   \
  if (hr_cpu_has(HR_CPU_##id)) {    \
    hr_text_append(text, " " name); \
  }
  HR_CPU_FEATURES(HR__NAME)
#undef HR__NAME
}
