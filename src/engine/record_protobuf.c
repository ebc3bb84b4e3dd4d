/* record_protobuf.c: timelines in Perfetto's own format, a Trace of TracePackets (protocol buffers).
 *
 * Field numbers are those of Perfetto's protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto,
 * track_descriptor.proto and debug_annotation.proto. A slice is two packets, its begin and its end. Perfetto sorts by
 * time and keeps the file's order among equal times, so that slices of one track nest. Arrows are numbers that two
 * events have. Times are nanoseconds.
 */
#include "base/protobuf.h"
#include "engine/record_trace.h"

enum { TRACE_PACKET = 1 };
enum { PACKET_TIMESTAMP = 8, PACKET_SEQUENCE = 10, PACKET_EVENT = 11, PACKET_FLAGS = 13, PACKET_DESCRIPTOR = 60 };
enum { DESCRIPTOR_UUID = 1, DESCRIPTOR_NAME = 2, DESCRIPTOR_PROCESS = 3, DESCRIPTOR_THREAD = 4, DESCRIPTOR_PARENT = 5 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { EVENT_ARGUMENT = 4, EVENT_TYPE = 9, EVENT_TRACK = 11, EVENT_CATEGORY = 22, EVENT_NAME = 23 };
enum { EVENT_FLOW = 47, EVENT_LAST_FLOW = 48 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3 };
enum { ARGUMENT_INT = 4, ARGUMENT_DOUBLE = 5, ARGUMENT_STRING = 6, ARGUMENT_NAME = 10, ARGUMENT_ARRAY = 12 };
enum { SEQUENCE = 1, STATE_CLEARED = 1 };

/* Tracks of several processes in one trace must differ. */
static uint64_t uuid_of(const hr_trace_file *file, int track) {
  return (uint64_t)file->pid << 32 | (uint64_t)track;
}

static size_t begin_packet(hr_trace_file *file) {
  size_t packet = hr_protobuf_begin(&file->text, TRACE_PACKET);
  hr_protobuf_int(&file->text, PACKET_SEQUENCE, SEQUENCE);
  return packet;
}

/* ---- tracks ---- */

static void begin(hr_trace_file *file, const hr_profile_counts *counts) {
  (void)counts;
  hr_text *text = &file->text;
  size_t packet = begin_packet(file);
  hr_protobuf_int(text, PACKET_FLAGS, STATE_CLEARED);
  size_t descriptor = hr_protobuf_begin(text, PACKET_DESCRIPTOR);
  hr_protobuf_int(text, DESCRIPTOR_UUID, uuid_of(file, 0));
  size_t process = hr_protobuf_begin(text, DESCRIPTOR_PROCESS);
  hr_protobuf_int(text, PROCESS_PID, (uint64_t)file->pid);
  hr_protobuf_string(text, PROCESS_NAME, "headrace");
  hr_protobuf_end(text, process);
  hr_protobuf_end(text, descriptor);
  hr_protobuf_end(text, packet);
}

static void write_thread(hr_trace_file *file, int track, const hr_profile_record *record) {
  char name[32];
  snprintf(name, sizeof name, "host thread %d", track);
  size_t thread = hr_protobuf_begin(&file->text, DESCRIPTOR_THREAD);
  hr_protobuf_int(&file->text, THREAD_PID, (uint64_t)file->pid);
  hr_protobuf_int(&file->text, THREAD_TID, record->thread);
  hr_protobuf_string(&file->text, THREAD_NAME, name);
  hr_protobuf_end(&file->text, thread);
}

static void write_track(hr_trace_file *file, int track, const char *name, const hr_profile_record *record) {
  size_t packet = begin_packet(file);
  size_t descriptor = hr_protobuf_begin(&file->text, PACKET_DESCRIPTOR);
  hr_protobuf_int(&file->text, DESCRIPTOR_UUID, uuid_of(file, track));
  if (name == NULL) {
    write_thread(file, track, record);
  } else {
    hr_protobuf_int(&file->text, DESCRIPTOR_PARENT, uuid_of(file, 0));
    hr_protobuf_string(&file->text, DESCRIPTOR_NAME, name);
  }
  hr_protobuf_end(&file->text, descriptor);
  hr_protobuf_end(&file->text, packet);
}

/* ---- events ---- */

static void write_arrows(hr_text *text, unsigned field, const hr_trace_arrows *arrows) {
  for (uint64_t i = 0; i < arrows->count; ++i) {
    hr_protobuf_fixed64(text, field, arrows->first + i);
  }
}

static void write_words(hr_trace_file *file, const hr_trace_event *event) {
  hr_text *text = &file->text;
  hr_protobuf_string(text, EVENT_CATEGORY, event->category);
  hr_protobuf_strings(text, EVENT_NAME, event->prefix, event->record->name);
  write_arrows(text, EVENT_LAST_FLOW, &event->in);
  write_arrows(text, EVENT_FLOW, &event->out);
  hr__trace_arguments(&hr__trace_protobuf, event->record, text);
}

static void write_part(hr_trace_file *file, const hr_trace_event *event, unsigned type, int64_t ns) {
  hr_text *text = &file->text;
  size_t packet = begin_packet(file);
  hr_protobuf_int(text, PACKET_TIMESTAMP, (uint64_t)ns);
  size_t part = hr_protobuf_begin(text, PACKET_EVENT);
  hr_protobuf_int(text, EVENT_TYPE, type);
  hr_protobuf_int(text, EVENT_TRACK, uuid_of(file, event->track));
  if (type != TYPE_END) {
    write_words(file, event);
  }
  hr_protobuf_end(text, part);
  hr_protobuf_end(text, packet);
}

static void write_event(hr_trace_file *file, const hr_trace_event *event) {
  write_part(file, event, event->is_instant ? TYPE_INSTANT : TYPE_BEGIN, event->record->begin_ns);
  if (!event->is_instant) {
    write_part(file, event, TYPE_END, event->record->end_ns);
  }
}

static void end(hr_trace_file *file) {
  (void)file;
}

/* ---- arguments ---- */

static size_t begin_argument(hr_text *text, const char *name) {
  size_t argument = hr_protobuf_begin(text, EVENT_ARGUMENT);
  hr_protobuf_string(text, ARGUMENT_NAME, name);
  return argument;
}

static void write_text(hr_text *text, const char *name, const char *value) {
  size_t argument = begin_argument(text, name);
  hr_protobuf_string(text, ARGUMENT_STRING, value);
  hr_protobuf_end(text, argument);
}

static void write_integer(hr_text *text, const char *name, int64_t value) {
  size_t argument = begin_argument(text, name);
  hr_protobuf_int(text, ARGUMENT_INT, (uint64_t)value);
  hr_protobuf_end(text, argument);
}

static void write_real(hr_text *text, const char *name, double value) {
  size_t argument = begin_argument(text, name);
  hr_protobuf_double(text, ARGUMENT_DOUBLE, value);
  hr_protobuf_end(text, argument);
}

static void write_list(hr_text *text, const char *name, int64_t count, const char *const *values) {
  size_t argument = begin_argument(text, name);
  for (int64_t i = 0; i < count; ++i) {
    size_t item = hr_protobuf_begin(text, ARGUMENT_ARRAY);
    hr_protobuf_string(text, ARGUMENT_STRING, values[i]);
    hr_protobuf_end(text, item);
  }
  hr_protobuf_end(text, argument);
}

const hr_trace_format hr__trace_protobuf = {begin,      write_track,   write_event, end,
                                            write_text, write_integer, write_real,  write_list};
