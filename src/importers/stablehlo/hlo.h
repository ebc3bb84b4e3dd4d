/* hlo.h: from the operations of a StableHLO module to functions of a graph (graph.h).
 *
 * A lowering (operations.def) reads the operands and attributes of an operation, adds functions to the graph, and sets
 * the operation's results, whose dtypes and dims the caller checks against the file. Failures are kept by the graph: a
 * function that adds returns 0 from then on, so that lowerings need few checks. The caller puts the operation's name
 * and place in front.
 *
 * Functions of the module are lowered in place, at each call. Bodies of loops and branches become inner graphs
 * (hlo_control.c).
 */
#ifndef HEADRACE_IMPORTERS_STABLEHLO_HLO_H_
#define HEADRACE_IMPORTERS_STABLEHLO_HLO_H_

#include "headrace/importer.h"
#include "importers/arguments.h"
#include "importers/stablehlo/vhlo.h"

enum {
  HR__HLO_CALLS_MAX = 64,    /* of functions in each other */
  HR__HLO_OPS_MAX = 1 << 16, /* that are lowered, with repetitions, and one more for each 4 bytes of the file */
  HR__HLO_DEVICES_MAX = 64,
  HR__HLO_UNPACKED_MAX = 16 << 20 /* bytes of constants of less than 8 bits, which get bytes */
};

typedef struct hr__hlo_shards hr__hlo_shards;

typedef struct hr__hlo_import {
  hr__vhlo_module module;
  hr_graph *main;
  hr_graph *graph;         /* to which operations are added now: main, or that of a loop or a branch in it */
  hr__vhlo_op **functions; /* by the number of the string that is their name; NULL: none */
  int64_t ops_left, unpacked_left;
  int depth;       /* of regions and calls that are open */
  hr_value effect; /* of the last function with an effect, in `graph`; 0: none yet */
  const hr_stablehlo_options *options;
} hr__hlo_import;

/* An operation that is lowered. */
typedef struct hr__hlo {
  hr__hlo_import *import;
  hr_graph *graph;
  const hr__vhlo_op *op;
  hr_functional function; /* of the row */
  bool checks_types;      /* results have the file's types */
  bool widens; /* floats of 8 bits, which are stored alone, are f32 in operands and results, quantized elements numbers
                */
} hr__hlo;

/* ---- operations ---- */

typedef struct hr__hlo_row {
  const char *name; /* without the version */
  void (*lower)(hr__hlo *hlo);
  hr_functional function;
} hr__hlo_row;

/* The row of a name; NULL: there is none. */
const hr__hlo_row *hr__hlo_find(const char *name, size_t length);

#define HR_HLO(name, lower, FUNCTION) void hr__hlo_lower_##lower(hr__hlo *hlo);
#include "importers/stablehlo/operations.def"
#undef HR_HLO
#define HR_HLO_NAMED(name, lower, FUNCTION) void hr__hlo_lower_##lower(hr__hlo *hlo);
#include "importers/stablehlo/names.def"
#undef HR_HLO_NAMED

/* ---- an operation's operands, results and attributes ---- */

/* 0 after a failure; also, of tokens, without one. */
hr_value hr__hlo_input(hr__hlo *hlo, int index);
/* Types in the file; zeroed if there is no such one. */
hr__vhlo_type hr__hlo_input_type(const hr__hlo *hlo, int index);
hr__vhlo_type hr__hlo_result_type(const hr__hlo *hlo, int index);
/* False, with a failure, for other numbers of operands, results and regions. -1: any. */
bool hr__hlo_expect(hr__hlo *hlo, int operands, int results, int regions);
void hr__hlo_set(hr__hlo *hlo, int index, hr_value value);

/* An attribute; INVALID_ARGUMENT if it has another kind. `otherwise` if it is missing. */
int64_t hr__hlo_int(hr__hlo *hlo, const char *name, int64_t otherwise);
/* Integers in place, at most HR__VHLO_PLACES_MAX; their number, -1: it is missing. */
int hr__hlo_ints(hr__hlo *hlo, const char *name, int64_t *out_numbers);
/* As many integers as `count`; each is `otherwise` if it is missing. False after a failure. */
bool hr__hlo_int_list(hr__hlo *hlo, const char *name, int count, int64_t otherwise, int64_t *out_numbers);
/* The same for dims in 0 .. rank - 1, each once. Their number; -1 after a failure. */
int hr__hlo_axes(hr__hlo *hlo, const char *name, int rank, int64_t *out_axes);
const char *hr__hlo_text(hr__hlo *hlo, const char *name);
/* A number, a flag or a letter of the configuration of a custom call or a composite: in its own attribute, or in one
 * that JAX adds. False if there is none. */
bool hr__hlo_setting(const hr__hlo *hlo, const char *name, int64_t *out);
/* The integers of an operand that is a constant; false, with a failure, if it is none, or has another number of them
 * (hlo_constant.c). */
bool hr__hlo_constant_ints(hr__hlo *hlo, int index, int count, int64_t *out_numbers);
/* True if all dims of result 0 have numbers; else a failure. */
bool hr__hlo_has_sizes(hr__hlo *hlo);

hr_value hr__hlo_fail(hr__hlo *hlo, hr_status_code code, const char *format, ...) HR_PRINTF(3, 4);
#define HR__HLO_REFUSE(hlo, ...) hr__hlo_fail(hlo, HR_STATUS_UNIMPLEMENTED, __VA_ARGS__)
#define HR__HLO_WRONG(hlo, ...) hr__hlo_fail(hlo, HR_STATUS_INVALID_ARGUMENT, __VA_ARGS__)
/* Keeps a failure that is not the graph's own, such as one of an inner graph, in place of any other. */
void hr__hlo_fail_with(hr__hlo *hlo, hr_status status);
bool hr__hlo_failed(const hr__hlo *hlo);
/* False for no value, which is what a failure leaves. */
bool hr__hlo_type(const hr__hlo *hlo, hr_value value, hr_type *out_type);

/* ---- adding functions ---- */

#define ADD(hlo, NAME, ...) hr_graph_add((hlo)->graph, HR_FUNCTIONAL_##NAME, __VA_ARGS__)
/* A function without attributes. */
#define PLAIN 0, NULL
#define CALL(hlo, NAME, ...) hr_graph_add((hlo)->graph, HR_FUNCTIONAL_##NAME, IN(__VA_ARGS__), PLAIN)

hr_value hr__hlo_number(hr__hlo *hlo, double number);
hr_value hr__hlo_whole(hr__hlo *hlo, int64_t number);
hr_value hr__hlo_cast(const hr__hlo *hlo, hr_value x, hr_dtype dtype);
hr_value hr__hlo_reshape(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims);
hr_value hr__hlo_permute(hr__hlo *hlo, hr_value x, int rank, const int64_t *axes);
hr_value hr__hlo_broadcast(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims);
/* Operand 0 with its dims in another order, if it is a dot_general that nothing else reads, and its operands' free dims
 * change places: the product of the operands in the other order, which needs no copy. 0: it is none
 * (hlo_products.c). */
hr_value hr__hlo_swapped_product(const hr__hlo *hlo, int rank, const int64_t *axes);
/* Elements around x and between its neighbours: `value`, or 0 of value 0. dims: those of x (hlo_shapes.c). */
hr_value hr__hlo_pad(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims, const int64_t *before,
                     const int64_t *after, const int64_t *interior, hr_value value);
/* A number everywhere. */
hr_value hr__hlo_full(hr__hlo *hlo, hr_scalar number, hr_dtype dtype, int rank, const int64_t *dims);
/* True if an operand is known to be zeros (-0 is none). */
bool hr__hlo_is_zero(hr__hlo *hlo, int index);
/* The number that a value is everywhere, if it is known. */
bool hr__hlo_number_of(const hr__hlo *hlo, const hr__vhlo_value *value, hr_scalar *out_number);
/* The bits of x's elements as elements of a dtype, and an integer of these bits without dims (hlo_bits.c). */
hr_value hr__hlo_bitcast(hr__hlo *hlo, hr_value x, hr_dtype dtype);
hr_value hr__hlo_bits(hr__hlo *hlo, hr_dtype dtype, uint64_t bits);
/* 2 or 4 for integers of so many bits, else 0; x with the bits above them cleared, or as those of the sign. */
int hr__hlo_narrow(const hr__vhlo_type *type);
hr_value hr__hlo_low_bits(hr__hlo *hlo, hr_value x, hr_dtype dtype, int bits);
hr_value hr__hlo_wrapped(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type);
/* Quantized elements, which are integers here, as the numbers they stand for, and numbers as such (hlo_quantized.c). */
bool hr__hlo_is_quantized(const hr__vhlo_type *type);
hr_value hr__hlo_dequantized(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type);
hr_value hr__hlo_quantized(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type);
/* False, with a failure, for quantized elements in regions, and of programs over several devices. */
bool hr__hlo_may_quantize(hr__hlo *hlo);
/* x in one of the floats of 8 bits, as XLA rounds. */
hr_value hr__hlo_to_float8(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to);
/* x converted as XLA does it (hlo_elementwise.c). */
hr_value hr__hlo_convert(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to);
/* Integers in the total order of floats (hlo_elementwise.c). */
hr_value hr__hlo_order_of(hr__hlo *hlo, hr_value x, hr_dtype dtype);
/* A constant of a tensor attribute (hlo_constant.c). */
hr_value hr__hlo_constant(hr__hlo *hlo, int attribute);

/* ---- matrices (hlo_linear.c) ---- */

/* NaN, of complex numbers in both parts, without dims. */
hr_value hr__hlo_nan(hr__hlo *hlo, hr_dtype dtype);
/* A triangular system. */
typedef struct hr__hlo_triangle {
  bool is_upper, has_ones, is_left;
  int transposition; /* 0: none, 1: transposed, 2: the adjoint */
} hr__hlo_triangle;
hr_value hr__hlo_triangular(hr__hlo *hlo, hr_value a, hr_value b, hr_dtype dtype, const hr__hlo_triangle *t);

/* ---- regions ---- */

/* Adds a region's operations to the graph, for these arguments; sets as many results as its return has, at most
 * `room`. Their number; -1 after a failure. Types of arguments are the caller's to check: those of the file may be of
 * one element each, of which the arguments have many. */
int hr__hlo_inline(hr__hlo *hlo, const hr__vhlo_region *region, int argument_count, const hr_value *arguments, int room,
                   hr_value *out_results, bool checks_types);
/* The same with the operation's operands and results. */
void hr__hlo_return(hr__hlo *hlo, const hr__vhlo_region *region);
/* The same with the first operands alone. */
void hr__hlo_return_of(hr__hlo *hlo, const hr__vhlo_region *region, int operand_count);
/* The same with the function that an attribute names. */
void hr__hlo_call(hr__hlo *hlo, const char *attribute);
/* How a region combines pairs of elements. */
typedef enum hr__hlo_combiner {
  HR__HLO_OTHER = 0,
  HR__HLO_SECOND, /* the second one stays */
  HR__HLO_ADD,
  HR__HLO_MULTIPLY,
  HR__HLO_MAX,
  HR__HLO_MIN,
  HR__HLO_AND, /* of flags */
  HR__HLO_OR,
  HR__HLO_COMBINERS
} hr__hlo_combiner;

/* That of result `index` of a region with as many pairs of arguments as results: all first ones, then all second ones
 * (hlo_regions.c). Of flags AND and OR are all that there is. */
hr__hlo_combiner hr__hlo_combiner_of(const hr__hlo *hlo, const hr__vhlo_region *region, int index);
/* Both combined by a combiner that is not OTHER. */
hr_value hr__hlo_combine(hr__hlo *hlo, hr__hlo_combiner combiner, hr_value x, hr_value y);
/* `count` pairs of tensors combined by a region; results have the dims that x's and y's have together. False after a
 * failure. */
bool hr__hlo_combine_all(hr__hlo *hlo, const hr__vhlo_region *region, int count, const hr_value *x, const hr_value *y,
                         hr_value *out);
/* The expression of a region's value, as in "select(gt(a0,a1),a0,a1)": equal texts are equal values. Arguments have
 * their numbers by `stride`, and out_sides gets a bit for each remainder: with stride 2 those of a sort's pairs. False:
 * it is too long. */
bool hr__hlo_spell(const hr__hlo *hlo, const hr__vhlo_region *region, const hr__vhlo_value *value, int stride,
                   hr_text *text, unsigned *out_sides);
/* The region's return; NULL: it has none. */
const hr__vhlo_op *hr__hlo_return_op(const hr__vhlo_region *region);
/* Lowers all operations of a region in the import's graph; *out_return is its last one. */
HR_MUST_USE hr_status hr__hlo_run(hr__hlo_import *import, const hr__vhlo_region *region, bool checks_types,
                                  const hr__vhlo_op **out_return);
bool hr__hlo_is_return(const hr__vhlo_op *op);

/* ---- functions of the host (hlo_host.c) ---- */

/* True if a region runs a function that has an effect beside its results. */
bool hr__hlo_has_effects(const hr__hlo_import *import, const hr__vhlo_region *region);
/* The value by which the next effect comes after all former ones. */
hr_value hr__hlo_effect(hr__hlo_import *import);
/* Lowers a custom call that the importer has no row for. */
void hr__hlo_lower_host(hr__hlo *hlo, const char *name);
/* True if there is a row of the name (names.def). */
bool hr__hlo_is_named(const char *name);

/* ---- folds: elements along dims combined in their order ---- */

enum { HR__HLO_OPERANDS_MAX = 64 };

/* `count` pairs of tensors become one of each: x's elements stand before y's. False after a failure. */
typedef struct hr__hlo_folder {
  bool (*combine)(hr__hlo *hlo, const struct hr__hlo_folder *folder, const hr_value *x, const hr_value *y,
                  hr_value *out);
  const hr__vhlo_region *region;
  int count;
} hr__hlo_folder;

/* One that combines by a region. */
hr__hlo_folder hr__hlo_folder_of(const hr__vhlo_region *region, int count);
/* `count` elements of a dim from `begin` on. dims: those of x. */
hr_value hr__hlo_part(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims, int axis, int64_t begin, int64_t count,
                      int64_t step);
/* The elements along an axis, at least one, as one; in place. */
void hr__hlo_fold(hr__hlo *hlo, const hr__hlo_folder *folder, hr_value *values, int rank, int64_t *dims, int axis);
/* The same of each window of `size` elements, `dilation` apart, whose firsts are `stride` apart; in place. */
void hr__hlo_fold_windows(hr__hlo *hlo, const hr__hlo_folder *folder, hr_value *values, int rank, int64_t *dims,
                          int axis, int64_t size, int64_t stride, int64_t dilation);
/* True if a number as the first one leaves what it is combined with. */
bool hr__hlo_is_identity(hr__hlo_combiner combiner, hr_dtype dtype, const hr_scalar *number);
/* Operand `index`, a value to begin with, combined with a result of known region, unless that changes nothing. */
hr_value hr__hlo_begin_with(hr__hlo *hlo, hr__hlo_combiner combiner, int index, hr_dtype dtype, hr_value x);

/* x[at] of flat tensors with a region's results for it and `updates`, for each element of `at`, which is flat, one
 * after the other; negative ones write nothing. In place (hlo_updates.c). */
void hr__hlo_update(hr__hlo *hlo, const hr__vhlo_region *region, int count, hr_value *x, int64_t size, hr_value at,
                    int64_t places, const hr_value *updates);

/* ---- several devices (hlo_devices.c) ---- */

int hr__hlo_device_count(const hr__hlo_import *import);
int hr__hlo_device(const hr__hlo_import *import);
/* Devices that take part in an operation, and the place of this one. */
typedef struct hr__hlo_group {
  int count, place;
  int devices[HR__HLO_DEVICES_MAX];
} hr__hlo_group;
/* A tensor of each device of a group along a new first dim, and the one at a place of these. */
hr_value hr__hlo_gather(hr__hlo *hlo, const hr__hlo_group *group, hr_value x);
hr_value hr__hlo_gathered(hr__hlo *hlo, hr_value all, int place);
/* One of `count` equal parts of x along an axis, and the parts joined. */
hr_value hr__hlo_share(hr__hlo *hlo, hr_value x, int axis, int count, int index);
hr_value hr__hlo_join(hr__hlo *hlo, int count, const hr_value *parts, int axis);

/* ---- shards (hlo_shards.c) ---- */

/* A value as a whole tensor. */
hr_value hr__hlo_value(const hr__hlo *hlo, hr__vhlo_value *value);
/* This device's shard of a value; and sets it as all that there is of one. */
hr_value hr__hlo_local(hr__hlo *hlo, hr__vhlo_value *value, const hr__vhlo_sharding *s);
void hr__hlo_set_shard(hr__hlo_import *import, hr__vhlo_value *value, hr_value local, const hr__vhlo_sharding *s);
/* A constraint of main to shards that are the terms of a sum; false for others. */
bool hr__hlo_lower_terms(hr__hlo *hlo);
/* A result that is the operand with its number. */
void hr__hlo_set_same(hr__hlo *hlo, int index);
/* sdy.manual_computation over several devices. */
void hr__hlo_lower_manual(hr__hlo *hlo);
/* The attributes of all arguments ("arg_attrs") or results ("res_attrs") of main; -1: none. The caller frees them;
 * NULL: no memory. */
int *hr__hlo_dictionaries(const hr__vhlo_module *module, const hr__vhlo_op *function, const char *list, int count);
/* The sharding among the attributes of one; false: it has none. */
bool hr__hlo_main_sharding(const hr__vhlo_module *module, int dictionary, hr__vhlo_sharding *out);
/* The layout of an input or output of main (hlo_layouts.c). inputs: those of all inputs. */
HR_MUST_USE hr_status hr__hlo_input_layout(const hr__vhlo_module *module, int dictionary, const hr__vhlo_value *input,
                                           hr_stablehlo_layout *out);
HR_MUST_USE hr_status hr__hlo_output_layout(const hr__vhlo_module *module, const hr__vhlo_region *main,
                                            const hr_stablehlo_layout *inputs, int dictionary,
                                            const hr__vhlo_value *output, hr_stablehlo_layout *out);
/* The sharding of a result; if the program leaves it open, one of a tensor of the same dims that it is computed from.
 */
bool hr__hlo_result_sharding(const hr__vhlo_module *module, const hr__vhlo_op *function, const int *arguments,
                             int dictionary, const hr__vhlo_value *value, hr__vhlo_sharding *out);
/* The type of a shard. */
HR_MUST_USE hr_status hr__hlo_shard_type(const hr__vhlo_sharding *s, hr_type *type);

/* ---- functions ---- */

/* Function main, or the only one. `functions`, if not NULL, gets all of them, by the numbers of their names. */
HR_MUST_USE hr_status hr__hlo_find_main(const hr__vhlo_module *module, hr__vhlo_op **functions, hr__vhlo_op **out_main);

#endif
