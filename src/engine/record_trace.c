/* record_trace.c: walks a profile's records for a timeline. See record_trace.h. */
#include "engine/record_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/table.h"
#include "base/vector.h"
#include "engine/record_table.h"

enum { FLUSH_BYTES = 1 << 16 };

typedef enum track_kind { OF_THREAD, OF_DEVICE, OF_PROGRAMS } track_kind;

typedef struct track {
  uint64_t key; /* a host thread, or a hash of a device's name */
  track_kind place;
} track;

/* The arrows of one program's run: first those to its launches, then those from its operations. */
typedef struct run_arrows {
  uint64_t first, launches, operations;
  uint64_t next_launch, next_operation; /* the next one's, from 0 on */
  bool has_commit;
} run_arrows;

typedef struct writer {
  const hr_trace_format *format;
  hr_trace_file out;
  HR_VECTOR(track) tracks;
  hr_table runs; /* run_arrows, by a hash of stream and run */
} writer;

static const struct {
  const char *category, *prefix; /* of names */
  track_kind place;
} kinds[HR_PROFILE_KINDS] = {
    [HR_PROFILE_RUN] = {"run", "", OF_PROGRAMS},
    [HR_PROFILE_KERNEL] = {"kernel", "", OF_DEVICE},
    [HR_PROFILE_LIBRARY] = {"kernel", "", OF_DEVICE},
    [HR_PROFILE_CHECK] = {"check", "check ", OF_DEVICE},
    [HR_PROFILE_DROPPED] = {"dropped", "", OF_PROGRAMS},
    [HR_PROFILE_OPERATION] = {"operation", "record ", OF_PROGRAMS},
    [HR_PROFILE_COMMIT] = {"commit", "", OF_THREAD},
    [HR_PROFILE_COMPILE] = {"compile", "", OF_THREAD},
    [HR_PROFILE_KERNEL_COMPILE] = {"compile", "compile ", OF_THREAD},
    [HR_PROFILE_KERNEL_LOAD] = {"compile", "load ", OF_THREAD},
    [HR_PROFILE_COPY_IN] = {"copy", "copy in", OF_THREAD},
    [HR_PROFILE_COPY_OUT] = {"copy", "copy out", OF_THREAD},
    [HR_PROFILE_COPY_BETWEEN] = {"copy", "copy between devices", OF_THREAD},
    [HR_PROFILE_FALLBACK] = {"fallback", "fallback ", OF_THREAD},
    [HR_PROFILE_ALLOCATION] = {"allocation", "allocate", OF_THREAD},
};

static void flush(hr_trace_file *out) {
  out->failed |=
      out->text.failed || fwrite(hr_text_chars(&out->text), 1, out->text.length, out->file) != out->text.length;
  hr_text_clear(&out->text);
}

/* ---- tracks ---- */

static void name_track(writer *w, int number, track_kind place, const hr_profile_record *record) {
  char name[160];
  snprintf(name, sizeof name, "%s%s", record->device, place == OF_PROGRAMS ? " programs" : "");
  w->format->track(&w->out, number, place != OF_THREAD ? name : NULL, record);
}

/* The number of a record's track, which is named when it is first seen. */
static int track_of(writer *w, const hr_profile_record *record) {
  track_kind place = kinds[record->kind].place;
  uint64_t key =
      place == OF_THREAD ? record->thread : hr_hash_bytes(HR_HASH_SEED, record->device, strlen(record->device));
  for (size_t i = 0; i < w->tracks.count; ++i) {
    if (w->tracks.data[i].key == key && w->tracks.data[i].place == place) {
      return (int)i + 1;
    }
  }
  w->out.failed |= !hr_vector_push(&w->tracks, ((track){key, place}));
  name_track(w, (int)w->tracks.count, place, record);
  return (int)w->tracks.count;
}

/* ---- arrows ---- */

static uint64_t run_key(const hr_profile_record *record) {
  return hr_hash_mix(hr_hash_mix(HR_HASH_SEED, record->stream), record->run);
}

static bool is_launch(hr_profile_kind kind) {
  return kind == HR_PROFILE_KERNEL || kind == HR_PROFILE_LIBRARY || kind == HR_PROFILE_CHECK;
}

/* Counts the events at the ends of a run's arrows. */
static void count_ends(void *arg, const hr_profile_record *record) {
  writer *w = arg;
  bool is_end = is_launch(record->kind) || record->kind == HR_PROFILE_OPERATION || record->kind == HR_PROFILE_COMMIT;
  if (!is_end || record->run == 0) {
    return;
  }
  run_arrows *run = hr_table_get(&w->runs, run_key(record));
  if (run == NULL) {
    run = hr_calloc(1, sizeof *run);
    if (run == NULL || !hr_table_put(&w->runs, run_key(record), run)) {
      w->out.failed = true;
      hr_free(run);
      return;
    }
  }
  run->launches += is_launch(record->kind);
  run->operations += record->kind == HR_PROFILE_OPERATION;
  run->has_commit |= record->kind == HR_PROFILE_COMMIT;
}

/* Numbers the arrows of runs whose commit is there, from 1 on. */
static void number_arrows(writer *w) {
  size_t cursor = 0;
  uint64_t next = 1;
  for (const hr_table_entry *entry; (entry = hr_table_next(&w->runs, &cursor)) != NULL;) {
    run_arrows *run = entry->value;
    run->launches = run->has_commit ? run->launches : 0;
    run->operations = run->has_commit ? run->operations : 0;
    run->first = next;
    next += run->launches + run->operations;
  }
}

static void add_arrows(writer *w, hr_trace_event *event) {
  hr_profile_kind kind = event->record->kind;
  run_arrows *run = hr_table_get(&w->runs, run_key(event->record));
  if (run == NULL) {
    return;
  }
  if (kind == HR_PROFILE_COMMIT) {
    event->out = (hr_trace_arrows){run->first, run->launches};
    event->in = (hr_trace_arrows){run->first + run->launches, run->operations};
  } else if (is_launch(kind) && run->next_launch < run->launches) {
    event->in = (hr_trace_arrows){run->first + run->next_launch++, 1};
  } else if (kind == HR_PROFILE_OPERATION && run->next_operation < run->operations) {
    event->out = (hr_trace_arrows){run->first + run->launches + run->next_operation++, 1};
  }
}

/* ---- events ---- */

static void add_integer(const hr_trace_format *format, hr_text *to, const char *name, int64_t value) {
  if (value != 0) {
    format->integer(to, name, value);
  }
}

static void add_text(const hr_trace_format *format, hr_text *to, const char *name, const char *value) {
  if (value[0] != '\0') {
    format->text(to, name, value);
  }
}

void hr__trace_arguments(const hr_trace_format *format, const hr_profile_record *record, hr_text *to) {
  int64_t bytes = record->bytes_read + record->bytes_written, ns = record->end_ns - record->begin_ns;
  char number[64];
  snprintf(number, sizeof number, "%" PRIu64 ".%" PRIu64, record->stream, record->run);
  format->text(to, "run", number);
  add_text(format, to, "shapes", record->shapes);
  add_text(format, to, "tier", hr__tier_name(record->tier));
  add_text(format, to, "provider", record->provider);
  if (record->program != 0) {
    snprintf(number, sizeof number, "%016" PRIx64, record->program);
    format->text(to, "program", number);
  }
  add_integer(format, to, "bytes read", record->bytes_read);
  add_integer(format, to, "bytes written", record->bytes_written);
  add_integer(format, to, "bytes kept out of memory", record->bytes_saved);
  if (bytes > 0 && ns > 0) {
    format->real(to, "GB/s", (double)bytes / (double)ns);
  }
  if (record->bandwidth_share > 0) {
    format->real(to, "% of bandwidth", 100 * record->bandwidth_share);
  }
  add_integer(format, to, "FLOP", record->flops);
  add_integer(format, to, "elements", record->elements);
  add_integer(format, to, "operations", record->operation_count);
  if (record->operations != NULL) {
    format->list(to, "operation names", record->operation_count, record->operation_names);
  }
}

static void write_event(void *arg, const hr_profile_record *record) {
  writer *w = arg;
  hr_trace_event event = {.record = record,
                          .category = kinds[record->kind].category,
                          .prefix = kinds[record->kind].prefix,
                          .track = track_of(w, record),
                          .is_instant = record->kind == HR_PROFILE_DROPPED || record->kind == HR_PROFILE_OPERATION};
  add_arrows(w, &event);
  w->format->event(&w->out, &event);
  if (w->out.text.length >= FLUSH_BYTES) {
    flush(&w->out);
  }
}

/* ---- the file ---- */

static hr_status no_file(const char *path) {
  return hr_status_make(HR_STATUS_UNAVAILABLE, "trace: can't write \"%s\": %s", path, strerror(errno));
}

static hr_status write_all(hr_profile *profile, writer *w) {
  hr_profile_counts counts;
  hr_profile_counts_read(profile, sizeof counts, &counts);
  w->format->begin(&w->out, &counts);
  HR_RETURN_IF_ERROR(hr_profile_read(profile, offsetof(hr_profile_record, bandwidth_share), count_ends, w));
  number_arrows(w);
  HR_RETURN_IF_ERROR(hr_profile_read(profile, sizeof(hr_profile_record), write_event, w));
  w->format->end(&w->out);
  flush(&w->out);
  return HR_OK;
}

static void fini_writer(writer *w) {
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&w->runs, &cursor)) != NULL;) {
    hr_free(entry->value);
  }
  hr_table_fini(&w->runs);
  hr_text_fini(&w->out.text);
  hr_vector_fini(&w->tracks);
}

static const hr_trace_format *format_of(const char *path) {
  static const char *const endings[] = {".pftrace", ".perfetto-trace"};
  size_t length = strlen(path);
  for (int i = 0; i < 2; ++i) {
    size_t ending = strlen(endings[i]);
    if (length > ending && strcmp(path + length - ending, endings[i]) == 0) {
      return &hr__trace_protobuf;
    }
  }
  return &hr__trace_json;
}

hr_status hr_profile_write_trace(hr_profile *profile, const char *path) {
  writer w = {.format = format_of(path), .out = {.file = fopen(path, "w"), .pid = (int)getpid()}};
  if (w.out.file == NULL) {
    return no_file(path);
  }
  hr_status status = write_all(profile, &w);
  errno = 0;
  bool is_closed = fclose(w.out.file) == 0;
  fini_writer(&w);
  if (status == HR_OK && (w.out.failed || !is_closed)) {
    status = errno != 0 ? no_file(path)
                        : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "trace: no space or memory for \"%s\"", path);
  }
  return status;
}
