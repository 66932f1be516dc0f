// SPDX-License-Identifier: Apache-2.0
#include "ptx/ptx.h"

#include "test.h"

enum { THREADS = 64, WORDS = 512, TEXT = 8192 };

/* In `body` %rd1 is the address of `out`, %rd2 that of `in`, %r0 the thread's index. */
static bool run(const char *body, uint32_t out[WORDS], uint32_t in[WORDS])
{
    char text[TEXT];
    snprintf(text, sizeof text,
             ".version 9.0 .target sm_90 .address_size 64 // a comment\n"
             ".extern .shared .align 16 .b8 dynamic[];\n"
             ".global .align 4 .b8 table[4] = {1, 0, 255, 0x10};\n"
             ".global .align 4 .u32 words[2] = {1, -70000}; .global .u32 word = 3;\n"
             ".visible .entry tested(.param .u64 to, .param .u64 from)\n.maxntid 64, 1, 1\n{\n"
             ".reg .pred %%p<8>; .reg .b16 %%rs<8>; .reg .b32 %%r<64>; .reg .f32 %%f<32>;\n"
             ".reg .b64 %%rd<16>;\n.shared .align 8 .b8 before[8];\n"
             ".local .align 8 .b8 depot[16];\n"
             "ld.param.u64 %%rd1, [to]; ld.param.u64 %%rd2, [from]; mov.u32 %%r0, %%tid.x;\n"
             "%s\nret;\n}\n",
             body);
    struct ptx_module *m = ptx_open(text);
    struct ptx_kernel *k = m ? ptx_find(m, "tested") : NULL;
    CHECK(k && !ptx_find(m, "teste"));
    ptx_memory_add(out, WORDS * sizeof *out);
    ptx_memory_add(in, WORDS * sizeof *in);
    void *arguments[] = {&out, &in};
    bool passed = ptx_parse(m, k) && ptx_run(k, (struct ptx_dim){1, 1, 1},
                                             (struct ptx_dim){THREADS, 1, 1}, arguments, 4096);
    ptx_memory_remove(in);
    ptx_memory_remove(out);
    ptx_close(m);
    return passed;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* An operation on %r1 and %r2, or as float32 on %f1 and %f2, whose result is %r3. */
static void check_result(const char *operation, uint32_t x, uint32_t y, uint32_t want)
{
    char body[1024];
    uint32_t out[WORDS] = {0}, in[WORDS] = {x, y};
    snprintf(body, sizeof body,
             "ld.global.v2.u32 {%%r1, %%r2}, [%%rd2]; mov.b32 %%f1, %%r1; mov.b32 %%f2, %%r2;\n"
             "%s st.global.u32 [%%rd1], %%r3;",
             operation);
    CHECK(run(body, out, in));
    if (out[0] != want)
        fail_msg("%s of %#x and %#x is %#x, not %#x", operation, x, y, out[0], want);
}

TEST(integer_instructions_follow_the_manual_at_their_limits)
{
    check_result("add.s32 %r3, %r1, %r2;", UINT32_MAX, 2, 1);
    check_result("mul.hi.s32 %r3, %r1, %r2;", (uint32_t)-2, 3, UINT32_MAX);
    check_result("shl.b32 %r3, %r1, %r2;", 1, 32, 0);
    check_result("shr.u32 %r3, %r1, %r2;", 1u << 31, 31, 1);
    check_result("shr.s32 %r3, %r1, %r2;", 1u << 31, 40, UINT32_MAX);
    check_result("min.s32 %r3, %r1, %r2;", UINT32_MAX, 1, UINT32_MAX);
    check_result("min.u32 %r3, %r1, %r2;", UINT32_MAX, 1, 1);
    check_result("div.s32 %r3, %r1, %r2;", (uint32_t)-7, 2, (uint32_t)-3);
    check_result("rem.s32 %r3, %r1, %r2;", (uint32_t)-7, 2, (uint32_t)-1);
    check_result("mad.lo.s32 %r3, %r1, %r2, 5;", 3, 4, 17);
    check_result("prmt.b32 %r3, %r1, %r2, 4180;", 0x33221100, 0x77665544, 0x11005544);
    check_result("prmt.b32 %r3, %r1, %r2, 0x8888;", 0x80, 0, UINT32_MAX);
    check_result("bfi.b32 %r3, %r1, %r2, 8, 4;", 0xFF, 0, 0xF00);
    check_result("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 7, -9, %p1;", UINT32_MAX, 0, 7);
    check_result("setp.lt.u32 %p1, %r1, %r2; selp.b32 %r3, 7, -9, %p1;", UINT32_MAX, 0,
                 (uint32_t)-9);
    check_result("mov.pred %p1, -1; not.pred %p2, %p1; or.pred %p3, %p2, %p2;"
                 "mov.u32 %r3, 4; @%p3 mov.u32 %r3, 5; @!%p3 add.s32 %r3, %r3, 2;",
                 0, 0, 6);
    check_result("mul.wide.u32 %rd3, %r1, %r2; shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r3, %rd3;",
                 UINT32_MAX, UINT32_MAX, UINT32_MAX - 1);
    check_result("mul.wide.u32 %rd3, %r1, %r2; cvt.s64.s32 %rd4, %rd3; cvt.u32.u64 %r3, %rd4;", 3,
                 5, 15);
    check_result("mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r3, {%rs2, %rs1};", 0x12345678, 0,
                 0x56781234);
    check_result("cvt.u16.u32 %rs1, %r1; mov.b32 %r3, {0, %rs1};", 0x1234, 0, 0x12340000);
    check_result("mov.b32 {_, %rs1}, %r1; cvt.u32.u16 %r3, %rs1;", 0x12345678, 0, 0x1234);
    check_result("cvt.u16.u32 %rs1, %r1; cvt.u32.u16 %r3, %rs1;", 0x12345, 0, 0x2345);
    check_result("mov.u64 %rd3, table; ld.global.s8 %r3, [%rd3+2];", 0, 0, UINT32_MAX);
    check_result("mov.u64 %rd3, words; ld.global.u32 %r3, [%rd3+4];", 0, 0, (uint32_t)-70000);
    check_result("mov.u64 %rd3, word; ld.global.u32 %r3, [%rd3];", 0, 0, 3);
    check_result("st.local.u32 [depot+4], %r1; ld.local.u32 %r3, [depot+4];", 9, 0, 9);
}

TEST(float_instructions_follow_the_manual_at_their_limits)
{
    uint32_t one = bits_of(1), nan = bits_of(NAN), tiny = bits_of(0x1p-30f);
    check_result("fma.rn.f32 %f3, %f1, %f2, %f2; mov.b32 %r3, %f3;", tiny, one,
                 bits_of(1 + 0x1p-30f));
    check_result("fma.rm.f32 %f3, %f1, %f1, %f2; mov.b32 %r3, %f3;", tiny, bits_of(-1),
                 bits_of(-1));
    check_result("add.rz.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", one, bits_of(-0x1p-40f),
                 bits_of(1 - 0x1p-24f));
    check_result("max.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", nan, one, one);
    check_result("max.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", bits_of(-0.0f), 0, 0);
    check_result("max.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", 0, bits_of(-0.0f), 0);
    check_result("min.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", 0, bits_of(-0.0f), 1u << 31);
    check_result("div.approx.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", one, bits_of(0x1p127f), 0);
    check_result("setp.neu.f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", nan, nan, 1);
    check_result("setp.lt.f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", nan, one, 0);
    check_result("setp.geu.f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", nan, one, 1);
    check_result("cvt.rzi.s32.f32 %r3, %f1;", bits_of(-2.9f), 0, (uint32_t)-2);
    check_result("cvt.rzi.s32.f32 %r3, %f1;", bits_of(1e20f), 0, INT32_MAX);
    check_result("cvt.sat.f32.f32 %f3, %f1; mov.b32 %r3, %f3;", nan, 0, 0);
    check_result("ex2.approx.ftz.f32 %f3, %f1; mov.b32 %r3, %f3;", bits_of(-140), 0, 0);
    check_result("mul.f32 %f3, %f1, 0f3F000000; mov.b32 %r3, %f3;", bits_of(3), 0, bits_of(1.5f));
    /* The first operand becomes the upper half. */
    check_result("cvt.rn.bf16x2.f32 %r3, %f1, %f2;", one, bits_of(-2), 0x3F80C000);
    check_result("cvt.rn.bf16x2.f32 %r3, %f1, %f2;", 0x3F808000, 0x3F818000, 0x3F803F82);
    check_result("cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2; cvt.u32.u16 %r3, %rs1;",
                 bits_of(1e9f), nan, 0x7E7F);
    check_result("cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2; cvt.u32.u16 %r3, %rs1;",
                 bits_of(-1.0625f), bits_of(0x1p-9f), 0xB801);
    check_result("cvt.rn.satfinite.e5m2x2.f32 %rs1, %f1, %f2; cvt.u32.u16 %r3, %rs1;",
                 bits_of(-INFINITY), bits_of(1.25f), 0xFB3D);
}

TEST(lanes_that_diverged_meet_again_at_a_shuffle)
{
    uint32_t out[WORDS] = {0}, in[WORDS] = {0};
    CHECK(run("and.b32 %r1, %r0, 3; mov.u32 %r2, 0;\n"
              "again: setp.eq.s32 %p1, %r1, 0; @%p1 bra done;\n"
              "add.s32 %r2, %r2, 10; sub.s32 %r1, %r1, 1; bra.uni again;\n"
              "done: shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1;\n"
              "shfl.sync.idx.b32 %r4, %r3, 3, 7175, -1;\n" /* 0x1C07: in groups of 4 */
              "mul.wide.u32 %rd3, %r0, 8; add.s64 %rd3, %rd1, %rd3;\n"
              "st.global.v2.u32 [%rd3], {%r3, %r4};",
              out, in));
    for (unsigned t = 0; t < THREADS; t++)
        CHECK(out[2 * t] == 10 * ((t ^ 1) & 3) && out[2 * t + 1] == 20);
}

TEST(a_barrier_orders_the_warps_of_a_block)
{
    uint32_t out[WORDS] = {0}, in[WORDS] = {0};
    CHECK(run("shl.b32 %r1, %r0, 2; mov.u32 %r2, dynamic; add.s32 %r3, %r2, %r1;\n"
              "st.shared.u32 [%r3], %r0; bar.sync 0;\n"
              "sub.s32 %r4, 252, %r1; add.s32 %r4, %r2, %r4; ld.shared.u32 %r5, [%r4];\n"
              "cvt.u64.u32 %rd3, %r1; add.s64 %rd3, %rd1, %rd3; st.global.u32 [%rd3], %r5;\n"
              "mov.u32 %r6, before; add.s32 %r6, %r6, 8; setp.gt.u32 %p1, %r6, %r2;\n"
              "mov.u32 %r7, 99; @%p1 st.global.u32 [%rd1], %r7;", /* one variable in another */
              out, in));
    for (unsigned t = 0; t < THREADS; t++) CHECK(out[t] == 63 - t);
}

TEST(an_asynchronous_copy_arrives_when_it_is_waited_for)
{
    uint32_t out[WORDS] = {0}, in[WORDS] = {11, 12, 13, 14};
    CHECK(run("setp.ne.s32 %p1, %r0, 0; @%p1 ret; mov.u32 %r1, dynamic; mov.u32 %r2, 8;\n"
              "cp.async.cg.shared.global [%r1], [%rd2], 16, %r2; cp.async.commit_group;\n"
              "add.s32 %r3, %r1, 16; cp.async.cg.shared.global [%r3], [%rd2], 16, 16;\n"
              "cp.async.commit_group; cp.async.wait_group 1;\n"
              "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1]; ld.shared.u32 %r8, [%r1+16];\n"
              "cp.async.wait_group 0; ld.shared.u32 %r9, [%r1+28];\n"
              "st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};\n"
              "st.global.v2.u32 [%rd1+16], {%r8, %r9};",
              out, in));
    static const uint32_t want[] = {11, 12, 0, 0, 0xFBFBFBFB, 14};
    CHECK(!memcmp(out, want, sizeof want));
}

static uint16_t small_bf16(unsigned i) { return (uint16_t)(bits_of((float)(i * 7 % 9) - 4) >> 16); }

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A, 16 x 16, at `in`; B, 16 x 8, 512 bytes behind it; both in rows. */
TEST(matrices_from_shared_memory_multiply_as_their_elements_do)
{
    uint32_t out[WORDS] = {0}, in[WORDS] = {0};
    uint16_t a[256], b[128];
    for (unsigned i = 0; i < 256; i++) a[i] = small_bf16(i);
    for (unsigned i = 0; i < 128; i++) b[i] = small_bf16(3 * i + 1);
    memcpy(in, a, sizeof a);
    memcpy(in + 128, b, sizeof b);
    CHECK(run("setp.gt.s32 %p1, %r0, 31; @%p1 ret; mov.u32 %r1, dynamic;\n"
              "mul.wide.u32 %rd3, %r0, 16; add.s64 %rd3, %rd2, %rd3;\n" /* 16 bytes per lane */
              "shl.b32 %r2, %r0, 4; add.s32 %r2, %r1, %r2;\n"
              "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd3];\n"
              "st.shared.v4.u32 [%r2], {%r3, %r4, %r5, %r6};\n"
              "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd3+512];\n"
              "st.shared.v4.u32 [%r2+512], {%r3, %r4, %r5, %r6}; bar.warp.sync -1;\n"
              /* row = lane % 16, of A from column 8 (lane / 16) on; of B: row = lane % 16 */
              "and.b32 %r7, %r0, 15; shl.b32 %r8, %r7, 5; shr.u32 %r9, %r0, 4;\n"
              "shl.b32 %r10, %r9, 4; add.s32 %r8, %r8, %r10; add.s32 %r8, %r1, %r8;\n"
              "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r8];\n"
              "shl.b32 %r15, %r7, 4; add.s32 %r15, %r1, %r15; add.s32 %r15, %r15, 512;\n"
              "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r16, %r17, %r18, %r19}, [%r15];\n"
              "mov.f32 %f1, 0f3F800000;\n"
              "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5},\n"
              "{%r11, %r12, %r13, %r14}, {%r16, %r17}, {%f1, %f1, %f1, %f1};\n"
              /* rows lane / 4 and 8 more, columns 2 (lane % 4) and the next */
              "shr.u32 %r20, %r0, 2; shl.b32 %r20, %r20, 5; and.b32 %r21, %r0, 3;\n"
              "shl.b32 %r21, %r21, 3; add.s32 %r20, %r20, %r21; cvt.u64.u32 %rd4, %r20;\n"
              "add.s64 %rd4, %rd1, %rd4; st.global.v2.f32 [%rd4], {%f2, %f3};\n"
              "st.global.v2.f32 [%rd4+256], {%f4, %f5};",
              out, in));
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = 1;
            for (int k = 0; k < 16; k++) want += from_bf16(a[m * 16 + k]) * from_bf16(b[k * 8 + n]);
            CHECK(out[m * 8 + n] == bits_of(want));
        }
}

TEST(a_kernel_that_does_what_a_gpu_forbids_ends_with_an_error)
{
    static const char *const bodies[] = {
        "ld.global.u32 %r1, [%rd2+8192];",                      /* behind the end */
        "ld.global.u32 %r1, [%rd2+-8192];",                     /* in front of the begin */
        "ld.global.v2.u32 {%r1, %r2}, [%rd2+4];",               /* misaligned */
        "mov.u32 %r1, dynamic; st.shared.u32 [%r1+4096], %r0;", /* behind the end */
        "ld.local.u32 %r1, [depot+16];",                        /* behind the end */
        "add.s64 %rd3, %rd2, %rd9; ld.global.u32 %r1, [%rd3];", /* %rd9 is not initialized */
        "setp.lt.s32 %p1, %r0, 5; @%p1 ret; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
        "setp.lt.s32 %p1, %r0, 5; @%p1 bra odd; bar.warp.sync -1; odd: add.s32 %r1, %r0, 1;",
        "mov.u32 %r1, dynamic;" /* rows of a matrix at the lanes' own, misaligned addresses */
        "add.s32 %r1, %r1, %r0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, "
        "[%r1];",
        "shfl.sync.idx.b32 %r1, %r0, 0, 31, 1;", /* of one member */
        "bar.sync 1, 32;",                       /* of some threads of the block */
        "brkpt;",                                /* not implemented */
        "add.s32 %r1, %r0, %none;",              /* not a register */
        "add.s64 %rd3, %rd1, %r0;",              /* of another size */
        "add.s32 %rd3, %r0, %r0;",
        "bra nowhere;",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        uint32_t out[WORDS] = {0}, in[WORDS] = {0};
        if (run(bodies[i], out, in)) fail_msg("passed: %s", bodies[i]);
    }
}
