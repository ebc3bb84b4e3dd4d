/* module_text.h: the texts of a module for a compiler: what sources may use, the source, and the functions that
 * programs call.
 */
#ifndef HEADRACE_MODULE_TEXT_H_
#define HEADRACE_MODULE_TEXT_H_

#include "module/module_source.h"

/* Appends a host's text, after its prelude: functions NAME of the form of hr_function_fn, hr__r_<kernel> each. */
void hr__module_host_text(const hr__module_source *source, hr_text *text);
/* Appends a device's text, after its prelude: the function SYMBOL_0 of one kernel (runtime/function_table.h). */
void hr__module_device_text(const hr__module_source *source, const hr__module_head *head, const char *symbol,
                            hr_text *text);

#endif
