/* dtypes.c: the ABI's types and how they are stored. */
#include "plugin.h"

typedef struct type_row {
  const char *name;
  hr_dtype dtype;
  int bits; /* of an element; 0: those of the dtype */
} type_row;

static const type_row rows[PJRT_TYPE_COUNT] = {
    [PJRT_TYPE_INVALID] = {"invalid", HR_DTYPE_NONE, 0},
    [PJRT_TYPE_PRED] = {"pred", HR_DTYPE_BOOL, 0},
    [PJRT_TYPE_S8] = {"s8", HR_DTYPE_I8, 0},
    [PJRT_TYPE_S16] = {"s16", HR_DTYPE_I16, 0},
    [PJRT_TYPE_S32] = {"s32", HR_DTYPE_I32, 0},
    [PJRT_TYPE_S64] = {"s64", HR_DTYPE_I64, 0},
    [PJRT_TYPE_U8] = {"u8", HR_DTYPE_U8, 0},
    [PJRT_TYPE_U16] = {"u16", HR_DTYPE_U16, 0},
    [PJRT_TYPE_U32] = {"u32", HR_DTYPE_U32, 0},
    [PJRT_TYPE_U64] = {"u64", HR_DTYPE_U64, 0},
    [PJRT_TYPE_F16] = {"f16", HR_DTYPE_F16, 0},
    [PJRT_TYPE_F32] = {"f32", HR_DTYPE_F32, 0},
    [PJRT_TYPE_F64] = {"f64", HR_DTYPE_F64, 0},
    [PJRT_TYPE_BF16] = {"bf16", HR_DTYPE_BF16, 0},
    [PJRT_TYPE_C64] = {"c64", HR_DTYPE_C64, 0},
    [PJRT_TYPE_C128] = {"c128", HR_DTYPE_C128, 0},
    [PJRT_TYPE_F8E5M2] = {"f8e5m2", HR_DTYPE_F8E5M2, 0},
    [PJRT_TYPE_F8E4M3FN] = {"f8e4m3fn", HR_DTYPE_F8E4M3FN, 0},
    [PJRT_TYPE_F8E4M3B11FNUZ] = {"f8e4m3b11fnuz", HR_DTYPE_F8E4M3B11FNUZ, 0},
    [PJRT_TYPE_F8E5M2FNUZ] = {"f8e5m2fnuz", HR_DTYPE_F8E5M2FNUZ, 0},
    [PJRT_TYPE_F8E4M3FNUZ] = {"f8e4m3fnuz", HR_DTYPE_F8E4M3FNUZ, 0},
    [PJRT_TYPE_S4] = {"s4", HR_DTYPE_I8, 4},
    [PJRT_TYPE_U4] = {"u4", HR_DTYPE_U8, 4},
    [PJRT_TYPE_TOKEN] = {"token", HR_DTYPE_NONE, 0},
    [PJRT_TYPE_S2] = {"s2", HR_DTYPE_I8, 2},
    [PJRT_TYPE_U2] = {"u2", HR_DTYPE_U8, 2},
    [PJRT_TYPE_F8E4M3] = {"f8e4m3", HR_DTYPE_F8E4M3, 0},
    [PJRT_TYPE_F8E3M4] = {"f8e3m4", HR_DTYPE_F8E3M4, 0},
    [PJRT_TYPE_F8E8M0FNU] = {"f8e8m0fnu", HR_DTYPE_F8E8M0FNU, 0},
    [PJRT_TYPE_F4E2M1FN] = {"f4e2m1fn", HR_DTYPE_F4E2M1FN, 0},
    [PJRT_TYPE_S1] = {"s1", HR_DTYPE_I8, 1},
    [PJRT_TYPE_U1] = {"u1", HR_DTYPE_U8, 1},
};

static const type_row *row_of(pjrt_type type) {
  return &rows[(unsigned)type < PJRT_TYPE_COUNT ? type : PJRT_TYPE_INVALID];
}

hr_dtype hrj_dtype_of(pjrt_type type) {
  return row_of(type)->dtype;
}

pjrt_type hrj_type_of(hr_dtype dtype, int bits) {
  for (int type = 0; type < PJRT_TYPE_COUNT; ++type) {
    if (rows[type].dtype == dtype && rows[type].bits == bits) {
      return type;
    }
  }
  return PJRT_TYPE_INVALID;
}

const char *hrj_type_name(pjrt_type type) {
  return row_of(type)->name;
}
