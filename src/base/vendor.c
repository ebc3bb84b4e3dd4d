/* vendor.c: see vendor.h. The first status is kept as text, so that no heap block leaks. */
#include "base/vendor.h"

#include <stdio.h>

void hr__vendor_init(hr_vendor *vendor) {
  hr_mutex_init(&vendor->mutex);
}

hr_status hr__vendor_open(hr_vendor *vendor, hr_status (*open)(void)) {
  hr_mutex_lock(&vendor->mutex);
  if (!vendor->was_opened) {
    hr_status status = open();
    vendor->was_opened = true;
    vendor->code = hr_status_code_of(status);
    snprintf(vendor->reason, sizeof vendor->reason, "%s", hr_status_message(status));
    hr_status_ignore(status);
  }
  hr_mutex_unlock(&vendor->mutex);
  return vendor->code == HR_STATUS_OK ? HR_OK : hr_status_make(vendor->code, "%s", vendor->reason);
}

void hr__vendor_set(hr_vendor *vendor, bool is_open) {
  hr_mutex_lock(&vendor->mutex);
  vendor->was_opened = is_open;
  vendor->code = HR_STATUS_OK;
  vendor->reason[0] = '\0';
  hr_mutex_unlock(&vendor->mutex);
}
