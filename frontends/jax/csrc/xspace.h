/* xspace.h: writes XSpace messages, the protocol buffers of XLA's profiles, in memory.
 *
 * A space has planes, one for each device; a plane has lines of events. Events name their entry in the plane's list of
 * names, and have values of the statistics below.
 *
 * Threads: one at a time.
 */
#ifndef HEADRACE_JAX_XSPACE_H_
#define HEADRACE_JAX_XSPACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow; without memory they are cut short and has_failed is set. Zeroed is empty. */
typedef struct hrj_bytes {
  char *data;
  size_t size, room;
  bool has_failed;
} hrj_bytes;

void hrj_bytes_fini(hrj_bytes *bytes);
/* Appends a field of a message: a number, or bytes. */
void hrj_bytes_number(hrj_bytes *to, int field, uint64_t number);
void hrj_bytes_text(hrj_bytes *to, int field, const void *text, size_t size);

/* Statistics of events, with the names that tools for XLA's profiles expect where they have one. */
#define HRJ_STATS(X)                   \
  X(HRJ_STAT_MODULE, "hlo_module")     \
  X(HRJ_STAT_OP, "tf_op")              \
  X(HRJ_STAT_SOURCE, "source")         \
  X(HRJ_STAT_BYTES, "bytes_accessed")  \
  X(HRJ_STAT_FLOPS, "flops")           \
  X(HRJ_STAT_SHAPES, "shapes")         \
  X(HRJ_STAT_BY, "by")                 \
  X(HRJ_STAT_OPERATIONS, "operations") \
  X(HRJ_STAT_PROGRAM, "program")       \
  X(HRJ_STAT_RUN, "run")
typedef enum hrj_stat {
  HRJ_STAT_NONE = 0,
#define HRJ_STAT_PLACE(id, name) id,
  HRJ_STATS(HRJ_STAT_PLACE)
#undef HRJ_STAT_PLACE
      HRJ_STAT_END
} hrj_stat;

enum { HRJ_LINES = 4 };

typedef struct hrj_plane {
  char name[64];
  hrj_bytes lines[HRJ_LINES]; /* events of each */
  hrj_bytes names;            /* entries of XPlane's list */
  size_t name_count, slot_count;
  struct hrj_name_slot *slots; /* by hash */
} hrj_plane;

void hrj_plane_fini(hrj_plane *plane);
/* Appends an event, whose statistics are encoded (hrj_event_text, hrj_event_number). begin_ns: since the lines begin.
 */
void hrj_plane_event(hrj_plane *plane, int line, const char *name, int64_t begin_ns, int64_t end_ns,
                     const hrj_bytes *stats);
/* Appends a statistic of an event; empty texts and zeros are left out. */
void hrj_event_text(hrj_bytes *stats, hrj_stat stat, const char *text);
void hrj_event_number(hrj_bytes *stats, hrj_stat stat, int64_t number);
/* Appends a plane to a space. Lines without events are left out; all begin at `begin_ns` of the wall clock. */
void hrj_space_plane(hrj_bytes *space, const hrj_plane *plane, const char *const *line_names, int64_t begin_ns);

#endif
