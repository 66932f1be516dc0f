// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/staging.h"

#include "backends/cpu/cpu.h"
#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "checkpoint/rig.h"
#include "tensor/blockwise.h"
#include "tensor/device.h"

enum form { WHOLE, SPLIT, QUANTIZED, FORMS }; /* f32; split and bf16; split and INT8 */
enum memory { NO_QUEUE, ON_CPU, ON_GPU, MEMORIES };
enum { BUFFERS = VALUE_GRADIENT, FULL = 256 };

/* A state in a GPU's memory, or in host memory: of a CPU's queue, or without one. */
struct rig {
    struct queue *queue;
    struct arena own, pinned;
    struct store_range ranges[2];
    struct store_blocks blocks[2];
    struct checkpoint_state state;
    struct staging staging;
    size_t staging_bytes;
};

static void *alloc(struct rig *r, size_t count, enum dtype dtype)
{
    return arena_alloc(&r->own, count, dtype_bytes(dtype));
}

/* Fills a store with values of its own: of `x`, or random ones. */
static void fill(struct store to, size_t n, uint64_t seed, const float *x, bool positive)
{
    float *values = heap(n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        float y = x ? x[i] : (float)((i * 2654435761u + seed * 977u) % 100003) / 5e4f - 1;
        values[i] = positive ? fabsf(y) : y;
    }
    CHECK_STATUS(OK, store_write(&to, 0, n, values));
    free(values);
}

/* `from`: values of the state, or NULL. */
static void open(struct rig *r, enum memory in, enum form form, const struct shard *shard,
                 const struct saved *from)
{
    const size_t n = shard->elements;
    *r = (struct rig){.ranges = {{512, 100, 0}, {612, FULL - 100, 100}}};
    if (in == ON_GPU) CHECK_STATUS(OK, gpu_emu32_open(&r->queue, 0));
    if (in == ON_GPU) r->queue->num_threads = 2;
    if (in == ON_CPU) CHECK_STATUS(OK, cpu_queue_open(&r->queue, 2, 0));
    CHECK_STATUS(OK, arena_init(&r->own, 17 * n + 65536, queue_device_allocator(r->queue)));
    enum dtype moments = form == WHOLE ? F32 : form == SPLIT ? BF16 : INT8;
    r->state = (struct checkpoint_state){.shard = shard, .queue = r->queue, .moments = moments};
    r->state.weights = alloc(r, n, form == WHOLE ? F32 : BF16);
    r->state.low = form == WHOLE ? NULL : alloc(r, n, BF16);
    r->state.exp_avg = alloc(r, n, moments), r->state.exp_avg_sq = alloc(r, n, moments);
    r->state.ema = alloc(r, n, F32);
    for (int i = 0; i < 2; i++)
        r->blocks[i] = (struct store_blocks){.scales = alloc(r, blockwise_num_blocks(n), F32),
                                             .full = alloc(r, FULL, F32),
                                             .ranges = r->ranges,
                                             .num_ranges = 2,
                                             .is_signed = i == 0};
    r->state.moment_blocks = form == QUANTIZED ? r->blocks : NULL;
    fill(checkpoint_weights(&r->state), n, 1, from ? from->weights : NULL, false);
    fill(checkpoint_exp_avg(&r->state), n, 2, from ? from->exp_avg : NULL, false);
    fill(checkpoint_exp_avg_sq(&r->state), n, 3, from ? from->exp_avg_sq : NULL, true);
    fill(checkpoint_ema(&r->state), n, 4, NULL, false);
    r->staging_bytes = staging_bytes(shard, shard, moments, r->state.moment_blocks, true);
    CHECK_STATUS(OK,
                 arena_init(&r->pinned, r->staging_bytes + 4096, queue_shared_allocator(r->queue)));
    r->staging.memory = arena_alloc(&r->pinned, r->staging_bytes + sizeof(int), 1);
    memset((char *)r->staging.memory + r->staging_bytes, 0x5A, sizeof(int));
}

static void close(struct rig *r)
{
    int after;
    memcpy(&after, (char *)r->staging.memory + r->staging_bytes, sizeof after);
    CHECK(after == 0x5A5A5A5A);
    arena_release(&r->own), arena_release(&r->pinned);
    if (r->queue && r->queue->device)
        gpu_emu32_close(r->queue);
    else
        cpu_queue_close(r->queue);
}

static void check_same(struct store a, struct store b, size_t n)
{
    float *x = heap(n * sizeof *x), *y = heap(n * sizeof *y);
    CHECK_STATUS(OK, store_read(&a, 0, n, x));
    CHECK_STATUS(OK, store_read(&b, 0, n, y));
    CHECK(!memcmp(x, y, n * sizeof *x));
    free(x), free(y);
}

/* Chunks of 16 MiB: 3 of f32, 2 of bf16, 1 of INT8, the last one of a few bytes. */
static const struct shard large = {.elements = (8 << 20) + 77}, small = {.elements = 1001};

static void check_staged(struct rig *r)
{
    struct checkpoint_state staged;
    const size_t n = r->state.shard->elements;
    CHECK_STATUS(OK, staging_fill(&r->staging, &r->state, &staged));
    CHECK(!staged.queue);
    CHECK_STATUS(OK, staging_check(&r->staging, &staged, 0));
    check_same(checkpoint_weights(&staged), checkpoint_weights(&r->state), n);
    check_same(checkpoint_exp_avg(&staged), checkpoint_exp_avg(&r->state), n);
    check_same(checkpoint_exp_avg_sq(&staged), checkpoint_exp_avg_sq(&r->state), n);
    check_same(checkpoint_ema(&staged), checkpoint_ema(&r->state), n);
}

TEST(a_staged_state_has_the_bits_of_the_state)
{
    for (enum form form = 0; form < FORMS; form++)
        for (enum memory in = NO_QUEUE; in < MEMORIES; in++) {
            struct rig r;
            open(&r, in, form, in == ON_CPU ? &large : &small, NULL);
            check_staged(&r);
            close(&r);
        }
}

TEST(a_state_without_moments_or_average_is_staged_too)
{
    struct rig r;
    struct checkpoint_state staged;
    open(&r, ON_GPU, QUANTIZED, &small, NULL);
    CHECK_STATUS(OK, staging_fill(&r.staging, &r.state, &staged));
    r.state.exp_avg = NULL, r.state.exp_avg_sq = NULL, r.state.ema = NULL;
    CHECK_STATUS(OK, staging_fill(&r.staging, &r.state, &staged));
    CHECK(!staged.exp_avg && !staged.exp_avg_sq && !staged.ema);
    CHECK_STATUS(OK, staging_check(&r.staging, &staged, 0));
    check_same(checkpoint_weights(&staged), checkpoint_weights(&r.state), small.elements);
    close(&r);
}

TEST(a_change_of_any_part_of_a_staged_state_is_found)
{
    static const char *const names[] = {"of weights that", "of exp_avg that", "of exp_avg_sq that",
                                        "of ema that"};
    struct rig r;
    struct checkpoint_state staged;
    open(&r, ON_GPU, QUANTIZED, &small, NULL);
    CHECK_STATUS(OK, staging_fill(&r.staging, &r.state, &staged));
    for (int i = 0; i < BUFFERS; i++) {
        struct store_parts p = store_find_parts(&r.staging.of[i].store, small.elements);
        for (int k = 0; k < STORE_PARTS; k++)
            if (p.x[k]) {
                char *last = (char *)p.x[k] + p.bytes[k] - 1;
                *last ^= 4;
                CHECK_STATUS(DEVICE, staging_check(&r.staging, &staged, 3));
                CHECK_MESSAGE(names[i]);
                *last ^= 4;
            }
    }
    CHECK_STATUS(OK, staging_check(&r.staging, &staged, 3));
    close(&r);
}

static char calls[256];
static size_t num_calls, copied_bytes;

static void observe(enum emulator_work work, const char *kernel, size_t bytes)
{
    (void)kernel;
    CHECK(num_calls + 1 < sizeof calls);
    calls[num_calls++] = work == EMULATOR_COPY ? 'c' : work == EMULATOR_WAIT ? 'w' : '?';
    if (work == EMULATOR_COPY) copied_bytes += bytes;
}

/* The host waits for a chunk when the next one has been submitted. */
TEST(staging_from_a_gpu_keeps_a_copy_in_flight_and_copies_each_byte_once)
{
    static const char *const expected[] = {"w"
                                           "ccwcww"
                                           "ccwcww"
                                           "ccwcww"
                                           "ccwcww",
                                           "w"
                                           "ccwwccww"
                                           "ccww"
                                           "ccww"
                                           "ccwcww",
                                           "w"
                                           "ccwwccww"
                                           "cwcwcw"
                                           "cwcwcw"
                                           "ccwcww"};
    for (enum form form = 0; form < FORMS; form++) {
        const size_t n = large.elements;
        size_t quantized = n + (blockwise_num_blocks(n) + FULL) * sizeof(float);
        size_t moment = form == WHOLE ? 4 * n : form == SPLIT ? 2 * n : quantized;
        struct rig r;
        struct checkpoint_state staged;
        open(&r, ON_GPU, form, &large, NULL);
        memset(calls, 0, sizeof calls), num_calls = copied_bytes = 0;
        emulator_observe(observe);
        CHECK_STATUS(OK, staging_fill(&r.staging, &r.state, &staged));
        emulator_observe(NULL);
        CHECK(!strcmp(calls, expected[form]));
        CHECK(copied_bytes == 8 * n + 2 * moment);
        check_staged(&r);
        close(&r);
    }
}

/* A device whose n-th copy, or wait for one, fails. */
static const struct device *real;
static int until_failure;

static enum status fail_copy(struct queue *queue, enum copy_stream stream, void *to,
                             const void *from, size_t bytes)
{
    if (!until_failure--) FAIL(DEVICE, "the copy failed");
    return real->copy_on(queue, stream, to, from, bytes);
}

static enum status fail_synchronize(struct queue *queue, const struct copy_event *e)
{
    if (!until_failure--) FAIL(DEVICE, "the wait failed");
    return real->synchronize_event(queue, e);
}

TEST(a_copy_that_fails_fails_the_staging)
{
    for (int waits = 0; waits < 2; waits++) {
        struct rig r;
        struct checkpoint_state staged;
        open(&r, ON_GPU, SPLIT, &large, NULL);
        struct device failing = *(real = r.queue->device);
        if (waits)
            failing.synchronize_event = fail_synchronize;
        else
            failing.copy_on = fail_copy;
        r.queue->device = &failing;
        enum { COPIES = 2 + 2 + 2 + 2 + 3 };
        static const int before[] = {0, 1, 2, COPIES - 1, COPIES};
        for (int i = 0; i < 5; i++) {
            until_failure = before[i];
            enum status st = staging_fill(&r.staging, &r.state, &staged);
            CHECK(st == (before[i] < COPIES ? STATUS_DEVICE : STATUS_OK));
        }
        r.queue->device = real;
        check_staged(&r);
        close(&r);
    }
}

static struct checkpoint_state whole_state(struct saved *s, struct rig *r)
{
    struct checkpoint_state state = saved_state(s, 1);
    state.weights = r->state.weights, state.low = r->state.low;
    state.exp_avg = r->state.exp_avg, state.exp_avg_sq = r->state.exp_avg_sq;
    state.ema = r->state.ema, state.moments = r->state.moments;
    state.moment_blocks = r->state.moment_blocks, state.queue = r->queue;
    return state;
}

static void save(struct saved *s, struct rig *r, const char *folder, bool async)
{
    struct checkpointer *c;
    struct checkpoint_state state = whole_state(s, r);
    struct checkpointer_options o = {
        .folder = folder, .world = comm_self(), .async = async, .staging = r->staging.memory};
    CHECK_STATUS(OK, checkpointer_open(&c, &o));
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
}

static void check_same_file(const char *a, const char *b)
{
    struct text x = {0}, y = {0};
    CHECK_STATUS(OK, file_read(a, 1 << 20, &x));
    CHECK_STATUS(OK, file_read(b, 1 << 20, &y));
    CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
    text_release(&x), text_release(&y);
}

TEST(saves_from_a_gpu_write_the_files_of_saves_from_host_memory)
{
    static const char *const files[] = {
        "model-00001-of-00001.safetensors", "optimizer-00001-of-00001.safetensors",
        "ema-00001-of-00001.safetensors", "state.json", "manifest.json"};
    struct saved s;
    saved_open(&s, false);
    for (enum form form = 0; form < FORMS; form++) {
        const char *folders[3];
        for (int i = 0; i < 3; i++) { /* from the host, from the GPU, and so asynchronously */
            struct rig r;
            open(&r, i ? ON_GPU : ON_CPU, form, &s.shard, &s);
            folders[i] = test_path(test_folder(), "checkpoint");
            save(&s, &r, folders[i], i == 2);
            close(&r);
        }
        for (size_t f = 0; f < sizeof files / sizeof *files; f++)
            for (int i = 1; i < 3; i++)
                check_same_file(test_path(test_path(folders[0], "step-1"), files[f]),
                                test_path(test_path(folders[i], "step-1"), files[f]));
    }
    saved_close(&s);
}

/* Counts the bytes that a device copies from and to pinned memory, and those of other memory. */
enum { PINNED_BLOCKS = 8 };
static struct pinned_block {
    char *begin;
    size_t bytes;
} pinned_blocks[PINNED_BLOCKS];
static size_t pinned_bytes, pageable_bytes;

static enum status alloc_pinned(size_t size, void **out)
{
    size_t i = 0;
    while (i < PINNED_BLOCKS && pinned_blocks[i].begin) i++;
    CHECK(i < PINNED_BLOCKS);
    TRY(real->shared.alloc(size, out));
    pinned_blocks[i] = (struct pinned_block){*out, size};
    return STATUS_OK;
}

static void free_pinned(void *at, size_t size)
{
    size_t i = 0;
    while (i < PINNED_BLOCKS && pinned_blocks[i].begin != at) i++;
    CHECK(i < PINNED_BLOCKS);
    pinned_blocks[i].begin = NULL;
    real->shared.free(at, size);
}

static bool is_pinned(const void *x)
{
    for (size_t i = 0; i < PINNED_BLOCKS; i++)
        if ((uintptr_t)x - (uintptr_t)pinned_blocks[i].begin < pinned_blocks[i].bytes) return true;
    return false;
}

static enum status count_copy(struct queue *queue, void *to, const void *from, size_t bytes)
{
    const void *host = emulator_is_device_memory(to) ? from : to;
    *(is_pinned(host) ? &pinned_bytes : &pageable_bytes) += bytes;
    return real->copy(queue, to, from, bytes);
}

static void count_copies(struct rig *r, struct device *counting)
{
    *counting = *(real = r->queue->device);
    counting->copy = count_copy;
    counting->shared = (struct allocator){alloc_pinned, free_pinned};
    r->queue->device = counting;
    pinned_bytes = pageable_bytes = 0;
}

/* The padding of the buffers is not copied; blocks of INT8 are copied twice where a run ends. */
static void check_copies(const struct rig *r)
{
    size_t bytes = 0;
    for (enum value_kind i = 0; i < VALUE_GRADIENT; i++) {
        const struct store buffers[] = {
            checkpoint_weights(&r->state), checkpoint_exp_avg(&r->state),
            checkpoint_exp_avg_sq(&r->state), checkpoint_ema(&r->state)};
        struct store_parts p = store_find_parts(&buffers[i], r->state.shard->elements);
        for (int k = 0; k < STORE_PARTS; k++) bytes += p.bytes[k];
    }
    CHECK(pageable_bytes == 0 && pinned_bytes > 0.9 * (double)bytes);
    CHECK(pinned_bytes < 1.1 * (double)bytes);
    for (size_t i = 0; i < PINNED_BLOCKS; i++) CHECK(!pinned_blocks[i].begin);
    r->queue->device = real;
}

TEST(synchronous_saves_and_loads_of_a_gpu_copy_through_pinned_memory)
{
    struct saved s;
    saved_open(&s, false);
    for (enum form form = 0; form < FORMS; form++) {
        struct checkpoint_found found;
        struct device counting;
        struct rig from, to;
        const char *folder = test_path(test_folder(), "checkpoint");
        open(&from, ON_GPU, form, &s.shard, &s), open(&to, ON_GPU, form, &s.shard, NULL);
        count_copies(&from, &counting);
        save(&s, &from, folder, false);
        check_copies(&from);
        /* INT8 tensors must begin at a multiple of BLOCKWISE_BLOCK; this layout's do not. */
        if (form != QUANTIZED) {
            struct checkpoint_state state = whole_state(&s, &to);
            count_copies(&to, &counting);
            CHECK_STATUS(OK, checkpoint_load(test_path(folder, "step-1"), &state, NULL, &found));
            check_copies(&to);
            json_free(found.state);
            save(&s, &to, test_path(folder, "again"), false);
            check_same_file(test_path(folder, "step-1/manifest.json"),
                            test_path(folder, "again/step-1/manifest.json"));
        }
        close(&from), close(&to);
    }
    saved_close(&s);
}
