/* hlo_places.c: the places of operations in the program that made a file, by the origins that its graph has.
 *
 * An origin is the number of a location's attribute in the file, plus 1, so that a graph needs no texts.
 */
#include <stdio.h>
#include <string.h>

#include "importers/stablehlo/hlo.h"

/* Splits "jit(f)/add" "f" f.py:3 into the first name and the part behind the last one. */
static void pass_place(const char *text, void (*fn)(void *arg, int index, const char *name, const char *source),
                       void *arg, int index) {
  char name[256] = "";
  const char *source = text, *end = text[0] == '"' ? strchr(text + 1, '"') : NULL;
  if (end != NULL) {
    snprintf(name, sizeof name, "%.*s", (int)(end - text - 1), text + 1);
    source = strrchr(text, '"') + 1;
    source += source[0] == ' ';
  }
  fn(arg, index, name, source);
}

hr_status hr_stablehlo_places(const void *bytes, size_t size, int count, const uint32_t *origins,
                              void (*fn)(void *arg, int index, const char *name, const char *source), void *arg) {
  hr__vhlo_module module;
  hr_status status = hr__vhlo_read((hr__span){bytes, size}, &module);
  for (int i = 0; i < count && status == HR_OK; ++i) {
    hr_text text = {0};
    if (origins[i] > 0 && origins[i] <= (uint32_t)module.attribute_count) {
      hr__vhlo_locate(&module, (int)origins[i] - 1, &text);
    }
    pass_place(text.length > 0 ? hr_text_chars(&text) : "", fn, arg, i);
    hr_text_fini(&text);
  }
  hr__vhlo_fini(&module);
  return status;
}
