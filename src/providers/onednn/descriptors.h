/* descriptors.h: what the library answered for a node of the same numbers: its descriptors, with their primitives, and
 * whether epilogues keep its implementation.
 *
 * The library takes 5 to 50 us to choose an implementation. A compilation asks several times about one node, and
 * repeated layers and cells ask for the same numbers. Bounded: some of the latest nodes of the process.
 *
 * Threads: safe from any.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_DESCRIPTORS_H_
#define HEADRACE_PROVIDERS_ONEDNN_DESCRIPTORS_H_

#include <stdbool.h>
#include <stdint.h>

#include "core/ir/program.h"
#include "providers/onednn/dnnl_api.h"

enum { HR__DNNL_KEY_WORDS = 160 };

/* Everything about a node and its preparation that the library's answers depend on. */
typedef struct hr__dnnl_key {
  uint64_t hash;
  int word_count; /* 0: more than fits; nothing is remembered */
  uint64_t words[HR__DNNL_KEY_WORDS];
} hr__dnnl_key;

typedef enum hr__dnnl_which {
  HR__DNNL_STORED, /* the node on operands in their own layouts */
  HR__DNNL_PACKED, /* with the weight in the library's preferred layout */
  HR__DNNL_WHICH_COUNT
} hr__dnnl_which;

/* `how`: numbers of the preparation itself: algorithm, threads, ... */
void hr__dnnl_key_make(const hr_node *node, int how_count, const int64_t *how, hr__dnnl_key *out_key);

/* A primitive with a reference of the caller's, or NULL. */
struct hr__dnnl_primitive *hr__dnnl_known_primitive(const hr__dnnl_key *key, hr__dnnl_which which);
/* Remembers a primitive; does nothing without one, or without memory. */
void hr__dnnl_note_primitive(const hr__dnnl_key *key, hr__dnnl_which which, struct hr__dnnl_primitive *primitive);

/* True if it is known whether the node's epilogues keep the implementation of the node without them. */
bool hr__dnnl_known_epilogues(const hr__dnnl_key *key, bool *out_keep);
void hr__dnnl_note_epilogues(const hr__dnnl_key *key, bool keep);

/* Frees all answers. */
void hr__dnnl_forget(void);

#endif
