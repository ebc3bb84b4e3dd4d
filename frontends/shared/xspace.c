/* xspace.c: see xspace.h. Numbers of fields are those of XLA's xplane.proto. */
#include "xspace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

void xspace_bytes_fini(xspace_bytes *bytes) {
  free(bytes->data);
  *bytes = (xspace_bytes){0};
}

static void append(xspace_bytes *to, const void *data, size_t size) {
  size_t room = to->room > 0 ? to->room : 256;
  while (room - to->size < size) {
    room *= 2;
  }
  char *grown = room > to->room ? realloc(to->data, room) : to->data;
  if (grown == NULL) {
    to->has_failed = true;
    return;
  }
  to->data = grown, to->room = room;
  memcpy(to->data + to->size, data, size);
  to->size += size;
}

static void append_varint(xspace_bytes *to, uint64_t number) {
  unsigned char bytes[10];
  size_t count = 0;
  for (; number >= 128; number >>= 7) {
    bytes[count++] = (unsigned char)(number | 128);
  }
  bytes[count++] = (unsigned char)number;
  append(to, bytes, count);
}

void xspace_bytes_number(xspace_bytes *to, int field, uint64_t number) {
  append_varint(to, (uint64_t)field << 3);
  append_varint(to, number);
}

void xspace_bytes_text(xspace_bytes *to, int field, const void *text, size_t size) {
  append_varint(to, (uint64_t)field << 3 | 2);
  append_varint(to, size);
  if (size > 0) {
    append(to, text, size);
  }
}

/* Eight bytes, the lowest first. */
static void append_double(xspace_bytes *to, int field, double number) {
  uint64_t bits;
  unsigned char bytes[8];
  memcpy(&bits, &number, sizeof bits);
  for (size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = (unsigned char)(bits >> 8 * i);
  }
  append_varint(to, (uint64_t)field << 3 | 1);
  append(to, bytes, sizeof bytes);
}

static void append_message(xspace_bytes *to, int field, const xspace_bytes *message) {
  xspace_bytes_text(to, field, message->data, message->size);
  to->has_failed |= message->has_failed;
}

/* ---- names of events ---- */

typedef struct xspace_name_slot {
  uint64_t hash; /* of 64 bits: names of one hash are taken for equal */
  size_t number; /* from 1 on; 0: free */
} xspace_name_slot;

static uint64_t hash_of(const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (; *text != '\0'; ++text) {
    hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  }
  return hash;
}

static xspace_name_slot *slot_of(xspace_name_slot *slots, size_t count, uint64_t hash) {
  size_t at = hash % count;
  while (slots[at].number != 0 && slots[at].hash != hash) {
    at = (at + 1) % count;
  }
  return &slots[at];
}

static bool grow(xspace_plane *plane) {
  size_t count = plane->slot_count > 0 ? 2 * plane->slot_count : 64;
  xspace_name_slot *slots = calloc(count, sizeof *slots);
  for (size_t i = 0; slots != NULL && i < plane->slot_count; ++i) {
    if (plane->slots[i].number != 0) {
      *slot_of(slots, count, plane->slots[i].hash) = plane->slots[i];
    }
  }
  if (slots != NULL) {
    free(plane->slots);
    plane->slots = slots, plane->slot_count = count;
  }
  return slots != NULL;
}

/* An entry of a map from numbers to XEventMetadata or XStatMetadata {id = 1, name = 2}. */
static void append_name(xspace_bytes *to, int field, uint64_t number, const char *name) {
  xspace_bytes metadata = {0}, entry = {0};
  xspace_bytes_number(&metadata, 1, number);
  xspace_bytes_text(&metadata, 2, name, strlen(name));
  xspace_bytes_number(&entry, 1, number);
  append_message(&entry, 2, &metadata);
  append_message(to, field, &entry);
  xspace_bytes_fini(&metadata);
  xspace_bytes_fini(&entry);
}

enum { PLANE_EVENT_NAMES = 4, PLANE_STAT_NAMES = 5 };

/* The number of a name; 0: no memory. */
static size_t number_of(xspace_plane *plane, const char *name) {
  if (2 * plane->name_count >= plane->slot_count && !grow(plane)) {
    plane->names.has_failed = true;
    return 0;
  }
  uint64_t hash = hash_of(name);
  xspace_name_slot *slot = slot_of(plane->slots, plane->slot_count, hash);
  if (slot->number == 0) {
    *slot = (xspace_name_slot){hash, ++plane->name_count};
    append_name(&plane->names, PLANE_EVENT_NAMES, slot->number, name);
  }
  return slot->number;
}

void xspace_plane_fini(xspace_plane *plane) {
  for (int i = 0; i < XSPACE_LINES; ++i) {
    xspace_bytes_fini(&plane->lines[i]);
  }
  xspace_bytes_fini(&plane->names);
  free(plane->slots);
  *plane = (xspace_plane){0};
}

/* ---- events ---- */

/* XStat {metadata_id = 1, double_value = 2, int64_value = 4, str_value = 5}, in XEvent's field 4. */
static xspace_bytes begin_stat(xspace_stat stat) {
  xspace_bytes message = {0};
  xspace_bytes_number(&message, 1, stat);
  return message;
}

static void end_stat(xspace_bytes *stats, xspace_bytes *message) {
  append_message(stats, 4, message);
  xspace_bytes_fini(message);
}

void xspace_event_text(xspace_bytes *stats, xspace_stat stat, const char *text) {
  if (text != NULL && text[0] != '\0') {
    xspace_bytes message = begin_stat(stat);
    xspace_bytes_text(&message, 5, text, strlen(text));
    end_stat(stats, &message);
  }
}

void xspace_event_number(xspace_bytes *stats, xspace_stat stat, int64_t number) {
  if (number != 0) {
    xspace_bytes message = begin_stat(stat);
    xspace_bytes_number(&message, 4, (uint64_t)number);
    end_stat(stats, &message);
  }
}

void xspace_event_real(xspace_bytes *stats, xspace_stat stat, double number) {
  if (number != 0) {
    xspace_bytes message = begin_stat(stat);
    append_double(&message, 2, number);
    end_stat(stats, &message);
  }
}

/* XEvent {metadata_id = 1, offset_ps = 2, duration_ps = 3, stats = 4}, in XLine's field 4. */
void xspace_plane_event(xspace_plane *plane, int line, const char *name, int64_t begin_ns, int64_t end_ns,
                        const xspace_bytes *stats) {
  xspace_bytes event = {0};
  int64_t begin = begin_ns > 0 ? begin_ns : 0, end = end_ns > begin ? end_ns : begin;
  xspace_bytes_number(&event, 1, number_of(plane, name));
  xspace_bytes_number(&event, 2, (uint64_t)begin * 1000);
  xspace_bytes_number(&event, 3, (uint64_t)(end - begin) * 1000);
  if (stats->size > 0) {
    append(&event, stats->data, stats->size);
  }
  append_message(&plane->lines[line], 4, &event);
  xspace_bytes_fini(&event);
}

/* ---- spaces ---- */

/* XLine {id = 1, name = 2, timestamp_ns = 3, events = 4}, in XPlane's field 3. */
static void append_line(xspace_bytes *plane, int number, const char *name, int64_t begin_ns,
                        const xspace_bytes *events) {
  xspace_bytes line = {0};
  xspace_bytes_number(&line, 1, (uint64_t)number);
  xspace_bytes_text(&line, 2, name, strlen(name));
  xspace_bytes_number(&line, 3, (uint64_t)begin_ns);
  append(&line, events->data, events->size);
  line.has_failed |= events->has_failed;
  append_message(plane, 3, &line);
  xspace_bytes_fini(&line);
}

/* XPlane {name = 2, lines = 3, names of events = 4 and of statistics = 5}, in XSpace's field 1. */
void xspace_add_plane(xspace_bytes *space, const xspace_plane *plane, const char *const *line_names, int64_t begin_ns) {
  static const char *const stats[] = {"",
#define XSPACE_STAT_NAME(id, name) name,
                                      XSPACE_STATS(XSPACE_STAT_NAME)
#undef XSPACE_STAT_NAME
  };
  xspace_bytes made = {0};
  xspace_bytes_text(&made, 2, plane->name, strlen(plane->name));
  for (int i = 0; i < XSPACE_LINES; ++i) {
    if (plane->lines[i].size > 0) {
      append_line(&made, i + 1, line_names[i], begin_ns, &plane->lines[i]);
    }
  }
  if (plane->names.size > 0) {
    append(&made, plane->names.data, plane->names.size);
  }
  for (int stat = 1; stat < XSPACE_STAT_END; ++stat) {
    append_name(&made, PLANE_STAT_NAMES, (uint64_t)stat, stats[stat]);
  }
  made.has_failed |= plane->names.has_failed;
  append_message(space, 1, &made);
  xspace_bytes_fini(&made);
}
