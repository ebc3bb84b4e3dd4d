/* svg.h: what pictures share. */
#ifndef HEADRACE_TOOLS_SVG_H_
#define HEADRACE_TOOLS_SVG_H_

#include "base/text.h"

/* Appends at most `count` characters as text of an element. */
void svg_put_escaped(hr_text *text, const char *chars, size_t count);

#endif
