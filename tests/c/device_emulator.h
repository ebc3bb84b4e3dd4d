/* device_emulator.h: runs the text of device kernels (compiler/emit_device.h) on the host, to test it.
 *
 * The emulated text is C. Besides the C dialect it uses:
 *
 *   hr_block, hr_thread   the current position in the grid: set whenever a thread resumes
 *   hr_wait(all)          a barrier of the warp, or of the whole block
 *
 * The threads of a block are fibers that run in turn, each until it waits or ends. All threads of a warp reach the same
 * barriers, so a warp has passed one when each of its threads has run since.
 */
#ifndef HEADRACE_TESTS_DEVICE_EMULATOR_H_
#define HEADRACE_TESTS_DEVICE_EMULATOR_H_

#include "base/device_kernel.h"
#include "base/dynlib.h"
#include "compiler/emit_device.h"

typedef struct hr__emulated {
  hr_host_kernel base;
  hr_host_pass passes[HR_HOST_KERNEL_PASS_MAX]; /* a unit each */
  hr_device_emission emission;
  int arg_count, scalar_count, word_count;
  int64_t words[HR_DEVICE_WORDS_MAX];
  void (*functions[HR_HOST_KERNEL_PASS_MAX])(const void *call);
  int64_t *block; /* the library's words */
  int *thread;
  void (**wait)(int all);
} hr__emulated;

/* For the compiler of a text; compiling takes longer than running. */
extern const char *const hr__emulated_flags[];

/* A kernel of the library that was compiled from an emulated text. */
HR_MUST_USE hr_status hr__emulated_create(const hr_dynlib *library, const char *name,
                                          const hr_device_emission *emission, int arg_count, int scalar_count,
                                          hr_host_kernel **out_kernel);
/* A kernel that a provider has written. */
HR_MUST_USE hr_status hr__emulated_create_written(const hr_dynlib *library, const hr_device_source *source,
                                                  int arg_count, int scalar_count, hr_host_kernel **out_kernel);

#endif
