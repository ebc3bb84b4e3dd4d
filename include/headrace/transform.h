/* transform.h: gradients and batches of what a stream records.
 *
 * A tape keeps the records of a stream that depend on watched tensors, and differentiates them:
 *
 *   hr_tape_begin(stream, &tape);
 *   hr_tape_watch(tape, 1, &w);                        w: const hr_tensor *
 *   ... hr_functional_apply(stream, ...), hr_stream_record(stream, ...): loss
 *   hr_tape_end(tape);
 *   hr_tape_gradient(tape, 1, &loss, NULL, 1, &w, &gradient);
 *   hr_tape_destroy(tape);
 *
 * It sees records (op.h), not functions: views, broadcasts, slices, overlapping windows and in-place operations need no
 * rules of their own. docs/gradients.md lists the operations that have a gradient.
 *
 * Gradients are ordinary records of the stream. A tape does not keep its own, but other tapes of the stream do: a
 * second tape, begun before, gives second derivatives.
 *
 * The gradient by a complex z = a + i b is dL/da + i dL/db for a real L (PyTorch's convention: the conjugate of
 * Wirtinger's dL/dz times 2), so that a step against it is a descent. A real tensor's gradient is real.
 *
 * Memory: a tape retains the values that its gradients read. If a record overwrites one, it is copied before.
 *
 * Threads: while a stream has tapes, it belongs to one thread at a time.
 */
#ifndef HEADRACE_TRANSFORM_H_
#define HEADRACE_TRANSFORM_H_

#include "headrace/functional.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_tape hr_tape;

/* Begins a tape on a stream or a capture, which it retains. The caller owns the tape. */
HR_API HR_MUST_USE hr_status hr_tape_begin(hr_stream *stream, hr_tape **out_tape);

/* Records that depend on these tensors are kept from now on. Gradients are with respect to the values that the tensors
 * have now. Intermediate results may be watched, too. INVALID_ARGUMENT for a tensor without a buffer or whose dtype is
 * not floating (f16, bf16, f32, f64, c32, c64, c128). */
HR_API HR_MUST_USE hr_status hr_tape_watch(hr_tape *tape, int count, const hr_tensor *const *tensors);

/* Keeps no more records. Values that gradients read stay as they are until the tape is destroyed. */
HR_API void hr_tape_end(hr_tape *tape);

/* Records the gradients of the sum over all outputs and elements of seed * output, before or after hr_tape_end, as
 * often as needed.
 *
 * outputs: results of kept records, or watched tensors; others are constant.
 * seeds: NULL: ones; or for each output NULL or a tensor that can be broadcast to it.
 * inputs: watched tensors. INVALID_ARGUMENT for others.
 * out_gradients: one for each input, with its dtype and dims; zeros if no output depends on it. The caller owns a
 * reference of each buffer (hr_tensor_release). Gradients may share memory with each other and with seeds.
 *
 * Fails with INVALID_ARGUMENT for outputs that are not floating, and with UNIMPLEMENTED if a gradient reaches an
 * operation without one, named with the reason. Results are set only on success; the tape can be used again. */
HR_API HR_MUST_USE hr_status hr_tape_gradient(hr_tape *tape, int output_count, const hr_tensor *const *outputs,
                                              const hr_tensor *const *seeds, int input_count,
                                              const hr_tensor *const *inputs, hr_tensor *out_gradients);

/* Records the products of Jacobians and tangents, forwards: for each output the sum over all inputs of its Jacobian by
 * the input times the input's tangent. Before or after hr_tape_end, as often as needed. Costs about as much as the kept
 * records do.
 *
 * inputs: watched tensors. tangents: one for each, floating, which can be broadcast to it.
 * outputs: results of kept records, or watched tensors; others are constant.
 * out_products: one for each output, with its dtype and dims; zeros if it depends on no input. The caller owns a
 * reference of each buffer. They may share memory with each other and with tangents.
 *
 * Fails as hr_tape_gradient does. */
HR_API HR_MUST_USE hr_status hr_tape_product(hr_tape *tape, int input_count, const hr_tensor *const *inputs,
                                             const hr_tensor *const *tangents, int output_count,
                                             const hr_tensor *const *outputs, hr_tensor *out_products);

/* ---- functions with a gradient of their own ---- */

/* The arguments of a gradient or product, valid until it returns. */
typedef struct hr_custom_call {
  void *arg;
  hr_stream *stream; /* records go here: other tapes see them */
  int input_count, output_count;
  const hr_tensor *inputs, *outputs; /* with the values of the function's call */
  const hr_tensor *cotangents;       /* the gradients of the outputs; without a buffer: 0 */
  hr_tensor *gradients;              /* to set: those of the inputs, zeroed on entry. The tape takes over references of
                                      * their buffers; without a buffer: 0. Gradients of constant inputs are dropped. */
  const hr_tensor *tangents;         /* of `product`, in the place of cotangents: those of the inputs */
  hr_tensor *products;               /* of `product`, to set as gradients are: those of the outputs */
} hr_custom_call;

typedef struct hr_custom_spec {
  const char *name;                                  /* in messages; a constant */
  hr_status (*gradient)(const hr_custom_call *call); /* records gradients; called in hr_tape_gradient */
  void *arg;
  void (*release)(void *arg);                       /* (optional) called once: no tape needs the gradient any more */
  hr_status (*product)(const hr_custom_call *call); /* (optional) records the products of hr_tape_product, linear in
                                                     * the tangents; NULL: they are found from the gradient */
} hr_custom_spec;

typedef struct hr_custom hr_custom;

/* Begins a function: until its end, what the calling thread's tapes see is constant for them. So they keep no records
 * of it. Tapes begun later are not concerned. Functions nest. */
HR_API HR_MUST_USE hr_status hr_custom_begin(hr_stream *stream, hr_custom **out_custom);

/* Ends the function, and frees `custom`: its gradient is the spec's. Tapes retain the values of the inputs and outputs
 * until they are destroyed. What else the function read is constant. The spec's `arg` is released in any case; spec
 * NULL: the outputs are constants.
 *
 * outputs: tensors of the function; their references are the caller's. One whose memory is older than the function, or
 * that of an output before it, is replaced by a copy, and its reference released. */
HR_API HR_MUST_USE hr_status hr_custom_end(hr_custom *custom, const hr_custom_spec *spec, int input_count,
                                           const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs);

/* Ends and frees a tape; NULL is fine. */
HR_API void hr_tape_destroy(hr_tape *tape);

/* x's elements as a constant: a copy that no tape of the stream sees, or x itself if there is none. */
HR_API HR_MUST_USE hr_status hr_stop_gradient(hr_stream *stream, const hr_tensor *x, hr_tensor *out);

/* ---- the same operations for many examples ---- */

/* Between its begin and its end, operations on *examples* are recorded once and run for all examples:
 *
 *   hr_vmap_begin(stream, 32, &vmap);
 *   hr_vmap_split(vmap, &xs, 0, &x);              xs [32, 5]: x [5] stands for all 32
 *   ... hr_functional_apply(stream, ...), hr_stream_record(stream, ...): y of x
 *   hr_vmap_join(vmap, &y, 0, &ys);               y [3]: ys [32, 3]
 *   hr_vmap_end(vmap);
 *
 * Results that depend on an example are examples, too. Their dims are those of one; values can't be read, and
 * operations fail with INVALID_ARGUMENT when the vmap has ended. Tensors from before can't be written with examples
 * (INVALID_ARGUMENT). docs/vmap.md lists the operations that are recorded once for each example.
 *
 * Batches and tapes of a stream nest in any order; what began last ends first. */
typedef struct hr_vmap hr_vmap;

/* Begins operations on `size` examples on a stream or a capture, which it retains. The caller owns the vmap. */
HR_API HR_MUST_USE hr_status hr_vmap_begin(hr_stream *stream, int64_t size, hr_vmap **out_vmap);
/* x's slices along an axis as examples, which share its memory. The axis has the vmap's size, else INVALID_ARGUMENT. */
HR_API HR_MUST_USE hr_status hr_vmap_split(hr_vmap *vmap, const hr_tensor *x, int axis, hr_tensor *out_example);
/* All examples, along a new axis. A tensor that is no example is repeated. */
HR_API HR_MUST_USE hr_status hr_vmap_join(hr_vmap *vmap, const hr_tensor *example, int axis, hr_tensor *out);
/* True if the tensor is an example. */
HR_API bool hr_vmap_is_example(const hr_vmap *vmap, const hr_tensor *tensor);
/* Ends and frees it; NULL is fine. */
HR_API void hr_vmap_end(hr_vmap *vmap);

#ifdef __cplusplus
}
#endif

#endif
