/* onednn.h: what the providers of this folder share. */
#ifndef HEADRACE_PROVIDERS_ONEDNN_ONEDNN_H_
#define HEADRACE_PROVIDERS_ONEDNN_ONEDNN_H_

#include "headrace/status.h"

/* Products below take about 5 us on one core: a second thread would cost more. */
enum { HR_ONEDNN_SERIAL_FLOPS = 1000000 };

/* Opens the library, once. */
hr_status hr__onednn_open(void);
const char *hr__onednn_version(void);

#endif
