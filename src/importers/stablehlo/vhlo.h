/* vhlo.h: a StableHLO portable artifact: MLIR bytecode of versions 0 to 6 with VHLO's operations, types and attributes.
 *
 * A module borrows from the file's bytes, which outlive it. Reading checks all numbers of strings, types, attributes
 * and values, and all sizes; whether an attribute is of the right kind is checked when it is read. Memory is at most
 * HR__VHLO_BYTES_MAX and the size of the file. Types and attributes of other dialects are skipped.
 *
 * Values of a region that is not isolated get their numbers behind those reserved by the regions around it.
 *
 * Threads: one at a time.
 */
#ifndef HEADRACE_IMPORTERS_STABLEHLO_VHLO_H_
#define HEADRACE_IMPORTERS_STABLEHLO_VHLO_H_

#include "base/arena.h"
#include "base/text.h"
#include "headrace/graph.h"
#include "importers/stablehlo/bytecode.h"

enum {
  HR__VHLO_BYTES_MAX = 40 << 20,
  HR__VHLO_DEPTH_MAX = 64,      /* of regions, types, attributes and locations in each other */
  HR__VHLO_ITEMS_MAX = 1 << 20, /* strings, types, attributes, operations, values: of each */
  HR__VHLO_PLACES_MAX = 64      /* integers of an attribute that is read */
};

/* Codes of types in the file. */
typedef enum hr__vhlo_code {
  HR__VHLO_BOOL = 0,
  HR__VHLO_COMPLEX = 1,
  HR__VHLO_FUNCTION = 8,
  HR__VHLO_INDEX = 9,
  HR__VHLO_SI4 = 10,
  HR__VHLO_UI4 = 15,
  HR__VHLO_UI8 = 16,
  HR__VHLO_TENSOR = 20,
  HR__VHLO_TENSOR_ENCODED = 21,
  HR__VHLO_TOKEN = 22,
  HR__VHLO_TUPLE = 23,
  HR__VHLO_QUANTIZED = 24,
  HR__VHLO_QUANTIZED_AXIS = 30,
  HR__VHLO_SI2 = 31,
  HR__VHLO_UI2 = 32,
  HR__VHLO_FUTURE = 42
} hr__vhlo_code;

/* A type: that of a tensor, a token, or an element alone (rank 0). */
typedef struct hr__vhlo_type {
  bool is_token;
  int code;       /* of an element */
  int element;    /* the number of the element's type */
  hr_dtype dtype; /* of an element; NONE: it has none. Those of 2 and 4 bits have one of 8 bits, and quantized numbers
                   * that of the integers which stand for them */
  int rank;
  int64_t dims[HR_RANK_MAX]; /* -1: not known */
} hr__vhlo_type;

typedef struct hr__vhlo_name {
  const char *dialect, *name; /* "vhlo", "add_v1" */
  const char *properties;     /* NULL: none (vhlo.def) */
} hr__vhlo_name;

typedef struct hr__vhlo_entry {
  hr__span bytes;
  const char *dialect;
  bool is_custom;        /* else text */
  hr_value value;        /* of a constant's elements in `graph` */
  const hr_graph *graph; /* NULL: none */
} hr__vhlo_entry;

typedef struct hr__vhlo_op hr__vhlo_op;

typedef struct hr__vhlo_value {
  int type;                            /* its number */
  int region;                          /* the number of the region that has it */
  const hr__vhlo_op *op;               /* that has it as its result; NULL: an argument */
  int use_count;                       /* operands that it is */
  hr_value value;                      /* in the graph to which its region is lowered now; 0: none */
  const struct hr__hlo_shards *shards; /* NULL, or what there is in place of `value` (hlo_shards.c) */
} hr__vhlo_value;

/* A region of at most one block. Regions inside have the numbers from `number` + 1 to `end` - 1. */
typedef struct hr__vhlo_region {
  int number, end;
  int argument_count, op_count;
  hr__vhlo_value *arguments;
  hr__vhlo_op *ops;
} hr__vhlo_region;

struct hr__vhlo_op {
  const hr__vhlo_name *name;
  int location, dictionary; /* attributes; dictionary -1: none */
  int operand_count, result_count, region_count;
  hr__span properties;
  hr__vhlo_value **operands, *results;
  hr__vhlo_region *regions;
  bool is_open; /* a function that is being lowered */
  enum { HR__VHLO_EFFECTS_UNKNOWN, HR__VHLO_NO_EFFECTS, HR__VHLO_HAS_EFFECTS } effects; /* of a function */
};

typedef struct hr__vhlo_module {
  hr_arena arena;
  size_t room; /* bytes that the arena may still get */
  int version;
  const char *producer;
  int string_count, dialect_count, name_count, attribute_count, type_count, property_count;
  const char **strings;
  size_t *lengths; /* of strings, without the zero at the end */
  const char **dialects;
  hr__vhlo_name *names;
  hr__vhlo_entry *attributes, *types;
  hr__span *properties;
  int op_count, value_count, region_count;
  hr__vhlo_region top;
} hr__vhlo_module;

/* True for the first bytes of such a file. */
bool hr__vhlo_is_file(hr__span bytes);
/* Reads a module. DATA_LOSS, UNIMPLEMENTED or RESOURCE_EXHAUSTED on failure. Call hr__vhlo_fini in any case. */
HR_MUST_USE hr_status hr__vhlo_read(hr__span bytes, hr__vhlo_module *out_module);
void hr__vhlo_fini(hr__vhlo_module *module);
/* A zeroed array of the module, or NULL. */
void *hr__vhlo_array(hr__vhlo_module *module, size_t count, size_t size);
/* Reads the module's operations (vhlo_operations.c). */
HR_MUST_USE hr_status hr__vhlo_read_operations(hr__vhlo_module *module, hr__span section);

/* ---- types and attributes; numbers may be out of range, and then nothing is found ---- */

bool hr__vhlo_type_of(const hr__vhlo_module *module, int type, hr__vhlo_type *out_type);

/* Integers that stand for numbers: (integer - zero) * scale. There is one scale and one zero, or `count` along a dim.
 */
typedef struct hr__vhlo_quantization {
  hr_dtype stored, expressed; /* of the integer, and of the number */
  int axis, count;            /* axis -1: none */
  int64_t min, max;           /* of the integer */
  hr__reader scales, zeros;   /* hr__vhlo_scale and hr__read_signed read one each */
} hr__vhlo_quantization;
/* False for other types. */
bool hr__vhlo_quantization_of(const hr__vhlo_module *module, int type, hr__vhlo_quantization *out);
double hr__vhlo_scale(hr__reader *scales);
/* The name of an element type without a dtype, as of its code: "f8E3M4", "quantized", ...; "unknown" for others. */
const char *hr__vhlo_type_name(int code);
/* The attribute of a name; -1: there is none. */
int hr__vhlo_find(const hr__vhlo_module *module, const hr__vhlo_op *op, const char *name);
/* The attribute of a name in a dictionary; -1: there is none. */
int hr__vhlo_dictionary(const hr__vhlo_module *module, int dictionary, const char *name);
/* An integer, a flag or the number of an enumerator. */
bool hr__vhlo_int(const hr__vhlo_module *module, int attribute, int64_t *out_number);
bool hr__vhlo_real(const hr__vhlo_module *module, int attribute, double *out_number);
/* A text, without zeros inside; NULL: it is none. */
const char *hr__vhlo_text(const hr__vhlo_module *module, int attribute);
/* The number of a text among the module's strings; -1: it is none. */
int hr__vhlo_string(const hr__vhlo_module *module, int attribute);
/* The attributes of an array: their number, of which `room` are set; -1: it is no array. */
int hr__vhlo_list(const hr__vhlo_module *module, int attribute, int room, int *out_attributes);
/* The integers of an array or a tensor, at most PLACES_MAX; -1: it is none, or has more. */
int hr__vhlo_ints(const hr__vhlo_module *module, int attribute, int64_t *out_numbers);
/* A tensor's type and bytes: of all elements, or of one for all. */
bool hr__vhlo_tensor(const hr__vhlo_module *module, int attribute, hr__vhlo_type *out_type, hr__span *out_bytes);
/* Appends "name" (file.py:12:3), or as much of it as the file has. */
void hr__vhlo_locate(const hr__vhlo_module *module, int location, hr_text *text);

/* ---- shardings (vhlo_sharding.c) ---- */

enum { HR__VHLO_AXES_MAX = 32, HR__VHLO_DEVICES_MAX = 64 };

typedef struct hr__vhlo_mesh {
  int axis_count, device_count;
  const char *names[HR__VHLO_AXES_MAX];
  int sizes[HR__VHLO_AXES_MAX];
  int devices[HR__VHLO_DEVICES_MAX]; /* by place, row-major */
} hr__vhlo_mesh;

/* The place of a dim in a split along which shards are the terms of a sum. */
enum { HR__VHLO_TERMS = -1 };

/* A dim that an axis divides, or a part of one: `size` places behind `before` major ones. */
typedef struct hr__vhlo_split {
  int dim, axis, before, size;
} hr__vhlo_split;

typedef struct hr__vhlo_sharding {
  hr__vhlo_mesh mesh;
  int rank, split_count;
  hr__vhlo_split splits[HR__VHLO_AXES_MAX]; /* of each dim, major first, then of terms */
} hr__vhlo_sharding;

/* Reads an attribute that is a sharding; false for others. */
bool hr__vhlo_sharding_of(const hr__vhlo_module *module, int attribute, hr__vhlo_sharding *out);
/* The sharding of an operand or a result of a manual computation. */
bool hr__vhlo_sharding_at(const hr__vhlo_module *module, const hr__vhlo_op *op, bool is_result, int index,
                          hr__vhlo_sharding *out);
/* The groups of a collective's devices along axes of a mesh: each has the devices that differ in the splits of dim 0
 * alone, in the order of their shards. False for other attributes. */
bool hr__vhlo_groups_of(const hr__vhlo_module *module, int attribute, hr__vhlo_sharding *out);
/* True if both devices are in one group. */
bool hr__vhlo_is_in_group(const hr__vhlo_sharding *groups, int device, int other);
/* True if a manual computation has an axis of this name as its own. */
bool hr__vhlo_is_manual(const hr__vhlo_module *module, const hr__vhlo_op *op, const char *axis);
/* The sharding that an operation has as its property; false: there is none. */
bool hr__vhlo_constraint(const hr__vhlo_module *module, const hr__vhlo_op *op, hr__vhlo_sharding *out);
/* The shards of a dim or the terms, and the one that a device has. */
int hr__vhlo_shards(const hr__vhlo_sharding *sharding, int dim);
int hr__vhlo_shard(const hr__vhlo_sharding *sharding, int device, int dim);
/* True if two devices have the same places on all axes that divide nothing. */
bool hr__vhlo_is_replica(const hr__vhlo_sharding *sharding, int device, int other);

#endif
