/* record_trace.c: a profile's records as a timeline, in the JSON format of Chrome's trace viewer, which Perfetto reads.
 *
 * Each host thread has a track with its commits, copies, compilations, allocations and fallbacks. Each device has one
 * with its runs and, inside of them, kernels and calls of libraries. An arrow leads from a commit to its run.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"
#include "base/vector.h"
#include "engine/record_table.h"
#include "headrace/profile.h"

enum { FLUSH_BYTES = 1 << 16 };

typedef struct track {
  uint64_t key; /* a host thread, or a hash of a device's name */
  bool is_device;
} track;

typedef struct writer {
  FILE *file;
  hr_text text;
  HR_VECTOR(track) tracks;
  int pid;
  bool failed, has_event;
} writer;

/* ---- JSON ---- */

static void flush(writer *w) {
  w->failed |= w->text.failed || fwrite(hr_text_chars(&w->text), 1, w->text.length, w->file) != w->text.length;
  hr_text_clear(&w->text);
}

static void write_characters(hr_text *text, const char *string) {
  for (const char *at = string; *at != '\0'; ++at) {
    if ((unsigned char)*at < ' ') {
      hr_text_printf(text, "\\u%04x", (unsigned)(unsigned char)*at);
    } else {
      hr_text_append(text, *at == '"' || *at == '\\' ? "\\" : "");
      hr_text_char(text, *at);
    }
  }
}

static void write_string(hr_text *text, const char *string) {
  hr_text_char(text, '"');
  write_characters(text, string);
  hr_text_char(text, '"');
}

/* Microseconds, as the format wants them. */
static void write_time(hr_text *text, const char *name, int64_t ns) {
  hr_text_printf(text, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void begin_event(writer *w, const char *phase, int number) {
  if (w->text.length >= FLUSH_BYTES) {
    flush(w);
  }
  hr_text_printf(&w->text, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->has_event ? ",\n" : "", phase, w->pid, number);
  w->has_event = true;
}

/* ---- tracks ---- */

static void write_track_name(writer *w, int number, const char *device) {
  begin_event(w, "M", number);
  hr_text_append(&w->text, ",\"name\":\"thread_name\",\"args\":{\"name\":");
  if (device != NULL) {
    write_string(&w->text, device);
  } else {
    hr_text_printf(&w->text, "\"host thread %d\"", number);
  }
  hr_text_append(&w->text, "}}");
  begin_event(w, "M", number);
  hr_text_printf(&w->text, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
                 device != NULL ? 1000 + number : number);
}

/* The number of a track, which is named when it is first seen. `device`: NULL for a host thread. */
static int find_track(writer *w, uint64_t key, const char *device) {
  for (size_t i = 0; i < w->tracks.count; ++i) {
    if (w->tracks.data[i].key == key && w->tracks.data[i].is_device == (device != NULL)) {
      return (int)i + 1;
    }
  }
  w->failed |= !hr_vector_push(&w->tracks, ((track){key, device != NULL}));
  write_track_name(w, (int)w->tracks.count, device);
  return (int)w->tracks.count;
}

static int track_of(writer *w, const hr_profile_record *record, bool is_device) {
  if (!is_device) {
    return find_track(w, record->thread, NULL);
  }
  return find_track(w, hr_hash_bytes(HR_HASH_SEED, record->device, strlen(record->device)), record->device);
}

/* ---- events ---- */

static const struct {
  const char *category, *prefix; /* of names */
  bool is_device;
} kinds[HR_PROFILE_KINDS] = {
    [HR_PROFILE_RUN] = {"run", "", true},
    [HR_PROFILE_KERNEL] = {"kernel", "", true},
    [HR_PROFILE_LIBRARY] = {"kernel", "", true},
    [HR_PROFILE_CHECK] = {"check", "check ", true},
    [HR_PROFILE_DROPPED] = {"dropped", "", true},
    [HR_PROFILE_OPERATION] = {"operation", "record ", true},
    [HR_PROFILE_COMMIT] = {"commit", "", false},
    [HR_PROFILE_COMPILE] = {"compile", "", false},
    [HR_PROFILE_KERNEL_COMPILE] = {"compile", "compile ", false},
    [HR_PROFILE_KERNEL_LOAD] = {"compile", "load ", false},
    [HR_PROFILE_COPY_IN] = {"copy", "copy in", false},
    [HR_PROFILE_COPY_OUT] = {"copy", "copy out", false},
    [HR_PROFILE_COPY_BETWEEN] = {"copy", "copy between devices", false},
    [HR_PROFILE_FALLBACK] = {"fallback", "fallback ", false},
    [HR_PROFILE_ALLOCATION] = {"allocation", "allocate", false},
};

static void write_number(hr_text *text, const char *name, int64_t number) {
  if (number != 0) {
    hr_text_printf(text, ",\"%s\":%" PRId64, name, number);
  }
}

static void write_words(hr_text *text, const char *name, const char *string) {
  if (string[0] != '\0') {
    hr_text_printf(text, ",\"%s\":", name);
    write_string(text, string);
  }
}

static void write_operations(hr_text *text, const hr_profile_record *record) {
  hr_text_append(text, ",\"operation names\":[");
  for (int64_t i = 0; i < record->operation_count; ++i) {
    hr_text_append(text, i > 0 ? "," : "");
    write_string(text, record->operation_names[i]);
  }
  hr_text_append(text, "]");
}

static void write_arguments(hr_text *text, const hr_profile_record *record) {
  int64_t bytes = record->bytes_read + record->bytes_written, ns = record->end_ns - record->begin_ns;
  hr_text_printf(text, ",\"args\":{\"run\":\"%" PRIu64 ".%" PRIu64 "\"", record->stream, record->run);
  write_words(text, "shapes", record->shapes);
  write_words(text, "tier", hr__tier_name(record->tier));
  write_words(text, "provider", record->provider);
  if (record->program != 0) {
    hr_text_printf(text, ",\"program\":\"%016" PRIx64 "\"", record->program);
  }
  write_number(text, "bytes read", record->bytes_read);
  write_number(text, "bytes written", record->bytes_written);
  write_number(text, "bytes kept out of memory", record->bytes_saved);
  if (bytes > 0 && ns > 0) {
    hr_text_printf(text, ",\"GB/s\":%.3f", (double)bytes / (double)ns);
  }
  write_number(text, "FLOP", record->flops);
  write_number(text, "elements", record->elements);
  write_number(text, "operations", record->operation_count);
  if (record->operations != NULL) {
    write_operations(text, record);
  }
  hr_text_append(text, "}}");
}

/* One end of an arrow from a commit to its run. */
static void write_arrow(writer *w, const char *phase, int number, const hr_profile_record *record) {
  begin_event(w, phase, number);
  hr_text_printf(&w->text, ",\"cat\":\"commit\",\"name\":\"commit\",\"id\":\"%" PRIu64 ".%" PRIu64 "\",\"bp\":\"e\"",
                 record->stream, record->run);
  write_time(&w->text, "ts", record->begin_ns);
  hr_text_append(&w->text, "}");
}

static void write_event(void *arg, const hr_profile_record *record) {
  writer *w = arg;
  bool is_instant = record->kind == HR_PROFILE_DROPPED || record->kind == HR_PROFILE_OPERATION;
  int number = track_of(w, record, kinds[record->kind].is_device);
  begin_event(w, is_instant ? "i" : "X", number);
  hr_text_printf(&w->text, ",\"cat\":\"%s\"", kinds[record->kind].category);
  write_time(&w->text, "ts", record->begin_ns);
  if (is_instant) {
    hr_text_append(&w->text, ",\"s\":\"t\"");
  } else {
    write_time(&w->text, "dur", record->end_ns - record->begin_ns);
  }
  hr_text_printf(&w->text, ",\"name\":\"%s", kinds[record->kind].prefix);
  write_characters(&w->text, record->name);
  hr_text_char(&w->text, '"');
  write_arguments(&w->text, record);
  if (record->kind == HR_PROFILE_COMMIT || record->kind == HR_PROFILE_RUN) {
    write_arrow(w, record->kind == HR_PROFILE_COMMIT ? "s" : "f", number, record);
  }
}

/* ---- the file ---- */

static hr_status no_file(const char *path) {
  return hr_status_make(HR_STATUS_UNAVAILABLE, "trace: can't write \"%s\": %s", path, strerror(errno));
}

static hr_status write_all(hr_profile *profile, writer *w) {
  hr_profile_counts counts;
  hr_profile_counts_read(profile, sizeof counts, &counts);
  hr_text_printf(&w->text,
                 "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"records\":%" PRId64 ",\"overwritten\":%" PRId64
                 ",\"lost\":%" PRId64 "},\"traceEvents\":[\n",
                 counts.records, counts.summed, counts.lost);
  begin_event(w, "M", 0);
  hr_text_append(&w->text, ",\"name\":\"process_name\",\"args\":{\"name\":\"headrace\"}}");
  HR_RETURN_IF_ERROR(hr_profile_read(profile, sizeof(hr_profile_record), write_event, w));
  hr_text_append(&w->text, "\n]}\n");
  flush(w);
  return HR_OK;
}

hr_status hr_profile_write_trace(hr_profile *profile, const char *path) {
  writer w = {.file = fopen(path, "w"), .pid = (int)getpid()};
  if (w.file == NULL) {
    return no_file(path);
  }
  hr_status status = write_all(profile, &w);
  errno = 0;
  bool is_closed = fclose(w.file) == 0;
  hr_text_fini(&w.text);
  hr_vector_fini(&w.tracks);
  if (status == HR_OK && (w.failed || !is_closed)) {
    status = errno != 0 ? no_file(path)
                        : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "trace: no space or memory for \"%s\"", path);
  }
  return status;
}
