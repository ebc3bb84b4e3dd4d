/* passes.h: the passes and the data between them. */
#ifndef HEADRACE_COMPILER_PASSES_H_
#define HEADRACE_COMPILER_PASSES_H_

#include "base/vector.h"
#include "compiler/compile.h"
#include "compiler/domain.h"
#include "core/ops/call.h"
#include "core/ops/op.h"

static inline hr_call_effects hr_call_effects_of(const hr_node *node) {
  return node->op == HR_OP_CALL ? (hr_call_effects)node->ints[HR__CALL_EFFECTS] : HR_CALL_KERNEL;
}

/* True if a node's data may end the run. Memory older than the program then holds the stores of the nodes before it,
 * and no others: these stay, and no later store moves before the node. Kernels of modules don't fail; late functions
 * wait for other processes, and other work goes on meanwhile. */
static inline bool hr_may_fail(const hr_node *node) {
  hr_call_effects effects = hr_call_effects_of(node);
  return node->op == HR_OP_CALL ? effects != HR_CALL_KERNEL && effects != HR_CALL_LATE
                                : (hr_op_table(node->op)->traits & HR_TRAIT_FAILS) != 0;
}

/* An operand of a node that is a value. The passes read these rather than the operands themselves, which take eight
 * times the memory, if buffers are all that they need. */
typedef struct hr_touch {
  uint32_t buffer;
  uint32_t operand : 31; /* see hr_node_operand */
  uint32_t is_write : 1;
} hr_touch;

/* Those of node n, inputs first: all[first[n]] .. all[first[n + 1] - 1]. */
typedef struct hr_touches {
  int *first;
  hr_touch *all;
} hr_touches;

/* In the program's arena; false when memory is out. */
bool hr_touches_find(hr_program *program, hr_touches *out_touches);

static inline const hr_touch *hr_touches_begin(const hr_touches *touches, int n) {
  return &touches->all[touches->first[n]];
}
static inline const hr_touch *hr_touches_end(const hr_touches *touches, int n) {
  return &touches->all[touches->first[n + 1]];
}

/* The nodes that touch buffer b, in order, once for each operand: nodes[first[b]] .. nodes[first[b + 1] - 1]. */
typedef struct hr_uses {
  int *first, *nodes;
} hr_uses;

/* In the program's arena; false when memory is out. */
bool hr_uses_find(hr_program *program, hr_uses *out_uses);
/* The same for those that read a buffer, and for those that write it. */
bool hr_uses_find_apart(hr_program *program, const hr_touches *touches, hr_uses *out_reads, hr_uses *out_writes);
/* The place in the list of a buffer of the first node after node n; the list's end: there is none. */
int hr_uses_after(const hr_uses *uses, uint32_t buffer, int n);

/* The stream with operations over lists joined into chains, in memory of its own beside what it shares with `stream`:
 * free its arena. All of its loops are in there, unless there are no chains, and the nodes are the stream's. */
hr_status hr_chain(const hr_program *stream, hr_program *out_stream);

/* Moves calls of functions that are late (headrace/function.h) to where their results are used. */
hr_status hr_late_calls(hr_program *program);

/* Numbers the versions of every buffer in order of writes: stream order becomes value form. */
void hr_versions(hr_program *program);
/* The same in parts: nodes are added in order. */
void hr_versions_begin(hr_program *program);
void hr_versions_add(hr_program *program, hr_node *node);
/* Numbers versions and finds touches in one walk; false when memory is out. */
bool hr_versions_and_touches(hr_program *program, hr_touches *out_touches);

/* Makes readers of temporaries that are copies of whole buffers read these; the copies stay, until hr_simplify removes
 * them. Temporaries that end with a copy become the copy. *out_changed is false if there is no copy. */
hr_status hr_forward(hr_program *program, bool *out_changed);

/* True if a store through this view writes every byte of its buffer. */
bool hr_covers_buffer(const hr_program *program, const hr_operand *output, uint32_t reduce_mask);
/* Removes nodes whose results are never read. Before: %3 = mul(..) into a dead buffer that is never read. After: gone.
 * The versions of buffers are counted; those of operands are not numbered: the passes from here to hr_layout read none.
 */
hr_status hr_simplify(hr_program *program);

/* Gives contents of buffers that the program itself replaces to temporaries. */
hr_status hr_rename(hr_program *program);

/* Matches element-wise loops into the contraction that alone feeds them, if the target keeps it with them. `is_again`:
 * only pairs of which one's layout has changed. */
hr_status hr_match(hr_program *program, const hr_target *target, bool is_again);

/* Makes the target's composites write their results directly to the destinations of copies. */
hr_status hr_deliver(hr_program *program, const hr_target *target);

/* Makes large products of f32 products of 16-bit parts, if the target multiplies these many times as fast.
 * *out_changed: there are some. */
hr_status hr_split_products(hr_program *program, const hr_target *target, bool *out_changed);

/* Gives dead operands of contractions the layouts that the target's libraries prefer, and propagates them to loops.
 * *out_changed: nodes may have changed, so that libraries have to be asked again. */
hr_status hr_layout(hr_program *program, const hr_target *target, bool *out_changed);
/* True if hr_layout found buffers whose layout the program can't use; it marked them, and did nothing else. */
bool hr_layout_is_refused(const hr_program *program);

/* Gives the domains of element-wise loops the order of the reductions that they share data with, so that they can be
 * fused. */
hr_status hr_propagate_order(hr_program *program, const hr_touches *touches);

enum { HR_GROUP_NODES_MAX = 48, HR_GROUP_ACCESSES_MAX = 160 };

/* A list of nodes that run as one step: loop nodes of one domain, or a single contraction or special node. */
typedef struct hr_group {
  bool is_loop;
  hr_domain domain;
  int node_count;
  const int *nodes; /* of the program, in order */
  const char *why;  /* the reason why a loop group is apart from the one that made its input, for people; NULL: none
                     * did */
} hr_group;

typedef struct hr_fusion {
  int group_count;
  hr_group *groups;
  const int *node_group; /* the group of each node */
  hr_touches touches;    /* of the program that was fused */
} hr_fusion;

static inline void hr_group_copy(hr_group *to, const hr_group *from) {
  to->is_loop = from->is_loop;
  to->node_count = from->node_count;
  to->nodes = from->nodes;
  to->why = from->why;
  hr_domain_copy(&to->domain, &from->domain);
}

/* True if a loop node of a group runs once for each row rather than for each element. */
bool hr_group_is_row_node(const hr_group *group, const hr_node *node);

/* Strides of an operand of `node` over the group's domain. */
void hr_group_map(const hr_domain *domain, const hr_node *node, const hr_operand *operand, int64_t *out_strides);

/* The same for one of an operand's bounds. */
void hr_group_map_bound(const hr_domain *domain, const hr_node *node, const hr_bound *bound, int64_t *out_strides);

/* True if two operands of the group's nodes reach the same element of their buffers at each point of the domain, and
 * are absent at the same points. False with index terms. */
bool hr_group_same_map(const hr_domain *domain, const hr_node *node_a, const hr_operand *a, const hr_node *node_b,
                       const hr_operand *b);

/* True if two accesses to one buffer, `b` of a later node, can be in one group; *shares is set if they are the same, or
 * columns of the same rows. */
bool hr_group_may_share(const hr_domain *domain, const hr_node *node_a, const hr_operand *a, bool a_is_write,
                        const hr_node *node_b, const hr_operand *b, bool b_is_write, bool *shares);

/* `before`: NULL, or an earlier fusion: nodes with the same kept group stay together if they may. */
hr_status hr_fuse(hr_program *program, const hr_target *target, const hr_touches *touches, const hr_fusion *before,
                  hr_fusion *out_fusion);

/* True if an operation may be computed several times rather than kept: exact, and a few cycles for a vector. */
bool hr_is_cheap(hr_op op);

/* The node rewritten to compute the elements that a reader's view of its result sees: over the view's dims, into the
 * view. Gathered elements are stored without indices. False if the view does not determine their coordinates, or when
 * memory is out. */
bool hr_node_as_seen(hr_arena *arena, const hr_node *node, const hr_node *reader, const hr_operand *view,
                     hr_node *out_node);

/* Recomputes values in the groups that read them, if that moves fewer bytes. The program then needs
 * hr_versions_and_touches and hr_fuse again; nodes of the other groups are marked to stay in theirs. */
hr_status hr_recompute(hr_program *program, const hr_target *target, const hr_fusion *fusion, bool *out_changed);

/* Moves element-wise groups to the first group that waits for them. Before: lerp(m, g) | mul(v), addcmul(v, g, g), ..,
 * addcdiv(p, m, d). After: one group. */
hr_status hr_wait(hr_program *program, hr_fusion *fusion);

/* Moves small groups that wait for nothing to the front. */
hr_status hr_hoist(hr_program *program, const hr_target *target, hr_fusion *fusion);

/* Moves groups that use up a large temporary to where it has been made. */
hr_status hr_hasten(hr_program *program, const hr_target *target, hr_fusion *fusion);

/* count + 1 indices in the program's arena, all -1; NULL when memory is out. */
int *hr_program_indices(hr_program *program, int count);

/* The results that a group leaves in memory: for each node output, true if it must be stored. */
typedef struct hr_liveness {
  const int *group_first, *group_last; /* of each buffer: the groups that touch it; -1: none */
  const bool *is_elided;               /* of each buffer: is in registers of one group alone */
} hr_liveness;

hr_status hr_live(hr_program *program, const hr_fusion *fusion, hr_liveness *out_liveness);

/* Finds kernels of earlier groups that lower to the same form (alike.c). */
typedef struct hr_form hr_form;
typedef struct hr_alike {
  hr_program *program;
  const hr_liveness *liveness;
  HR_VECTOR(hr_form) forms;
  bool *is_repeated; /* of each group: another has its domain and operations */
  /* below: of the present group */
  uint64_t hash;
  HR_VECTOR(uint64_t) words;
  HR_VECTOR(uint32_t) buffers, scalars; /* by their numbers in the group */
  int *buffer_names, *scalar_names;     /* the numbers; -1: none */
  uint32_t *first_versions;             /* of each buffer that has a number */
  bool is_single;                       /* it can't be like another */
  bool failed;                          /* memory is out */
} hr_alike;

/* False when memory is out. */
bool hr_alike_init(hr_alike *a, hr_program *program, const hr_fusion *fusion, const hr_liveness *liveness);
void hr_alike_fini(hr_alike *a);
/* The kernel of an earlier group, bound to this one's buffers; NULL: there is none. *out_like: 1 + its number. */
const hr_kernel *hr_alike_find(hr_alike *a, const hr_group *group, int index, int *out_like);
/* Adds the kernel of the group that was searched for last; false when memory is out. */
bool hr_alike_add(hr_alike *a, const hr_kernel *kernel, int index);

/* Turns each group of loop nodes into the kernel of its step, in the program's arena. */
hr_status hr_lower(hr_program *program, const hr_fusion *fusion, const hr_liveness *liveness, hr_step *steps);

/* Changes values that a kernel only loads and stores in the same format to integers of that size. */
void hr_move_bits(hr_instr *instrs, int count, hr_access *accesses, hr_register *registers);

/* Places every buffer: the caller's memory, an offset in one arena, or none. */
hr_status hr_plan(hr_program *program, const hr_liveness *liveness, hr_schedule *schedule);

#endif
