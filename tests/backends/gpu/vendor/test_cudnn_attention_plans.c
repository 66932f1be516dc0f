// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_attention_plans.h"
#include "backends/gpu/vendor/h200.h"
#include "base/file.h"
#include "base/log.h"

enum { VERSION = 91900, MIB = 1 << 20, KIB = 1 << 10 };

/* Of an H200, but of this compute capability. */
static struct cudnn_attention_plans open_plans(int capability, bool deterministic, size_t max_bytes)
{
    struct cudnn_attention_plans c = {.capability = capability,
                                      .version = VERSION,
                                      .deterministic = deterministic,
                                      .max_bytes = max_bytes,
                                      .is_quiet = true};
    size_t length;
    char *json = h200_with_capability(10 * capability, &length);
    CHECK_STATUS(OK, cudnn_graph_describe_device(json, length, &c.target.device));
    free(json);
    return c;
}

static void close_plans(struct cudnn_attention_plans *c)
{
    cudnn_attention_plans_release(c);
    CHECK(!c->newest);
    cudnn_graph_free_device(c->target.device);
}

static struct sdpa_key key_of(int B, int T, bool backward)
{
    enum { H = 32, G = 8, K = 128 };
    size_t row = (size_t)(H + 2 * G) * K;
    return (struct sdpa_key){.shape = {.B = B,
                                       .T = T,
                                       .S = T,
                                       .H = H,
                                       .G = G,
                                       .K = K,
                                       .q_stride = row,
                                       .kv_stride = row,
                                       .scale = 0.125f,
                                       .causal = true,
                                       .dtype = BF16},
                             .backward = backward};
}

TEST(plans_are_found_only_after_they_have_been_built)
{
    struct cudnn_attention_plans c = open_plans(90, true, MIB);
    struct sdpa_key key = key_of(1, 256, false), other = key_of(1, 384, false);
    CHECK(!cudnn_attention_plans_find(&c, &key, false) && !c.newest);
    const struct sdpa_plan *p = cudnn_attention_plans_find(&c, &key, true);
    CHECK(p && p == c.newest && cudnn_attention_plans_find(&c, &key, false) == p);
    CHECK(!cudnn_attention_plans_find(&c, &other, false));
    CHECK(cudnn_attention_plans_tokens(p) == 256);
    close_plans(&c);
}

TEST(documents_have_plans_from_a_capability_and_a_version_on_unless_they_are_rejected)
{
    struct cudnn_attention_plans c = {.version = 91800, .capability = 90};
    CHECK(cudnn_attention_plans_has_varlen(&c));
    c.version = 91799;
    CHECK(!cudnn_attention_plans_has_varlen(&c));
    c.version = VERSION, c.capability = 89;
    CHECK(!cudnn_attention_plans_has_varlen(&c));
    c.capability = 110;
    CHECK(cudnn_attention_plans_has_varlen(&c));
    c.capability = 120;
    CHECK(!cudnn_attention_plans_has_varlen(&c));
    struct sdpa_key key = key_of(1, 256, false);
    key.varlen = true, c.capability = 90, c.rejects[true][false] = true;
    CHECK(!cudnn_attention_plans_find(&c, &key, true) && !c.newest);
}

TEST(rejected_kinds_of_attention_are_listed)
{
    struct cudnn_attention_plans c = {0};
    struct text all = {0};
    cudnn_attention_plans_add_rejected(&c, &all);
    CHECK(!all.len);
    c.rejects[false][true] = true;
    cudnn_attention_plans_add_rejected(&c, &all);
    CHECK(!strcmp(all.data, "a sliding window"));
    text_clear(&all);
    c.rejects[true][false] = c.rejects[true][true] = c.rejects_parts = true;
    cudnn_attention_plans_add_rejected(&c, &all);
    CHECK(!strcmp(all.data,
                  "documents; a sliding window; documents and a sliding window; ring parts"));
    text_release(&all);
}

TEST(early_versions_have_no_deterministic_backward_on_blackwell)
{
    struct cudnn_attention_plans c = {.version = 91800, .capability = 100, .deterministic = true};
    struct sdpa_key key = key_of(1, 256, true);
    CHECK(!cudnn_attention_plans_find(&c, &key, true) && !c.newest);
}

TEST(geforce_blackwell_requires_a_version)
{
    struct cudnn_attention_plans c = {.version = 91800, .capability = 121};
    CHECK_STATUS(UNSUPPORTED, cudnn_attention_plans_check_gpu(&c));
    CHECK_MESSAGE("cuDNN 91800 is too old for a GPU of compute capability 12.1: install 91801");
    c.version = 91801, c.deterministic = true;
    CHECK_STATUS(OK, cudnn_attention_plans_check_gpu(&c));
    c.version = 91100, c.capability = 100;
    CHECK_STATUS(OK, cudnn_attention_plans_check_gpu(&c));
}

static int count(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what))) text += strlen(what), n++;
    return n;
}

/* The sizing pass looks for each shape's plans once or more. */
TEST(a_length_that_cudnn_does_not_support_is_logged_once)
{
    struct cudnn_attention_plans c = {.version = VERSION, .capability = 90, .deterministic = true};
    struct text log = {0};
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    log_set_quiet(true);
    for (int backward = 0; backward < 2; backward++)
        for (int B = 1; B < 3; B++) {
            struct sdpa_key key = key_of(B, 1000, backward);
            CHECK(!cudnn_attention_plans_find(&c, &key, true));
            CHECK(!cudnn_attention_plans_find(&c, &key, false));
        }
    struct sdpa_key validation = key_of(1, 300, false), full = key_of(1, 260, false);
    struct sdpa_key own = key_of(1, 520, false), later = key_of(1, 384, false), all = own;
    full.shape.dtype = F32; /* whatever the length */
    own.shape.rectangle.num_keys = 520;
    later.shape.rectangle.first_query = 192, later.shape.rectangle.num_keys = 384;
    later.shape.causal = false;
    all.shape.T = all.shape.S = all.shape.rectangle.num_keys = 650, all.shape.causal = false;
    struct sdpa_key *keys[] = {&validation, &full, &own, &later, &all};
    CHECK(c.newest && !c.newest->next);
    c.newest->next = heap(sizeof *c.newest); /* cuDNN computes the rank's own keys */
    c.newest->next->key = key_of(1, 384, false);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK(!cudnn_attention_plans_find(&c, keys[i], true));
    log_set_quiet(false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    const char *first = strstr(log.data, "attention, T=1000, K=128: our own kernel");
    CHECK(first && !strstr(first + 1, "attention, T=1000"));
    CHECK(strstr(log.data, "T=300") && !strstr(log.data, "T=260"));
    CHECK(strstr(log.data, "in ring parts, T=520, K=128: our own kernel"));
    CHECK(strstr(log.data, "in ring parts, T=384, K=128: our own kernel"));
    CHECK(strstr(log.data, "in ring parts, T=650, K=128: our own kernel"));
    CHECK(count(log.data, "multiple of 256 local tokens") == 2);
    CHECK(count(log.data, "multiple of 128 local tokens") == 1);
    text_release(&log);
    cudnn_attention_plans_release(&c);
}

TEST(heads_of_some_sizes_can_have_plans)
{
    static const int can[] = {8, 64, 72, 128, 256}, cannot[] = {0, -8, 20, 264, 512};
    for (size_t i = 0; i < sizeof can / sizeof *can; i++)
        CHECK(cudnn_attention_plans_has_head_size(can[i]));
    for (size_t i = 0; i < sizeof cannot / sizeof *cannot; i++)
        CHECK(!cudnn_attention_plans_has_head_size(cannot[i]));
}

TEST(geforce_blackwell_has_no_deterministic_backward_and_no_plan_of_early_versions)
{
    struct sdpa_key forward = key_of(1, 256, false), backward = key_of(1, 256, true);
    struct cudnn_attention_plans old = {.version = 91800, .capability = 120};
    CHECK(!cudnn_attention_plans_find(&old, &forward, true) && !old.newest);
    skip_before_cudnn_9_18_1();
    struct cudnn_attention_plans c = open_plans(120, true, (size_t)1 << 30);
    CHECK(!cudnn_attention_plans_find(&c, &backward, true) && !c.newest);
    CHECK(cudnn_attention_plans_find(&c, &forward, true));
    c.deterministic = false;
    CHECK(cudnn_attention_plans_find(&c, &backward, true));
    close_plans(&c);
}

/* dk and dv of every query head in f32: 8 bytes per token and element of a head. */
TEST(engine_without_ds_keeps_to_the_limit_that_is_set)
{
    static const struct {
        size_t bytes;
        int rows, kv_heads; /* 0: no plan */
    } limits[] = {{512 * MIB + KIB, 2, 8}, {256 * MIB + KIB, 1, 8}, {128 * MIB + KIB, 1, 4},
                  {128 * MIB, 1, 2},       {32 * MIB + KIB, 1, 1},  {32 * MIB, 0, 0}};
    struct sdpa_key key = key_of(2, 8192, true);
    skip_before_cudnn_9_18_1();
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct cudnn_attention_plans c = open_plans(100, true, limits[i].bytes);
        const struct sdpa_plan *p = cudnn_attention_plans_find(&c, &key, true);
        CHECK((p != NULL) == (limits[i].rows > 0));
        CHECK(!p || (p->graph.B == limits[i].rows && p->graph.G == limits[i].kv_heads));
        CHECK(!p || (p->plan.engine == 5 && p->plan.workspace <= limits[i].bytes));
        close_plans(&c);
    }
}

/* It stores dk and dv of every query head in scratch of ours: 4 (H + 2 G) K H / G bytes a token. */
TEST(documents_use_the_engine_without_ds_if_dk_and_dv_of_every_query_head_fit)
{
    struct sdpa_key key = key_of(1, 8192, true);
    skip_before_cudnn_9_18_1();
    key.varlen = true;
    for (int fits = 0; fits < 2; fits++) {
        size_t bytes = (fits ? 1537 : 1536) * (size_t)MIB; /* and a workspace of some KiB */
        struct cudnn_attention_plans c = open_plans(100, true, bytes);
        const struct sdpa_plan *p = cudnn_attention_plans_find(&c, &key, true);
        CHECK((p != NULL) == fits);
        CHECK(!p || (p->plan.engine == 5 && p->plan.workspace < MIB && p->graph.G == 8));
        CHECK(!cudnn_attention_graph_scratch(&c.newest->graph, ATTENTION_DQ_ACCUM, 8192));
        close_plans(&c);
    }
}

/* In every case that has a plan without a window. */
TEST(sliding_windows_have_plans_of_their_own)
{
    static const struct {
        int capability;
        bool deterministic, varlen, backward;
    } rows[] = {{90, true, false, false},  {90, true, false, true},   {90, false, false, true},
                {90, true, true, false},   {90, false, true, true},   {80, true, false, false},
                {80, true, false, true},   {100, true, false, false}, {100, true, false, true},
                {100, false, false, true}, {100, true, true, false},  {100, true, true, true},
                {100, false, true, true}};
    skip_before_cudnn_9_18_1();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cudnn_attention_plans c =
            open_plans(rows[i].capability, rows[i].deterministic, (size_t)1 << 30);
        struct sdpa_key all = key_of(1, 1024, rows[i].backward), key;
        all.varlen = rows[i].varlen;
        key = all, key.shape.window = 100;
        const struct sdpa_plan *p = cudnn_attention_plans_find(&c, &key, true);
        if (!p) print_error("row %zu: no plan with a window\n", i);
        CHECK(p && p->graph.window == 100);
        CHECK(!cudnn_attention_plans_find(&c, &all, false));
        const struct sdpa_plan *other = cudnn_attention_plans_find(&c, &all, true);
        CHECK(other && other->plan.engine == p->plan.engine);
        CHECK(other->plan.workspace == p->plan.workspace);
        c.rejects[rows[i].varlen][true] = true;
        CHECK(!cudnn_attention_plans_find(&c, &key, true));
        CHECK(cudnn_attention_plans_find(&c, &all, true) == other);
        close_plans(&c);
    }
}

/* Of the own rank, of one before, of one after, and without a causal mask. */
TEST(rectangles_of_ring_parts_have_plans)
{
    static const struct {
        int capability, K;
        bool deterministic, backward;
    } rows[] = {{90, 64, false, false}, {90, 64, true, true},  {90, 128, false, true},
                {90, 128, true, true},  {80, 128, true, true}, {100, 128, true, true},
                {100, 128, false, true}};
    enum { T = 1024 };
    skip_before_cudnn_9_18_1();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cudnn_attention_plans c =
            open_plans(rows[i].capability, rows[i].deterministic, (size_t)1 << 30);
        for (int part = 0; part < 4; part++) {
            struct sdpa_key key = key_of(2, T, rows[i].backward);
            key.shape.K = rows[i].K, key.shape.causal = part == 0;
            key.shape.rectangle.num_keys = part == 1 ? T / 2 : T;
            key.shape.rectangle.first_query = part == 2 ? T / 2 : 0;
            const struct sdpa_plan *p = cudnn_attention_plans_find(&c, &key, true);
            if (!p) print_error("row %zu, part %d: no plan\n", i, part);
            CHECK(p && p->graph.T == (part == 2 ? T / 2 : T) &&
                  p->graph.S == (part == 1 ? T / 2 : T));
            CHECK(cudnn_attention_plans_tokens(p) == (size_t)p->graph.B * (size_t)p->graph.T);
            key.shape.rectangle.num_keys -= 128;
            CHECK(cudnn_attention_plans_find(&c, &key, false) == NULL);
            key.shape.rectangle.num_keys += 128;
            c.rejects_parts = true;
            CHECK(!cudnn_attention_plans_find(&c, &key, true));
            c.rejects_parts = false;
        }
        close_plans(&c);
    }
}
