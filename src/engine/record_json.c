/* record_json.c: timelines in the JSON format of Chrome's trace viewer, which Perfetto reads.
 *
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: times are microseconds. An arrow is
 * a pair of events of the phases "s" and "f", which belong to the slice around them.
 */
#include <inttypes.h>

#include "engine/record_trace.h"

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

static void write_time(hr_text *text, const char *name, int64_t ns) {
  hr_text_printf(text, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void begin_event(hr_trace_file *file, const char *phase, int track) {
  hr_text_printf(&file->text, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", file->has_event ? ",\n" : "", phase, file->pid,
                 track);
  file->has_event = true;
}

static void begin(hr_trace_file *file, const hr_profile_counts *counts) {
  hr_text_printf(&file->text,
                 "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"records\":%" PRId64 ",\"overwritten\":%" PRId64
                 ",\"lost\":%" PRId64 "},\"traceEvents\":[\n",
                 counts->records, counts->summed, counts->lost);
  begin_event(file, "M", 0);
  hr_text_append(&file->text, ",\"name\":\"process_name\",\"args\":{\"name\":\"headrace\"}}");
}

static void write_track(hr_trace_file *file, int track, const char *name, const hr_profile_record *record) {
  (void)record;
  begin_event(file, "M", track);
  hr_text_append(&file->text, ",\"name\":\"thread_name\",\"args\":{\"name\":");
  if (name != NULL) {
    write_string(&file->text, name);
  } else {
    hr_text_printf(&file->text, "\"host thread %d\"", track);
  }
  hr_text_append(&file->text, "}}");
  begin_event(file, "M", track);
  hr_text_printf(&file->text, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
                 name != NULL ? 1000 + track : track);
}

static void write_arrows(hr_trace_file *file, const char *phase, const hr_trace_event *event,
                         const hr_trace_arrows *arrows) {
  for (uint64_t i = 0; i < arrows->count; ++i) {
    begin_event(file, phase, event->track);
    hr_text_printf(&file->text, ",\"cat\":\"commit\",\"name\":\"commit\",\"id\":%" PRIu64 ",\"bp\":\"e\"",
                   arrows->first + i);
    write_time(&file->text, "ts", event->record->begin_ns);
    hr_text_append(&file->text, "}");
  }
}

static void write_event(hr_trace_file *file, const hr_trace_event *event) {
  const hr_profile_record *record = event->record;
  begin_event(file, event->is_instant ? "i" : "X", event->track);
  hr_text_printf(&file->text, ",\"cat\":\"%s\"", event->category);
  write_time(&file->text, "ts", record->begin_ns);
  if (event->is_instant) {
    hr_text_append(&file->text, ",\"s\":\"t\"");
  } else {
    write_time(&file->text, "dur", record->end_ns - record->begin_ns);
  }
  hr_text_printf(&file->text, ",\"name\":\"%s", event->prefix);
  write_characters(&file->text, record->name);
  hr_text_append(&file->text, "\",\"args\":{");
  hr__trace_arguments(&hr__trace_json, record, &file->text);
  hr_text_append(&file->text, "}}");
  write_arrows(file, "f", event, &event->in);
  write_arrows(file, "s", event, &event->out);
}

static void end(hr_trace_file *file) {
  hr_text_append(&file->text, "\n]}\n");
}

/* ---- arguments ---- */

static void begin_argument(hr_text *text, const char *name) {
  bool is_first = text->length > 0 && hr_text_chars(text)[text->length - 1] == '{';
  hr_text_printf(text, "%s\"%s\":", is_first ? "" : ",", name);
}

static void write_text(hr_text *text, const char *name, const char *value) {
  begin_argument(text, name);
  write_string(text, value);
}

static void write_integer(hr_text *text, const char *name, int64_t value) {
  begin_argument(text, name);
  hr_text_int(text, value);
}

static void write_real(hr_text *text, const char *name, double value) {
  begin_argument(text, name);
  hr_text_printf(text, "%.3f", value);
}

static void write_list(hr_text *text, const char *name, int64_t count, const char *const *values) {
  begin_argument(text, name);
  hr_text_char(text, '[');
  for (int64_t i = 0; i < count; ++i) {
    hr_text_append(text, i > 0 ? "," : "");
    write_string(text, values[i]);
  }
  hr_text_char(text, ']');
}

const hr_trace_format hr__trace_json = {begin,      write_track,   write_event, end,
                                        write_text, write_integer, write_real,  write_list};
