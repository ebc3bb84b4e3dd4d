#include "engine/records.h"

#include <string.h>

#include "base/allocator.h"
#include "base/probe.h"
#include "base/thread.h"
#include "engine/record_table.h"
#include "runtime/counters.h"

enum { PROFILES_MAX = 8, DEVICES_MAX = 64, WORD = 8, PLACE_BYTES = 512 };
static const size_t RING_BYTES = (size_t)16 << 20, RING_BYTES_MIN = 4096;

struct hr_profile {
  hr_context *context;
  hr_device *device; /* a reference; NULL: all */
  unsigned flags;
  bool is_started;
  uint64_t *ring;
  size_t capacity;     /* words */
  uint64_t head, tail; /* words ever written and dropped; their place is the rest of the division by the capacity */
  hr_profile_counts counts;
  hr_record_table table;
  hr_record_lists lists;
};

/* A context's. */
typedef struct recorder {
  hr_mutex mutex; /* guards all below, and the profiles */
  hr_profile *profiles[PROFILES_MAX];
  int profile_count;
  hr_device *devices[DEVICES_MAX]; /* that have a stream */
  int device_count;
  atomic_int started;                                                     /* profile_count */
  void (*name_place)(uint64_t correlation, char *out_text, size_t bytes); /* of the frontend; NULL: none */
} recorder;

/* Of this thread: the numbers of hr_profile_correlate and hr_profile_origin, and the system's of the thread; 0: not
 * known yet. */
static _Thread_local struct {
  uint64_t correlation, number;
  uint32_t origin;
} own;

/* A child of a fork has another number, but records nothing. */
static uint64_t thread_number(void) {
  if (own.number == 0) {
    own.number = hr_thread_number();
  }
  return own.number;
}

static void init_recorder(void *part) {
  hr_mutex_init(&((recorder *)part)->mutex);
}

static void fini_recorder(void *part) {
  hr_mutex_fini(&((recorder *)part)->mutex);
}

static recorder *recorder_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(recorder), .init = init_recorder, .fini = fini_recorder};
  return hr__context_part(context, HR_CONTEXT_RECORDS, &kind);
}

/* ---- the ring; the recorder is locked ---- */

static hr_entry *entry_at(const hr_profile *profile, uint64_t position) {
  return (hr_entry *)(profile->ring + position % profile->capacity);
}

static void sum(void *arg, const hr_profile_record *record) {
  hr__record_table_add(arg, record);
}

static void drop_oldest(hr_profile *profile) {
  hr_entry *entry = entry_at(profile, profile->tail);
  int64_t records = hr__entry_records(entry);
  if (!hr__entry_expand(entry, &profile->lists, sum, &profile->table)) {
    profile->table.is_incomplete = true;
  }
  profile->counts.records -= records;
  profile->counts.summed += records;
  hr__entry_release(entry);
  profile->tail += entry->words;
}

/* A place for an entry of so many words, which the caller fills; NULL: the ring is too small for it. */
static hr_entry *push(hr_profile *profile, size_t words) {
  size_t behind = profile->capacity - profile->head % profile->capacity, padding = behind < words ? behind : 0;
  if (words > profile->capacity / 2) {
    return NULL;
  }
  while (profile->head + padding + words - profile->tail > profile->capacity) {
    drop_oldest(profile);
  }
  if (padding > 0) { /* an entry is in one piece; of a padding only the first word may exist */
    hr_entry *entry = entry_at(profile, profile->head);
    entry->words = (uint32_t)padding;
    entry->kind = HR_ENTRY_PADDING;
    profile->head += padding;
  }
  hr_entry *entry = entry_at(profile, profile->head);
  entry->words = (uint32_t)words;
  profile->head += words;
  return entry;
}

/* ---- adding ---- */

static bool covers(const hr_profile *profile, const hr_device *device) {
  return profile->device == NULL || device == NULL || profile->device == device;
}

static void begin_entry(hr_entry *entry, int kind, const hr_device *device, int64_t begin, int64_t end) {
  entry->kind = (uint16_t)kind;
  entry->with_operations = false;
  entry->device = device;
  entry->thread = thread_number();
  entry->begin = begin;
  entry->end = end;
}

static hr_profile_tier tier_of(const hr_launch_description *launch, const hr_launch_time *time) {
  return launch->kind == HR_STEP_LIBRARY  ? HR_PROFILE_TIER_LIBRARY
         : launch->kind != HR_STEP_KERNEL ? HR_PROFILE_TIER_NONE
         : time->is_compiled              ? HR_PROFILE_TIER_COMPILED
                                          : HR_PROFILE_TIER_INTERPRETED;
}

static void fill_run(hr_run_entry *run, const hr_run_note *note, hr_run_description *description) {
  hr_entry_time *times = (hr_entry_time *)(run + 1);
  run->description = description;
  hr_refcount_retain(&description->refcount);
  run->stream = note->stream;
  run->number = note->number;
  run->first_operation = note->first_operation;
  run->launch_count = (uint32_t)description->launch_count;
  run->mark_count = (uint32_t)note->mark_count;
  for (int i = 0; i < description->launch_count; ++i) {
    const hr_launch_description *launch = &description->launches[i];
    const hr_launch_time *time = &note->times[launch->step];
    times[i].begin = time->begin;
    times[i].length_x_tier = (uint64_t)(time->end - time->begin) << 2 | (uint64_t)tier_of(launch, time);
  }
  if (note->mark_count > 0) {
    memcpy(times + description->launch_count, note->marks, note->mark_count * sizeof *note->marks);
  }
}

void hr__records_add_run(const hr_device *device, const hr_run_note *note) {
  recorder *r = recorder_of(device->context);
  hr_run_description *description = hr__run_describe(note->instance);
  size_t launches = description != NULL ? (size_t)description->launch_count : 0;
  size_t bytes = sizeof(hr_run_entry) + launches * sizeof(hr_entry_time) + note->mark_count * sizeof *note->marks;
  hr_mutex_lock(&r->mutex);
  for (int i = 0; i < r->profile_count; ++i) {
    hr_profile *profile = r->profiles[i];
    if (!covers(profile, device)) {
      continue;
    }
    hr_entry *entry = description != NULL ? push(profile, bytes / WORD) : NULL;
    if (entry != NULL) {
      begin_entry(entry, HR_PROFILE_RUN, device, note->begin, note->end);
      entry->with_operations = (profile->flags & HR_PROFILE_OPERATIONS) != 0;
      fill_run((hr_run_entry *)entry, note, description);
      profile->counts.records += hr__entry_records(entry);
    }
    profile->counts.lost += entry == NULL;
  }
  hr_mutex_unlock(&r->mutex);
}

static void fill_plain(hr_plain_entry *plain, const hr_note *note, size_t text_bytes) {
  int64_t *dims = (int64_t *)(plain + 1);
  plain->bytes = note->bytes;
  plain->count = note->count;
  plain->stream = note->stream;
  plain->number = note->number;
  plain->correlation = own.correlation;
  plain->dtype = (uint32_t)note->dtype;
  plain->rank = (uint16_t)note->rank;
  plain->text_bytes = (uint16_t)text_bytes;
  for (int d = 0; d < note->rank; ++d) {
    dims[d] = note->dims[d];
  }
  if (text_bytes > 0) {
    char *text = (char *)(dims + note->rank);
    memcpy(text, note->text, text_bytes - 1);
    text[text_bytes - 1] = '\0';
  }
}

void hr__records_add(const hr_device *device, const hr_note *note) {
  enum { TEXT_MAX = 1000 };
  recorder *r = recorder_of(device != NULL ? device->context : hr__context());
  size_t length = note->text != NULL ? strlen(note->text) : 0;
  size_t text_bytes = note->text == NULL ? 0 : (length < TEXT_MAX ? length : TEXT_MAX) + 1;
  size_t words = sizeof(hr_plain_entry) / WORD + (size_t)note->rank + (text_bytes + WORD - 1) / WORD;
  hr_mutex_lock(&r->mutex);
  for (int i = 0; i < r->profile_count; ++i) {
    hr_profile *profile = r->profiles[i];
    hr_entry *entry = covers(profile, device) ? push(profile, words) : NULL;
    if (entry != NULL) {
      begin_entry(entry, (int)note->kind, device, note->begin, note->end);
      fill_plain((hr_plain_entry *)entry, note, text_bytes);
      ++profile->counts.records;
    }
  }
  hr_mutex_unlock(&r->mutex);
}

bool hr__records_are_on(void) {
  return atomic_load_explicit(&recorder_of(hr__context())->started, memory_order_relaxed) != 0;
}

void hr__records_mark(hr_trace *trace, size_t count, int recorded) {
  bool is_timed = (recorded & HR_RECORDED_OPERATIONS) != 0;
  if (own.correlation == 0 && !is_timed) {
    return;
  }
  uint64_t correlation = own.correlation != 0 ? own.correlation + own.origin : 0;
  hr__trace_mark(trace, count, &(const hr_operation_mark){correlation, is_timed ? hr_clock_ns() : 0});
}

void hr__records_mark_part(hr_trace *trace, size_t count, const uint32_t *origins, int recorded) {
  bool is_timed = (recorded & HR_RECORDED_OPERATIONS) != 0;
  if (own.correlation != 0) {
    hr__trace_mark_each(trace, count, origins,
                        &(const hr_operation_mark){own.correlation, is_timed ? hr_clock_ns() : 0});
  }
}

/* ---- starting and stopping ---- */

/* Sets the flags of all devices; the recorder is locked. */
static void set_flags(recorder *r) {
  for (int d = 0; d < r->device_count; ++d) {
    int flags = r->name_place != NULL ? HR_RECORDED_PLACES : 0;
    for (int i = 0; i < r->profile_count; ++i) {
      bool wants_operations = (r->profiles[i]->flags & HR_PROFILE_OPERATIONS) != 0;
      if (covers(r->profiles[i], r->devices[d])) {
        flags |= HR_RECORDED | (wants_operations ? HR_RECORDED_OPERATIONS : 0);
      }
    }
    atomic_store_explicit(&r->devices[d]->recorded, flags, memory_order_relaxed);
  }
  atomic_store_explicit(&r->started, r->profile_count, memory_order_relaxed);
}

/* The recorder is locked. */
static void add_device(recorder *r, hr_device *device) {
  for (int i = 0; i < r->device_count; ++i) {
    if (r->devices[i] == device) {
      return;
    }
  }
  if (r->device_count < DEVICES_MAX) {
    r->devices[r->device_count++] = device;
    set_flags(r);
  }
}

void hr__records_join(hr_device *device) {
  recorder *r = recorder_of(device->context);
  hr_mutex_lock(&r->mutex);
  add_device(r, device);
  hr_mutex_unlock(&r->mutex);
}

hr_status hr_profile_create(hr_device *device, size_t ring_bytes, unsigned flags, hr_profile **out_profile) {
  if (out_profile == NULL || (flags & ~(unsigned)HR_PROFILE_OPERATIONS) != 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_profile_create: %s %u",
                          out_profile == NULL ? "NULL result, flags" : "unknown flags", flags);
  }
  size_t bytes = ring_bytes == 0 ? RING_BYTES : ring_bytes < RING_BYTES_MIN ? RING_BYTES_MIN : ring_bytes;
  hr_profile *profile = hr_calloc(1, sizeof *profile);
  uint64_t *ring = profile != NULL ? hr_calloc(bytes / WORD, WORD) : NULL;
  if (ring == NULL) {
    hr_free(profile);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a profile of %zu bytes", bytes);
  }
  profile->context = device != NULL ? device->context : hr__context();
  profile->device = device;
  profile->flags = flags;
  profile->ring = ring;
  profile->capacity = bytes / WORD;
  hr_device_retain(device);
  *out_profile = profile;
  return HR_OK;
}

hr_status hr_profile_start(hr_profile *profile) {
  recorder *r = recorder_of(profile->context);
  hr_status status = HR_OK;
  hr_mutex_lock(&r->mutex);
  if (profile->is_started) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "profile: it was started already; stop it first");
  } else if (r->profile_count == PROFILES_MAX) {
    status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "profile: at most %d can be started at once", PROFILES_MAX);
  } else {
    profile->is_started = true;
    r->profiles[r->profile_count++] = profile;
    if (profile->device != NULL) {
      add_device(r, profile->device);
    }
    set_flags(r);
  }
  hr_mutex_unlock(&r->mutex);
  return status;
}

hr_status hr_profile_stop(hr_profile *profile) {
  recorder *r = recorder_of(profile->context);
  hr_mutex_lock(&r->mutex);
  bool was_started = profile->is_started;
  for (int i = 0; was_started && i < r->profile_count; ++i) {
    if (r->profiles[i] == profile) {
      r->profiles[i] = r->profiles[--r->profile_count];
      break;
    }
  }
  profile->is_started = false;
  set_flags(r);
  hr_mutex_unlock(&r->mutex);
  return was_started ? HR_OK
                     : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "profile: it is not started, so it can't stop");
}

/* Releases all entries; the recorder is locked, or nobody else has the profile. */
static void release_entries(hr_profile *profile) {
  while (profile->tail < profile->head) {
    hr_entry *entry = entry_at(profile, profile->tail);
    hr__entry_release(entry);
    profile->tail += entry->words;
  }
}

void hr_profile_release(hr_profile *profile) {
  if (profile == NULL) {
    return;
  }
  hr_status_ignore(hr_profile_stop(profile));
  release_entries(profile);
  hr__record_table_fini(&profile->table);
  hr__record_lists_fini(&profile->lists);
  hr_device_release(profile->device);
  hr_free(profile->ring);
  hr_free(profile);
}

void hr_profile_clear(hr_profile *profile) {
  recorder *r = recorder_of(profile->context);
  hr_mutex_lock(&r->mutex);
  release_entries(profile);
  hr__record_table_fini(&profile->table);
  profile->counts = (hr_profile_counts){0};
  hr_mutex_unlock(&r->mutex);
}

/* ---- reading ---- */

/* A copy of the ring's entries, one after the other, with references of their own. */
typedef struct snapshot {
  uint64_t *words;
  size_t count;
} snapshot;

/* The recorder is locked. */
static hr_status take(hr_profile *profile, bool drains, snapshot *out) {
  out->count = 0;
  out->words = hr_malloc((size_t)(profile->head - profile->tail) * WORD + WORD);
  if (out->words == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a copy of %zu bytes of records",
                          (size_t)(profile->head - profile->tail) * WORD);
  }
  for (uint64_t at = profile->tail; at < profile->head; at += entry_at(profile, at)->words) {
    const hr_entry *entry = entry_at(profile, at);
    if (entry->kind == HR_ENTRY_PADDING) {
      continue;
    }
    memcpy(out->words + out->count, entry, entry->words * (size_t)WORD);
    out->count += entry->words;
    if (entry->kind == HR_PROFILE_RUN) {
      hr_refcount_retain(&((const hr_run_entry *)entry)->description->refcount);
    }
  }
  while (drains && profile->tail < profile->head) {
    drop_oldest(profile);
  }
  return HR_OK;
}

/* Passes records to a caller whose struct may be of another size. */
typedef struct reader {
  size_t bytes;
  void *record;
  void (*fn)(void *arg, const hr_profile_record *record);
  void *arg;
} reader;

static void pass(void *arg, const hr_profile_record *record) {
  const reader *to = arg;
  hr__copy_fields(to->record, to->bytes, record, sizeof *record);
  to->fn(to->arg, to->record);
}

static hr_status read_records(hr_profile *profile, size_t bytes, bool drains,
                              void (*fn)(void *arg, const hr_profile_record *record), void *arg) {
  recorder *r = recorder_of(profile->context);
  snapshot copy;
  hr_record_lists lists = {.with_shares = bytes >= sizeof(hr_profile_record)};
  reader to = {bytes, hr_calloc(1, bytes + 1), fn, arg};
  hr_mutex_lock(&r->mutex);
  hr_status status = take(profile, drains, &copy);
  hr_mutex_unlock(&r->mutex);
  if (status != HR_OK) {
    hr_free(to.record);
    return status;
  }
  bool ok = to.record != NULL;
  for (size_t at = 0; at < copy.count;) {
    const hr_entry *entry = (const hr_entry *)(copy.words + at);
    ok = ok && hr__entry_expand(entry, &lists, pass, &to);
    hr__entry_release(entry);
    at += entry->words;
  }
  hr__record_lists_fini(&lists);
  hr_free(to.record);
  hr_free(copy.words);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for records");
}

hr_status hr_profile_read(hr_profile *profile, size_t bytes, void (*fn)(void *arg, const hr_profile_record *record),
                          void *arg) {
  return read_records(profile, bytes, false, fn, arg);
}

hr_status hr_profile_drain(hr_profile *profile, size_t bytes, void (*fn)(void *arg, const hr_profile_record *record),
                           void *arg) {
  return read_records(profile, bytes, true, fn, arg);
}

void hr_profile_counts_read(hr_profile *profile, size_t bytes, hr_profile_counts *out_counts) {
  recorder *r = recorder_of(profile->context);
  hr_mutex_lock(&r->mutex);
  hr__copy_fields(out_counts, bytes, &profile->counts, sizeof profile->counts);
  hr_mutex_unlock(&r->mutex);
}

hr_status hr_profile_tables(hr_profile *profile, unsigned tables, void (*write)(void *arg, const char *text),
                            void *arg) {
  recorder *r = recorder_of(profile->context);
  hr_record_table all = {0};
  hr_text text = {0};
  hr_mutex_lock(&r->mutex);
  hr__record_table_merge(&all, &profile->table);
  hr_mutex_unlock(&r->mutex);
  /* Without the last field: the machine's memory is not measured for it. */
  hr_status status = read_records(profile, offsetof(hr_profile_record, bandwidth_share), false, sum, &all);
  if (status == HR_OK) {
    hr__record_table_write(&all, tables, &text);
    status = hr_text_status(&text);
  }
  if (status == HR_OK) {
    write(arg, hr_text_chars(&text));
  }
  hr_text_fini(&text);
  hr__record_table_fini(&all);
  return status;
}

/* ---- for frontends ---- */

void hr_profile_correlate(uint64_t correlation) {
  own.correlation = correlation;
}

void hr_profile_origin(uint32_t origin) {
  own.origin = origin;
}

bool hr_profile_is_on(const hr_device *device) {
  return (hr__recorded(device) & HR_RECORDED) != 0;
}

void hr_profile_name_places(void (*fn)(uint64_t correlation, char *out_text, size_t bytes)) {
  recorder *r = recorder_of(hr__context());
  hr_mutex_lock(&r->mutex);
  r->name_place = fn;
  set_flags(r);
  hr_mutex_unlock(&r->mutex);
}

void hr__records_place(uint64_t correlation, hr_text *text) {
  recorder *r = recorder_of(hr__context());
  char name[PLACE_BYTES] = "";
  hr_mutex_lock(&r->mutex);
  void (*name_place)(uint64_t, char *, size_t) = r->name_place;
  hr_mutex_unlock(&r->mutex);
  if (name_place != NULL && correlation != 0) {
    name_place(correlation, name, sizeof name);
  }
  hr_text_append(text, name);
}

int64_t hr_profile_clock_ns(void) {
  return hr_clock_ns();
}

void hr_profile_note_fallback(hr_device *device, const char *name, int64_t begin_ns, int64_t end_ns,
                              int64_t copied_bytes) {
  HR_PROBE2(fallback, name, copied_bytes);
  if (hr__recorded(device) != 0) {
    hr__records_add(device, &(const hr_note){.kind = HR_PROFILE_FALLBACK,
                                             .begin = begin_ns,
                                             .end = end_ns,
                                             .bytes = copied_bytes,
                                             .count = 1,
                                             .text = name});
  }
}

void hr__records_drain_devices(void) {
  recorder *r = recorder_of(hr__context());
  hr_mutex_lock(&r->mutex);
  int count = r->device_count;
  hr_mutex_unlock(&r->mutex);
  for (int i = 0; i < count; ++i) {
    hr__device_drain(r->devices[i]);
  }
}
