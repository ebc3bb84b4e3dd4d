/* compile_options.c: the few fields of CompileOptionsProto that a client of one process sets.
 *
 * A message of protocol buffers is a list of fields: a key, which is number << 3 | kind, and a value: a varint (0),
 * 8 bytes (1), a length and its bytes (2), 4 bytes (5). Unknown fields are skipped; a message that is damaged ends at
 * the damage.
 */
#include <stdio.h>
#include <string.h>

#include "plugin.h"

typedef struct message {
  const unsigned char *at, *end;
} message;

typedef struct field {
  uint64_t number, kind, value; /* value: of a varint */
  message bytes;                /* of kind 2 */
} field;

static bool read_varint(message *in, uint64_t *out_value) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
    unsigned char byte = *in->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) {
      *out_value = value;
      return true;
    }
  }
  return false;
}

/* The next field; false at the end. */
static bool read_field(message *in, field *out) {
  uint64_t key, size;
  if (!read_varint(in, &key)) {
    return false;
  }
  *out = (field){.number = key >> 3, .kind = key & 7};
  switch (out->kind) {
    case 0:
      return read_varint(in, &out->value);
    case 1:
    case 5:
      size = out->kind == 1 ? 8 : 4;
      break;
    case 2:
      if (!read_varint(in, &size)) {
        return false;
      }
      break;
    default:
      return false;
  }
  if (size > (uint64_t)(in->end - in->at)) {
    return false;
  }
  out->bytes = (message){in->at, in->at + size};
  in->at += size;
  return true;
}

/* ComputationDevice {replica_device_ids = 1, packed or not}: the first one. */
static void read_computation(message in, hrj_compile_options *options) {
  field f;
  while (options->device_count < HR_STABLEHLO_DEVICES_MAX && read_field(&in, &f)) {
    uint64_t id;
    if (f.number == 1 && (f.kind == 0 || (f.kind == 2 && read_varint(&f.bytes, &id)))) {
      options->devices[options->device_count++] = (int64_t)(f.kind == 0 ? f.value : id);
      return;
    }
  }
}

/* DeviceAssignmentProto {computation_devices = 3}. */
static void read_assignment(message in, hrj_compile_options *options) {
  field f;
  while (read_field(&in, &f)) {
    if (f.number == 3 && f.kind == 2) {
      read_computation(f.bytes, options);
    }
  }
}

/* ExecutableBuildOptionsProto {device_ordinal = 1, num_replicas = 4, num_partitions = 5, device_assignment = 9}. */
static void read_build_options(message in, hrj_compile_options *options) {
  field f;
  while (read_field(&in, &f)) {
    if (f.number == 4 && f.kind == 0) {
      options->replicas = (int64_t)f.value;
    } else if (f.number == 5 && f.kind == 0) {
      options->partitions = (int64_t)f.value;
    } else if (f.number == 9 && f.kind == 2) {
      read_assignment(f.bytes, options);
    }
  }
}

static bool has_text(message text, const char *expected) {
  size_t size = strlen(expected);
  return (size_t)(text.end - text.at) >= size && memcmp(text.at, expected, size) == 0;
}

/* An entry of a map {key = 1, value = 2}. Options of XLA are for other compilers, and ignored. */
static void read_override(message in, hrj_compile_options *options) {
  static const char *const known[] = {"xla_", "exec_time_optimization_effort", "memory_fitting_effort",
                                      "optimization_level", "memory_fitting_level"};
  field f;
  while (read_field(&in, &f)) {
    bool is_known = f.number != 1 || f.kind != 2;
    for (size_t i = 0; i < ARRAY_SIZE(known); ++i) {
      is_known = is_known || has_text(f.bytes, known[i]);
    }
    if (!is_known) {
      snprintf(options->unknown, sizeof options->unknown, "%.*s", (int)(f.bytes.end - f.bytes.at),
               (const char *)f.bytes.at);
    }
  }
}

/* CompileOptionsProto {executable_build_options = 3, env_option_overrides = 7}. */
hrj_compile_options hrj_compile_options_read(const char *bytes, size_t size) {
  hrj_compile_options options = {.replicas = 1, .partitions = 1};
  message in = {(const unsigned char *)bytes, (const unsigned char *)bytes + size};
  field f;
  while (read_field(&in, &f)) {
    if (f.number == 3 && f.kind == 2) {
      read_build_options(f.bytes, &options);
    } else if (f.number == 7 && f.kind == 2) {
      read_override(f.bytes, &options);
    }
  }
  return options;
}
