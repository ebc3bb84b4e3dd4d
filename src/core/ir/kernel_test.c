/* The kernel form: its order of reductions, its text, and the verifier's errors. */
#include "hr_test.h"

#include "core/ir/kernel.h"

/* y = x - amax(x) over [4, 40], written by hand; tests damage it. */
typedef struct sample {
  hr_kernel kernel;
  int64_t dims[2], dense[2], row[2];
  hr_kernel_arg args[2];
  hr_access accesses[2];
  hr_register registers[4];
  hr_instr instrs[5];
} sample;

static void make_sample(sample *s) {
  *s = (sample){.dims = {4, 40}, .dense = {40, 1}, .row = {1, 0}};
  s->args[0] = (hr_kernel_arg){.buffer = 7, .is_read = true};
  s->args[1] = (hr_kernel_arg){.buffer = 9, .is_written = true};
  s->accesses[0] = (hr_access){.arg = 0, .dtype = HR_DTYPE_F32, .strides = s->dense, .fill = -1};
  s->accesses[1] = (hr_access){.arg = 1, .dtype = HR_DTYPE_F16, .offset = 3, .strides = s->dense, .fill = -1};
  s->registers[0] = (hr_register){HR_CLASS_F32, HR_LEVEL_ELEMENT, 0, 1};
  s->registers[1] = (hr_register){HR_CLASS_F32, HR_LEVEL_ROW, 0, 1};
  s->registers[2] = (hr_register){HR_CLASS_F32, HR_LEVEL_ELEMENT, 1, 1};
  s->registers[3] = (hr_register){HR_CLASS_F32, HR_LEVEL_ELEMENT, 1, 1};
  hr_source r0 = {HR_SOURCE_REGISTER, 0}, r1 = {HR_SOURCE_REGISTER, 1}, r2 = {HR_SOURCE_REGISTER, 2},
            r3 = {HR_SOURCE_REGISTER, 3};
  s->instrs[0] = (hr_instr){.kind = HR_INSTR_LOAD, .cls = HR_CLASS_F32, .dst = 0, .access = 0};
  s->instrs[1] = (hr_instr){.kind = HR_INSTR_REDUCE,
                            .op = HR_OP_AMAX,
                            .cls = HR_CLASS_F32,
                            .dst = 1,
                            .source_count = 1,
                            .sources = {r0},
                            .access = -1};
  s->instrs[2] = (hr_instr){.kind = HR_INSTR_COMPUTE,
                            .phase = 1,
                            .op = HR_OP_SUB,
                            .cls = HR_CLASS_F32,
                            .dst = 2,
                            .source_count = 2,
                            .sources = {r0, r1},
                            .access = -1};
  s->instrs[3] = (hr_instr){.kind = HR_INSTR_CONVERT,
                            .phase = 1,
                            .cls = HR_CLASS_F32,
                            .to = HR_DTYPE_F16,
                            .dst = 3,
                            .source_count = 1,
                            .sources = {r2},
                            .access = -1};
  s->instrs[4] = (hr_instr){.kind = HR_INSTR_STORE,
                            .phase = 1,
                            .cls = HR_CLASS_F32,
                            .dst = -1,
                            .source_count = 1,
                            .sources = {r3},
                            .access = 1};
  s->kernel = (hr_kernel){.name = "amax_sub",
                          .rank = 2,
                          .dims = s->dims,
                          .reduce_mask = 2,
                          .order = HR_ORDER_LANES,
                          .phase_count = 2,
                          .arg_count = 2,
                          .access_count = 2,
                          .instr_count = 5,
                          .register_count = 4,
                          .args = s->args,
                          .accesses = s->accesses,
                          .instrs = s->instrs,
                          .registers = s->registers};
}

HR_TEST(kernels_print_as_text) {
  sample s;
  make_sample(&s);
  hr_text text = {0};
  HR_ASSERT_OK(hr_kernel_print(&s.kernel, &text));
  HR_ASSERT_STR_EQ(hr_text_chars(&text), "kernel amax_sub dims [4,40] reduce {1} order lanes phases 2\n"
                                         "  arg 0 %7 read\n"
                                         "  arg 1 %9 written\n"
                                         "  phase 0\n"
                                         "    r0:f32 = load a0:f32+0{40,1}\n"
                                         "    r1:f32 row = reduce amax.f32 r0\n"
                                         "  phase 1\n"
                                         "    r2:f32 = sub.f32 r0, r1\n"
                                         "    r3:f32 = convert r2 to f16\n"
                                         "    store a1:f16+3{40,1}, r3\n");
  hr_text_fini(&text);
}

HR_TEST(the_verifier_accepts_a_sound_kernel) {
  sample s;
  make_sample(&s);
  HR_ASSERT_OK(hr_kernel_verify(&s.kernel));
}

static void refuses(sample *s, const char *why) {
  HR_ASSERT_ERROR(hr_kernel_verify(&s->kernel), HR_STATUS_INTERNAL, why);
  make_sample(s);
}

HR_TEST(the_verifier_refuses) {
  sample s;
  make_sample(&s);
  s.kernel.order = HR_ORDER_SEQUENTIAL;
  refuses(&s, "order of reductions");
  s.kernel.reduce_mask = 8;
  refuses(&s, "outside the domain");
  s.kernel.ordered_mask = 1;
  refuses(&s, "reduces and scatters");
  s.instrs[2].phase = 0;
  refuses(&s, "before it is made");
  s.instrs[2].level = HR_LEVEL_ROW;
  refuses(&s, "level of a register");
  s.registers[0].last_phase = 0;
  refuses(&s, "last phase");
  s.registers[2].cls = HR_CLASS_F64;
  refuses(&s, "class of the result");
  s.instrs[2].source_count = 1;
  refuses(&s, "number of sources");
  s.instrs[2].sources[1].index = 17;
  refuses(&s, "register");
  s.instrs[2].sources[1].kind = HR_SOURCE_SCALAR;
  refuses(&s, "scalar");
  s.instrs[4].access = 5;
  refuses(&s, "access");
  s.accesses[1].dtype = HR_DTYPE_F64;
  refuses(&s, "class of a source");
  s.args[1].is_written = false;
  refuses(&s, "declared");
  s.instrs[1].op = HR_OP_ADD;
  refuses(&s, "family");
  s.instrs[0].level = HR_LEVEL_ROW;
  refuses(&s, "reduced dim");
}

HR_TEST(orders_follow_the_shape) {
  HR_ASSERT_EQ(hr_kernel_order(2, (int64_t[]){8, 100}, 0), HR_ORDER_NONE);
  HR_ASSERT_EQ(hr_kernel_order(2, (int64_t[]){8, 100}, 2), HR_ORDER_LANES);
  HR_ASSERT_EQ(hr_kernel_order(2, (int64_t[]){8, 32}, 2), HR_ORDER_SEQUENTIAL);
  HR_ASSERT_EQ(hr_kernel_order(2, (int64_t[]){100, 8}, 1), HR_ORDER_SEQUENTIAL);
  HR_ASSERT_EQ(hr_kernel_order(3, (int64_t[]){100, 8, 1}, 3), HR_ORDER_LANES);
  HR_ASSERT_EQ(hr_kernel_order(3, (int64_t[]){100, 1, 8}, 1), HR_ORDER_SEQUENTIAL);
  HR_ASSERT_EQ(hr_kernel_order(2, (int64_t[]){100, 0}, 3), HR_ORDER_SEQUENTIAL);
}

HR_TEST(dense_accesses_visit_elements_in_the_order_of_memory) {
  sample s;
  hr_bound bound = {.extent = 4, .strides = (int64_t[]){1, 0}};
  hr_kernel_term term = {.reg = 0, .stride = 1, .extent = 9};
  make_sample(&s); /* [4, 40] */
  HR_ASSERT(hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
  s.dense[0] = 41;
  HR_ASSERT(!hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
  s.dims[0] = 1; /* its stride is never used */
  HR_ASSERT(hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
  s.dense[1] = 0;
  HR_ASSERT(!hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
  make_sample(&s);
  s.accesses[0].bounds = &bound, s.accesses[0].bound_count = 1;
  HR_ASSERT(!hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
  make_sample(&s);
  s.accesses[0].terms = &term, s.accesses[0].term_count = 1;
  HR_ASSERT(!hr_kernel_is_dense(&s.kernel, &s.accesses[0]));
}

HR_TEST(a_key_gives_its_kernel_back) {
  sample s;
  hr_kernel_key key = {0}, again = {0};
  hr_arena arena = {0};
  int64_t along[] = {1, 0};
  hr_bound bound = {.offset = -1, .extent = 4, .strides = along};
  hr_kernel_term term = {.reg = 0, .stride = 7, .extent = 9};
  make_sample(&s);
  s.accesses[1].bounds = &bound, s.accesses[1].bound_count = 1;
  s.accesses[1].terms = &term, s.accesses[1].term_count = 1;
  HR_ASSERT(hr_kernel_make_key(&s.kernel, &key));
  hr_kernel *kernel = hr_kernel_from_key(key.data, key.data + key.structure_bytes, &arena);
  HR_ASSERT(kernel != NULL);
  HR_ASSERT(hr_kernel_make_key(kernel, &again));
  HR_ASSERT_EQ(again.count, key.count);
  HR_ASSERT_EQ(memcmp(again.data, key.data, key.count * sizeof *key.data), 0);
  const size_t structure_bytes = key.structure_bytes;
  along[0] = 3, bound.offset = 1, bound.extent = 5, term.stride = 70, term.extent = 2000;
  HR_ASSERT(hr_kernel_make_key(&s.kernel, &again));
  HR_ASSERT_EQ(again.structure_bytes, structure_bytes);
  HR_ASSERT_EQ(memcmp(again.data, key.data, structure_bytes), 0); /* the numbers alone differ */
  HR_ASSERT(again.count != key.count);
  hr_vector_fini(&key);
  hr_vector_fini(&again);
  hr_arena_fini(&arena);
}
