/* pjrt_programs_test.c: programs in the table, in the order of calls of a client that compiles and runs one. */
#include "pjrt_client.h"

/* x + 1 of f32[4], whose argument is donated: StableHLO's portable format 1.13.0, as jaxlib 0.10.2 writes
 * jax.jit(lambda x: x + 1, donate_argnums=0). */
/* clang-format off */
static unsigned char add_one[] = {
    77, 76, 239, 82, 13, 83, 116, 97, 98, 108, 101, 72, 76, 79, 95, 118, 49, 46, 49, 51, 46, 48, 0, 1,
    29, 5, 1, 5, 13, 1, 3, 11, 3, 11, 15, 19, 23, 27, 31, 3, 89, 53, 17, 1, 27, 11, 15, 27,
    11, 11, 11, 19, 19, 19, 19, 19, 19, 19, 3, 27, 15, 19, 11, 15, 11, 15, 19, 11, 11, 11, 11, 31,
    15, 1, 3, 15, 3, 15, 19, 7, 15, 7, 23, 19, 7, 2, 213, 5, 17, 17, 1, 5, 3, 5, 7, 3,
    9, 3, 5, 19, 5, 21, 5, 23, 23, 1, 3, 3, 23, 1, 5, 7, 23, 1, 5, 53, 23, 1, 7, 25,
    23, 1, 9, 21, 23, 1, 11, 21, 23, 1, 13, 11, 3, 3, 29, 13, 3, 31, 33, 29, 25, 19, 9, 1,
    35, 11, 3, 3, 39, 13, 3, 41, 43, 29, 27, 29, 29, 29, 31, 29, 33, 31, 7, 9, 0, 0, 128, 63,
    31, 13, 1, 1, 2, 2, 41, 3, 17, 5, 9, 41, 1, 5, 27, 17, 3, 3, 3, 3, 41, 3, 1, 15,
    29, 4, 107, 5, 1, 81, 13, 5, 1, 7, 4, 89, 3, 1, 5, 3, 80, 15, 3, 7, 4, 69, 3, 9,
    19, 3, 7, 17, 0, 5, 66, 19, 5, 3, 7, 7, 70, 21, 7, 3, 3, 3, 3, 9, 6, 23, 3, 3,
    5, 1, 5, 11, 4, 25, 3, 7, 6, 3, 1, 5, 1, 0, 38, 3, 35, 15, 11, 15, 33, 39, 25, 37,
    41, 5, 21, 15, 41, 25, 17, 15, 11, 17, 98, 117, 105, 108, 116, 105, 110, 0, 118, 104, 108, 111, 0, 109,
    111, 100, 117, 108, 101, 0, 102, 117, 110, 99, 95, 118, 49, 0, 99, 111, 110, 115, 116, 97, 110, 116, 95, 118,
    49, 0, 98, 114, 111, 97, 100, 99, 97, 115, 116, 95, 105, 110, 95, 100, 105, 109, 95, 118, 49, 0, 97, 100,
    100, 95, 118, 49, 0, 114, 101, 116, 117, 114, 110, 95, 118, 49, 0, 45, 0, 109, 104, 108, 111, 46, 110, 117,
    109, 95, 112, 97, 114, 116, 105, 116, 105, 111, 110, 115, 0, 109, 104, 108, 111, 46, 110, 117, 109, 95, 114, 101,
    112, 108, 105, 99, 97, 115, 0, 106, 105, 116, 95, 95, 108, 97, 109, 98, 100, 97, 0, 116, 102, 46, 97, 108,
    105, 97, 115, 105, 110, 103, 95, 111, 117, 116, 112, 117, 116, 0, 106, 97, 120, 46, 114, 101, 115, 117, 108, 116,
    95, 105, 110, 102, 111, 0, 114, 101, 115, 117, 108, 116, 0, 109, 97, 105, 110, 0, 112, 117, 98, 108, 105, 99,
    0, 8, 29, 9, 5, 23, 1, 11, 27, 35, 37, 45, 47, 3, 49, 3, 51,
};
/* clang-format on */

/* clang-format off */
/* main(token, a: f32[2], token, b: f32[2]) -> (a - b, token, token, a * b): a's memory may become any output's, that of
 * b output 3's. */
static unsigned char with_tokens[] = {
    0x4d, 0x4c, 0xef, 0x52, 0x0d, 0x53, 0x74, 0x61, 0x62, 0x6c, 0x65, 0x48, 0x4c, 0x4f, 0x5f, 0x76, 0x31, 0x2e, 0x31,
    0x33, 0x2e, 0x30, 0x00, 0x01, 0x1d, 0x05, 0x01, 0x05, 0x0d, 0x01, 0x03, 0x0b, 0x03, 0x0b, 0x0f, 0x13, 0x17, 0x1b,
    0x1f, 0x03, 0x49, 0x2f, 0x0b, 0x01, 0x17, 0x0b, 0x13, 0x13, 0x13, 0x13, 0x13, 0x13, 0x13, 0x13, 0x13, 0x13, 0x03,
    0x19, 0x0b, 0x1b, 0x13, 0x0b, 0x0b, 0x13, 0x0b, 0x0f, 0x0b, 0x0b, 0x0b, 0x0b, 0x03, 0x0b, 0x13, 0x07, 0x07, 0x2f,
    0x07, 0x02, 0xbb, 0x05, 0x11, 0x17, 0x01, 0x01, 0x01, 0x17, 0x01, 0x05, 0x03, 0x17, 0x01, 0x05, 0x31, 0x17, 0x01,
    0x05, 0x5d, 0x17, 0x01, 0x05, 0xb7, 0x17, 0x01, 0x05, 0xe3, 0x17, 0x01, 0x07, 0x11, 0x17, 0x01, 0x09, 0x11, 0x17,
    0x01, 0x0b, 0x11, 0x17, 0x01, 0x0d, 0x07, 0x0d, 0x01, 0x03, 0x09, 0x17, 0x1b, 0x17, 0x21, 0x0d, 0x03, 0x1d, 0x1f,
    0x1d, 0x13, 0x05, 0x03, 0x0d, 0x03, 0x23, 0x25, 0x1d, 0x15, 0x13, 0x05, 0x0d, 0x23, 0x07, 0x03, 0x01, 0x1d, 0x17,
    0x1d, 0x19, 0x29, 0x03, 0x09, 0x09, 0x2d, 0x1b, 0x11, 0x09, 0x03, 0x01, 0x03, 0x01, 0x09, 0x01, 0x03, 0x03, 0x01,
    0x09, 0x04, 0x7f, 0x05, 0x01, 0x50, 0x03, 0x01, 0x07, 0x04, 0x6f, 0x03, 0x01, 0x05, 0x03, 0x50, 0x05, 0x03, 0x07,
    0x04, 0x5b, 0x03, 0x0f, 0x13, 0x09, 0x07, 0x07, 0x03, 0x09, 0x07, 0x0b, 0x03, 0x0d, 0x00, 0x05, 0x06, 0x0f, 0x03,
    0x01, 0x05, 0x03, 0x07, 0x07, 0x06, 0x11, 0x03, 0x01, 0x05, 0x03, 0x07, 0x09, 0x06, 0x13, 0x03, 0x03, 0x05, 0x01,
    0x05, 0x0b, 0x04, 0x15, 0x09, 0x09, 0x0d, 0x01, 0x0b, 0x06, 0x03, 0x01, 0x05, 0x01, 0x00, 0x2e, 0x02, 0x1b, 0x0f,
    0x0b, 0x27, 0x23, 0x05, 0x15, 0x1b, 0x19, 0x19, 0x11, 0x0f, 0x0b, 0x11, 0x62, 0x75, 0x69, 0x6c, 0x74, 0x69, 0x6e,
    0x00, 0x76, 0x68, 0x6c, 0x6f, 0x00, 0x6d, 0x6f, 0x64, 0x75, 0x6c, 0x65, 0x00, 0x66, 0x75, 0x6e, 0x63, 0x5f, 0x76,
    0x31, 0x00, 0x73, 0x75, 0x62, 0x74, 0x72, 0x61, 0x63, 0x74, 0x5f, 0x76, 0x31, 0x00, 0x6d, 0x75, 0x6c, 0x74, 0x69,
    0x70, 0x6c, 0x79, 0x5f, 0x76, 0x31, 0x00, 0x61, 0x66, 0x74, 0x65, 0x72, 0x5f, 0x61, 0x6c, 0x6c, 0x5f, 0x76, 0x31,
    0x00, 0x72, 0x65, 0x74, 0x75, 0x72, 0x6e, 0x5f, 0x76, 0x31, 0x00, 0x2d, 0x00, 0x6a, 0x61, 0x78, 0x2e, 0x62, 0x75,
    0x66, 0x66, 0x65, 0x72, 0x5f, 0x64, 0x6f, 0x6e, 0x6f, 0x72, 0x00, 0x74, 0x66, 0x2e, 0x61, 0x6c, 0x69, 0x61, 0x73,
    0x69, 0x6e, 0x67, 0x5f, 0x6f, 0x75, 0x74, 0x70, 0x75, 0x74, 0x00, 0x6d, 0x61, 0x69, 0x6e, 0x00, 0x70, 0x75, 0x62,
    0x6c, 0x69, 0x63, 0x00, 0x08, 0x15, 0x05, 0x05, 0x01, 0x01, 0x0b, 0x19, 0x27, 0x29, 0x2b, 0x2d,
};
/* clang-format on */

static pjrt_error *compile_bytes(unsigned char *bytes, size_t size, const char *format, const char *options,
                                 size_t options_size, pjrt_executable **out_executable) {
  pjrt_program program = {.code = (char *)bytes, .code_size = size, .format = format, .format_size = strlen(format)};
  pjrt_args_compile args = {.client = client, .program = &program, .options = options, .options_size = options_size};
  pjrt_error *error = CALL(Client_Compile, &args);
  *out_executable = args.executable;
  return error;
}

static pjrt_error *compile(size_t size, const char *format, const char *options, size_t options_size,
                           pjrt_executable **out_executable) {
  return compile_bytes(add_one, size, format, options, options_size, out_executable);
}

static pjrt_executable *compile_add_one(void) {
  pjrt_executable *executable;
  assert_ok(__LINE__, "compile", compile(sizeof add_one, "mlir", "", 0, &executable));
  return executable;
}

static pjrt_error *execute(pjrt_executable *executable, size_t count, pjrt_buffer *const *arguments,
                           const pjrt_execute_options *options, pjrt_buffer **out_result) {
  pjrt_event *complete = NULL;
  pjrt_args_execute args = {.executable = executable,
                            .options = options,
                            .argument_lists = (pjrt_buffer *const *const[]){arguments},
                            .device_count = 1,
                            .argument_count = count,
                            .output_lists = (pjrt_buffer * *const[]){out_result},
                            .complete_events = &complete};
  pjrt_error *error = CALL(LoadedExecutable_Execute, &args);
  if (error == NULL) {
    HR_ASSERT_EQ(await(complete), 0);
  }
  return error;
}

static bool is_deleted(pjrt_buffer *buffer) {
  pjrt_args_flag args = {.self = buffer};
  ASSERT_CALL(Buffer_IsDeleted, &args);
  return args.flag;
}

static const float one_to_four[] = {1, 2, 3, 4}, two_to_five[] = {2, 3, 4, 5};

HR_TEST(a_program_describes_itself) {
  open_client();
  pjrt_executable *loaded = compile_add_one();
  pjrt_args_pointer executable = {.self = loaded};
  ASSERT_CALL(LoadedExecutable_GetExecutable, &executable);
  pjrt_args_size outputs = {.self = executable.pointer};
  ASSERT_CALL(Executable_NumOutputs, &outputs);
  HR_ASSERT_EQ(outputs.size, 1);
  pjrt_args_list types = {.self = executable.pointer};
  ASSERT_CALL(Executable_OutputElementTypes, &types);
  HR_ASSERT_EQ(((const pjrt_type *)types.list)[0], PJRT_TYPE_F32);
  pjrt_args_dims dims = {.executable = executable.pointer};
  ASSERT_CALL(Executable_OutputDimensions, &dims);
  HR_ASSERT_EQ(dims.dims[0], 4);
  pjrt_args_program_memory memory = {.executable = executable.pointer};
  ASSERT_CALL(Executable_GetCompiledMemoryStats, &memory);
  HR_ASSERT_EQ(memory.arguments, 16);
  HR_ASSERT_EQ(memory.aliases, 16);
  pjrt_args_bytes assignment = {.self = loaded};
  ASSERT_CALL(LoadedExecutable_GetDeviceAssignment, &assignment);
  HR_ASSERT_EQ((int64_t)assignment.bytes_size, 9);
  assignment.free(assignment.owned);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = loaded});
  ASSERT_CALL(Executable_NumOutputs, &outputs); /* its own reference */
  ASSERT_CALL(Executable_Destroy, &(pjrt_args_self){.self = executable.pointer});
}

HR_TEST(an_executable_can_be_loaded_again) {
  open_client();
  pjrt_executable *program = compile_add_one();
  pjrt_args_load load = {.client = client, .executable = program};
  ASSERT_CALL(Client_Load, &load);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = program});
  pjrt_buffer *x = put(PJRT_TYPE_F32, 1, (int64_t[]){4}, one_to_four), *y;
  assert_ok(__LINE__, "execute", execute(load.loaded, 1, &x, NULL, &y));
  float back[4];
  get(y, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, two_to_five, sizeof back);
  destroy(x);
  destroy(y);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = load.loaded});
}

HR_TEST(donated_arguments_are_deleted_unless_they_are_kept) {
  open_client();
  pjrt_executable *program = compile_add_one();
  pjrt_buffer *x = put(PJRT_TYPE_F32, 1, (int64_t[]){4}, one_to_four), *y, *z;
  pjrt_execute_options options = {.kept_inputs = (int64_t[]){0}, .kept_input_count = 1};
  assert_ok(__LINE__, "execute", execute(program, 1, &x, &options, &y));
  HR_ASSERT(!is_deleted(x));
  options.kept_input_count = 0;
  assert_ok(__LINE__, "execute", execute(program, 1, &x, &options, &z));
  HR_ASSERT(is_deleted(x));
  float back[4];
  get(y, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, two_to_five, sizeof back);
  get(z, back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, two_to_five, sizeof back);
  HR_ASSERT_EQ(code_of(execute(program, 1, &x, &options, &z)), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_CONTAINS(message, "input 0");
  destroy(x);
  destroy(y);
  destroy(z);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = program});
}

HR_TEST(tokens_are_arrays_without_elements) {
  open_client();
  pjrt_executable *program;
  assert_ok(__LINE__, "compile", compile_bytes(with_tokens, sizeof with_tokens, "mlir", "", 0, &program));
  static const float five[] = {5, 7}, two[] = {2, 4}, differences[] = {3, 3}, products[] = {10, 28};
  pjrt_buffer *token = put(PJRT_TYPE_PRED, 1, (int64_t[]){0}, NULL), *results[4];
  pjrt_buffer *a = put(PJRT_TYPE_F32, 1, (int64_t[]){2}, five), *b = put(PJRT_TYPE_F32, 1, (int64_t[]){2}, two);
  assert_ok(__LINE__, "execute", execute(program, 4, (pjrt_buffer *[]){token, a, token, b}, NULL, results));
  HR_ASSERT(is_deleted(a) && is_deleted(b) && !is_deleted(token));
  float back[2];
  get(results[0], back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, differences, sizeof back);
  get(results[3], back, sizeof back);
  HR_ASSERT_BYTES_EQ(back, products, sizeof back);
  for (int i = 1; i <= 2; ++i) {
    pjrt_args_list type = {.self = results[i]};
    ASSERT_CALL(Buffer_Dimensions, &type);
    HR_ASSERT_EQ((int64_t)type.count, 1);
    HR_ASSERT_EQ(((const int64_t *)type.list)[0], 0);
    get(results[i], back, 0);
  }
  HR_ASSERT_EQ(code_of(execute(program, 4, (pjrt_buffer *[]){token, a, token, a}, NULL, results)),
               HR_STATUS_INVALID_ARGUMENT);
  for (int i = 0; i < 4; ++i) {
    destroy(results[i]);
  }
  destroy(token);
  destroy(a);
  destroy(b);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = program});
}

HR_TEST(wrong_calls_fail_and_leave_arguments_as_they_are) {
  open_client();
  pjrt_executable *program = compile_add_one();
  pjrt_buffer *x = put(PJRT_TYPE_F32, 1, (int64_t[]){4}, one_to_four), *y;
  HR_ASSERT_EQ(code_of(execute(program, 2, (pjrt_buffer *[]){x, x}, NULL, &y)), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_CONTAINS(message, "2 inputs, expected 1");
  pjrt_buffer *wide = put(PJRT_TYPE_F32, 1, (int64_t[]){3}, one_to_four);
  HR_ASSERT_EQ(code_of(execute(program, 1, &wide, NULL, &y)), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT(!is_deleted(wide));
  ASSERT_CALL(LoadedExecutable_Delete, &(pjrt_args_self){.self = program});
  HR_ASSERT_EQ(code_of(execute(program, 1, &x, NULL, &y)), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT(!is_deleted(x));
  destroy(x);
  destroy(wide);
  ASSERT_CALL(LoadedExecutable_Destroy, &(pjrt_args_self){.self = program});
}

HR_TEST(programs_that_cannot_run_are_refused) {
  open_client();
  pjrt_executable *program;
  HR_ASSERT_EQ(code_of(compile(sizeof add_one, "hlo", "", 0, &program)), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_CONTAINS(message, "\"hlo\"");
  for (size_t size = 0; size < sizeof add_one; ++size) {
    HR_ASSERT(code_of(compile(size, "mlir", "", 0, &program)) != 0);
  }
  static const char replicas[] = {0x1a, 2, 0x20, 2}; /* executable_build_options {num_replicas: 2} */
  HR_ASSERT_EQ(code_of(compile(sizeof add_one, "mlir", replicas, sizeof replicas, &program)), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_CONTAINS(message, "2 replicas");
  static const char device[] = {0x1a, 7, 0x4a, 5, 0x1a, 3, 0x0a, 1, 90}; /* device_assignment of device 90 */
  HR_ASSERT_EQ(code_of(compile(sizeof add_one, "mlir", device, sizeof device, &program)), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_CONTAINS(message, "device 90");
}
