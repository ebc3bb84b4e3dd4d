/* device_compile_test.c: CUDA's compiler accepts the emitted kernels of random programs, for compute capability 9.0.
 *
 * It needs NVRTC and no GPU: the bits are tested elsewhere. HEADRACE_TEST_PROGRAMS sets the number of programs (default
 * 20), HEADRACE_TEST_SEED the first seed.
 */
#include "hr_test.h"

#include "base/thread.h"
#include "compiler/compile.h"
#include "compiler/emit_device.h"
#include "drivers/cuda/nvrtc.h"
#include "program_generator.h"
#include "program_runner.h"

enum { BATCH = 10, ARCHITECTURE = 90 };

/* Compiles a text; skips the test without NVRTC. */
static void compile(hr_text *text) {
  hr_text image = {0};
  HR_ASSERT_OK(hr_text_status(text));
  hr_status status = hr__nvrtc_compile(ARCHITECTURE, hr_text_chars(text), text->length, &image);
  if (hr_status_code_of(status) == HR_STATUS_NOT_FOUND) {
    hr_status_free(status);
    hr_text_fini(text);
    HR_SKIP("no NVRTC");
  }
  HR_ASSERT_OK(status);
  hr_text_fini(&image);
}

HR_TEST(the_prelude_compiles) {
  hr_text text = {0};
  HR_ASSERT_OK(hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text));
  int64_t begin = hr_clock_ns();
  compile(&text);
  fprintf(stderr, "  %zu bytes in %.0f ms\n", text.length, (double)(hr_clock_ns() - begin) * 1e-6);
  hr_text_fini(&text);
}

/* Appends the kernels of one program; gives how many. */
static int append_program(uint64_t seed, int first, hr_text *text) {
  generated program;
  hr_schedule schedule;
  hr_device_emission emission;
  int count = 0;
  HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &program));
  HR_ASSERT_OK(hr_compile(&program.program, &(hr_target){0}, &schedule));
  for (int s = 0; s < schedule.step_count; ++s) {
    if (schedule.steps[s].kind == HR_STEP_KERNEL) {
      char name[32];
      snprintf(name, sizeof name, "k%d", first + count++);
      HR_ASSERT_OK(hr_emit_device_functions(schedule.steps[s].kernel, text));
      HR_ASSERT_OK(hr_emit_device_kernel(schedule.steps[s].kernel, name, 0,
                                         count % 2 == 0 ? HR_DEVICE_SHAPES_LITERAL : HR_DEVICE_SHAPES_WORDS, text,
                                         &emission));
    }
  }
  hr_schedule_fini(&schedule);
  hr__generated_fini(&program);
  return count;
}

HR_TEST(kernels_of_random_programs_compile) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", hr_test_count(20)), seed = hr__setting("HEADRACE_TEST_SEED", 1);
  for (long done = 0; done < count; done += BATCH) {
    hr_text text = {0};
    int kernels = 0;
    HR_ASSERT_OK(hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text));
    for (long i = done; i < count && i < done + BATCH; ++i) {
      kernels += append_program((uint64_t)(seed + i), kernels, &text);
    }
    int64_t begin = hr_clock_ns();
    compile(&text);
    fprintf(stderr, "  %d kernels, %zu bytes in %.0f ms\n", kernels, text.length,
            (double)(hr_clock_ns() - begin) * 1e-6);
    hr_text_fini(&text);
  }
}
