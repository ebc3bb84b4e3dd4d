/* hlo_shards.c: programs over several devices, as the program of one of them.
 *
 * Inputs, outputs and the operands of manual computations are shards. All other operations work on whole tensors, which
 * each device has: a shard is gathered when something else than a manual computation with the same sharding reads it.
 * So a program without manual computations computes the same on all devices.
 *
 * Shards may be the terms of a sum (unreduced axes): the tensor is their sum in the order of the devices, so that all
 * devices have the same bits. Of a whole tensor the first device has all, and the others have zeros. In loops and
 * branches tensors stay whole, so that these need no gathers.
 */
#include "base/allocator.h"
#include "graph/graph_node.h"
#include "importers/stablehlo/hlo.h"

struct hr__hlo_shards {
  const hr_graph *graph;
  hr_value local; /* of this device */
  hr__vhlo_sharding sharding;
};

static bool is_divided(const hr__vhlo_sharding *s) {
  for (int i = 0; i < s->split_count; ++i) {
    if (s->splits[i].size > 1) {
      return true;
    }
  }
  return false;
}

static bool is_same(const hr__vhlo_sharding *x, const hr__vhlo_sharding *y) {
  const hr__vhlo_mesh *a = &x->mesh, *b = &y->mesh;
  return x->split_count == y->split_count && a->axis_count == b->axis_count && a->device_count == b->device_count &&
         memcmp(x->splits, y->splits, (size_t)x->split_count * sizeof *x->splits) == 0 &&
         memcmp(a->sizes, b->sizes, (size_t)a->axis_count * sizeof *a->sizes) == 0 &&
         memcmp(a->devices, b->devices, (size_t)a->device_count * sizeof *a->devices) == 0;
}

void hr__hlo_set_shard(hr__hlo_import *import, hr__vhlo_value *value, hr_value local, const hr__vhlo_sharding *s) {
  hr__hlo_shards *shards = hr__vhlo_array(&import->module, 1, sizeof *shards);
  if (shards == NULL) {
    hr__graph_fail(import->graph, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for shards"));
    return;
  }
  *shards = (hr__hlo_shards){import->graph, local, *s};
  value->value = 0, value->shards = shards;
}

/* ---- whole tensors ---- */

/* The device whose shard is at these places, with this one's places on the axes that divide nothing. */
static int find_device(const hr__hlo *hlo, const hr__vhlo_sharding *s, const int *at, int term) {
  for (int i = 0; i < s->mesh.device_count; ++i) {
    int device = s->mesh.devices[i];
    bool is_there = hr__vhlo_is_replica(s, hr__hlo_device(hlo->import), device) &&
                    hr__vhlo_shard(s, device, HR__VHLO_TERMS) == term;
    for (int d = 0; d < s->rank && is_there; ++d) {
      is_there = hr__vhlo_shard(s, device, d) == at[d];
    }
    if (is_there) {
      return device;
    }
  }
  return -1;
}

static hr_value term_of(hr__hlo *hlo, const hr__vhlo_sharding *s, hr_value all, const int *at, int term) {
  int device = find_device(hlo, s, at, term);
  return device >= 0 && device < hr__hlo_device_count(hlo->import)
             ? hr__hlo_gathered(hlo, all, device)
             : HR__HLO_WRONG(hlo, "a mesh of other devices than the program's");
}

static hr_value sum_terms(hr__hlo *hlo, const hr__vhlo_sharding *s, hr_value all, const int *at) {
  hr_value sum = term_of(hlo, s, all, at, 0);
  for (int term = 1; term < hr__vhlo_shards(s, HR__VHLO_TERMS) && !hr__hlo_failed(hlo); ++term) {
    sum = CALL(hlo, ADD, sum, term_of(hlo, s, all, at, term));
  }
  return sum;
}

static hr_value join(hr__hlo *hlo, const hr__vhlo_sharding *s, hr_value all, int dim, int *at) {
  hr_value parts[HR__HLO_DEVICES_MAX];
  if (dim == s->rank) {
    return sum_terms(hlo, s, all, at);
  }
  int count = hr__vhlo_shards(s, dim);
  for (at[dim] = 0; at[dim] < count && !hr__hlo_failed(hlo); ++at[dim]) {
    parts[at[dim]] = join(hlo, s, all, dim + 1, at);
  }
  return hr__hlo_failed(hlo) ? 0 : hr__hlo_join(hlo, count, parts, dim);
}

static hr_value whole_of(hr__hlo *hlo, hr_value local, const hr__vhlo_sharding *s) {
  hr__hlo_group group = {.count = hr__hlo_device_count(hlo->import), .place = hr__hlo_device(hlo->import)};
  int at[HR_RANK_MAX] = {0};
  if (!is_divided(s)) {
    return local;
  }
  for (int i = 0; i < group.count; ++i) {
    group.devices[i] = i;
  }
  return join(hlo, s, hr__hlo_gather(hlo, &group, local), 0, at);
}

static hr_value shard_of(hr__hlo *hlo, hr_value whole, const hr__vhlo_sharding *s) {
  for (int d = 0; d < s->rank; ++d) {
    int count = hr__vhlo_shards(s, d);
    if (count > 1) {
      whole = hr__hlo_share(hlo, whole, d, count, hr__vhlo_shard(s, hr__hlo_device(hlo->import), d));
    }
  }
  hr_type type;
  bool is_first = hr__vhlo_shard(s, hr__hlo_device(hlo->import), HR__VHLO_TERMS) == 0;
  if (is_first || hr__hlo_failed(hlo) || !hr__hlo_type(hlo, whole, &type)) {
    return whole;
  }
  return hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, type.rank, type.dims);
}

hr_value hr__hlo_value(const hr__hlo *hlo, hr__vhlo_value *value) {
  const hr__hlo_shards *shards = value->shards;
  if (value->value == 0 && shards != NULL && shards->graph == hlo->graph) {
    value->value = whole_of((hr__hlo *)(uintptr_t)hlo, shards->local, &shards->sharding);
  }
  return value->value;
}

void hr__hlo_set_same(hr__hlo *hlo, int index) {
  hr__vhlo_value *from = hlo->op->operands[index], *to = &hlo->op->results[index];
  to->value = from->value, to->shards = from->shards;
}

hr_value hr__hlo_local(hr__hlo *hlo, hr__vhlo_value *value, const hr__vhlo_sharding *s) {
  const hr__hlo_shards *shards = value->shards;
  bool is_there = shards != NULL && shards->graph == hlo->graph && is_same(&shards->sharding, s);
  return is_there ? shards->local : shard_of(hlo, hr__hlo_value(hlo, value), s);
}

bool hr__hlo_lower_terms(hr__hlo *hlo) {
  hr__vhlo_sharding s;
  if (hlo->graph != hlo->import->main || !hr__vhlo_constraint(&hlo->import->module, hlo->op, &s) ||
      hr__vhlo_shards(&s, HR__VHLO_TERMS) < 2) {
    return false;
  }
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set_shard(hlo->import, &hlo->op->results[0], hr__hlo_local(hlo, hlo->op->operands[0], &s), &s);
  }
  return true;
}

/* ---- manual computations ---- */

/* Of the axes that are the computation's own: along others its tensors are whole. */
static bool find_sharding(const hr__vhlo_module *module, const hr__vhlo_op *op, bool is_result, int index,
                          hr__vhlo_sharding *out) {
  int kept = 0;
  if (!hr__vhlo_sharding_at(module, op, is_result, index, out)) {
    return false;
  }
  for (int i = 0; i < out->split_count; ++i) {
    if (hr__vhlo_is_manual(module, op, out->mesh.names[out->splits[i].axis])) {
      out->splits[kept++] = out->splits[i];
    }
  }
  out->split_count = kept;
  return true;
}

void hr__hlo_lower_manual(hr__hlo *hlo) {
  const hr__vhlo_op *op = hlo->op;
  hr_value *values =
      hr__vhlo_array(&hlo->import->module, (size_t)(op->operand_count + op->result_count) + 1, sizeof *values);
  hr__vhlo_sharding s;
  if (values == NULL) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for shards");
    return;
  }
  for (int i = 0; i < op->operand_count; ++i) {
    if (!find_sharding(&hlo->import->module, op, false, i, &s)) {
      HR__HLO_REFUSE(hlo, "operand %d has a sharding that is not supported", i);
      return;
    }
    values[i] = hr__hlo_local(hlo, op->operands[i], &s);
  }
  hr_value *results = values + op->operand_count;
  int count =
      hr__hlo_inline(hlo, &op->regions[0], op->operand_count, values, op->result_count, results, hlo->checks_types);
  for (int i = 0; i < op->result_count && count == op->result_count; ++i) {
    if (!find_sharding(&hlo->import->module, op, true, i, &s)) {
      HR__HLO_REFUSE(hlo, "result %d has a sharding that is not supported", i);
      return;
    }
    hr__hlo_set_shard(hlo->import, &op->results[i], results[i], &s);
  }
}

/* ---- main ---- */

int *hr__hlo_dictionaries(const hr__vhlo_module *module, const hr__vhlo_op *function, const char *list, int count) {
  int *dictionaries = hr_calloc((size_t)count + 1, sizeof *dictionaries);
  int found =
      dictionaries != NULL ? hr__vhlo_list(module, hr__vhlo_find(module, function, list), count, dictionaries) : 0;
  for (int i = found < 0 ? 0 : found; dictionaries != NULL && i < count; ++i) {
    dictionaries[i] = -1;
  }
  return dictionaries;
}

bool hr__hlo_main_sharding(const hr__vhlo_module *module, int dictionary, hr__vhlo_sharding *out) {
  return hr__vhlo_sharding_of(module, hr__vhlo_dictionary(module, dictionary, "sdy.sharding"), out);
}

/* The first sharding of a tensor of the same dims that a value is computed from. */
typedef struct search {
  const hr__vhlo_module *module;
  const hr__vhlo_region *main;
  const int *arguments; /* dictionaries */
  int steps_left;
} search;

static bool has_dims_of(const hr__vhlo_module *module, const hr__vhlo_value *x, const hr__vhlo_value *y) {
  hr__vhlo_type a, b;
  return hr__vhlo_type_of(module, x->type, &a) && hr__vhlo_type_of(module, y->type, &b) && a.rank == b.rank &&
         a.rank > 0 && memcmp(a.dims, b.dims, (size_t)a.rank * sizeof *a.dims) == 0;
}

static bool find_origin(search *s, const hr__vhlo_value *value, hr__vhlo_sharding *out) {
  const hr__vhlo_op *op = value->op;
  ptrdiff_t argument = value - s->main->arguments;
  if (--s->steps_left < 0) {
    return false;
  }
  if (op == NULL) {
    bool is_input = argument >= 0 && argument < s->main->argument_count;
    return is_input && hr__hlo_main_sharding(s->module, s->arguments[argument], out);
  }
  if (strcmp(op->name->dialect, "sdy") == 0 && strcmp(op->name->name, "manual_computation") == 0) {
    return find_sharding(s->module, op, true, (int)(value - op->results), out);
  }
  if (hr__vhlo_constraint(s->module, op, out)) {
    return true;
  }
  if (strcmp(op->name->dialect, "builtin") == 0 && op->operand_count == op->result_count) {
    return find_origin(s, op->operands[value - op->results], out); /* a cast between the dialects' types */
  }
  for (int i = 0; i < op->operand_count; ++i) {
    if (has_dims_of(s->module, op->operands[i], value) && find_origin(s, op->operands[i], out)) {
      return true;
    }
  }
  return false;
}

bool hr__hlo_result_sharding(const hr__vhlo_module *module, const hr__vhlo_op *function, const int *arguments,
                             int dictionary, const hr__vhlo_value *value, hr__vhlo_sharding *out) {
  enum { STEPS = 256 };
  search s = {module, &function->regions[0], arguments, STEPS};
  if (hr__hlo_main_sharding(module, dictionary, out)) {
    return true;
  }
  return find_origin(&s, value, out);
}

hr_status hr__hlo_shard_type(const hr__vhlo_sharding *s, hr_type *type) {
  for (int d = 0; d < s->rank && d < type->rank; ++d) {
    int count = hr__vhlo_shards(s, d);
    if (type->dims[d] % count != 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "dim %d of %lld in %d shards of different sizes", d,
                            (long long)type->dims[d], count);
    }
    type->dims[d] /= count;
  }
  return HR_OK;
}
