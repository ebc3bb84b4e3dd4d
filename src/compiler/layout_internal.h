/* layout_internal.h: shared by the files of the layout pass. See layout.c. */
#ifndef HEADRACE_COMPILER_LAYOUT_INTERNAL_H_
#define HEADRACE_COMPILER_LAYOUT_INTERNAL_H_

#include "base/vector.h"
#include "compiler/passes.h"

enum { HR__OUTER = 0, HR__CHANNEL, HR__INNER, HR__AXES };

/* A buffer as a dense [outer, channels, inner], and the new stride of each of them. */
typedef struct hr__layout {
  int64_t dims[HR__AXES], strides[HR__AXES]; /* strides: the new ones, in elements */
  size_t element_bytes, bytes;               /* bytes: the new size of the whole buffer */
} hr__layout;

/* True if the library accepts operand `operand` of its node in this layout. */
typedef bool (*hr__accepts_fn)(const hr__layout *l, const hr_node *node, int operand);

/* A buffer of the program, in this pass. */
typedef struct hr__candidate {
  bool is_open; /* may get a layout, and was not visited yet */
  bool is_seen; /* visible after the program, through the layout's word: it keeps its size */
  bool is_relaid;
  hr__layout layout;
} hr__candidate;

typedef struct hr__layout_access {
  int node;
  int next; /* a later one to the same buffer; -1: none */
  hr_operand *operand;
} hr__layout_access;

typedef struct hr__layout_pass {
  hr_program *program;
  hr__candidate *candidates;   /* by buffer */
  int *first_access;           /* of each buffer, into accesses; -1: none */
  hr__layout_access *accesses; /* each buffer's in order of nodes */
  HR_VECTOR(uint32_t) changed; /* buffers whose neighbours have not been visited yet */
} hr__layout_pass;

/* The word of a layout of images, as buffers carry it; 0 if it doesn't fit. */
uint64_t hr__layout_word(const hr__layout *l);

/* True if the operand's buffer may get a layout, and the operand is all of it: no offset, no indices, no bounds. */
bool hr__layout_is_open(const hr__layout_pass *p, const hr_operand *operand);
/* The dim of more than one element whose stride is `stride`; -1: none. From 1 on, these are a dense operand's dims from
 * the inside. */
int hr__layout_next_dim(const hr_operand *operand, int64_t stride);
/* Dims of the operand's domain that step along the channels. */
uint32_t hr__layout_channels(const hr__layout *l, const hr_operand *operand);

/* True if the layout propagates to everything that touches the operand's buffer; `takes` decides for library nodes. */
bool hr__layout_can_relay(const hr__layout_pass *p, const hr_operand *operand, const hr__layout *l,
                          hr__accepts_fn takes);
/* Gives the operand's buffer this layout if it propagates to everything that touches it; `takes` decides for library
 * nodes. False when memory is out. */
bool hr__layout_relay(hr__layout_pass *p, const hr_operand *operand, const hr__layout *l, hr__accepts_fn takes);

/* True for convolutions. */
bool hr__layout_has_images(const hr_node *node);

/* Adopts the layouts that earlier programs have given buffers, or refuses them. False when memory is out. */
bool hr__layout_images_adopt(hr__layout_pass *p);

/* The two kinds of nodes that request layouts. False when memory is out. */
/* Convolutions. one_format: all operands of one must have the same layout; then nothing changes if more than a small
 * part has to keep its layout. */
bool hr__layout_images(hr__layout_pass *p, bool one_format);
/* Products: rows begin at multiples of `alignment` bytes. */
bool hr__layout_rows(hr__layout_pass *p, size_t alignment);

/* After all nodes have been rewritten: large products whose summed rows have grown sum zeros there, too. */
hr_status hr__layout_deepen(const hr__layout_pass *p, const hr_target *target);

#endif
