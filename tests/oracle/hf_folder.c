// SPDX-License-Identifier: Apache-2.0
#include "model/decode.h"
#include "model/rig.h"
#include "ops/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"

/* Transformers wrote tests/checkpoint/data/tied (tests/oracle/hf_folder.py): three files, tied
 * head, GQA, llama3's RoPE scaling, and the expected logits.  That script also runs this test over
 * one of our checkpoints, with Transformers' logits added to it. */
static const char *folder(void)
{
    const char *other = getenv("LLAMERO_HF_FOLDER");
    return other ? other : "tests/checkpoint/data/tied";
}

enum { MOST = 64 };

static int integers(const struct json *list, int32_t *out)
{
    int count = 0;
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        int64_t n = 0;
        CHECK(count < MOST && json_as_int(v, 0, 1 << 20, &n));
        out[count++] = (int32_t)n;
    }
    return count;
}

static void load_rig(struct rig *r, const struct ops *ops, const char *from, int T)
{
    struct model_shape s;
    struct checkpoint_found found;
    CHECK_STATUS(OK, checkpoint_read_shape(from, &s));
    if (!strcmp(from, "tests/checkpoint/data/tied"))
        CHECK(s.tied && s.G == 2 && s.scaling.factor == 8 && s.scaling.original_context == 32);
    rig_open(r, &s, F32, 1, T);
    r->ops = *ops;
    struct shard whole;
    shard_init(&whole, &r->m.layout, 0, 1);
    struct checkpoint_state state = {.shape = &r->m.shape,
                                     .world = comm_self(),
                                     .layout = &r->m.layout,
                                     .shard = &whole,
                                     .weights = r->weights};
    CHECK_STATUS(OK, checkpoint_load(from, &state, NULL, &found));
    json_free(found.state);
    shard_release(&whole);
}

/* Largest difference between the logits and the expected ones, at all listed positions. */
static double distance(struct rig *r, const struct json *root)
{
    int32_t ids[MOST], positions[MOST];
    struct kv_cache cache, empty;
    struct arena none = {0}, room;
    double most = 0;
    int T = integers(json_get(root, "ids"), ids), at = 0, first = 0;
    int num_positions = integers(json_get(root, "places"), positions);
    float *logits = heap((size_t)r->m.shape.V * sizeof *logits);
    CHECK_STATUS(OK, arena_init(&room, 1 << 18, NULL));
    CHECK_STATUS(OK, decode_init_cache(&cache, &r->m, 1, T, &room));
    const struct json *row = json_first(json_get(root, "logits"));
    for (; row; row = json_next(row), first = positions[at++] + 1) {
        struct model measured = r->m;
        CHECK(at < num_positions && positions[at] >= first && positions[at] < T);
        int n = positions[at] + 1 - first, i = 0;
        empty = (struct kv_cache){1, T, {first}, NULL, NULL};
        measured.queue = r->sizing, measured.weights = NULL, none.peak = 0;
        struct decode_row tokens = {0, n, ids + first};
        struct decode_io io = {&tokens, 1, logits};
        CHECK_STATUS(OK, decode_next(&measured, &empty, &io, &none));
        arena_release(&r->step);
        CHECK_STATUS(OK, arena_init(&r->step, none.peak, NULL));
        CHECK_STATUS(OK, decode_next(&r->m, &cache, &io, &r->step));
        for (const struct json *v = json_first(row); v; v = json_next(v), i++)
            most = fmax(most, fabs((double)logits[i] - json_number(v)));
        CHECK(i == r->m.shape.V);
    }
    CHECK(at == num_positions && at > 3);
    arena_release(&room);
    free(logits);
    return most;
}

static void check_logits(const struct ops *ops, const char *from)
{
    struct rig r;
    struct json *root;
    char *path = file_join(from, "expected.json");
    CHECK_STATUS(OK, json_read(path, 1 << 24, &root));
    load_rig(&r, ops, from, (int)json_count(json_get(root, "ids")));
    double off = distance(&r, root);
    print_message("%s: logits differ by %.1e\n", ops->backend, off);
    CHECK(off < 1e-4);
    rig_close(&r);
    json_free(root);
    free(path);
}

TEST(transformers_folder_has_the_logits_of_transformers)
{
    check_logits(&ops_cpu_reference, folder());
}
CPU_ISAS_TEST(transformers_folder_has_its_logits_with_the_kernels_of_every_isa)
{
    check_logits(rig_fast(), folder());
}

/* From tests/oracle/meta_folder.py: files of 2 and of 4 ranks, the latter more than key/value
 * heads; and from tests/oracle/dcp_folder.py. */
TEST(torch_files_of_several_ranks_have_the_logits_of_their_model)
{
    check_logits(&ops_cpu_reference, "tests/checkpoint/data/dcp");
    check_logits(&ops_cpu_reference, "tests/checkpoint/data/meta-llama2");
    check_logits(&ops_cpu_reference, "tests/checkpoint/data/meta-llama3");
}
