/* vhlo_sharding.c: Shardy's attributes: meshes of devices, and how tensors are divided among them.
 *
 *   mesh      <["x"=2, "y"=4]>                    devices in row-major order, unless the mesh lists them
 *   sharding  <@mesh, [{"x"}, {"y":(1)2}]>        for each dim its axes, major first, or parts of them
 *             unreduced={"z"}                     axes along which shards are the terms of a sum
 *
 * And VHLO's own meshes, whose axes are the groups of a collective:
 *
 *   groups    <@mesh, [<"x">, <"y", (1)2>]>       devices that differ in these axes alone, in their order
 */
#include "importers/stablehlo/vhlo.h"

enum {
  MANUAL_AXES = 0,
  MESH_AXIS = 1,
  MESH = 2,
  SUB_AXIS = 3,
  AXIS_REFERENCE = 4,
  DIMENSION = 5,
  SHARDING = 6,
  SHARDINGS = 7,
  SHARDING_2 = 15,
  SHARDINGS_2 = 16,
  SHARDING_3 = 17,
  SYMBOL = 4,          /* builtin: a reference to a mesh */
  GROUP_SUB_AXIS = 21, /* of VHLO */
  GROUP_AXIS_REFERENCE = 22,
  GROUP_AXES = 23,
  GROUP_MESH_AXIS = 24,
  GROUP_MESH = 25
};

/* A reader behind the code of an attribute of a dialect; false for others. */
static bool open_of(const hr__vhlo_module *module, int attribute, const char *dialect, hr__reader *out_reader,
                    int *out_code) {
  if (attribute < 0 || attribute >= module->attribute_count) {
    return false;
  }
  const hr__vhlo_entry *entry = &module->attributes[attribute];
  *out_reader = hr__reader_of(entry->bytes);
  *out_code = hr__read_count(out_reader, INT16_MAX);
  return entry->is_custom && strcmp(entry->dialect, dialect) == 0 && !out_reader->has_failed;
}

/* One of Shardy's. */
static bool open_one(const hr__vhlo_module *module, int attribute, hr__reader *out_reader, int *out_code) {
  return open_of(module, attribute, "sdy", out_reader, out_code);
}

static int read_attribute(const hr__vhlo_module *module, hr__reader *reader) {
  return hr__read_count(reader, module->attribute_count - 1);
}

static const char *read_string(const hr__vhlo_module *module, hr__reader *reader) {
  int index = hr__read_count(reader, module->string_count - 1);
  return reader->has_failed ? "" : module->strings[index];
}

static int read_length(hr__reader *reader) {
  return hr__read_count(reader, (int)hr__reader_left(reader));
}

/* ---- meshes ---- */

static bool read_axis(const hr__vhlo_module *module, int attribute, hr__vhlo_mesh *out) {
  hr__reader reader;
  int code;
  if (!open_one(module, attribute, &reader, &code) || code != MESH_AXIS || out->axis_count == HR__VHLO_AXES_MAX) {
    return false;
  }
  out->names[out->axis_count] = read_string(module, &reader);
  int64_t size = hr__read_signed(&reader);
  out->sizes[out->axis_count++] = (int)size;
  return !reader.has_failed && size > 0 && size <= HR__VHLO_DEVICES_MAX;
}

static bool count_devices(hr__vhlo_mesh *out) {
  out->device_count = 1;
  for (int i = 0; i < out->axis_count; ++i) {
    out->device_count *= out->sizes[i];
    if (out->device_count > HR__VHLO_DEVICES_MAX) {
      return false;
    }
  }
  return true;
}

static bool read_devices(hr__reader *reader, hr__vhlo_mesh *out) {
  int count = read_length(reader);
  if (!count_devices(out)) {
    return false;
  }
  for (int i = 0; i < out->device_count; ++i) {
    int64_t device = i < count ? hr__read_signed(reader) : i;
    if (device < 0 || device >= HR__VHLO_DEVICES_MAX) {
      return false;
    }
    out->devices[i] = (int)device;
  }
  return !reader->has_failed && (count == 0 || count == out->device_count);
}

static bool read_mesh(const hr__vhlo_module *module, int attribute, hr__vhlo_mesh *out) {
  hr__reader reader;
  int code;
  *out = (hr__vhlo_mesh){0};
  if (!open_one(module, attribute, &reader, &code) || code != MESH) {
    return false;
  }
  int count = read_length(&reader);
  for (int i = 0; i < count; ++i) {
    if (!read_axis(module, read_attribute(module, &reader), out)) {
      return false;
    }
  }
  return !reader.has_failed && read_devices(&reader, out);
}

/* The attribute of a code in the properties of an operation, from the `skip`-th on; -1: there is none. */
static int find_property(const hr__vhlo_module *module, const hr__vhlo_op *op, int first, int second, int skip) {
  hr__reader reader = hr__reader_of(op->properties), inside;
  int code;
  while (hr__reader_left(&reader) > 0 && !reader.has_failed) {
    int attribute = read_attribute(module, &reader);
    bool is_one = open_one(module, attribute, &inside, &code) && (code == first || code == second);
    if (is_one && skip-- == 0) {
      return attribute;
    }
  }
  return -1;
}

/* The text of a builtin attribute with this code, which is a string's number. */
static const char *symbol_of(const hr__vhlo_module *module, int attribute) {
  if (attribute < 0 || attribute >= module->attribute_count) {
    return NULL;
  }
  const hr__vhlo_entry *entry = &module->attributes[attribute];
  hr__reader reader = hr__reader_of(entry->bytes);
  bool is_one = entry->is_custom && strcmp(entry->dialect, "builtin") == 0 && hr__read_count(&reader, 99) == SYMBOL;
  int name = is_one ? read_attribute(module, &reader) : -1;
  return is_one && !reader.has_failed ? hr__vhlo_text(module, name) : NULL;
}

/* A mesh by its name, from the module's operations; the name is the only string among a mesh's properties. */
static bool find_mesh(const hr__vhlo_module *module, const char *name, hr__vhlo_mesh *out) {
  const hr__vhlo_region *top = &module->top;
  const hr__vhlo_region *body = top->op_count == 1 && top->ops[0].region_count == 1 ? &top->ops[0].regions[0] : NULL;
  for (int i = 0; body != NULL && i < body->op_count; ++i) {
    const hr__vhlo_op *op = &body->ops[i];
    hr__reader reader = hr__reader_of(op->properties);
    bool is_named = false, is_mesh = strcmp(op->name->dialect, "sdy") == 0 && strcmp(op->name->name, "mesh") == 0;
    while (is_mesh && hr__reader_left(&reader) > 0 && !reader.has_failed) {
      const char *text = hr__vhlo_text(module, read_attribute(module, &reader));
      is_named = is_named || (text != NULL && strcmp(text, name) == 0);
    }
    if (is_named) {
      return read_mesh(module, find_property(module, op, MESH, MESH, 0), out);
    }
  }
  return false;
}

/* ---- shardings ---- */

static int axis_of(const hr__vhlo_mesh *mesh, const char *name) {
  for (int i = 0; i < mesh->axis_count; ++i) {
    if (strcmp(mesh->names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

/* The places of an axis that a split has. */
static bool read_part(hr__reader *reader, const hr__vhlo_sharding *sharding, hr__vhlo_split *out) {
  int64_t before = hr__read_signed(reader), size = hr__read_signed(reader), whole = sharding->mesh.sizes[out->axis];
  if (reader->has_failed || before < 1 || before > whole || size < 1 || size > whole || whole % (before * size) != 0) {
    return false;
  }
  out->before = (int)before, out->size = (int)size;
  return true;
}

/* False if a dim has more shards than there are devices, as with an axis twice. */
static bool add_split(hr__vhlo_sharding *out, const hr__vhlo_split *split) {
  out->splits[out->split_count++] = *split;
  return hr__vhlo_shards(out, split->dim) <= out->mesh.device_count;
}

static bool read_reference(const hr__vhlo_module *module, int attribute, int dim, hr__vhlo_sharding *out) {
  hr__reader reader, inside;
  int code;
  if (!open_one(module, attribute, &reader, &code) || code != AXIS_REFERENCE || out->split_count == HR__VHLO_AXES_MAX) {
    return false;
  }
  hr__vhlo_split split = {.dim = dim, .axis = axis_of(&out->mesh, read_string(module, &reader))};
  uint64_t sub = hr__read_number(&reader); /* its number and a flag */
  if (reader.has_failed || split.axis < 0) {
    return false;
  }
  split.before = 1, split.size = out->mesh.sizes[split.axis];
  if ((sub & 1) != 0) {
    if (sub >> 1 > INT32_MAX || !open_one(module, (int)(sub >> 1), &inside, &code) || code != SUB_AXIS ||
        !read_part(&inside, out, &split)) {
      return false;
    }
  }
  return add_split(out, &split);
}

static bool read_dimension(const hr__vhlo_module *module, int attribute, int dim, hr__vhlo_sharding *out) {
  hr__reader reader;
  int code;
  if (!open_one(module, attribute, &reader, &code) || code != DIMENSION) {
    return false;
  }
  int count = read_length(&reader);
  for (int i = 0; i < count; ++i) {
    if (!read_reference(module, read_attribute(module, &reader), dim, out)) {
      return false;
    }
  }
  return !reader.has_failed;
}

static void skip_attributes(const hr__vhlo_module *module, hr__reader *reader) {
  int count = read_length(reader);
  for (int i = 0; i < count; ++i) {
    read_attribute(module, reader);
  }
}

static bool read_terms(const hr__vhlo_module *module, hr__reader *reader, hr__vhlo_sharding *out) {
  int count = read_length(reader);
  for (int i = 0; i < count; ++i) {
    if (!read_reference(module, read_attribute(module, reader), HR__VHLO_TERMS, out)) {
      return false;
    }
  }
  return true;
}

bool hr__vhlo_sharding_of(const hr__vhlo_module *module, int attribute, hr__vhlo_sharding *out) {
  hr__reader reader;
  int code;
  *out = (hr__vhlo_sharding){0};
  if (!open_one(module, attribute, &reader, &code) || (code != SHARDING && code != SHARDING_2 && code != SHARDING_3)) {
    return false;
  }
  int mesh = read_attribute(module, &reader);
  const char *name = symbol_of(module, mesh);
  if (reader.has_failed ||
      !(name != NULL ? find_mesh(module, name, &out->mesh) : read_mesh(module, mesh, &out->mesh))) {
    return false;
  }
  out->rank = read_length(&reader);
  for (int d = 0; d < out->rank && d < HR_RANK_MAX; ++d) {
    if (!read_dimension(module, read_attribute(module, &reader), d, out)) {
      return false;
    }
  }
  skip_attributes(module, &reader); /* axes along which tensors are whole */
  bool is_whole = code == SHARDING || read_terms(module, &reader, out);
  return is_whole && !reader.has_failed && out->rank <= HR_RANK_MAX;
}

bool hr__vhlo_sharding_at(const hr__vhlo_module *module, const hr__vhlo_op *op, bool is_result, int index,
                          hr__vhlo_sharding *out) {
  hr__reader reader;
  int code, attribute = -1;
  if (!open_one(module, find_property(module, op, SHARDINGS, SHARDINGS_2, is_result), &reader, &code)) {
    return false;
  }
  int count = read_length(&reader);
  for (int i = 0; i <= index && i < count; ++i) {
    attribute = read_attribute(module, &reader);
  }
  return index < count && !reader.has_failed && hr__vhlo_sharding_of(module, attribute, out);
}

bool hr__vhlo_is_manual(const hr__vhlo_module *module, const hr__vhlo_op *op, const char *axis) {
  hr__reader reader;
  int code;
  if (!open_one(module, find_property(module, op, MANUAL_AXES, MANUAL_AXES, 0), &reader, &code)) {
    return false;
  }
  int count = read_length(&reader);
  for (int i = 0; i < count; ++i) {
    const char *text = hr__vhlo_text(module, read_attribute(module, &reader));
    if (text != NULL && strcmp(text, axis) == 0) {
      return true;
    }
  }
  return false;
}

/* ---- places of devices ---- */

int hr__vhlo_shards(const hr__vhlo_sharding *sharding, int dim) {
  int count = 1;
  for (int i = 0; i < sharding->split_count; ++i) {
    count *= sharding->splits[i].dim == dim ? sharding->splits[i].size : 1;
  }
  return count;
}

/* The place of a device on an axis of the mesh; -1: it is none of the mesh. */
static int coordinate(const hr__vhlo_mesh *mesh, int device, int axis) {
  int place = 0, inner = 1;
  while (place < mesh->device_count && mesh->devices[place] != device) {
    ++place;
  }
  for (int i = axis + 1; i < mesh->axis_count; ++i) {
    inner *= mesh->sizes[i];
  }
  return place == mesh->device_count ? -1 : place / inner % mesh->sizes[axis];
}

int hr__vhlo_shard(const hr__vhlo_sharding *sharding, int device, int dim) {
  int index = 0;
  for (int i = 0; i < sharding->split_count; ++i) {
    const hr__vhlo_split *split = &sharding->splits[i];
    if (split->dim == dim) {
      int at = coordinate(&sharding->mesh, device, split->axis);
      int after = sharding->mesh.sizes[split->axis] / (split->before * split->size);
      index = index * split->size + (at < 0 ? 0 : at / after % split->size);
    }
  }
  return index;
}

bool hr__vhlo_is_replica(const hr__vhlo_sharding *sharding, int device, int other) {
  const hr__vhlo_mesh *mesh = &sharding->mesh;
  for (int axis = 0; axis < mesh->axis_count; ++axis) {
    bool is_split = false;
    for (int i = 0; i < sharding->split_count; ++i) {
      is_split = is_split || sharding->splits[i].axis == axis;
    }
    if (!is_split && coordinate(mesh, device, axis) != coordinate(mesh, other, axis)) {
      return false;
    }
  }
  return true;
}

/* ---- groups of devices ---- */

/* A reader behind the code of one of VHLO's attributes; false for those of another code. */
static bool open_vhlo(const hr__vhlo_module *module, int attribute, int code, hr__reader *out_reader) {
  int found;
  return open_of(module, attribute, "vhlo", out_reader, &found) && found == code;
}

static bool read_group_axis(const hr__vhlo_module *module, int attribute, hr__vhlo_mesh *out) {
  hr__reader reader;
  if (!open_vhlo(module, attribute, GROUP_MESH_AXIS, &reader)) {
    return false;
  }
  const char *name = hr__vhlo_text(module, read_attribute(module, &reader));
  int64_t size = hr__read_signed(&reader);
  if (reader.has_failed || name == NULL || size < 1 || size > HR__VHLO_DEVICES_MAX) {
    return false;
  }
  out->names[out->axis_count] = name;
  out->sizes[out->axis_count++] = (int)size;
  return true;
}

/* A mesh, or the name of one. */
static bool read_group_mesh(const hr__vhlo_module *module, int attribute, hr__vhlo_mesh *out) {
  const char *name = hr__vhlo_text(module, attribute);
  hr__reader reader;
  int axes[HR__VHLO_AXES_MAX];
  int64_t devices[HR__VHLO_PLACES_MAX];
  if (name != NULL) {
    return find_mesh(module, name, out);
  }
  *out = (hr__vhlo_mesh){0};
  if (!open_vhlo(module, attribute, GROUP_MESH, &reader)) {
    return false;
  }
  int count = hr__vhlo_list(module, read_attribute(module, &reader), HR__VHLO_AXES_MAX, axes);
  uint64_t listed = hr__read_number(&reader); /* the devices' number and a flag */
  bool has_list = (listed & 1) != 0, is_read = !reader.has_failed && count >= 0 && count <= HR__VHLO_AXES_MAX;
  for (int i = 0; i < count && is_read; ++i) {
    is_read = read_group_axis(module, axes[i], out);
  }
  if (!is_read || !count_devices(out) || listed >> 1 > INT32_MAX ||
      (has_list && hr__vhlo_ints(module, (int)(listed >> 1), devices) != out->device_count)) {
    return false;
  }
  for (int i = 0; i < out->device_count && is_read; ++i) {
    int64_t device = has_list ? devices[i] : i;
    is_read = device >= 0 && device < HR__VHLO_DEVICES_MAX;
    out->devices[i] = (int)device;
  }
  return is_read;
}

static bool read_group_split(const hr__vhlo_module *module, int attribute, hr__vhlo_sharding *out) {
  hr__reader reader, inside;
  if (!open_vhlo(module, attribute, GROUP_AXIS_REFERENCE, &reader)) {
    return false;
  }
  const char *name = hr__vhlo_text(module, read_attribute(module, &reader));
  hr__vhlo_split split = {.axis = name != NULL ? axis_of(&out->mesh, name) : -1, .before = 1};
  int sub = hr__read_number(&reader) != 0 ? read_attribute(module, &reader) : -1; /* a flag in front */
  if (reader.has_failed || split.axis < 0) {
    return false;
  }
  split.size = out->mesh.sizes[split.axis];
  if (sub >= 0 && (!open_vhlo(module, sub, GROUP_SUB_AXIS, &inside) || !read_part(&inside, out, &split))) {
    return false;
  }
  return add_split(out, &split);
}

bool hr__vhlo_groups_of(const hr__vhlo_module *module, int attribute, hr__vhlo_sharding *out) {
  hr__reader reader;
  int axes[HR__VHLO_AXES_MAX];
  *out = (hr__vhlo_sharding){.rank = 1};
  if (!open_vhlo(module, attribute, GROUP_AXES, &reader) ||
      !read_group_mesh(module, read_attribute(module, &reader), &out->mesh)) {
    return false;
  }
  int count = hr__vhlo_list(module, read_attribute(module, &reader), HR__VHLO_AXES_MAX, axes);
  bool is_read = !reader.has_failed && count >= 0 && count <= HR__VHLO_AXES_MAX;
  for (int i = 0; i < count && is_read; ++i) {
    is_read = read_group_split(module, axes[i], out);
  }
  return is_read;
}

/* The place of a device on an axis, without those that the splits have. */
static int rest_of(const hr__vhlo_sharding *groups, int device, int axis) {
  int at = coordinate(&groups->mesh, device, axis), rest = at;
  for (int i = 0; i < groups->split_count && at >= 0; ++i) {
    const hr__vhlo_split *split = &groups->splits[i];
    int after = groups->mesh.sizes[split->axis] / (split->before * split->size);
    rest -= split->axis == axis ? at / after % split->size * after : 0;
  }
  return rest;
}

bool hr__vhlo_is_in_group(const hr__vhlo_sharding *groups, int device, int other) {
  const hr__vhlo_mesh *mesh = &groups->mesh;
  for (int axis = 0; axis < mesh->axis_count; ++axis) {
    if (coordinate(mesh, other, axis) < 0 || rest_of(groups, device, axis) != rest_of(groups, other, axis)) {
      return false;
    }
  }
  return mesh->axis_count > 0 || device == other;
}

bool hr__vhlo_constraint(const hr__vhlo_module *module, const hr__vhlo_op *op, hr__vhlo_sharding *out) {
  bool is_one = strcmp(op->name->dialect, "sdy") == 0 && strcmp(op->name->name, "sharding_constraint") == 0;
  int attribute = is_one ? find_property(module, op, SHARDING, SHARDING_2, 0) : -1;
  attribute = is_one && attribute < 0 ? find_property(module, op, SHARDING_3, SHARDING_3, 0) : attribute;
  return attribute >= 0 && hr__vhlo_sharding_of(module, attribute, out);
}
