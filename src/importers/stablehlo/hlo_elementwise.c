/* hlo_elementwise.c: element-wise operations, with XLA's results for all numbers. */
#include "importers/stablehlo/hlo.h"

void hr__hlo_lower_unary(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr_graph_add(hlo->graph, hlo->function, IN(hr__hlo_input(hlo, 0)), PLAIN));
  }
}

void hr__hlo_lower_binary(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
    hr__hlo_set(hlo, 0, hr_graph_add(hlo->graph, hlo->function, IN(x, y), PLAIN));
  }
}

static void lower_flags(hr__hlo *hlo, hr_functional numbers, hr_functional flags) {
  hlo->function = hr__hlo_result_type(hlo, 0).dtype == HR_DTYPE_BOOL ? flags : numbers;
  hr__hlo_lower_binary(hlo);
}

void hr__hlo_lower_add(hr__hlo *hlo) {
  lower_flags(hlo, HR_FUNCTIONAL_ADD, HR_FUNCTIONAL_LOGICAL_OR);
}

void hr__hlo_lower_multiply(hr__hlo *hlo) {
  lower_flags(hlo, HR_FUNCTIONAL_MULTIPLY, HR_FUNCTIONAL_LOGICAL_AND);
}

void hr__hlo_lower_compare(hr__hlo *hlo) {
  static const hr_functional functions[] = {HR_FUNCTIONAL_EQUAL,         HR_FUNCTIONAL_NOT_EQUAL,
                                            HR_FUNCTIONAL_GREATER_EQUAL, HR_FUNCTIONAL_GREATER,
                                            HR_FUNCTIONAL_LESS_EQUAL,    HR_FUNCTIONAL_LESS};
  enum { TOTAL_ORDER = 2 };
  int64_t direction = hr__hlo_int(hlo, "comparison_direction", 0);
  if (hr__hlo_int(hlo, "compare_type", 0) == TOTAL_ORDER) {
    HR__HLO_REFUSE(hlo, "total order");
    return;
  }
  if (direction < 0 || direction >= (int64_t)(sizeof functions / sizeof *functions)) {
    HR__HLO_WRONG(hlo, "direction %lld", (long long)direction);
    return;
  }
  hlo->function = functions[direction];
  hr__hlo_lower_binary(hlo);
}

void hr__hlo_lower_select(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 3, 1, 0)) {
    hr_value flag = hr__hlo_input(hlo, 0), x = hr__hlo_input(hlo, 1), y = hr__hlo_input(hlo, 2);
    hr__hlo_set(hlo, 0, CALL(hlo, WHERE, flag, x, y));
  }
}

void hr__hlo_lower_convert(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), hr__hlo_result_type(hlo, 0).dtype));
  }
}
