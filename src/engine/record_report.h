/* record_report.h: the profile that the environment requests, and its report at the end of the process.
 *
 * HEADRACE_TRACE and HEADRACE_PROFILE start a profile of all devices when the first stream is created. Its report, a
 * timeline and tables, is written once: by hr_profile_report, at exit, or on SIGINT. The signal is caught only if the
 * program has no handler of its own; the process still dies of it. A forked child reports nothing.
 */
#ifndef HEADRACE_ENGINE_RECORD_REPORT_H_
#define HEADRACE_ENGINE_RECORD_REPORT_H_

#include "runtime/device.h"

/* Starts the profile of the device's context, if one is requested and none is started yet. */
void hr__report_begin(const hr_device *device);

#endif
