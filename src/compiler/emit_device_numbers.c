/* Shapes and strides of a text: literals, or words of the parameter.
 *
 *   emitted   if (row >= \1768\1) { return; }
 *   literal   if (row >= 768) { return; }
 *   word      if (row >= (int)call.words[0]) { return; }
 *
 * Emitters mark each number that need not be a compile-time constant (HR__FREE). Small ones stay literals, and equal
 * ones share a word. A word has the type that the literal would have.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/emit_device_internal.h"

enum { MARK = '\1' };

/* The word with this value, or -1: there are too many. */
static int word_of(hr_device_emission *emission, int64_t value) {
  int k = 0;
  while (k < emission->word_count && emission->words[k] != value) {
    ++k;
  }
  if (k == HR_DEVICE_EMISSION_WORDS) {
    return -1;
  }
  emission->words[k] = value;
  emission->word_count = k == emission->word_count ? k + 1 : emission->word_count;
  return k;
}

/* Numbers up to this are literals. */
static int64_t small_most(hr_device_shapes shapes) {
  return shapes == HR_DEVICE_SHAPES_LITERAL ? INT64_MAX : shapes == HR_DEVICE_SHAPES_WORDS ? 16 : -1;
}

static void append_number(hr_text *out, int64_t value, hr_device_shapes shapes, hr_device_emission *emission) {
  bool is_small = value <= small_most(shapes) && -value <= small_most(shapes);
  int word = is_small ? -1 : word_of(emission, value);
  if (word < 0) {
    hr_text_printf(out, "%lld", (long long)value);
  } else {
    bool is_int = value >= INT32_MIN && value <= INT32_MAX;
    hr_text_printf(out, "%scall.words[%d]", is_int ? "(int)" : "", word);
  }
}

static void append_struct(const device *d, int word_count, hr_text *out) {
  const hr_kernel *kernel = d->e->kernel;
  hr_text_printf(out, "struct %s_call { char *workspace;", d->name);
  if (kernel->arg_count > 0) {
    hr_text_printf(out, " void *args[%d];", kernel->arg_count);
  }
  if (kernel->scalar_count > 0) {
    hr_text_printf(out, " hr_scalar scalars[%d];", kernel->scalar_count);
  }
  if (word_count > 0) {
    hr_text_printf(out, " int64_t words[%d];", word_count);
  }
  hr_text_append(out, " };\n");
}

void hr__device_finish(const device *d, const hr_text *body, hr_device_shapes shapes, hr_text *out_text,
                       hr_device_emission *emission) {
  hr_text functions = {0};
  const char *at = hr_text_chars(body), *mark;
  while ((mark = strchr(at, MARK)) != NULL) {
    char *end;
    hr_text_append_bytes(&functions, at, (size_t)(mark - at));
    append_number(&functions, strtoll(mark + 1, &end, 10), shapes, emission);
    at = end + 1;
  }
  hr_text_append(&functions, at);
  append_struct(d, emission->word_count, out_text);
  hr_text_append_bytes(out_text, hr_text_chars(&functions), functions.length);
  out_text->failed |= functions.failed;
  hr_text_fini(&functions);
}
