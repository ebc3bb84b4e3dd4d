/* What every driver has to do with memory, kernels and events. */
#include "hr_test.h"

#include "drivers/null/null_driver.h"

static void double_range(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  int64_t *values = call->args[0];
  memset(call->scratch, pass, kernel->scratch_bytes);
  for (int64_t i = begin; i < end; i++) {
    values[i] = values[i] * 2 + pass;
  }
}

HR_TEST(drivers_copy_fill_launch_and_time) {
  static const char *const names[] = {"cpu", "null"};
  enum { COUNT = 100000 };
  static int64_t host[COUNT], back[COUNT];
  for (int n = 0; n < 2; n++) {
    hr_device *device;
    void *address, *begin, *end;
    HR_ASSERT_OK(hr_device_open(names[n], &device));
    const hr_driver *driver = device->driver;
    HR_ASSERT_OK(driver->event_create(device->impl, &begin));
    HR_ASSERT_OK(driver->event_create(device->impl, &end));
    for (int i = 0; i < COUNT; i++) {
      host[i] = i;
    }
    size_t bytes = 4 * sizeof host; /* 3.2 MB: a mapped block */
    HR_ASSERT_OK(driver->allocate(device->impl, bytes, &address));
    HR_ASSERT_EQ((uintptr_t)address % 64, 0);
    HR_ASSERT_OK(driver->copy_in(device->impl, address, host, sizeof host));
    hr_host_kernel kernel = {.name = "double",
                             .pass_count = 2,
                             .units = {COUNT, COUNT},
                             .grain = {1000, 1000},
                             .scratch_bytes = 777,
                             .run = double_range};
    void *args[] = {address};
    hr_host_call call = {.args = args};
    HR_ASSERT_OK(driver->event_record(device->impl, begin));
    HR_ASSERT_OK(driver->launch(device->impl, &kernel, &call));
    HR_ASSERT_OK(driver->event_record(device->impl, end));
    HR_ASSERT_OK(driver->copy_within(device->impl, (char *)address + sizeof host, address, sizeof host));
    HR_ASSERT_OK(driver->copy_out(device->impl, back, (char *)address + sizeof host, sizeof host));
    for (int i = 0; i < COUNT; i++) {
      HR_ASSERT_EQ(back[i], device->properties.has_contents ? 4 * (int64_t)i + 1 : 0);
    }
    int64_t pattern = 77, ns = -1;
    HR_ASSERT_OK(driver->fill(device->impl, address, &pattern, sizeof pattern, COUNT));
    HR_ASSERT_OK(driver->copy_out(device->impl, back, address, sizeof back));
    HR_ASSERT_EQ(back[COUNT - 1], device->properties.has_contents ? 77 : 0);
    HR_ASSERT_OK(driver->event_wait(device->impl, end));
    HR_ASSERT_OK(driver->event_elapsed(device->impl, begin, end, &ns));
    HR_ASSERT(ns >= 0);
    driver->event_destroy(device->impl, begin);
    driver->event_destroy(device->impl, end);
    driver->free(device->impl, address, bytes);
    if (n == 1) {
      hr_null_counters counters;
      hr_null_counters_get(device->impl, &counters);
      HR_ASSERT(counters.launches >= 1 && counters.passes >= 2 && counters.fills >= 1);
      HR_ASSERT_EQ(counters.bytes_allocated, 0);
    }
    hr_device_release(device);
  }
}
