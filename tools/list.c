/* list.c: `headrace devices`, `headrace ops`, `headrace env`. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "commands.h"
#include "core/ops/op.h"
#include "runtime/device.h"

static hr_status print_device(const hr_driver *driver, int ordinal) {
  char name[64];
  hr_device *device;
  hr_memory_stats memory;
  snprintf(name, sizeof name, "%s:%d", driver->name, ordinal);
  HR_RETURN_IF_ERROR(hr_device_open(name, &device));
  hr_device_memory_stats(device, &memory);
  printf("%-8s %s\n         %d workers, %lld MB of %lld MB free, limit %lld MB\n", hr_device_name(device),
         device->properties.description, device->properties.workers, (long long)(memory.device_free_bytes >> 20),
         (long long)(memory.device_total_bytes >> 20), (long long)(memory.limit_bytes >> 20));
  hr_device_release(device);
  return HR_OK;
}

static void print_none(const hr_driver *driver) {
  hr_status why = driver->why_none != NULL ? driver->why_none() : HR_OK;
  printf("%-8s no devices%s%s\n", driver->name, why != HR_OK ? ": " : "", why != HR_OK ? hr_status_message(why) : "");
  hr_status_ignore(why);
}

int headrace_devices(int argc, char **argv) {
  if (argc > 0) {
    return headrace_bad_argument("devices", argv[0]);
  }
  int failed = 0;
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    int count = hr_drivers[i]->count();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      failed |= headrace_fail(print_device(hr_drivers[i], ordinal));
    }
    if (count == 0) {
      print_none(hr_drivers[i]);
    }
  }
  return failed;
}

int headrace_ops(int argc, char **argv) {
  static const char *const families[] = {[HR_FAMILY_NONE] = "",
                                         [HR_FAMILY_POINTWISE] = "pointwise",
                                         [HR_FAMILY_REDUCE] = "reduce",
                                         [HR_FAMILY_ARGREDUCE] = "argreduce",
                                         [HR_FAMILY_CONTRACTION] = "contraction",
                                         [HR_FAMILY_COMPOSITE] = "composite",
                                         [HR_FAMILY_LIBRARY] = "library",
                                         [HR_FAMILY_SPECIAL] = "special"};
  if (argc > 1) {
    return headrace_bad_argument("ops", argv[1]);
  }
  int found = 0;
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    if (argc == 0 || strstr(row->name, argv[0]) != NULL) {
      printf("%-28s %-12s %s\n", row->name, families[row->family], row->doc);
      ++found;
    }
  }
  if (found == 0) {
    fprintf(stderr, "headrace ops: no operation's name contains \"%s\"\n", argv[0]);
  }
  return found == 0;
}

int headrace_env(int argc, char **argv) {
  if (argc > 0) {
    return headrace_bad_argument("env", argv[0]);
  }
  hr_text text = {0};
  hr_env_describe(&text);
  fputs(hr_text_chars(&text), stdout);
  int failed = headrace_fail(hr_text_status(&text));
  hr_text_fini(&text);
  return failed;
}
