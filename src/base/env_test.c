/* Environment variables, and the log's warnings about them. */
#include "base/env.h"

#include <unistd.h>

#include "base/log.h"
#include "hr_test.h"

/* Reads the environment again with a fresh log file; returns the logged text. */
static const char *reload(void) {
  static char logged[8192];
  char path[] = "/tmp/headrace_log_XXXXXX";
  int file = mkstemp(path);
  HR_ASSERT(file >= 0);
  setenv("HEADRACE_LOG", path, 1);
  atomic_store(&hr__context()->log_level, INT32_MAX);
  hr__env_reload();
  hr__log_reload();
  hr_log(1, "level one, %d", 1);
  hr_log(HR_LOG_SOURCE, "%5000d", 4);
  ssize_t count = read(file, logged, sizeof logged - 1);
  logged[count > 0 ? count : 0] = '\0';
  close(file);
  unlink(path);
  unsetenv("HEADRACE_LOG");
  return logged;
}

HR_TEST(defaults_hold_without_variables) {
  static const char *const names[] = {"MODE",          "DEBUG",        "FALLBACK", "PENDING_OPS",
                                      "PENDING_BYTES", "MEMORY_LIMIT", "ONEDNN"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    char name[64];
    snprintf(name, sizeof name, "HEADRACE_%s", names[i]);
    unsetenv(name);
  }
  HR_ASSERT_STR_EQ(reload(), "");
  HR_ASSERT_EQ(hr_env_choice(HR_ENV_MODE), HR_ENV_MODE_FUSE);
  HR_ASSERT_EQ(hr_env_choice(HR_ENV_FALLBACK), HR_ENV_FALLBACK_ERROR);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_DEBUG), 0);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 8192);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_BYTES), 0);
  HR_ASSERT_EQ(hr_env_limit(HR_ENV_MEMORY_LIMIT, 1050), 840);
  HR_ASSERT_STR_EQ(hr_env_text(HR_ENV_ONEDNN), "");
}

HR_TEST(values_are_parsed) {
  setenv("HEADRACE_MODE", "strict", 1);
  setenv("HEADRACE_DEBUG", "1", 1);
  setenv("HEADRACE_PENDING_BYTES", "3K", 1);
  setenv("HEADRACE_MEMORY_LIMIT", "5M", 1);
  setenv("HEADRACE_ONEDNN", "/somewhere/libdnnl.so.3", 1);
  HR_ASSERT_STR_EQ(reload(), "headrace: level one, 1\n");
  HR_ASSERT_EQ(hr_env_choice(HR_ENV_MODE), HR_ENV_MODE_STRICT);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_BYTES), 3072);
  HR_ASSERT_EQ(hr_env_limit(HR_ENV_MEMORY_LIMIT, 1000), 5 << 20);
  HR_ASSERT_STR_EQ(hr_env_text(HR_ENV_ONEDNN), "/somewhere/libdnnl.so.3");
}

HR_TEST(long_lines_are_not_cut) {
  setenv("HEADRACE_DEBUG", "6", 1);
  const char *logged = reload();
  HR_ASSERT_CONTAINS(logged, "    4\n");
  HR_ASSERT(strlen(logged) > 5000);
  unsetenv("HEADRACE_DEBUG");
}

HR_TEST(bad_values_warn_once_and_give_the_default) {
  setenv("HEADRACE_MODE", "fast", 1);
  setenv("HEADRACE_DEBUG", "9", 1);
  setenv("HEADRACE_PENDING_OPS", "12x", 1);
  setenv("HEADRACE_PENDING_BYTES", "99999999T", 1);
  setenv("HEADRACE_MEMORY_LIMIT", "120%", 1);
  const char *logged = reload();
  HR_ASSERT_CONTAINS(logged, "warning: HEADRACE_MODE=\"fast\" is not one of fuse|eager|strict; using \"fuse\"\n");
  HR_ASSERT_CONTAINS(logged, "HEADRACE_DEBUG=\"9\" is not an integer from 0 to 6");
  HR_ASSERT_CONTAINS(logged, "HEADRACE_PENDING_OPS=\"12x\"");
  HR_ASSERT_CONTAINS(logged, "HEADRACE_PENDING_BYTES=\"99999999T\" is not bytes");
  HR_ASSERT_CONTAINS(logged, "HEADRACE_MEMORY_LIMIT=\"120%\"");
  HR_ASSERT_NULL(strstr(strstr(logged, "MODE=") + 1, "MODE="));
  HR_ASSERT_EQ(hr_env_choice(HR_ENV_MODE), HR_ENV_MODE_FUSE);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 8192);
  HR_ASSERT_EQ(hr_env_limit(HR_ENV_MEMORY_LIMIT, 100), 80);
}

HR_TEST(describe_lists_every_variable) {
  hr_text text = {0};
  hr_env_describe(&text);
  HR_ASSERT_CONTAINS(hr_text_chars(&text), "HEADRACE_CACHE_ENTRIES=1024\n");
  HR_ASSERT_CONTAINS(hr_text_chars(&text), "one of error|warn|allow; default \"error\"");
  hr_text_fini(&text);
}
