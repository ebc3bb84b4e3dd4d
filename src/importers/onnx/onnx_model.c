#include "importers/onnx/onnx_model.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, __VA_ARGS__)

bool hr__onnx_is_standard(hr__span domain) {
  return domain.size == 0 || hr__span_is(domain, "ai.onnx");
}

/* ---- lists ---- */

hr_status hr__onnx_read_ints(hr__span message, uint32_t field, int64_t room, int64_t *out_numbers, int64_t *out_count) {
  hr__wire wire = hr__wire_of(message);
  int64_t count = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number != field || (f.type != HR__WIRE_BYTES && f.type != HR__WIRE_VARINT)) {
      continue;
    }
    if (f.type == HR__WIRE_VARINT) {
      if (count < room) {
        out_numbers[count] = (int64_t)f.value;
      }
      ++count;
      continue;
    }
    hr__wire packed = hr__wire_of(f.bytes);
    for (uint64_t number; hr__wire_number(&packed, HR__WIRE_VARINT, &number); ++count) {
      if (count < room) {
        out_numbers[count] = (int64_t)number;
      }
    }
    HR_RETURN_IF_ERROR(hr__wire_status(&packed));
  }
  *out_count = count;
  return hr__wire_status(&wire);
}

static double as_number(hr__wire_type type, uint64_t value) {
  double number;
  memcpy(&number, &value, sizeof number);
  return type == HR__WIRE_FIXED64 ? number : (double)hr__wire_float(value);
}

hr_status hr__onnx_read_floats(hr__span message, uint32_t field, int64_t room, double *out_numbers,
                               int64_t *out_count) {
  enum { DOUBLES = 10 };
  hr__wire wire = hr__wire_of(message);
  hr__wire_type type = field == DOUBLES ? HR__WIRE_FIXED64 : HR__WIRE_FIXED32;
  int64_t count = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number != field || (f.type != HR__WIRE_BYTES && f.type != type)) {
      continue;
    }
    uint64_t number = f.value;
    hr__wire packed = hr__wire_of(f.bytes);
    for (bool is_one = f.type == type; is_one || (f.type != type && hr__wire_number(&packed, type, &number)); ++count) {
      if (count < room) {
        out_numbers[count] = as_number(type, number);
      }
      is_one = false;
    }
    HR_RETURN_IF_ERROR(hr__wire_status(&packed));
  }
  *out_count = count;
  return hr__wire_status(&wire);
}

hr_status hr__onnx_read_spans(hr__span message, uint32_t field, int64_t room, hr__span *out_spans, int64_t *out_count) {
  hr__wire wire = hr__wire_of(message);
  int64_t count = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == field && f.type == HR__WIRE_BYTES) {
      if (count < room) {
        out_spans[count] = f.bytes;
      }
      ++count;
    }
  }
  *out_count = count;
  return hr__wire_status(&wire);
}

/* ---- models ---- */

hr_status hr__onnx_read_opset(hr__span message, hr__onnx_opsets *to) {
  hr__wire wire = hr__wire_of(message);
  hr__onnx_opset opset = {{0}};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 1 && f.type == HR__WIRE_BYTES) {
      opset.domain = f.bytes;
    } else if (f.number == 2 && f.type == HR__WIRE_VARINT) {
      opset.version = (int64_t)f.value;
    }
  }
  if (to->count == HR__ONNX_OPSETS_MAX) {
    return DAMAGED("more than %d operator sets", HR__ONNX_OPSETS_MAX);
  }
  to->all[to->count++] = opset;
  return hr__wire_status(&wire);
}

int64_t hr__onnx_opset_of(const hr__onnx_opsets *opsets, hr__span domain) {
  for (int i = 0; i < opsets->count; ++i) {
    hr__span other = opsets->all[i].domain;
    if (hr__span_equal(other, domain) || (hr__onnx_is_standard(other) && hr__onnx_is_standard(domain))) {
      return opsets->all[i].version;
    }
  }
  return 0;
}

hr_status hr__onnx_read_model(hr__span file, hr__onnx_model *out) {
  hr__wire wire = hr__wire_of(file);
  *out = (hr__onnx_model){.message = file};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    bool is_bytes = f.type == HR__WIRE_BYTES;
    if (f.number == 1 && f.type == HR__WIRE_VARINT) {
      out->ir_version = (int64_t)f.value;
    } else if (f.number == 2 && is_bytes) {
      out->producer = f.bytes;
    } else if (f.number == 3 && is_bytes) {
      out->producer_version = f.bytes;
    } else if (f.number == 7 && is_bytes) {
      out->graph = f.bytes;
    } else if (f.number == 8 && is_bytes) {
      HR_RETURN_IF_ERROR(hr__onnx_read_opset(f.bytes, &out->opsets));
    }
  }
  HR_RETURN_IF_ERROR(hr__wire_status(&wire));
  return out->graph.data != NULL ? HR_OK : DAMAGED("the file has no graph: it is no ONNX model");
}

/* ---- nodes ---- */

hr_status hr__onnx_read_attribute(hr__span message, hr__onnx_attribute *out) {
  hr__wire wire = hr__wire_of(message);
  *out = (hr__onnx_attribute){.message = message};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    bool is_bytes = f.type == HR__WIRE_BYTES;
    if (f.number == 1 && is_bytes) {
      out->name = f.bytes;
    } else if (f.number == 2 && f.type == HR__WIRE_FIXED32) {
      out->f = hr__wire_float(f.value);
    } else if (f.number == 3 && f.type == HR__WIRE_VARINT) {
      out->i = (int64_t)f.value;
    } else if ((f.number == 4 || f.number == 5 || f.number == 6) && is_bytes) {
      out->bytes = f.bytes;
    } else if (f.number == 20 && f.type == HR__WIRE_VARINT) {
      out->type = (int64_t)f.value;
    } else if (f.number == 21 && is_bytes) {
      out->reference = f.bytes;
    }
  }
  return hr__wire_status(&wire);
}

static hr_status count_call(hr__span message, hr__onnx_call *out) {
  hr__wire wire = hr__wire_of(message);
  for (hr__field f; hr__wire_next(&wire, &f);) {
    bool is_bytes = f.type == HR__WIRE_BYTES;
    out->input_count += is_bytes && f.number == 1 && out->input_count <= HR__ONNX_OPERANDS_MAX;
    out->output_count += is_bytes && f.number == 2 && out->output_count <= HR__ONNX_OPERANDS_MAX;
    out->attribute_count += is_bytes && f.number == 5 && out->attribute_count <= HR__ONNX_OPERANDS_MAX;
  }
  if (out->input_count > HR__ONNX_OPERANDS_MAX || out->output_count > HR__ONNX_OPERANDS_MAX ||
      out->attribute_count > HR__ONNX_OPERANDS_MAX) {
    return DAMAGED("a node has more than %d inputs, outputs or attributes", HR__ONNX_OPERANDS_MAX);
  }
  return hr__wire_status(&wire);
}

hr_status hr__onnx_read_call(hr__span message, hr_arena *arena, hr__onnx_call *out) {
  *out = (hr__onnx_call){.name = {0}};
  HR_RETURN_IF_ERROR(count_call(message, out));
  out->inputs = HR_ARENA_ARRAY(arena, hr__span, (size_t)out->input_count + 1);
  out->outputs = HR_ARENA_ARRAY(arena, hr__span, (size_t)out->output_count + 1);
  out->attributes = HR_ARENA_ARRAY(arena, hr__onnx_attribute, (size_t)out->attribute_count + 1);
  if (out->inputs == NULL || out->outputs == NULL || out->attributes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a node");
  }
  hr__wire wire = hr__wire_of(message);
  int inputs = 0, outputs = 0, attributes = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.type != HR__WIRE_BYTES) {
      continue;
    }
    switch (f.number) {
      case 1:
        out->inputs[inputs++] = f.bytes;
        break;
      case 2:
        out->outputs[outputs++] = f.bytes;
        break;
      case 3:
        out->name = f.bytes;
        break;
      case 4:
        out->op.name = f.bytes;
        break;
      case 5:
        HR_RETURN_IF_ERROR(hr__onnx_read_attribute(f.bytes, &out->attributes[attributes++]));
        break;
      case 7:
        out->op.domain = f.bytes;
        break;
      case 8:
        out->op.overload = f.bytes;
        break;
      default:
        break;
    }
  }
  return HR_OK;
}

/* ---- types of values ---- */

static hr_status read_dim(hr__span message, hr__onnx_value_info *out) {
  if (out->rank == HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a value has more than %d dims", HR_RANK_MAX);
  }
  hr__wire wire = hr__wire_of(message);
  int d = out->rank++;
  out->dims[d] = -1, out->symbols[d] = (hr__span){0};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 1 && f.type == HR__WIRE_VARINT) {
      out->dims[d] = (int64_t)f.value;
    } else if (f.number == 2 && f.type == HR__WIRE_BYTES) {
      out->symbols[d] = f.bytes;
    }
  }
  return hr__wire_status(&wire);
}

static hr_status read_shape(hr__span message, hr__onnx_value_info *out) {
  hr__wire wire = hr__wire_of(message);
  out->has_shape = true, out->rank = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 1 && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(read_dim(f.bytes, out));
    }
  }
  return hr__wire_status(&wire);
}

static hr_status read_tensor_type(hr__span message, hr__onnx_value_info *out) {
  hr__wire wire = hr__wire_of(message);
  out->is_tensor = true;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 1 && f.type == HR__WIRE_VARINT) {
      out->data_type = (int64_t)f.value;
    } else if (f.number == 2 && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(read_shape(f.bytes, out));
    }
  }
  return hr__wire_status(&wire);
}

static hr_status read_type(hr__span message, hr__onnx_value_info *out) {
  hr__wire wire = hr__wire_of(message);
  out->type = message;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.type != HR__WIRE_BYTES) {
      continue;
    }
    out->is_sequence |= f.number == 4;
    out->is_optional |= f.number == 9;
    HR_RETURN_IF_ERROR(f.number == 1 ? read_tensor_type(f.bytes, out) : HR_OK);
  }
  return hr__wire_status(&wire);
}

hr_status hr__onnx_read_value_info(hr__span message, hr__onnx_value_info *out) {
  hr__wire wire = hr__wire_of(message);
  *out = (hr__onnx_value_info){.name = {0}};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 1 && f.type == HR__WIRE_BYTES) {
      out->name = f.bytes;
    } else if (f.number == 2 && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(read_type(f.bytes, out));
    }
  }
  return hr__wire_status(&wire);
}
