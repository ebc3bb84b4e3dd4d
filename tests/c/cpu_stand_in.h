/* cpu_stand_in.h: the CPU as a device with some functions of its driver replaced by a test. */
#ifndef HEADRACE_TESTS_CPU_STAND_IN_H_
#define HEADRACE_TESTS_CPU_STAND_IN_H_

#include <stdio.h>

#include "hr_test.h"

#include "runtime/device.h"

/* The CPU's driver, to be copied and changed. */
static const hr_driver *hr__cpu_driver(void) {
  hr_device *base;
  HR_ASSERT_OK(hr_device_open("cpu", &base));
  const hr_driver *driver = base->driver;
  hr_device_release(base);
  return driver;
}

/* Opens a device of the caller's driver; both are the caller's memory. */
static void hr__stand_in_open(hr_device *device, const hr_driver *driver, const char *name) {
  hr_device *base;
  HR_ASSERT_OK(hr_device_open("cpu", &base));
  *device = (hr_device){.context = hr__context(), .driver = driver, .count = 1, .properties = base->properties};
  snprintf(device->name, sizeof device->name, "%s", name);
  HR_ASSERT_OK(driver->open(0, &device->impl));
  hr_caching_allocator_init(&device->allocator, driver, device->impl, device->name, 0);
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr__lane_init(&device->lanes[i], device, i);
  }
  device->lanes[0].impl = device->impl;
  device->lanes_max = 1;
  hr_mutex_init(&device->streams_mutex);
  hr_mutex_init(&device->bind_mutex);
  hr_mutex_init(&device->order_mutex);
  hr_device_release(base);
}

/* Behind its streams and buffers. */
static void hr__stand_in_close(hr_device *device) {
  hr_device_release(device);
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr__lane_fini(&device->lanes[i]);
  }
  device->driver->close(device->impl);
}

#endif
