// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharding.h"

#include "checkpoint/convert.h"
#include "checkpoint/manifest.h"
#include "formats/safetensors.h"
#include "tensor/device.h"

TEST(bit_flip_anywhere_is_detected_and_names_the_file)
{
    struct saved s;
    struct file_list names;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1)), *step = test_path(folder, "step-1");
    CHECK_STATUS(OK, file_list_dir(&names, step));
    CHECK(names.count == 11);
    for (size_t i = 0; i < names.count; i++) {
        const char *path = test_path(step, names.paths[i]);
        uint64_t size;
        CHECK_STATUS(OK, file_size(path, &size));
        for (uint64_t k = 0; k < (TEST_SLOWED ? 6 : 24); k++) {
            uint64_t at = k < 2 ? k * (size - 1) : rng_below(size, 7, RNG_TEST, i, k);
            int mask = 1 << rng_below(8, 8, RNG_TEST, i, k);
            flip(path, at, mask);
            CHECK_STATUS(DATA, try_load(&s, step));
            CHECK_MESSAGE(names.paths[i]);
            CHECK_STATUS(DATA, checkpoint_verify(step));
            CHECK_MESSAGE(names.paths[i]);
            flip(path, at, mask);
        }
    }
    CHECK_STATUS(OK, checkpoint_verify(step));
    CHECK_STATUS(OK, try_load(&s, step));
    file_list_release(&names);
    saved_close(&s);
}

TEST(truncated_or_missing_files_fail_the_load)
{
    struct saved s;
    struct file_list names;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1)), *step = test_path(folder, "step-1");
    CHECK_STATUS(OK, file_list_dir(&names, step));
    for (size_t i = 0; i < names.count; i++) {
        const char *path = test_path(step, names.paths[i]);
        struct text whole = {0};
        CHECK_STATUS(OK, file_read(path, 1 << 20, &whole));
        CHECK_STATUS(OK, file_write(path, whole.data, whole.len - 1));
        CHECK_STATUS(DATA, try_load(&s, step));
        CHECK_STATUS(OK, file_write(path, whole.data, whole.len / 2));
        CHECK_STATUS(DATA, try_load(&s, step));
        CHECK_MESSAGE(names.paths[i]);
        CHECK_STATUS(OK, file_remove_tree(path));
        CHECK_STATUS(DATA, try_load(&s, step));
        CHECK_MESSAGE(names.paths[i]);
        CHECK_STATUS(OK, file_write(path, whole.data, whole.len));
        text_release(&whole);
    }
    CHECK_STATUS(OK, try_load(&s, step));
    file_list_release(&names);
    saved_close(&s);
}

TEST(files_not_in_the_manifest_are_never_loaded)
{
    struct saved s;
    struct text moments = {0};
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1)), *step = test_path(folder, "step-1");
    const char *from = test_path(step, "optimizer-00001-of-00001.safetensors");
    CHECK_STATUS(OK, file_read(from, 1 << 20, &moments));
    /* A second file that claims to hold the moments, sorted before the true one. */
    memset(moments.data + moments.len - 4096, 1, 4096);
    CHECK_STATUS(
        OK, file_write(test_path(step, "optimizer-00000.safetensors"), moments.data, moments.len));
    check_holds(&s, step, 1);
    /* A model-only checkpoint does not get moments from a stray file. */
    struct checkpointer *c = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(&s, 2);
    state.exp_avg = state.exp_avg_sq = NULL;
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    CHECK_STATUS(OK, file_write(test_path(folder, "step-2/optimizer-00001-of-00001.safetensors"),
                                moments.data, moments.len));
    struct loaded_state l;
    CHECK_STATUS(OK, load_into(&l, &s, test_path(folder, "step-2")));
    CHECK(!l.found.has_moments && l.buffers[1][0] == -77);
    loaded_release(&l);
    text_release(&moments);
    saved_close(&s);
}

TEST(unfinished_checkpoint_is_not_loaded_as_a_plain_folder)
{
    struct saved s;
    char *none;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1)), *half = test_path(folder, "step-1.tmp");
    CHECK(rename(test_path(folder, "step-1"), half) == 0);
    CHECK_STATUS(OK, file_remove_tree(test_path(half, "manifest.json")));
    CHECK_STATUS(DATA, try_load(&s, half));
    CHECK_MESSAGE("incomplete checkpoint");
    CHECK_STATUS(OK, checkpoint_find(folder, INT64_MAX, true, comm_self(), &none));
    CHECK(!none);
    saved_close(&s);
}

/* Folder names may look like glob patterns. */
TEST(moments_load_from_a_folder_of_any_name)
{
    struct saved s;
    saved_open(&s, false);
    const char *odd = test_path(test_folder(), "run[1] {a,b}*");
    struct checkpointer *c = checkpointer_of(odd, 0);
    struct checkpoint_state state = saved_state(&s, 1);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    check_holds(&s, test_path(odd, "step-1"), 1);
    saved_close(&s);
}

TEST(plain_hugging_face_folder_loads_without_a_manifest)
{
    static const char *const extra[] = {"manifest.json", "state.json", "config.toml",
                                        "optimizer-00001-of-00001.safetensors"};
    struct saved s;
    struct loaded_state l;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(3)), "step-3");
    for (size_t i = 0; i < 4; i++) CHECK_STATUS(OK, file_remove_tree(test_path(step, extra[i])));
    CHECK_STATUS(OK, load_into(&l, &s, step));
    CHECK(!l.found.state && !l.found.train && !l.found.has_moments);
    CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && l.buffers[1][0] == -77);
    loaded_release(&l);
    CHECK_STATUS(MISSING, checkpoint_verify(step));
    saved_close(&s);
}

TEST(moving_average_is_saved_loaded_and_verified)
{
    for (int async = 0; async < 2; async++) {
        struct saved s;
        struct loaded_state l;
        struct checkpointer *c;
        saved_open(&s, async);
        size_t n = s.layout.elements;
        const char *folder = test_path(test_folder(), "checkpoint");
        const char *step = test_path(folder, "step-3");
        void *staging = heap(staging_bytes(&s.shard, &s.shard, F32, NULL, true));
        float *got = heap(n * sizeof *got), *ema = heap(n * sizeof *ema);
        memcpy(ema, s.exp_avg, n * sizeof *ema);
        struct checkpointer_options o = {
            .folder = folder, .world = comm_self(), .async = async, .staging = staging};
        CHECK_STATUS(OK, checkpointer_open(&c, &o));
        struct checkpoint_state state = saved_state(&s, 3);
        state.ema = ema;
        CHECK_STATUS(OK, checkpointer_save(c, &state));
        CHECK_STATUS(OK, checkpointer_close(c, false));
        CHECK_STATUS(OK, checkpoint_verify(step));
        CHECK_STATUS(OK, load_into(&l, &s, step)); /* without a buffer for it */
        CHECK(!l.found.has_ema && l.found.has_moments);
        CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
        json_free(l.found.state);
        l.state.ema = got;
        const char *optimizer = "optimizer"; /* its moments only */
        const struct load_rules rules = {.exclude = &(struct option_list){&optimizer, 1}};
        CHECK_STATUS(OK, checkpoint_load(step, &l.state, &rules, &l.found));
        CHECK(l.found.has_ema && same_tensors(&s.layout, got, ema));
        CHECK(same_tensors(&s.layout, l.buffers[1], s.exp_avg));
        loaded_release(&l);
        memset(got, 0, n * sizeof *got);
        state.loads_ema = true;
        CHECK_STATUS(OK, checkpoint_load_weights(step, &state, F32, got));
        CHECK(same_tensors(&s.layout, got, ema));
        ema[s.layout.tensors[0].offset + 5] = 0.7071f; /* a value that occurs once */
        CHECK_STATUS(OK, checkpointer_open(&c, &o));
        state.step = 4;
        CHECK_STATUS(OK, checkpointer_save(c, &state));
        CHECK_STATUS(OK, checkpointer_close(c, false));
        step = test_path(folder, "step-4");
        replace_value(step, 4, 0.7071f, NAN);
        CHECK_STATUS(DATA, checkpoint_verify(step));
        CHECK_MESSAGE("tensor model.embed_tokens.weight: element 5 is nan");
        free(staging), free(got), free(ema);
        saved_close(&s);
    }
}

TEST(a_checkpoint_without_a_moving_average_says_so)
{
    struct saved s;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(3)), "step-3");
    float *got = heap(s.layout.elements * sizeof *got);
    struct checkpoint_state state = saved_state(&s, 3);
    struct checkpoint_found found;
    state.loads_ema = true;
    CHECK_STATUS(MISSING, checkpoint_load_weights(step, &state, F32, got));
    CHECK_MESSAGE("no moving average of the weights (ema-*.safetensors)");
    state.loads_ema = false, state.ema = got;
    CHECK_STATUS(OK, checkpoint_load(step, &state, NULL, &found));
    CHECK(found.has_moments && !found.has_ema);
    json_free(found.state);
    free(got);
    saved_close(&s);
}

TEST(load_weights_converts_to_the_compute_dtype)
{
    struct saved s;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(3)), "step-3");
    float *single = heap(s.layout.elements * sizeof *single);
    bf16 *half = heap(s.layout.elements * sizeof *half);
    struct checkpoint_state state = saved_state(&s, 3);
    CHECK_STATUS(OK, checkpoint_load_weights(step, &state, F32, single));
    CHECK_STATUS(OK, checkpoint_load_weights(step, &state, BF16, half));
    CHECK(same_tensors(&s.layout, single, s.weights));
    for (int i = 0; i < s.layout.num_tensors; i++) {
        const struct tensor_slot *t = &s.layout.tensors[i];
        for (size_t j = t->offset; j < t->offset + t->elements; j++)
            CHECK(half[j] == bf16_from_f32(s.weights[j]));
    }
    flip(test_path(step, "model-00001-of-00001.safetensors"), 4000, 1);
    CHECK_STATUS(DATA, checkpoint_load_weights(step, &state, BF16, half));
    free(single), free(half);
    saved_close(&s);
}

TEST(excluded_tensors_and_parts_stay_unchanged_but_a_resumed_run_loads_all_tensors)
{
    struct saved s;
    struct loaded_state l;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(3)), "step-3");
    const char *items[] = {"model.layers.1.*", "optimizer"};
    struct option_list exclude = {.items = items, .count = 2};
    for (int resumes = 0; resumes < 2; resumes++) {
        const struct load_rules rules = {.exclude = &exclude, .resumes = resumes};
        CHECK_STATUS(OK, load_into(&l, &s, step));
        for (size_t j = 0; j < s.layout.elements; j++) l.buffers[0][j] = l.buffers[1][j] = 5;
        json_free(l.found.state);
        CHECK_STATUS(OK, checkpoint_load(step, &l.state, &rules, &l.found));
        for (int i = 0; i < s.layout.num_tensors; i++) {
            const struct tensor_slot *t = &s.layout.tensors[i];
            float want = t->layer == 1 && !resumes ? 5 : s.weights[t->offset];
            CHECK(l.buffers[0][t->offset] == want && l.buffers[1][t->offset] == 5);
        }
        CHECK(l.found.has_moments);
        loaded_release(&l);
    }
    saved_close(&s);
}

struct sharded_load {
    const char *folder; /* of the checkpoint */
    enum sharding how;
    bool tied, plain;
    uint32_t first_moment_only;
};

static enum status load_shard(const struct comm *world, void *context)
{
    struct sharded_load *l = context;
    struct model_shape shape = sharding_shape(l->tied);
    struct rank_shard s;
    struct checkpoint_found found;
    int64_t step;
    rank_shard_open(&s, l->how, l->tied, world->rank, world->size);
    rank_shard_omit(&s, l->first_moment_only);
    struct checkpoint_state state = rank_shard_state(&s, &shape, world, 0);
    enum status st = checkpoint_load(l->folder, &state, NULL, &found);
    if (!st && !l->plain) st = json_get_int(found.train, "step", found.step, found.step, &step);
    for (int b = 0; b < (l->plain ? 1 : 3) && !st; b++)
        if (!rank_shard_is_full(&s, b))
            st = status_fail(STATUS_DEVICE, __FILE__, __LINE__, "buffer %d is not full", b);
    if (!st && found.has_moments == l->plain) st = STATUS_DEVICE;
    json_free(found.state);
    rank_shard_release(&s);
    return st;
}

/* Saves as step 3. */
static const char *save_sharded(enum sharding how, bool tied, uint32_t first_moment_only, int ranks)
{
    struct sharded_save s = {.folder = test_path(test_folder(), "checkpoint"), .how = how};
    s.tied = tied, s.dtype = SAFETENSORS_F32, s.first = 3, s.count = 1;
    s.first_moment_only = first_moment_only;
    sharding_save(&s, ranks);
    for (int r = 0; r < 8; r++) CHECK(!s.statuses[r]);
    return test_path(s.folder, "step-3");
}

TEST(any_ranks_load_what_any_others_saved)
{
    for (int from = 1; from <= 4; from++) {
        bool tied = from % 2;
        const uint32_t q = param_set_of(PARAM_attn_q); /* only 4 leaves it out */
        struct sharded_load l = {.tied = tied, .first_moment_only = from > 2 ? q : 0};
        l.folder = save_sharded((enum sharding)(from - 1), tied, from == 4 ? q : 0, from);
        for (int to = 1; to <= 4; to++)
            for (l.how = 0; l.how < SHARDING_COUNT; l.how++)
                if (!TEST_SLOWED || (from + to + (int)l.how) % 2)
                    CHECK_STATUS(OK, ranks_run(to, load_shard, &l));
    }
}

TEST(ranks_load_their_shards_of_a_sharded_plain_folder)
{
    struct converted done;
    struct sharded_load l = {.folder = test_path(test_folder(), "plain"), .plain = true};
    struct conversion c = {.from = save_sharded(SHARDING_REPLICATED, false, 0, 1),
                           .to = l.folder,
                           .dtype = SAFETENSORS_F32,
                           .shard_bytes = 1 << 20};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(has_file(l.folder, "model-00003-of-00004.safetensors"));
    for (l.how = 0; l.how < SHARDING_COUNT; l.how++) CHECK_STATUS(OK, ranks_run(3, load_shard, &l));
}

TEST(ranks_load_their_shards_of_a_dcp_run)
{
    static const struct optimizer_config adamw = {.lr = 1e-3,
                                                  .implementation = IMPLEMENTATION_fused};
    static const struct lr_scheduler_config schedule = {0};
    struct converted done;
    struct sharded_load l = {.folder = test_path(test_folder(), "dcp")};
    struct conversion c = {.from = save_sharded(SHARDING_REPLICATED, false, 0, 1),
                           .to = l.folder,
                           .target = CONVERT_DCP,
                           .keep_dtype = true,
                           .optimizer = &adamw,
                           .lr_scheduler = &schedule,
                           .schedule_steps = 9,
                           .rows = 1};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.step == 3);
    for (l.how = SHARDING_FSDP; l.how <= SHARDING_COLUMNS; l.how++)
        CHECK_STATUS(OK, ranks_run(3, load_shard, &l));
}

static enum status load_bf16(const struct comm *world, void *context)
{
    struct rank_shard s;
    struct model_shape shape = sharding_shape(false);
    rank_shard_open(&s, SHARDING_COLUMNS, false, world->rank, world->size);
    struct checkpoint_state state = rank_shard_state(&s, &shape, world, 0);
    bf16 *half = heap(s.shard.elements * sizeof *half);
    enum status st = checkpoint_load_weights(context, &state, BF16, half);
    for (size_t i = 0; i < s.shard.count && !st; i++) {
        const struct shard_run *p = &s.shard.runs[i];
        for (size_t j = 0; j < p->count && !st; j++)
            if (half[p->at + j] != bf16_from_f32(sharding_value(0, p->tensor, p->first + j)))
                st = STATUS_DEVICE;
    }
    free(half);
    rank_shard_release(&s);
    return st;
}

TEST(ranks_load_their_shards_of_the_weights_only)
{
    const char *step = save_sharded(SHARDING_FSDP, false, 0, 2);
    CHECK_STATUS(OK, ranks_run(3, load_bf16, (void *)(uintptr_t)step));
}

/* Rows that follow each other in the flat buffer, as tensor parallelism has them. */
static void pack_rows(struct shard *p)
{
    for (size_t i = 1; i < p->count; i++)
        if (p->runs[i].tensor == p->runs[i - 1].tensor)
            p->runs[i].at = p->runs[i - 1].at + p->runs[i - 1].count;
}

struct counting_queue {
    struct queue base;
    int copies;
};

static enum status copy_counted(struct queue *queue, void *to, const void *from, size_t bytes)
{
    ((struct counting_queue *)(void *)queue)->copies++;
    memcpy(to, from, bytes);
    return STATUS_OK;
}

static enum status alloc_shared(size_t size, void **out)
{
    *out = heap(size);
    return STATUS_OK;
}

static void free_shared(void *at, size_t size)
{
    (void)size;
    free(at);
}

static const struct device counting_device = {.own = {alloc_shared, free_shared},
                                              .shared = {alloc_shared, free_shared},
                                              .copy = copy_counted};

static enum status load_columns_on_device(const struct comm *world, void *context)
{
    struct counting_queue queue = {.base = {.device = &counting_device, .num_threads = 2}};
    struct model_shape shape = sharding_shape(false);
    struct rank_shard s;
    struct checkpoint_found found;
    rank_shard_open(&s, SHARDING_COLUMNS, false, world->rank, world->size);
    pack_rows(&s.shard);
    rank_shard_omit(&s, 0);
    struct checkpoint_state state = rank_shard_state(&s, &shape, world, 0);
    state.queue = &queue.base;
    enum status st = checkpoint_load(context, &state, NULL, &found);
    for (int b = 0; b < 3 && !st; b++) RANK_CHECK(rank_shard_is_full(&s, b));
    if (!st) RANK_CHECK(queue.copies <= 3 * s.layout.num_tensors);
    json_free(found.state);
    rank_shard_release(&s);
    return st;
}

TEST(a_device_copies_the_rows_of_a_column_sliced_matrix_together)
{
    const char *step = save_sharded(SHARDING_FSDP, false, 0, 2);
    CHECK_STATUS(OK, ranks_run(2, load_columns_on_device, (void *)(uintptr_t)step));
}

static enum status check_element_is_named(const struct comm *world, void *context)
{
    RANK_CHECK(load_columns_on_device(world, context) == STATUS_DATA);
    if (world->rank == 1)
        RANK_CHECK(strstr(status_message(), "model.embed_tokens.weight: element 154310 is nan"));
    return STATUS_OK;
}

TEST(bad_value_in_a_column_sliced_matrix_is_named)
{
    const char *step = save_sharded(SHARDING_REPLICATED, false, 0, 1);
    struct rank_shard s;
    rank_shard_open(&s, SHARDING_REPLICATED, false, 0, 1);
    CHECK(s.layout.tensors[0].id == PARAM_embed);
    replace_value(step, 3, sharding_value(0, 0, 154310), NAN); /* of the second rank */
    CHECK_STATUS(OK, ranks_run(2, check_element_is_named, (void *)(uintptr_t)step));
    rank_shard_release(&s);
}

static enum status check_load_fails(const struct comm *world, void *context)
{
    RANK_CHECK(load_shard(world, context) == STATUS_DATA);
    return STATUS_OK;
}

TEST(damage_found_by_one_rank_fails_the_load_on_all)
{
    struct sharded_load l = {.folder = save_sharded(SHARDING_REPLICATED, false, 0, 1)};
    const char *path = test_path(l.folder, "optimizer-00001-of-00001.safetensors");
    uint64_t size;
    CHECK_STATUS(OK, file_size(path, &size));
    for (uint64_t at = 0; at < size; at += MANIFEST_CHUNK) {
        flip(path, at, 64);
        CHECK_STATUS(OK, ranks_run(3, check_load_fails, &l));
        flip(path, at, 64);
    }
    CHECK_STATUS(OK, ranks_run(3, load_shard, &l));
}

/* Split and bf16 buffers save as f32, so any form can resume from any other. */
TEST(checkpoint_is_float32_for_split_and_bf16_buffers)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1)), *again = test_path(test_folder(), "again");
    size_t n = s.layout.elements;
    bf16 *half = heap(n * sizeof *half), *first = heap(n * sizeof *first);
    bf16 *second = heap(n * sizeof *second);
    struct checkpoint_state state = saved_state(&s, 2);
    struct checkpoint_found found;
    state.weights = half, state.low = heap(n * sizeof *state.low), state.moments = BF16;
    state.exp_avg = first, state.exp_avg_sq = second;
    CHECK_STATUS(OK, checkpoint_load(test_path(folder, "step-1"), &state, NULL, &found));
    struct checkpointer *c = checkpointer_of(again, 0);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    struct loaded_state l;
    CHECK_STATUS(OK, load_into(&l, &s, test_path(again, "step-2")));
    CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
    for (int i = 0; i < s.layout.num_tensors; i++) {
        const struct tensor_slot *t = &s.layout.tensors[i];
        for (size_t k = t->offset; k < t->offset + t->elements; k++) {
            CHECK(l.buffers[1][k] == bf16_to_f32(bf16_from_f32(s.exp_avg[k])));
            CHECK(l.buffers[2][k] == bf16_to_f32(bf16_from_f32(s.exp_avg_sq[k])));
        }
    }
    loaded_release(&l);
    json_free(found.state);
    free(half), free(first), free(second), free(state.low);
    saved_close(&s);
}

/* It differs from the embedding then, which is not the user's mistake. */
TEST(damage_in_a_head_that_a_tied_model_leaves_out_fails_as_damage)
{
    struct saved s, tied;
    struct safetensors file;
    struct model_shape shape = sharding_shape(false);
    shape.V = 3000;
    saved_open_shape(&s, &shape);
    shape.tied = true;
    saved_open_shape(&tied, &shape);
    const struct tensor_slot *embed = layout_find(&s.layout, PARAM_embed, -1);
    const struct tensor_slot *head = layout_find(&s.layout, PARAM_head, -1);
    memcpy(s.weights + head->offset, s.weights + embed->offset, embed->elements * sizeof(float));
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(&s, 1);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    const char *step = test_path(folder, "step-1");
    const char *path = test_path(step, "model-00001-of-00001.safetensors");
    CHECK_STATUS(OK, try_load(&tied, step));
    CHECK_STATUS(OK, safetensors_open(&file, path));
    const struct safetensors_tensor *t = safetensors_find(&file, "lm_head.weight");
    uint64_t at = file.data + t->end - 2;
    safetensors_close(&file);
    CHECK(at > MANIFEST_CHUNK); /* not in the chunk that is verified before all others */
    flip(path, at, 1);
    CHECK_STATUS(DATA, try_load(&tied, step));
    CHECK_MESSAGE("checksum mismatch");
    const struct checkpoint_state other = saved_state(&tied, 1);
    CHECK_STATUS(DATA, checkpoint_check_shapes(step, &other, NULL, false));
    CHECK_MESSAGE("checksum mismatch");
    flip(path, at, 1);
    CHECK_STATUS(OK, checkpoint_check_shapes(step, &other, NULL, false));
    s.weights[head->offset] += 1;
    state.step = 2;
    c = checkpointer_of(folder, 0);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    CHECK_STATUS(CONFIG, try_load(&tied, test_path(folder, "step-2")));
    CHECK_MESSAGE("lm_head.weight differs from the embedding");
    CHECK_STATUS(CONFIG, checkpoint_check_shapes(test_path(folder, "step-2"), &other, NULL, false));
    CHECK_MESSAGE("lm_head.weight differs from the embedding");
    saved_close(&tied), saved_close(&s);
}

/* A valid manifest does not make a state valid: older programs saved NaN. */
TEST(bad_values_under_a_valid_manifest_are_not_loaded_and_named)
{
    static const struct {
        int buffer;
        float bad;
        const char *message;
    } cases[] = {
        {0, NAN, "tensor model.layers.1.mlp.up_proj.weight: element 5 is nan"},
        {0, -INFINITY, "tensor model.layers.1.mlp.up_proj.weight: element 5 is -inf"},
        {0, 1e30f, "element 5 is 1e+30, expected a finite value of at most 1e+06 in magnitude"},
        {1, NAN, "tensor model.layers.1.mlp.up_proj.weight.exp_avg: element 5 is nan"},
        {1, 1e30f, "mlp.up_proj.weight.exp_avg: element 5 is 1e+30"},
        {2, INFINITY, "tensor model.layers.1.mlp.up_proj.weight.exp_avg_sq: element 5 is inf"},
        {2, -1e-9f, "element 5 is -1e-09, expected a finite value of at least 0"},
    };
    struct saved s;
    saved_open(&s, false);
    const float *buffers[] = {s.weights, s.exp_avg, s.exp_avg_sq};
    size_t at = layout_find(&s.layout, PARAM_mlp_up, 1)->offset + 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
        float good = buffers[cases[i].buffer][at];
        bf16 *half = heap(s.layout.elements * sizeof *half);
        struct checkpoint_state state = saved_state(&s, 4);
        replace_value(step, 4, good, cases[i].bad);
        CHECK_STATUS(DATA, try_load(&s, step));
        CHECK_MESSAGE(cases[i].message);
        CHECK_MESSAGE(step);
        CHECK_STATUS(DATA, checkpoint_verify(step));
        CHECK_MESSAGE(cases[i].message);
        /* eval and generate load only the weights, as bfloat16 */
        enum status st = checkpoint_load_weights(step, &state, BF16, half);
        CHECK(st == (cases[i].buffer ? STATUS_OK : STATUS_DATA));
        replace_value(step, 4, cases[i].bad, good);
        CHECK_STATUS(OK, try_load(&s, step));
        free(half);
    }
    saved_close(&s);
}

TEST(bad_value_that_one_rank_loads_fails_the_load_on_all)
{
    struct sharded_load l = {.folder = save_sharded(SHARDING_REPLICATED, false, 0, 1),
                             .how = SHARDING_FSDP};
    struct rank_shard s;
    rank_shard_open(&s, SHARDING_REPLICATED, false, 0, 1);
    float good = sharding_value(1, s.layout.num_tensors - 1, 7);
    replace_value(l.folder, 3, good, NAN);
    CHECK_STATUS(OK, ranks_run(3, check_load_fails, &l));
    replace_value(l.folder, 3, NAN, good);
    CHECK_STATUS(OK, ranks_run(3, load_shard, &l));
    rank_shard_release(&s);
}
