/* Text forms and messages under a locale that writes a decimal comma. */
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hr_test.h"

#include "base/folder.h"
#include "core/ir/program.h"

/* A locale with a decimal comma: the system's, or one that is made for the test. */
static bool enter_comma(char *folder) {
  static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
  char command[256];
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (setlocale(LC_ALL, names[i]) != NULL) {
      return true;
    }
  }
  HR_ASSERT_NOT_NULL(mkdtemp(folder));
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 > /dev/null 2>&1", folder);
  setenv("LOCPATH", folder, 1);
  return system(command) >= 0 && setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static void leave_comma(const char *folder) {
  setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  hr_folder_remove(folder);
}

static const char source[] = "buffer %0 64 live\n"
                             "buffer %1 64 live fresh\n"
                             "scalar $0 f64 = 0.125\n"
                             "scalar $1 c128 = (1.5,-2.25)\n"
                             "%1:f32[16]{1}+0 = mul(%0:f32[16]{1}+0, $0)\n";

HR_TEST(programs_have_decimal_points_in_every_locale) {
  char folder[] = "/tmp/headrace_locale_XXXXXX", shown[32];
  hr_program program;
  hr_text text = {0}, plain = {0};
  HR_ASSERT_OK(hr_program_parse(source, &program));
  HR_ASSERT_OK(hr_program_print(&program, &plain));
  hr_program_fini(&program);
  if (!enter_comma(folder)) {
    leave_comma(folder);
    HR_SKIP("no locale with a decimal comma, and none can be made");
  }
  snprintf(shown, sizeof shown, "%g", 1.5);
  hr_status status = hr_program_parse(source, &program);
  if (status == HR_OK) {
    status = hr_program_print(&program, &text);
    hr_program_fini(&program);
  }
  hr_status message = hr_status_make(HR_STATUS_INTERNAL, "%.2f", 0.5);
  leave_comma(folder);
  HR_ASSERT_STR_EQ(shown, "1,5");
  HR_ASSERT_OK(status);
  HR_ASSERT_STR_EQ(hr_text_chars(&text), hr_text_chars(&plain));
  HR_ASSERT_CONTAINS(hr_text_chars(&text), "(1.5,-2.25)");
  HR_ASSERT_STR_EQ(hr_status_message(message), "0.50");
  hr_status_ignore(message);
  hr_text_fini(&text);
  hr_text_fini(&plain);
}
