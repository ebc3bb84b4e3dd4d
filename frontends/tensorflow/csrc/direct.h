/* direct.h: functions whose graph is one cluster, which Python calls as the operation HeadraceCall (calls.py).
 *
 * TensorFlow's executor costs a hand-over between threads for each call, and a node for each argument. The optimizer
 * notes in a cluster if nothing but arguments and results is around it. Python finds this cluster by the results of a
 * call that it watches: the cluster allocated their memory during the call, and nothing else did after it.
 *
 * The operation has the cluster's number. The cluster belongs to the kernel of the function, and a call behind the end
 * of this kernel fails with NOT_FOUND.
 */
#ifndef HEADRACE_TENSORFLOW_DIRECT_H_
#define HEADRACE_TENSORFLOW_DIRECT_H_

#include "captures.h"

#define HTF_CALL "HeadraceCall"

/* Of a cluster that is all of its function. */
typedef struct htf_direct {
  struct htf_direct *next;
  htf_cluster *cluster;
  int64_t number;
  int64_t *places; /* of its operands among the function's arguments, then of the function's results among its own */
  int place_count;
  void **addresses; /* of the results of the last watched call, as long as nothing else is there */
  int64_t time;     /* of the last of them */
} htf_direct;

/* Adds the cluster to those that Python may find; takes over the places. False: no memory. */
bool htf_direct_add(htf_cluster *cluster, int64_t *places, int count);
/* Takes it out; called before the end of its kernel. */
void htf_direct_remove(htf_cluster *cluster);
/* Notes the address of a result of a call, from the first one on. */
void htf_direct_note(const htf_cluster *cluster, int index, void *address);
/* Memory at this address is allocated: it is no cluster's result any more. */
void htf_direct_forget(const void *address);
/* Registers the operation and its kernel. */
void htf_register_direct(void);

#endif
