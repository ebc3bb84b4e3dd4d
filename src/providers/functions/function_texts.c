/* function_texts.c: kernels of modules on a device with a compiler of its own: their texts are launched like generated
 * kernels.
 */
#include <string.h>

#include "providers/device_text.h"
#include "providers/functions/functions.h"

enum { GROUP_DEFAULT = 256, GROUP_MOST = 1024 };

static const hr_function *kernel_of(const hr_node *node) {
  bool is = hr__call_is_dense(node) && node->input_count + node->output_count <= HR_DEVICE_WORDS_MAX - 5;
  const hr_function *kernel = is ? hr__call_kernel(node) : NULL;
  return kernel != NULL && kernel->text != NULL ? kernel : NULL;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  return kernel_of(node) != NULL;
}

static int64_t group_of(const hr_node *node) {
  const int64_t *group = node->ints + HR__CALL_GROUP;
  int64_t threads = group[0] > 0 ? group[0] : GROUP_DEFAULT;
  threads *= group[1] > 0 ? group[1] : 1;
  threads *= group[2] > 0 ? group[2] : 1;
  return threads < GROUP_MOST ? threads : GROUP_MOST;
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  (void)program;
  const hr_function *kernel = kernel_of(node);
  if (kernel == NULL) {
    return hr_status_make(HR_STATUS_INTERNAL, "functions: a call that it does not support");
  }
  hr_device_source source = {.name = kernel->symbol, .pass_count = 1};
  int64_t *words = source.words, threads = hr__call_threads(node), group = group_of(node);
  hr_text_append(&source.text, kernel->text);
  *words++ = threads;
  for (int d = 0; d < 3; ++d) {
    *words++ = node->ints[HR__CALL_SIZE + d];
  }
  *words++ = group;
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    *words++ = hr_node_operand(node, i)->offset;
  }
  source.word_count = (int)(words - source.words);
  source.blocks[0] = (threads + group - 1) / group;
  source.threads[0] = (int)group;
  return hr__device_text_finish(&source, out_source);
}

const hr_provider hr__function_texts_provider = {
    .name = "functions",
    .dialect = HR_DIALECT_CUDA,
    .supports = supports,
    .write = write,
};
