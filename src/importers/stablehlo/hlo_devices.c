/* hlo_devices.c: operations between the devices of a program.
 *
 * Each is made of one function of the host, which gathers a tensor of all devices of a group along a new first dim, and
 * of operations on what was gathered: sums add in the order of the group, so that all devices have the same bits. A
 * group of one device needs no function. Gathers are effects: all devices run them in the program's order.
 */
#include "base/allocator.h"
#include "importers/stablehlo/hlo.h"

int hr__hlo_device_count(const hr__hlo_import *import) {
  return import->options != NULL && import->options->device_count > 0 ? import->options->device_count : 1;
}

int hr__hlo_device(const hr__hlo_import *import) {
  return hr__hlo_device_count(import) > 1 ? import->options->device_number : 0;
}

/* ---- groups ---- */

static hr__hlo_group group_of_all(const hr__hlo *hlo) {
  hr__hlo_group group = {.count = hr__hlo_device_count(hlo->import), .place = hr__hlo_device(hlo->import)};
  for (int i = 0; i < group.count && i < HR__HLO_DEVICES_MAX; ++i) {
    group.devices[i] = i;
  }
  return group;
}

/* The row of a list of groups that has this device; false after a failure. */
static bool find_row(hr__hlo *hlo, int rows, int columns, const int64_t *numbers, hr__hlo_group *out) {
  int device = hr__hlo_device(hlo->import), count = hr__hlo_device_count(hlo->import);
  for (int r = 0; r < rows; ++r) {
    *out = (hr__hlo_group){.place = -1};
    for (int c = 0; c < columns && numbers[r * columns + c] >= 0; ++c) {
      if (numbers[r * columns + c] >= count) {
        HR__HLO_WRONG(hlo, "device %lld of %d in a group", (long long)numbers[r * columns + c], count);
        return false;
      }
      out->place = numbers[r * columns + c] == device ? out->count : out->place;
      out->devices[out->count++] = (int)numbers[r * columns + c];
    }
    if (out->place >= 0) {
      return true;
    }
  }
  HR__HLO_WRONG(hlo, "device %d is in no group", device);
  return false;
}

/* The group along axes of a mesh; false after a failure. */
static bool find_along(hr__hlo *hlo, const hr__vhlo_sharding *groups, hr__hlo_group *out) {
  int device = hr__hlo_device(hlo->import), count = hr__hlo_device_count(hlo->import), found = 0;
  *out = (hr__hlo_group){.count = hr__vhlo_shards(groups, 0), .place = hr__vhlo_shard(groups, device, 0)};
  for (int i = 0; i < count; ++i) {
    if (hr__vhlo_is_in_group(groups, device, i)) {
      out->devices[hr__vhlo_shard(groups, i, 0)] = i, ++found;
    }
  }
  if (found != out->count) {
    HR__HLO_WRONG(hlo, "%d of a group's %d devices are of the program", found, out->count);
  }
  return found == out->count;
}

/* Numbers of devices if there is a channel; else those of replicas, of which there is one. Groups of all_reduce and its
 * like have devices if use_global_device_ids is there. */
static bool find_group(hr__hlo *hlo, bool has_flag, hr__hlo_group *out) {
  int64_t numbers[HR__VHLO_PLACES_MAX];
  hr__vhlo_type type = {0};
  hr__vhlo_sharding along;
  hr__span bytes;
  const hr__vhlo_module *module = &hlo->import->module;
  int attribute = hr__vhlo_find(module, hlo->op, "replica_groups");
  if (hr__vhlo_groups_of(module, attribute, &along)) {
    return find_along(hlo, &along, out);
  }
  bool is_found = hr__vhlo_tensor(module, attribute, &type, &bytes) && type.rank == 2 &&
                  hr__vhlo_ints(module, attribute, numbers) >= 0;
  int64_t channel = hr__hlo_int(hlo, "channel_id", 0);
  if (hr__hlo_failed(hlo)) {
    return false;
  }
  bool has_devices = channel > 0 && (!has_flag || hr__hlo_int(hlo, "use_global_device_ids", 0) != 0);
  if (!is_found) {
    HR__HLO_REFUSE(hlo, "its groups are no list of devices and no axes of a mesh");
    return false;
  }
  *out = group_of_all(hlo);
  if (channel <= 0) {
    *out = (hr__hlo_group){.count = 1, .devices = {hr__hlo_device(hlo->import)}};
  } else if (has_devices && type.dims[0] > 0 && type.dims[1] > 0) {
    return find_row(hlo, (int)type.dims[0], (int)type.dims[1], numbers, out);
  }
  return true;
}

/* ---- gathers ---- */

static hr_value gather(hr__hlo *hlo, const hr__hlo_group *group, hr_value x, const hr_type *type) {
  hr_type types[2] = {*type, {.dtype = HR_DTYPE_BOOL, .rank = 1, .dims = {1}}};
  const hr_stablehlo_options *options = hlo->import->options;
  hr_function_spec spec;
  if (options->find_gather == NULL) {
    return HR__HLO_REFUSE(hlo, "devices have no way to each other");
  }
  size_t bytes = hr_dtype_size(type->dtype);
  for (int d = 1; d < type->rank; ++d) {
    bytes *= (size_t)type->dims[d];
  }
  hr_status status = options->find_gather(options->arg, group->count, group->devices, bytes, &spec);
  if (status != HR_OK) {
    hr__hlo_fail_with(hlo, status);
    return 0;
  }
  const hr_value inputs[2] = {x, hr__hlo_effect(hlo->import)};
  hr_value first = hr_graph_host(hlo->graph, &spec, 2, inputs, 2, types);
  hlo->import->effect = first != 0 ? first + 1 : 0;
  return first;
}

hr_value hr__hlo_gather(hr__hlo *hlo, const hr__hlo_group *group, hr_value x) {
  hr_type type;
  if (hr__hlo_failed(hlo) || !hr__hlo_type(hlo, x, &type) || type.rank == HR_RANK_MAX) {
    return hr__hlo_failed(hlo) ? 0 : HR__HLO_REFUSE(hlo, "a tensor of %d dims", HR_RANK_MAX);
  }
  memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof *type.dims);
  type.dims[0] = group->count, ++type.rank;
  return group->count > 1 ? gather(hlo, group, x, &type) : hr__hlo_reshape(hlo, x, type.rank, type.dims);
}

hr_value hr__hlo_gathered(hr__hlo *hlo, hr_value all, int place) {
  hr_type type;
  int64_t begin[HR_RANK_MAX] = {place}, step[HR_RANK_MAX];
  if (hr__hlo_failed(hlo) || !hr__hlo_type(hlo, all, &type)) {
    return 0;
  }
  type.dims[0] = 1;
  for (int d = 0; d < type.rank; ++d) {
    step[d] = 1;
  }
  hr_value slice = ADD(hlo, SLICE, IN(all),
                       WITH(hr__with_ints("begin", type.rank, begin), hr__with_ints("count", type.rank, type.dims),
                            hr__with_ints("step", type.rank, step)));
  return hr__hlo_reshape(hlo, slice, type.rank - 1, type.dims + 1);
}

hr_value hr__hlo_share(hr__hlo *hlo, hr_value x, int axis, int count, int index) {
  hr_type type;
  int64_t begin[HR_RANK_MAX] = {0}, step[HR_RANK_MAX];
  if (hr__hlo_failed(hlo) || !hr__hlo_type(hlo, x, &type)) {
    return 0;
  }
  if (axis < 0 || axis >= type.rank || count < 1 || type.dims[axis] % count != 0) {
    return HR__HLO_REFUSE(hlo, "dim %d of %d in %d parts", axis, type.rank, count);
  }
  type.dims[axis] /= count;
  begin[axis] = index * type.dims[axis];
  for (int d = 0; d < type.rank; ++d) {
    step[d] = 1;
  }
  return ADD(hlo, SLICE, IN(x),
             WITH(hr__with_ints("begin", type.rank, begin), hr__with_ints("count", type.rank, type.dims),
                  hr__with_ints("step", type.rank, step)));
}

hr_value hr__hlo_join(hr__hlo *hlo, int count, const hr_value *parts, int axis) {
  return count == 1 ? parts[0]
                    : hr_graph_add(hlo->graph, HR_FUNCTIONAL_CONCAT, count, parts, WITH(hr__with_int("axis", axis)));
}

/* ---- the operations ---- */

static hr_value reduce(hr__hlo *hlo, const hr__hlo_group *group, hr_value x) {
  hr_value all = hr__hlo_gather(hlo, group, x), sum = hr__hlo_gathered(hlo, all, 0);
  for (int k = 1; k < group->count && !hr__hlo_failed(hlo); ++k) {
    hr_value next = hr__hlo_gathered(hlo, all, k), combined = 0;
    sum = hr__hlo_combine_all(hlo, &hlo->op->regions[0], 1, &sum, &next, &combined) ? combined : 0;
  }
  return sum;
}

void hr__hlo_lower_all_reduce(hr__hlo *hlo) {
  hr__hlo_group group;
  if (!hr__hlo_expect(hlo, hlo->op->result_count, -1, 1) || !find_group(hlo, true, &group)) {
    return;
  }
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    hr__hlo_set(hlo, i, reduce(hlo, &group, hr__hlo_input(hlo, i)));
  }
}

void hr__hlo_lower_reduce_scatter(hr__hlo *hlo) {
  hr__hlo_group group;
  if (hr__hlo_expect(hlo, 1, 1, 1) && find_group(hlo, true, &group)) {
    int axis = (int)hr__hlo_int(hlo, "scatter_dimension", 0);
    hr__hlo_set(hlo, 0, hr__hlo_share(hlo, reduce(hlo, &group, hr__hlo_input(hlo, 0)), axis, group.count, group.place));
  }
}

void hr__hlo_lower_all_gather(hr__hlo *hlo) {
  hr__hlo_group group;
  hr_value parts[HR__HLO_DEVICES_MAX];
  if (!hr__hlo_expect(hlo, hlo->op->result_count, -1, 0) || !find_group(hlo, true, &group)) {
    return;
  }
  int axis = (int)hr__hlo_int(hlo, "all_gather_dim", 0);
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    hr_value all = hr__hlo_gather(hlo, &group, hr__hlo_input(hlo, i));
    for (int k = 0; k < group.count; ++k) {
      parts[k] = hr__hlo_gathered(hlo, all, k);
    }
    hr__hlo_set(hlo, i, hr__hlo_join(hlo, group.count, parts, axis));
  }
}

void hr__hlo_lower_all_to_all(hr__hlo *hlo) {
  hr__hlo_group group;
  hr_value parts[HR__HLO_DEVICES_MAX];
  if (!hr__hlo_expect(hlo, hlo->op->result_count, -1, 0) || !find_group(hlo, false, &group)) {
    return;
  }
  int split = (int)hr__hlo_int(hlo, "split_dimension", 0), axis = (int)hr__hlo_int(hlo, "concat_dimension", 0);
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    hr_value all = hr__hlo_gather(hlo, &group, hr__hlo_input(hlo, i));
    for (int k = 0; k < group.count; ++k) {
      parts[k] = hr__hlo_share(hlo, hr__hlo_gathered(hlo, all, k), split, group.count, group.place);
    }
    hr__hlo_set(hlo, i, hr__hlo_join(hlo, group.count, parts, axis));
  }
}

/* The operand of the first device of the group. */
void hr__hlo_lower_collective_broadcast(hr__hlo *hlo) {
  hr__hlo_group group;
  if (!hr__hlo_expect(hlo, hlo->op->result_count, -1, 0) || !find_group(hlo, false, &group)) {
    return;
  }
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    hr__hlo_set(hlo, i, hr__hlo_gathered(hlo, hr__hlo_gather(hlo, &group, hr__hlo_input(hlo, i)), 0));
  }
}

/* The sum of the first device of the group; the others have undefined results. */
void hr__hlo_lower_collective_reduce(hr__hlo *hlo) {
  hr__hlo_lower_all_reduce(hlo);
}

/* Zeros for a device that is no target. */
void hr__hlo_lower_collective_permute(hr__hlo *hlo) {
  int64_t pairs[HR__VHLO_PLACES_MAX];
  const hr__hlo_group group = group_of_all(hlo);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  int count = hr__hlo_ints(hlo, "source_target_pairs", pairs);
  hr_value all = hr__hlo_gather(hlo, &group, hr__hlo_input(hlo, 0));
  hr__vhlo_type type = hr__hlo_result_type(hlo, 0);
  hr_value result = 0;
  for (int i = 0; i + 1 < count; i += 2) {
    if (pairs[i] < 0 || pairs[i] >= group.count) {
      HR__HLO_WRONG(hlo, "device %lld of %d", (long long)pairs[i], group.count);
      return;
    }
    result = pairs[i + 1] == group.place ? hr__hlo_gathered(hlo, all, (int)pairs[i]) : result;
  }
  hr__hlo_set(hlo, 0, result != 0 ? result : hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, type.rank, type.dims));
}

/* ---- collectives that end later ---- */

/* The collective runs at the operation that waits for it. */
void hr__hlo_lower_async_start(hr__hlo *hlo) {
  hr__hlo_expect(hlo, -1, 1, 1);
}

void hr__hlo_lower_async_done(hr__hlo *hlo) {
  const hr__vhlo_op *start = hlo->op->operand_count == 1 ? hlo->op->operands[0]->op : NULL;
  if (start == NULL || strcmp(start->name->name, "async_start_v1") != 0 || start->region_count != 1) {
    HR__HLO_REFUSE(hlo, "its operand is no result of async_start");
    return;
  }
  int inputs = start->operand_count, outputs = hlo->op->result_count;
  hr_value *values = hr__vhlo_array(&hlo->import->module, (size_t)(inputs + outputs) + 1, sizeof *values);
  if (values == NULL) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its operands");
    return;
  }
  for (int i = 0; i < inputs; ++i) {
    values[i] = hr__hlo_value(hlo, start->operands[i]);
  }
  int count = hr__hlo_inline(hlo, &start->regions[0], inputs, values, outputs, values + inputs, hlo->checks_types);
  for (int i = 0; i < outputs && count == outputs; ++i) {
    hr__hlo_set(hlo, i, values[inputs + i]);
  }
}

/* ---- the device ---- */

static void set_number(hr__hlo *hlo, int number) {
  if (hr__hlo_expect(hlo, 0, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_full(hlo, hr_scalar_i64(number), hr__hlo_result_type(hlo, 0).dtype, 0, NULL));
  }
}

void hr__hlo_lower_partition_id(hr__hlo *hlo) {
  set_number(hlo, hr__hlo_device(hlo->import));
}

void hr__hlo_lower_replica_id(hr__hlo *hlo) {
  set_number(hlo, 0);
}
