/* A library that stands in for libnccl.so.2, for tests without a GPU: device memory is the host's, calls are done at
 * once, and counted. A communicator has one rank, or several that are not there: sums then count this rank alone.
 * Calls that NCCL would refuse fail. A join waits while a test says that the other ranks are not there. */
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "../c/nccl_counts.h"

enum { SUCCESS = 0, INTERNAL = 3, INVALID = 4, TYPES = 10, OPS = 5 };
static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

struct nccl_comm_struct {
  int size, rank, is_used, error;
};
typedef struct nccl_comm_struct *comm_of_nccl;
typedef struct id {
  char bytes[128];
} id;

static struct nccl_comm_struct comms[64];
static int depth; /* of groups */

hr__nccl_counts ncclStubCounts;

int ncclGetVersion(int *version) {
  *version = 22000;
  return SUCCESS;
}

const char *ncclGetErrorString(int result) {
  return result == SUCCESS ? "no error" : result == INVALID ? "invalid argument" : "an error of the stub";
}

int ncclGetUniqueId(id *out) {
  memset(out, 7, sizeof *out);
  return SUCCESS;
}

int ncclCommInitRank(comm_of_nccl *out, int size, id name, int rank) {
  if (name.bytes[0] != 7 || name.bytes[127] != 7 || rank < 0 || rank >= size) {
    return INVALID;
  }
  while (__atomic_load_n(&ncclStubCounts.is_alone, __ATOMIC_ACQUIRE)) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  for (size_t i = 0; i < sizeof comms / sizeof *comms; ++i) {
    if (!comms[i].is_used) {
      comms[i] = (struct nccl_comm_struct){.size = size, .rank = rank, .is_used = 1};
      *out = &comms[i];
      ++ncclStubCounts.communicators;
      return SUCCESS;
    }
  }
  return INTERNAL;
}

static int end(comm_of_nccl comm) {
  if (!comm->is_used) {
    return INVALID;
  }
  comm->is_used = 0;
  --ncclStubCounts.communicators;
  return SUCCESS;
}

int ncclCommDestroy(comm_of_nccl comm) {
  return end(comm);
}

int ncclCommAbort(comm_of_nccl comm) {
  ++ncclStubCounts.aborts;
  return end(comm);
}

int ncclCommGetAsyncError(comm_of_nccl comm, int *error) {
  (void)comm;
  *error = ncclStubCounts.next_error;
  return SUCCESS;
}

int ncclGroupStart(void) {
  ++depth;
  return SUCCESS;
}

int ncclGroupEnd(void) {
  ++ncclStubCounts.groups;
  return --depth < 0 ? INVALID : SUCCESS;
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, comm_of_nccl comm, void *stream) {
  if (!comm->is_used || type < 0 || type >= TYPES || op < 0 || op >= OPS || root < 0 || root >= comm->size ||
      (root == comm->rank && to == NULL)) {
    return INVALID;
  }
  if (root == comm->rank) {
    memmove(to, from, count * sizes[type]);
  }
  ++ncclStubCounts.reductions;
  ncclStubCounts.last_stream = stream, ncclStubCounts.last_type = type, ncclStubCounts.last_op = op,
  ncclStubCounts.last_root = root;
  return SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm_of_nccl comm, void *stream) {
  int result = ncclReduce(from, to, count, type, op, comm->rank, comm, stream);
  ncclStubCounts.last_root = -1;
  return result;
}

/* Messages outside of a group may wait for each other, so the stub refuses them. */
int ncclSend(const void *from, size_t count, int type, int peer, comm_of_nccl comm, void *stream) {
  (void)from, (void)stream;
  ++ncclStubCounts.sends;
  return depth > 0 && count > 0 && type == 1 && peer >= 0 && peer < comm->size && peer != comm->rank ? SUCCESS
                                                                                                     : INVALID;
}

/* Receives the number of the sender. */
int ncclRecv(void *to, size_t count, int type, int peer, comm_of_nccl comm, void *stream) {
  (void)stream;
  ++ncclStubCounts.receives;
  if (depth <= 0 || count == 0 || type != 1 || peer < 0 || peer >= comm->size || peer == comm->rank) {
    return INVALID;
  }
  memset(to, peer, count);
  return SUCCESS;
}
