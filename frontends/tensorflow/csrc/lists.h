/* lists.h: TensorFlow's lists of tensors while a cluster is recorded.
 *
 * Operations give another list and leave theirs as it was. All versions of a list share one array, which has the
 * elements of the version that was used last. The others know their difference from a newer or an older one, so that
 * a use in turn costs the same for lists of any length.
 */
#ifndef HEADRACE_TENSORFLOW_LISTS_H_
#define HEADRACE_TENSORFLOW_LISTS_H_

#include "scope.h"

typedef struct htf_sequence htf_sequence;

/* The tensor of all elements, one behind another along a new first dim. */
htf_value htf_list_join(htf_node *node, htf_sequence *list);
/* Drops the versions that no value of the scope has, and adds the elements of the others to `live`, which is large
 * enough if it is not NULL. Returns how many they are. */
size_t htf_lists_sweep(htf_scope *scope, htf_scope_value **live);
/* Frees a scope's lists. */
void htf_lists_free(htf_sequence *lists);

/* MatMul in a loop, if its first input is an element of a list, of few rows, and the second one the same matrix in all
 * iterations: all elements are multiplied at once. False: not so, and nothing happened. */
bool htf_list_multiply(htf_node *node);

/* AddN and ZerosLike of lists. */
void htf_list_add(htf_node *node);
void htf_list_zeros_like(htf_node *node);

#endif
