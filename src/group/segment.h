/* segment.h: the shared segment of a group, and waits in it.
 *
 *   header | rank 0 ... rank N-1 | tables | pairs: a ring of messages each | slots: 2 of each rank
 *
 * Collectives are sequences of *rounds*. In a round each rank fills its slot, posts the number of the round, waits
 * until all have posted it, and reads the others' slots. A rank has two slots, for even and odd rounds: when all have
 * posted round k + 1, all have read what round k brought, so slot k may be filled again.
 *
 * A rank that waits spins for some microseconds, then sleeps on its own *bell*, a futex that every rank rings after a
 * change that may concern it.
 *
 * The system puts the thread that is woken beside the one that wakes it if all processors are busy, and both then share
 * one processor for long. So ranks note their processors, and one that waits for a neighbour moves away from it, or
 * sleeps at once if all processors have ranks. */
#ifndef HEADRACE_GROUP_SEGMENT_H_
#define HEADRACE_GROUP_SEGMENT_H_

#include <stdatomic.h>
#include <sys/types.h>

#include "base/thread.h"
#include "headrace/group.h"

enum {
  HR_GROUP_NAME = 32,
  HR_GROUP_TEXT = 256,
  HR_GROUP_LINE = 128, /* bytes between what different ranks write */
};

/* The arguments of a rank's collective, in its first round. */
typedef struct hr_group_notice {
  char name[HR_GROUP_NAME];
  int32_t dtype, op;
  int64_t words[2];
  int64_t elements; /* compared; -1: the tables are */
  int64_t stream_bytes;
} hr_group_notice;

/* Of one rank for another one: where its block begins in the sender's stream, its bytes, and the bytes that the sender
 * expects from the other one. */
typedef struct hr_group_row {
  int64_t offset, bytes, expected;
} hr_group_row;

typedef struct hr_group_rank {
  _Alignas(HR_GROUP_LINE) atomic_uint posted; /* the last round */
  atomic_int processor;                       /* its collectives' thread was there last; -1: unknown */
  _Alignas(HR_GROUP_LINE) atomic_uint bell;
  atomic_int sleepers;
  _Alignas(HR_GROUP_LINE) atomic_bool joined, left;
  int32_t process;
  hr_group_notice notices[2];
} hr_group_rank;

/* The stream of bytes from one rank to another: messages, each a header and its data, rounded up to 16 bytes. */
typedef struct hr_group_ring {
  _Alignas(HR_GROUP_LINE) _Atomic uint64_t written;
  _Alignas(HR_GROUP_LINE) _Atomic uint64_t read;
} hr_group_ring;

typedef struct hr_group_header {
  atomic_ulong magic; /* set last */
  int32_t size, version;
  int64_t slot_bytes, ring_bytes;
  atomic_int broken; /* 0; 1 while the text is written; 2 */
  char text[HR_GROUP_TEXT];
  hr_group_rank ranks[];
} hr_group_header;

/* How slots are written, and the measurement of that (pace.c). */
typedef struct hr_group_pace {
  unsigned chunks; /* so far */
  bool is_cached;
  int64_t begin_ns, best_ns[2]; /* of a chunk: past the caches, and through them */
} hr_group_pace;

typedef struct hr_outgoing hr_outgoing;
typedef struct hr_incoming hr_incoming;

struct hr_group {
  atomic_int references;
  int rank, size;
  pid_t process;
  int file; /* holds the lock that shows that this rank lives */
  char name[128];
  hr_group_header *header;
  size_t bytes;
  unsigned round;          /* the last one posted */
  hr_thread_places places; /* of the thread that runs a collective */
  hr_group_pace pace;
  /* messages (message.c) */
  hr_mutex mutex;                                /* of what follows */
  hr_mutex read_mutex;                           /* of `incoming` and the rings' reading */
  hr_outgoing **outgoing_first, **outgoing_last; /* of each rank */
  hr_incoming *incoming;
  hr_thread sender;
  bool has_sender, stops;
};

hr_group_row *hr__group_table(const hr_group *group, int rank, unsigned round); /* `size` rows */
char *hr__group_slot(const hr_group *group, int rank, unsigned round);
hr_group_ring *hr__group_ring(const hr_group *group, int from, int to);
char *hr__group_ring_data(const hr_group *group, int from, int to);

/* Wakes a rank's threads that sleep. */
void hr__group_ring_bell(hr_group *group, int rank);
/* Waits until is_done(arg), for at most the deadline. `other` is the rank that it depends on, or -1: if that one has
 * left or ended, and the condition still does not hold, the group breaks. */
hr_status hr__group_wait(hr_group *group, const char *name, int64_t deadline_ns, int other, bool (*is_done)(void *arg),
                         void *arg);
/* Notes the processor of this thread, which runs a collective. */
void hr__group_note_processor(hr_group *group);
/* Moves this thread to a processor that no rank uses, if there is one, and the rank uses this one. */
void hr__group_part_from(hr_group *group, int rank);
/* The end of a call's timeout, which begins now. */
int64_t hr__group_deadline(const hr_group_call *call);
/* The group's failure, or OK. */
hr_status hr__group_failure(const hr_group *group);

/* Writes to a slot. Nothing at all may have NULL. */
void hr__group_fill(const hr_group *group, void *slot, const void *from, size_t bytes);
/* A whole chunk of a reduction begins, with its inputs, and ends. `is_first`: of its collective, to which the ranks
 * come at different times. */
void hr__group_begin_chunk(hr_group *group);
void hr__group_end_chunk(hr_group *group, bool is_first);

hr_status hr__messages_init(hr_group *group);
void hr__messages_fini(hr_group *group); /* waits for those that are sent */

#endif /* HEADRACE_GROUP_SEGMENT_H_ */
