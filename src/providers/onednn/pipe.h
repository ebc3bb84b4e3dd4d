/* pipe.h: a prepared contraction: a short list of oneDNN primitives over memories that are bound at each run.
 *
 *   operand (strided) --pack--> dense --reorder--> the primitive's layout --primitive--> ... --reorder--> output
 *
 * A memory refers to an operand of the node (bound to the address of each run) or to an offset in the workspace.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_PIPE_H_
#define HEADRACE_PROVIDERS_ONEDNN_PIPE_H_

#include <stdbool.h>

#include "base/late.h"
#include "providers/onednn/descriptors.h"
#include "providers/onednn/onednn.h"
#include "providers/onednn/shared_primitives.h"
#include "providers/provider.h"
#include "runtime/cached_weights.h"

enum { PIPE_MEMORIES_MAX = 40, PIPE_STEPS_MAX = 24, PIPE_ARGS_MAX = 24, PIPE_RECIPE_MAX = 112 };
enum { PIPE_WORKSPACE = -1, PIPE_CACHED = -2 };

typedef struct pipe_memory {
  dnnl_memory memory;
  int arg;        /* operand of the node, PIPE_WORKSPACE, or PIPE_CACHED: the cached weight */
  int64_t offset; /* bytes from the operand's or the workspace's address */
} pipe_memory;

typedef enum pipe_step_kind {
  PIPE_PRIMITIVE,
  PIPE_PACK,
  PIPE_UNPACK,
  PIPE_ADD_BIAS,
  PIPE_NUMBER,
  PIPE_ZERO
} pipe_step_kind;

/* The runs in which a step runs. */
typedef enum pipe_when {
  PIPE_ALWAYS,
  PIPE_UNLESS_CACHED, /* if there is no cached weight */
  PIPE_IF_CACHED,
  PIPE_TO_KEEP /* in the run that packs it */
} pipe_when;

/* Strided elements of an operand, copied to or from dense row-major memory. */
typedef struct pipe_copy {
  int arg;
  int64_t arg_offset, workspace_offset; /* bytes */
  int rank;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX]; /* elements */
  size_t element_bytes;
} pipe_copy;

typedef struct pipe_step {
  pipe_step_kind kind;
  pipe_when when;
  dnnl_primitive primitive; /* that of `shared`; NULL: to be made */
  hr__dnnl_primitive *shared;
  int arg_count;
  struct {
    int arg, memory;
  } args[PIPE_ARGS_MAX];
  pipe_copy copy;
} pipe_step;

/* A weight packed into one of the library's layouts, cached while its contents stay the same (packed_weights.c): packed
 * when they are seen a second time. */
typedef struct pipe_cached {
  int arg, memory; /* the operand; the memory in that layout. arg -1: nothing is cached */
  size_t bytes;
  uint64_t stamp; /* of this run */
  /* The cached weight is read by a separate primitive, a PIPE_IF_CACHED step, whose output is compared once with the
   * output of the others. -1: no comparison needed. */
  int proof_step, output;
  size_t output_bytes;
  bool has_run; /* a comparison waits for a second run */
  int word_count;
  uint64_t recipe[PIPE_RECIPE_MAX];
} pipe_cached;

struct hr_prepared {
  dnnl_stream stream;
  int thread_count;
  int memory_count, step_count;
  pipe_memory memories[PIPE_MEMORIES_MAX];
  size_t workspace_bytes;
  pipe_cached kept;
  int desc_count;
  hr_status status;                /* the first error of building; later calls do nothing */
  const char *kernel;              /* oneDNN's name of the implementation of the last primitive */
  bool is_probe;                   /* nothing will run: primitives need not be created */
  const hr__dnnl_key *key;         /* of the node, while it is prepared */
  hr_late late;                    /* makes the primitives of a first run */
  pipe_step steps[PIPE_STEPS_MAX]; /* a finished pipe has only the steps in use, and no layouts */
  dnnl_memory_desc descs[PIPE_MEMORIES_MAX];
};

/* `flops`: operations of the node. `other_threads`: one thread instead of all, or all instead of one; not if that can't
 * be right. `key` outlives the preparation. */
hr_prepared *hr__pipe_create(int64_t flops, bool other_threads, const hr__dnnl_key *key);
/* Reports that the node does not have the requested algorithm. */
void hr__pipe_refuse(hr_prepared *pipe);
/* The finished pipe in a block of its size, without what only building needs; NULL, without memory: it is released. */
hr_prepared *hr__pipe_finish(hr_prepared *pipe);
void hr__pipe_release(hr_prepared *pipe);
size_t hr__pipe_footprint(const hr_prepared *pipe); /* bytes of host memory of a finished one, about */
/* Makes the primitives that a run without cached weights needs, as far as there is memory; a run repeats the rest. */
void hr__pipe_make(void *pipe);
/* All of them, on this thread. */
void hr__pipe_make_all(hr_prepared *pipe);
hr_status hr__pipe_run(hr_prepared *pipe, void *const *args, void *workspace, void *queue);

/* Building. Errors stick in pipe->status. */

/* A layout with the given strides; the pipe owns it until it is finished. */
dnnl_memory_desc hr__pipe_desc(hr_prepared *pipe, hr_dtype dtype, int rank, const int64_t *dims,
                               const int64_t *strides);
dnnl_memory_desc hr__pipe_desc_any(hr_prepared *pipe, hr_dtype dtype, int rank, const int64_t *dims);
/* A memory of that layout over operand `arg`, `offset` elements in, or over new workspace. */
int hr__pipe_operand(hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_const_memory_desc desc);
int hr__pipe_workspace(hr_prepared *pipe, dnnl_const_memory_desc desc);
int hr__pipe_cached(hr_prepared *pipe,
                    dnnl_const_memory_desc desc); /* over the kept weight, bound in runs that have one */
/* A dense copy of a strided operand in the workspace, to be packed before (input) or unpacked after (output). */
int hr__pipe_packed(hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_const_memory_desc desc, bool is_output,
                    pipe_step *out_unpack);
/* Fills a dense operand with zeros. */
void hr__pipe_zero(hr_prepared *pipe, int arg, const hr_operand *operand);
/* A memory with the contents of `memory` (of layout `from`) in layout `to`: itself if they agree, else reordered. */
int hr__pipe_reordered(hr_prepared *pipe, int memory, dnnl_const_memory_desc from, dnnl_const_memory_desc to);
/* The same for a weight, which is cached from run to run. */
int hr__pipe_reordered_weight(hr_prepared *pipe, int arg, int memory, dnnl_const_memory_desc from,
                              dnnl_const_memory_desc to);
/* Adds a reorder step. */
void hr__pipe_reorder(hr_prepared *pipe, int memory_from, dnnl_const_memory_desc from, int memory_to,
                      dnnl_const_memory_desc to);
/* Adds a primitive, whose reference it takes over, with its scratchpad, if it has one; args are (DNNL_ARG, memory)
 * pairs, memory -1 is left out. */
void hr__pipe_primitive(hr_prepared *pipe, hr__dnnl_primitive *primitive, int count, const int (*args)[2]);
void hr__pipe_step(hr_prepared *pipe, const pipe_step *step);
/* Sets when the step added last runs. */
void hr__pipe_when(hr_prepared *pipe, pipe_when when);
void hr__pipe_check(hr_prepared *pipe, int code, const char *what);
/* Primitive attributes with the scratchpad in our workspace and these post-ops (NULL: none); destroyed by the caller.
 */
dnnl_primitive_attr hr__pipe_attr(hr_prepared *pipe, dnnl_const_post_ops ops);
/* The node's primitive of an earlier preparation with the same numbers, for hr__pipe_primitive, or NULL. */
hr__dnnl_primitive *hr__pipe_known(const hr_prepared *pipe, hr__dnnl_which which);
/* The same of a new descriptor, which is consumed, for later preparations, too; NULL: there is an error. */
hr__dnnl_primitive *hr__pipe_described(hr_prepared *pipe, hr__dnnl_which which, dnnl_primitive_desc desc);
/* One of its layouts (DNNL_QUERY_..), which the pipe owns until it is finished; NULL: there is an error. */
dnnl_memory_desc hr__pipe_layout(hr_prepared *pipe, const hr__dnnl_primitive *primitive, int what);
/* A memory of one f32 that holds, in each run, the number of operand `arg`; -1: 0. */
int hr__pipe_number(hr_prepared *pipe, int arg, dnnl_const_memory_desc desc);
int hr__dnnl_dtype(hr_dtype dtype); /* 0: none */

/* ---- cached weights (packed_weights.c) ---- */

/* Enables caching of a weight: operand `arg`, `offset` bytes in, of layout `from`; `memory`: its contents in layout
 * `to`. */
void hr__pipe_keep(hr_prepared *pipe, int arg, int64_t offset, dnnl_const_memory_desc from, int memory,
                   dnnl_const_memory_desc to);
/* The PIPE_IF_CACHED step added last is compared on `output` before use. */
void hr__pipe_keep_on_proof(hr_prepared *pipe, int output, dnnl_const_memory_desc desc);

/* A run's use of the cached weight. */
typedef enum pipe_keeping { PIPE_KEEP_NOTHING, PIPE_KEEP_USE, PIPE_KEEP_MAKE, PIPE_KEEP_PROVE } pipe_keeping;

/* At the begin of a run; *out_weight is the cached weight, or the one to fill, retained, or NULL. */
pipe_keeping hr__pipe_cached_begin(hr_prepared *pipe, hr_cached_weights **out_weight);
/* At the end of a successful run: compares and publishes. */
void hr__pipe_cached_end(hr_prepared *pipe, pipe_keeping keeping, hr_cached_weights *weight);
/* Runs a primitive's step. */
int hr__pipe_execute(const hr_prepared *pipe, pipe_step *step);

/* ---- epilogues (epilogues.c) ---- */

/* A node's epilogues as post-ops of a primitive, and their operands as (DNNL_ARG, memory) pairs for hr__pipe_primitive.
 */
typedef struct pipe_epilogues {
  dnnl_post_ops ops; /* NULL: none */
  bool is_sum;       /* the output's memory is read, too */
  int arg_count;
  int args[PIPE_ARGS_MAX][2];
} pipe_epilogues;

/* Makes an operand that covers the whole output readable in the layout in which the primitive writes it. */
typedef int (*pipe_whole_fn)(void *ctx, hr_prepared *pipe, int arg, const hr_operand *operand,
                             dnnl_memory_desc *out_desc);

/* True if every epilogue has a form in post-ops. Vectors run along the dim `channel` of the output; `whole`: tensors of
 * its dims are supported, too. */
bool hr__onednn_has_epilogues(const hr_node *node, int channel, bool whole);
/* `rank`: of the primitive's output; vectors run along its dim `channel`. */
void hr__pipe_epilogues(hr_prepared *pipe, const hr_node *node, int rank, int channel, pipe_whole_fn whole, void *ctx,
                        pipe_epilogues *out_epilogues);
/* The output's old contents, for a sum, in the primitive's output; `unpack`: a strided output, which is not supported.
 */
void hr__pipe_epilogues_sum(hr_prepared *pipe, const pipe_epilogues *epilogues, const pipe_step *unpack, int from,
                            dnnl_const_memory_desc from_desc, int to, dnnl_const_memory_desc to_desc);
/* Adds the primitive's own arguments. */
void hr__pipe_epilogues_args(pipe_epilogues *epilogues, int count, const int (*args)[2]);
void hr__pipe_epilogues_fini(pipe_epilogues *epilogues);

/* Algorithms of a node (provider.h). */
typedef enum hr__onednn_algorithm {
  HR_ONEDNN_ESTIMATE = -1,
  HR_ONEDNN_DIRECT,  /* a convolution as such, if it would be a product */
  HR_ONEDNN_PRODUCT, /* the reverse */
  HR_ONEDNN_THREADS  /* on one thread instead of all, or on all instead of one */
} hr__onednn_algorithm;

/* `probe`: prepares only far enough to find oneDNN's implementation. If the node does not have the algorithm, the
 * pipe's status is an error. */
hr_status hr__onednn_prepare_matmul(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm,
                                    bool probe, const hr__dnnl_key *key, hr_prepared **out_prepared);
hr_status hr__onednn_prepare_conv(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm,
                                  bool probe, const hr__dnnl_key *key, hr_prepared **out_prepared);
bool hr__onednn_supports_matmul(const hr_node *node);
bool hr__onednn_supports_conv(const hr_node *node);
/* Convolutions that can be run as a matrix product, and those that are faster so (pointwise.c). */
bool hr__onednn_can_be_product(const hr_node *node);
bool hr__onednn_is_product(const hr_program *program, const hr_node *node);
void hr__onednn_prepare_product(hr_prepared *pipe, const hr_node *node);
/* True if some node of the program writes the buffer. */
bool hr__onednn_is_written(const hr_program *program, uint32_t buffer);

#endif
