/* onnx_operators.c: the table of operators. */
#include <stdlib.h>

#include "importers/onnx/onnx_importer.h"

static const hr__onnx_operator_row rows[] = {
#define HR_ONNX(Name, map, FUNCTION, since, note) \
  {"", #Name, hr__onnx_map_##map, HR_FUNCTIONAL_##FUNCTION, since, note},
#define HR_ONNX_IN(domain, Name, map, since, note) {domain, #Name, hr__onnx_map_##map, HR_FUNCTIONAL_NONE, since, note},
#define HR_ONNX_REFUSED(Name, since, reason) {"", #Name, NULL, HR_FUNCTIONAL_NONE, since, reason},
#include "importers/onnx/operators.def"
#undef HR_ONNX
#undef HR_ONNX_IN
#undef HR_ONNX_REFUSED
    {NULL, NULL, NULL, HR_FUNCTIONAL_NONE, NULL, NULL}};

const hr__onnx_operator_row *hr__onnx_operator_find(hr__onnx_operator op) {
  hr__span domain = hr__onnx_is_standard(op.domain) ? (hr__span){0} : op.domain;
  for (const hr__onnx_operator_row *row = rows; row->name != NULL; ++row) {
    if (hr__span_is(op.name, row->name) && hr__span_is(domain, row->domain)) {
      return row;
    }
  }
  return NULL;
}

const hr__onnx_operator_row *hr__onnx_operator_at(int index) {
  int count = (int)(sizeof rows / sizeof *rows) - 1;
  return index >= 0 && index < count ? &rows[index] : NULL;
}

int hr__onnx_operator_since(const hr__onnx_operator_row *row, int64_t opset) {
  int newest = 0;
  for (const char *at = row->since; *at != '\0';) {
    char *end = NULL;
    long version = strtol(at, &end, 10);
    newest = version <= opset ? (int)version : newest;
    at = *end == ',' ? end + 2 : end;
  }
  return newest;
}
