/* xspace.h: writes XSpace messages, the protocol buffers of XLA's profiles, in memory.
 *
 * A space has planes, one for each device; a plane has lines of events. Events name their entry in the plane's list of
 * names, and have values of the statistics below.
 *
 * Threads: one at a time.
 */
#ifndef HEADRACE_SHARED_XSPACE_H_
#define HEADRACE_SHARED_XSPACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow; without memory they are cut short and has_failed is set. Zeroed is empty. */
typedef struct xspace_bytes {
  char *data;
  size_t size, room;
  bool has_failed;
} xspace_bytes;

void xspace_bytes_fini(xspace_bytes *bytes);
/* Appends a field of a message: a number, or bytes. */
void xspace_bytes_number(xspace_bytes *to, int field, uint64_t number);
void xspace_bytes_text(xspace_bytes *to, int field, const void *text, size_t size);

/* Statistics of events, with the names that tools for XLA's profiles expect where they have one. */
#define XSPACE_STATS(X)                   \
  X(XSPACE_STAT_MODULE, "hlo_module")     \
  X(XSPACE_STAT_OP, "tf_op")              \
  X(XSPACE_STAT_SOURCE, "source")         \
  X(XSPACE_STAT_BYTES, "bytes_accessed")  \
  X(XSPACE_STAT_FLOPS, "flops")           \
  X(XSPACE_STAT_BYTE_RATE, "GB/s")        \
  X(XSPACE_STAT_FLOP_RATE, "GFLOP/s")     \
  X(XSPACE_STAT_SHAPES, "shapes")         \
  X(XSPACE_STAT_BY, "by")                 \
  X(XSPACE_STAT_OPERATIONS, "operations") \
  X(XSPACE_STAT_PROGRAM, "program")       \
  X(XSPACE_STAT_RUN, "run")
typedef enum xspace_stat {
  XSPACE_STAT_NONE = 0,
#define XSPACE_STAT_PLACE(id, name) id,
  XSPACE_STATS(XSPACE_STAT_PLACE)
#undef XSPACE_STAT_PLACE
      XSPACE_STAT_END
} xspace_stat;

enum { XSPACE_LINES = 4 };

typedef struct xspace_plane {
  char name[64];
  xspace_bytes lines[XSPACE_LINES]; /* events of each */
  xspace_bytes names;               /* entries of XPlane's list */
  size_t name_count, slot_count;
  struct xspace_name_slot *slots; /* by hash */
} xspace_plane;

void xspace_plane_fini(xspace_plane *plane);
/* Appends an event, whose statistics are encoded (xspace_event_*). begin_ns: since the lines begin.
 */
void xspace_plane_event(xspace_plane *plane, int line, const char *name, int64_t begin_ns, int64_t end_ns,
                        const xspace_bytes *stats);
/* Appends a statistic of an event; empty texts and zeros are left out. */
void xspace_event_text(xspace_bytes *stats, xspace_stat stat, const char *text);
void xspace_event_number(xspace_bytes *stats, xspace_stat stat, int64_t number);
void xspace_event_real(xspace_bytes *stats, xspace_stat stat, double number);
/* Appends a plane to a space. Lines without events are left out; all begin at `begin_ns` of the wall clock. */
void xspace_add_plane(xspace_bytes *space, const xspace_plane *plane, const char *const *line_names, int64_t begin_ns);

#endif
