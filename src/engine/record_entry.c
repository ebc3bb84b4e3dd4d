#include "engine/record_entry.h"

#include <string.h>

#include "base/allocator.h"
#include "core/ir/dtype.h"
#include "engine/machine.h"
#include "engine/record_table.h"

void hr__record_lists_fini(hr_record_lists *lists) {
  hr_vector_fini(&lists->numbers);
  hr_vector_fini(&lists->correlations);
  hr_vector_fini(&lists->names);
  hr_text_fini(&lists->text);
}

void hr__entry_release(const hr_entry *entry) {
  if (entry->kind == HR_PROFILE_RUN) {
    hr__run_description_release(((const hr_run_entry *)entry)->description);
  }
}

static const hr_entry_time *times_of(const hr_run_entry *run) {
  return (const hr_entry_time *)(run + 1);
}

static const hr_operation_mark *marks_of(const hr_run_entry *run) {
  return (const hr_operation_mark *)(const void *)(times_of(run) + run->launch_count);
}

int64_t hr__entry_records(const hr_entry *entry) {
  if (entry->kind != HR_PROFILE_RUN) {
    return entry->kind != HR_ENTRY_PADDING;
  }
  const hr_run_entry *run = (const hr_run_entry *)entry;
  int64_t count = 1 + (run->description->dropped_count > 0);
  for (uint32_t i = 0; run->head.with_operations && i < run->mark_count; ++i) {
    count += marks_of(run)[i].ns != 0;
  }
  for (uint32_t i = 0; i < run->launch_count; ++i) {
    count += times_of(run)[i].begin != 0;
  }
  return count;
}

static hr_profile_record begin_record(const hr_entry *entry) {
  return (hr_profile_record){.kind = (hr_profile_kind)entry->kind,
                             .begin_ns = entry->begin,
                             .end_ns = entry->end,
                             .name = "",
                             .shapes = "",
                             .provider = "",
                             .device = entry->device != NULL ? entry->device->name : "",
                             .thread = entry->thread};
}

/* ---- runs ---- */

/* Fills in the operations with these numbers in the program. */
static bool list_operations(const hr_run_entry *run, hr_record_lists *lists, int count, const uint32_t *operations,
                            hr_profile_record *record) {
  const hr_operation_mark *marks = marks_of(run);
  size_t room = (size_t)count + 1;
  bool has_correlations = false;
  record->operation_count = count;
  if (!hr_vector_reserve(&lists->numbers, room) || !hr_vector_reserve(&lists->correlations, room) ||
      !hr_vector_reserve(&lists->names, room)) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    uint32_t number = operations[i];
    uint64_t correlation = number < run->mark_count ? marks[number].correlation : 0;
    bool is_known = number < (uint32_t)run->description->record_count;
    lists->numbers.data[i] = run->first_operation + number;
    lists->names.data[i] = is_known ? run->description->record_names[number] : "";
    lists->correlations.data[i] = correlation;
    has_correlations |= correlation != 0;
  }
  record->operations = lists->numbers.data;
  record->operation_names = lists->names.data;
  record->correlations = has_correlations ? lists->correlations.data : NULL;
  return true;
}

static hr_profile_record begin_of_run(const hr_run_entry *run, hr_profile_kind kind) {
  hr_profile_record record = begin_record(&run->head);
  record.kind = kind;
  record.stream = run->stream;
  record.run = run->number;
  record.program = run->description->program;
  return record;
}

static bool expand_operations(const hr_run_entry *run, hr_record_lists *lists, hr_record_fn fn, void *arg) {
  bool ok = true;
  for (uint32_t i = 0; i < run->mark_count; ++i) {
    hr_profile_record record = begin_of_run(run, HR_PROFILE_OPERATION);
    record.begin_ns = record.end_ns = marks_of(run)[i].ns;
    if (record.begin_ns != 0) {
      ok &= list_operations(run, lists, 1, &i, &record);
      record.name = i < (uint32_t)run->description->record_count ? run->description->record_names[i] : "";
      fn(arg, &record);
    }
  }
  return ok;
}

static double bandwidth_share(const hr_device *device, const hr_profile_record *record) {
  double ns = (double)(record->end_ns - record->begin_ns);
  double bytes = (double)record->bytes_read + (double)record->bytes_written;
  double peak = ns > 0 && bytes > 0 ? hr__device_gbs(device) : 0;
  return peak > 0 ? bytes / ns / peak : 0;
}

static bool expand_launch(const hr_run_entry *run, int i, hr_record_lists *lists, hr_record_fn fn, void *arg) {
  static const hr_profile_kind kinds[] = {
      [HR_STEP_KERNEL] = HR_PROFILE_KERNEL, [HR_STEP_LIBRARY] = HR_PROFILE_LIBRARY, [HR_STEP_CHECK] = HR_PROFILE_CHECK};
  const hr_launch_description *launch = &run->description->launches[i];
  const hr_entry_time *time = &times_of(run)[i];
  hr_profile_record record = begin_of_run(run, kinds[launch->kind]);
  record.tier = (hr_profile_tier)(time->length_x_tier & 3);
  record.begin_ns = time->begin;
  record.end_ns = time->begin + (int64_t)(time->length_x_tier >> 2);
  record.name = launch->name;
  record.shapes = launch->shapes;
  record.provider = launch->provider != NULL ? launch->provider : "";
  record.bytes_read = launch->bytes_read;
  record.bytes_written = launch->bytes_written;
  record.bytes_saved = launch->bytes_saved;
  record.flops = launch->flops;
  if (lists->with_shares) {
    record.bandwidth_share = bandwidth_share(run->head.device, &record);
  }
  bool ok = list_operations(run, lists, launch->operation_count, launch->operations, &record);
  fn(arg, &record);
  return ok;
}

static void write_run_name(hr_text *text, const hr_run_description *description) {
  hr_text_clear(text);
  hr_text_printf(text, "program %016llx", (unsigned long long)description->program);
}

static bool expand_run(const hr_run_entry *run, hr_record_lists *lists, hr_record_fn fn, void *arg) {
  const hr_run_description *description = run->description;
  bool ok = !run->head.with_operations || expand_operations(run, lists, fn, arg);
  if (description->dropped_count > 0) {
    hr_profile_record record = begin_of_run(run, HR_PROFILE_DROPPED);
    record.end_ns = record.begin_ns;
    record.name = "never needed";
    ok &= list_operations(run, lists, description->dropped_count, description->dropped, &record);
    fn(arg, &record);
  }
  for (int i = 0; i < (int)run->launch_count; ++i) {
    if (times_of(run)[i].begin != 0) {
      ok &= expand_launch(run, i, lists, fn, arg);
    }
  }
  hr_profile_record record = begin_of_run(run, HR_PROFILE_RUN);
  write_run_name(&lists->text, description);
  record.name = hr_text_chars(&lists->text);
  record.operation_count = description->record_count;
  fn(arg, &record);
  return ok;
}

/* ---- others ---- */

static const char *write_copy_shape(const hr_plain_entry *plain, const int64_t *dims, hr_text *text) {
  hr_text_clear(text);
  hr_text_append(text, hr_dtype_name((hr_dtype)plain->dtype));
  hr__print_list(text, "[", plain->rank, dims, "]");
  return hr_text_chars(text);
}

static void expand_plain(const hr_plain_entry *plain, hr_record_lists *lists, hr_record_fn fn, void *arg) {
  const int64_t *dims = (const int64_t *)(plain + 1);
  hr_profile_record record = begin_record(&plain->head);
  bool is_program = record.kind == HR_PROFILE_COMPILE;
  record.name = plain->text_bytes > 0 ? (const char *)(dims + plain->rank) : "";
  record.stream = plain->stream;
  record.correlation = plain->correlation;
  record.program = is_program ? plain->number : 0;
  record.run = is_program ? 0 : plain->number;
  if (hr__is_copy(record.kind)) {
    record.elements = plain->count;
    record.shapes = write_copy_shape(plain, dims, &lists->text);
  } else {
    record.operation_count = plain->count;
  }
  *(record.kind == HR_PROFILE_COPY_OUT ? &record.bytes_read : &record.bytes_written) = plain->bytes;
  fn(arg, &record);
}

bool hr__entry_expand(const hr_entry *entry, hr_record_lists *lists, hr_record_fn fn, void *arg) {
  if (entry->kind == HR_PROFILE_RUN) {
    return expand_run((const hr_run_entry *)entry, lists, fn, arg);
  }
  if (entry->kind != HR_ENTRY_PADDING) {
    expand_plain((const hr_plain_entry *)entry, lists, fn, arg);
  }
  return true;
}
