// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharding.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Opens an async checkpointer; the caller frees *staging after closing it. */
static struct checkpointer *open_async(const char *folder, const struct saved *s, void **staging)
{
    struct checkpointer *c;
    *staging = heap(staging_bytes(&s->shard, &s->shard, F32, NULL, false));
    struct checkpointer_options o = {
        .folder = folder, .world = comm_self(), .async = true, .staging = *staging};
    CHECK_STATUS(OK, checkpointer_open(&c, &o));
    return c;
}

static size_t count_names(const char *folder)
{
    struct file_list l;
    CHECK_STATUS(OK, file_list_dir(&l, folder));
    size_t count = l.count;
    file_list_release(&l);
    return count;
}

TEST(loaded_state_is_bit_identical_to_the_saved_one)
{
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        saved_open(&s, tied);
        const char *folder = saved_folder(&s, STEPS(7));
        const char *step = test_path(folder, "step-7");
        check_holds(&s, step, 7);
        struct loaded_state l;
        int64_t seen;
        CHECK_STATUS(OK, load_into(&l, &s, step));
        CHECK(l.found.step == 7);
        CHECK_STATUS(OK, json_get_int(l.found.train, "tokens_seen", 0, 1000, &seen));
        CHECK(seen == 99);
        loaded_release(&l);
        CHECK(has_file(step, "tokenizer.json") && has_file(step, "config.json"));
        struct text toml = {0};
        CHECK_STATUS(OK, file_read(test_path(step, "config.toml"), 1000, &toml));
        CHECK(!strcmp(toml.data, s.config_toml.data));
        text_release(&toml);
        saved_close(&s);
    }
}

TEST(async_save_holds_the_state_at_the_call)
{
    struct saved s;
    void *staging;
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = open_async(folder, &s, &staging);
    for (int step = 1; step <= 5; step++) {
        struct text train = {0}, toml = {0};
        saved_fill(&s, (uint64_t)step);
        struct checkpoint_state state = saved_state(&s, step);
        text_addf(&train, "{\"at\": %d}", step);
        text_addf(&toml, "# %d\n", step);
        state.train = train, state.config_toml = &toml;
        CHECK_STATUS(OK, checkpointer_save(c, &state));
        /* The caller overwrites everything at once. */
        saved_fill(&s, 1000);
        memset(train.data, 'x', train.len);
        text_release(&train);
        text_release(&toml);
    }
    CHECK_STATUS(OK, checkpointer_wait(c));
    CHECK_STATUS(OK, checkpointer_wait(c));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    free(staging);
    for (int step = 1; step <= 5; step++) {
        struct loaded_state l;
        char name[32];
        int64_t at;
        snprintf(name, sizeof name, "step-%d", step);
        check_holds(&s, test_path(folder, name), (uint64_t)step);
        CHECK_STATUS(OK, load_into(&l, &s, test_path(folder, name)));
        CHECK_STATUS(OK, json_get_int(l.found.train, "at", step, step, &at));
        loaded_release(&l);
    }
    saved_close(&s);
}

TEST(changed_staging_memory_discards_the_checkpoint)
{
    static const char *const names[] = {"of weights that", "of exp_avg that", "of exp_avg_sq that"};
    struct saved s;
    void *staging;
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = open_async(folder, &s, &staging);
    size_t part_bytes = staging_bytes(&s.shard, &s.shard, F32, NULL, false) / 3;
    int found = 0;
    for (int step = 1; step <= 6; step++) {
        struct checkpoint_state state = saved_state(&s, step);
        CHECK_STATUS(OK, checkpointer_save(c, &state));
        ((char *)staging)[part_bytes * (size_t)(step % 3) + part_bytes / 2] ^= 4;
        if (!checkpointer_wait(c)) continue; /* the save had ended before */
        char name[32];
        snprintf(name, sizeof name, "step-%d", step);
        CHECK_MESSAGE(names[step % 3]);
        CHECK(!has_file(folder, name));
        found++;
    }
    CHECK(found > 0);
    CHECK_STATUS(OK, checkpointer_close(c, true));
    free(staging), saved_close(&s);
}

TEST(sync_and_async_saves_write_the_same_files)
{
    static const char *const names[] = {"model-00001-of-00001.safetensors",
                                        "optimizer-00001-of-00001.safetensors", "state.json",
                                        "config.json", "manifest.json"};
    struct saved s;
    void *staging;
    saved_open(&s, false);
    const char *a = saved_folder(&s, STEPS(3)), *b = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = open_async(b, &s, &staging);
    struct checkpoint_state state = saved_state(&s, 3);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    free(staging);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct text x = {0}, y = {0};
        CHECK_STATUS(OK, file_read(test_path(test_path(a, "step-3"), names[i]), 1 << 20, &x));
        CHECK_STATUS(OK, file_read(test_path(test_path(b, "step-3"), names[i]), 1 << 20, &y));
        CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
        text_release(&x);
        text_release(&y);
    }
    saved_close(&s);
}

TEST(bfloat16_model_only_checkpoint_rounds_to_nearest_even)
{
    struct saved s;
    struct loaded_state l;
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(&s, 4);
    state.dtype = SAFETENSORS_BF16;
    state.exp_avg = state.exp_avg_sq = NULL;
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    const char *step = test_path(folder, "step-4");
    CHECK_STATUS(OK, load_into(&l, &s, step));
    CHECK(!l.found.has_moments && l.buffers[1][0] == -77);
    for (int i = 0; i < s.layout.num_tensors; i++)
        for (size_t j = 0; j < s.layout.tensors[i].elements; j++) {
            size_t at = s.layout.tensors[i].offset + j;
            uint32_t bits, got;
            memcpy(&bits, &s.weights[at], 4);
            memcpy(&got, &l.buffers[0][at], 4);
            uint32_t low = bits & 0xffff, down = bits & 0xffff0000;
            bool up = low > 0x8000 || (low == 0x8000 && bits & 0x10000);
            CHECK(got == down + (up ? 0x10000 : 0));
        }
    struct text config = {0};
    CHECK_STATUS(OK, file_read(test_path(step, "config.json"), 1 << 20, &config));
    CHECK(strstr(config.data, "\"torch_dtype\": \"bfloat16\""));
    text_release(&config);
    loaded_release(&l);
    saved_close(&s);
}

TEST(saving_a_step_again_replaces_it)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(5));
    struct checkpointer *c = checkpointer_of(folder, 2);
    saved_fill(&s, 50);
    struct checkpoint_state state = saved_state(&s, 5);
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    check_holds(&s, test_path(folder, "step-5"), 50);
    CHECK(count_names(folder) == 2); /* and the lock */
    saved_close(&s);
}

TEST(only_the_latest_k_checkpoints_are_kept)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-1-keep")));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "best_step-2")));
    struct checkpointer *c = checkpointer_of(folder, 3);
    for (int step = 1; step <= 11; step++) {
        struct checkpoint_state state = saved_state(&s, step);
        CHECK_STATUS(OK, checkpointer_save(c, &state));
    }
    CHECK_STATUS(OK, checkpointer_close(c, false));
    CHECK(has_file(folder, "step-9") && has_file(folder, "step-10") && has_file(folder, "step-11"));
    CHECK(has_file(folder, "step-1-keep") && has_file(folder, "best_step-2"));
    CHECK(count_names(folder) == 6);
    saved_close(&s);
}

TEST(folder_has_one_writer_at_a_time)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *first = checkpointer_of(folder, 0), *second;
    struct checkpointer_options o = {.folder = folder, .world = comm_self()};
    CHECK_STATUS(CONFIG, checkpointer_open(&second, &o));
    CHECK(second == NULL);
    CHECK_MESSAGE("another run writes there");
    CHECK_STATUS(OK, checkpointer_close(first, false));
    CHECK_STATUS(OK, checkpointer_open(&second, &o));
    CHECK_STATUS(OK, checkpointer_close(second, false));
    saved_close(&s);
}

/* In a child process whose files cannot exceed `most` bytes, saves step 2 and returns its
 * status. */
static int save_with_file_limit(const char *folder, const struct saved *s, rlim_t most, bool async)
{
    int code;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        void *staging = heap(staging_bytes(&s->shard, &s->shard, F32, NULL, false));
        struct checkpointer_options o = {
            .folder = folder, .world = comm_self(), .async = async, .staging = staging};
        struct checkpointer *c;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){most, most});
        if (checkpointer_open(&c, &o)) _exit(100);
        struct checkpoint_state state = saved_state(s, 2);
        enum status st = checkpointer_save(c, &state);
        enum status end = checkpointer_close(c, false);
        bool is_expected = strstr(status_message(), "File too large") != NULL;
        free(staging);
        _exit(st || end ? (is_expected ? (int)(st ? st : end) : 101) : 0);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFEXITED(code));
    return WEXITSTATUS(code);
}

TEST(full_disk_fails_the_save_and_leaves_nothing)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1));
    uint64_t model, most;
    const char *step = test_path(folder, "step-1");
    CHECK_STATUS(OK, file_size(test_path(step, "model-00001-of-00001.safetensors"), &model));
    CHECK_STATUS(OK, file_size(test_path(step, "optimizer-00001-of-00001.safetensors"), &most));
    const rlim_t limits[] = {0, 1, 100, model / 2, model - 1, model, most - 1};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int async = 0; async < 2; async++) {
            CHECK(save_with_file_limit(folder, &s, limits[i], async) == STATUS_IO);
            CHECK(count_names(folder) == 2 && has_file(folder, "step-1"));
        }
    check_holds(&s, step, 1);
    CHECK(save_with_file_limit(folder, &s, most, false) == 0);
    CHECK_STATUS(OK, checkpoint_verify(test_path(folder, "step-2")));
    saved_close(&s);
}

TEST(failed_async_save_does_not_prevent_the_next_one)
{
    struct saved s;
    struct rlimit old;
    void *staging;
    uint64_t model;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1));
    CHECK_STATUS(OK,
                 file_size(test_path(folder, "step-1/model-00001-of-00001.safetensors"), &model));
    struct checkpointer *c = open_async(folder, &s, &staging);
    struct checkpoint_state whole = saved_state(&s, 2), small = saved_state(&s, 3);
    small.exp_avg = small.exp_avg_sq = NULL;
    /* Space for the model, but not for the moments. */
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){model, old.rlim_max}) == 0);
    enum status first = checkpointer_save(c, &whole), second = checkpointer_save(c, &small);
    enum status end = checkpointer_close(c, false);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, handler);
    CHECK(!first && !second && !end);
    CHECK(!has_file(folder, "step-2"));
    CHECK_STATUS(OK, checkpoint_verify(test_path(folder, "step-3")));
    free(staging);
    saved_close(&s);
}

/* Saves steps from `first` on until killed. */
static void save_until_killed(const char *folder, struct saved *s, int first, bool async)
{
    struct checkpointer *c;
    void *staging = heap(staging_bytes(&s->shard, &s->shard, F32, NULL, false));
    struct checkpointer_options o = {.folder = folder,
                                     .world = comm_self(),
                                     .keep_latest_k = 2,
                                     .async = async,
                                     .staging = staging};
    if (checkpointer_open(&c, &o)) _exit(1);
    for (int step = first;; step++) {
        saved_fill(s, (uint64_t)step);
        struct checkpoint_state state = saved_state(s, step);
        if (checkpointer_save(c, &state)) _exit(2);
    }
}

TEST(save_killed_at_any_moment_leaves_a_loadable_checkpoint)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1));
    int64_t newest = 1;
    for (int i = 0; i < 30; i++) {
        int code;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) save_until_killed(folder, &s, (int)newest, i % 2);
        double seconds = 0.03 * rng_uniform(9, RNG_TEST, 0, (uint64_t)i);
        nanosleep(&(struct timespec){0, (long)(1e9 * seconds)}, NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &code, 0) == child && WIFSIGNALED(code));
        char *found;
        CHECK_STATUS(OK, checkpoint_find(folder, INT64_MAX, true, comm_self(), &found));
        CHECK(found);
        int64_t step = strtoll(strrchr(found, '-') + 1, NULL, 10);
        CHECK(step >= newest);
        newest = step;
        check_holds(&s, found, (uint64_t)step);
        free(found);
    }
    /* The next writer deletes the leftovers. */
    CHECK_STATUS(OK, checkpointer_close(checkpointer_of(folder, 0), false));
    struct file_list l;
    CHECK_STATUS(OK, file_list_dir(&l, folder));
    for (size_t i = 0; i < l.count; i++)
        CHECK(!strncmp(l.paths[i], "step-", 5) ? !strstr(l.paths[i], ".tmp")
                                               : !strcmp(l.paths[i], ".lock"));
    file_list_release(&l);
    saved_close(&s);
}

/* Checks that both folders have the same files with the same bytes. */
static void check_same_folders(const char *a, const char *b)
{
    struct file_list names, others;
    CHECK_STATUS(OK, file_list_dir(&names, a));
    CHECK_STATUS(OK, file_list_dir(&others, b));
    CHECK(names.count == others.count && names.count > 4);
    for (size_t i = 0; i < names.count; i++) {
        struct text x = {0}, y = {0};
        CHECK(!strcmp(names.paths[i], others.paths[i]));
        CHECK_STATUS(OK, file_read(test_path(a, names.paths[i]), 1 << 26, &x));
        CHECK_STATUS(OK, file_read(test_path(b, names.paths[i]), 1 << 26, &y));
        CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
        text_release(&x), text_release(&y);
    }
    file_list_release(&names), file_list_release(&others);
}

static const char *save_sharded(struct sharded_save how, int ranks)
{
    const char *folder = how.folder = test_path(test_folder(), "checkpoint");
    how.count = 1;
    sharding_save(&how, ranks);
    for (int r = 0; r < 8; r++) CHECK(!how.statuses[r]);
    return test_path(folder, "step-3");
}

TEST(files_do_not_depend_on_ranks_or_shards)
{
    struct tokenizer *tokenizer;
    CHECK_STATUS(OK, tokenizer_open(&tokenizer, "bytes", &(struct tokenizer_config){0}));
    struct sharded_save alone = {
        .dtype = SAFETENSORS_F32, .first = 3, .tokenizer = tokenizer, .how = SHARDING_REPLICATED};
    struct sharded_save half = alone;
    half.dtype = SAFETENSORS_BF16, half.tied = true;
    const char *want = save_sharded(alone, 0), *want_half = save_sharded(half, 0);
    CHECK_STATUS(OK, checkpoint_verify(want));
    for (int ranks = 1; ranks <= 4; ranks++)
        for (enum sharding how = 0; how < SHARDING_COUNT; how++) {
            struct sharded_save many = alone, many_half = half;
            many.how = many_half.how = how;
            many.async = ranks % 2 == 0;
            check_same_folders(want, save_sharded(many, ranks));
            if (ranks == 3) check_same_folders(want_half, save_sharded(many_half, ranks));
        }
    tokenizer_close(tokenizer);
}

TEST(async_save_does_not_mix_with_other_communication)
{
    struct sharded_save s = {.folder = test_path(test_folder(), "checkpoint"),
                             .dtype = SAFETENSORS_F32,
                             .async = true,
                             .first = 1,
                             .count = 4};
    sharding_save(&s, 3);
    for (int r = 0; r < 3; r++) CHECK(!s.statuses[r]);
    for (int step = 1; step <= 4; step++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", step);
        CHECK_STATUS(OK, checkpoint_verify(test_path(s.folder, name)));
    }
}

TEST(save_that_cannot_start_a_thread_fails_when_it_is_waited_for)
{
    struct saved s;
    void *staging;
    pthread_attr_t usual, huge; /* a stack larger than the address space */
    saved_open(&s, false);
    struct checkpointer *c = open_async(test_path(test_folder(), "checkpoint"), &s, &staging);
    struct checkpoint_state state = saved_state(&s, 2);
    s.weights[layout_find(&s.layout, PARAM_mlp_down, 0)->offset] = NAN;
    CHECK(!pthread_getattr_default_np(&usual) && !pthread_getattr_default_np(&huge));
    CHECK(!pthread_attr_setstacksize(&huge, (size_t)1 << 60) && !pthread_setattr_default_np(&huge));
    enum status st = checkpointer_save(c, &state);
    CHECK(!pthread_setattr_default_np(&usual) && !st && !(checkpointer_save_seconds(c) > 0));
    CHECK_STATUS(DIVERGED, checkpointer_wait(c)); /* when other ranks learn of it */
    CHECK(checkpointer_save_seconds(c) > 0 && !checkpointer_close(c, false));
    free(staging);
    saved_close(&s);
}

/* Limit the file size so that only one of the ranks exceeds it. */
TEST(write_error_on_one_rank_fails_the_save_on_all)
{
    struct rlimit old;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    for (int async = 0; async < 2; async++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            const char *folder = test_path(test_folder(), "checkpoint");
            struct sharded_save s = {
                .folder = folder, .dtype = SAFETENSORS_F32, .async = async, .first = 1, .count = 1};
            sharding_save(&s, ranks);
            void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
            CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){7 << 20, old.rlim_max}) == 0);
            s.first = 2;
            enum status st = ranks_run(ranks, sharding_save_on_rank, &s);
            CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
            signal(SIGXFSZ, handler);
            CHECK_STATUS(OK, st);
            int writers = 0;
            for (int r = 0; r < ranks; r++) {
                bool own = strstr(s.messages[r], "File too large");
                CHECK(s.statuses[r] == STATUS_IO && s.is_shared[r]);
                CHECK(own || strstr(s.messages[r], "failed: reading or writing failed"));
                writers += own;
            }
            CHECK(writers == 1);
            CHECK(count_names(folder) == 2 && has_file(folder, "step-1"));
            s.first = 3; /* there is space again */
            memset(s.statuses, 0, sizeof s.statuses);
            sharding_save(&s, ranks);
            CHECK(!s.statuses[0]);
            CHECK_STATUS(OK, checkpoint_verify(test_path(folder, "step-3")));
        }
}

static enum status open_twice(const struct comm *world, void *context)
{
    struct checkpointer *first, *second;
    struct checkpointer_options o = {.folder = context, .world = world};
    TRY(checkpointer_open(&first, &o));
    enum status st = checkpointer_open(&second, &o);
    bool is_expected =
        strstr(status_message(), world->rank ? "rank 0 failed" : "another run writes");
    TRY(checkpointer_close(first, false));
    RANK_CHECK(st == STATUS_CONFIG && second == NULL && is_expected);
    return STATUS_OK;
}

TEST(folder_locked_by_another_run_is_rejected_on_every_rank)
{
    const char *folder = test_path(test_folder(), "checkpoint");
    CHECK_STATUS(OK, ranks_run(3, open_twice, (void *)(uintptr_t)folder));
}

/* Rank 1 waits until the others have come this far. */
static enum status signal_rank_1(const struct comm *world)
{
    float word = 0;
    struct transfer t = {.kind = TRANSFER_send, .dtype = F32, .count = 1, .x = &word, .peer = 1};
    if (world->rank != 1) return comm_run(world, &t);
    t.kind = TRANSFER_receive;
    for (t.peer = 0; t.peer < world->size; t.peer++)
        if (t.peer != 1) TRY(comm_run(world, &t));
    return STATUS_OK;
}

/* Rank 1 fails instead of saving. */
static enum status save_without_rank_1(const struct comm *world, void *context)
{
    struct sharded_save *saving = context;
    struct model_shape shape = sharding_shape(false);
    struct rank_shard s;
    struct checkpointer *c;
    rank_shard_open(&s, SHARDING_FSDP, false, world->rank, world->size);
    void *staging = heap(staging_bytes(&s.shard, &s.shard, F32, NULL, false));
    struct checkpointer_options o = {
        .folder = saving->folder, .async = saving->async, .staging = staging, .world = world};
    enum status st = checkpointer_open(&c, &o);
    if (!st) st = signal_rank_1(world);
    if (!st && world->rank != 1) {
        struct checkpoint_state state = rank_shard_state(&s, &shape, world, 1);
        enum status save = checkpointer_save(c, &state), wait = checkpointer_wait(c);
        saving->statuses[world->rank] = save ? save : wait;
    }
    if (!st) st = checkpointer_close(c, false);
    free(staging);
    rank_shard_release(&s);
    if (world->rank == 1) FAIL(DEVICE, "it is on fire");
    return st;
}

TEST(lost_rank_fails_the_save_and_leaves_nothing)
{
    for (int async = 0; async < 2; async++) {
        struct sharded_save s = {.folder = test_path(test_folder(), "checkpoint"), .async = async};
        CHECK_STATUS(DEVICE, ranks_run(3, save_without_rank_1, &s));
        CHECK(s.statuses[0] == STATUS_COMM && s.statuses[2] == STATUS_COMM);
        CHECK(count_names(s.folder) == 1 && has_file(s.folder, ".lock"));
    }
}

/* NaN in memory, synchronous or not: no folder, an older checkpoint stays, and the message names
 * the tensor.  Once the value is good again, so is the next save. */
TEST(state_with_a_bad_value_is_never_saved_as_valid)
{
    for (int async = 0; async < 2; async++)
        for (int buffer = 0; buffer < 3; buffer++) {
            struct saved s;
            void *staging = NULL;
            saved_open(&s, false);
            float *buffers[] = {s.weights, s.exp_avg, s.exp_avg_sq};
            const char *folder = test_path(test_folder(), async ? "async" : "sync");
            struct checkpointer *c =
                async ? open_async(folder, &s, &staging) : checkpointer_of(folder, 0);
            float *value = buffers[buffer] + layout_find(&s.layout, PARAM_mlp_down, 0)->offset + 9;
            float good = *value;
            struct checkpoint_state state = saved_state(&s, 1);
            CHECK_STATUS(OK, checkpointer_save(c, &state));
            *value = buffer == 2 ? -1 : NAN;
            state.step = 2;
            enum status st = checkpointer_save(c, &state);
            CHECK(st == (async ? STATUS_OK : STATUS_DIVERGED));
            state.step = 3;
            if (async) CHECK_STATUS(DIVERGED, checkpointer_save(c, &state));
            if (async) CHECK_MESSAGE("the checkpoint of step 2");
            CHECK_MESSAGE("model.layers.0.mlp.down_proj.weight");
            CHECK_MESSAGE(buffer == 2 ? "exp_avg_sq: element 9 is -1" : "element 9 is nan");
            CHECK_MESSAGE("rank 0: tensor ");
            CHECK(!has_file(folder, "step-2") && !has_file(folder, "step-2.tmp"));
            CHECK(!has_file(folder, "step-3") && has_file(folder, "step-1"));
            *value = good;
            CHECK_STATUS(OK, checkpointer_save(c, &state));
            CHECK_STATUS(OK, checkpointer_close(c, false));
            CHECK_STATUS(OK, try_load(&s, test_path(folder, "step-3")));
            file_remove_tree(folder);
            free(staging);
            saved_close(&s);
        }
}

/* Whether that rank writes the value itself or another one does: all ranks get the same status, and
 * the rank that has it names it. */
TEST(bad_value_on_one_rank_fails_the_save_on_all)
{
    for (int async = 0; async < 2; async++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct sharded_save s = {.folder = test_path(test_folder(), "checkpoint"),
                                     .how = SHARDING_FSDP,
                                     .dtype = SAFETENSORS_F32,
                                     .async = async,
                                     .first = 1,
                                     .count = 1,
                                     .bad_rank = ranks - 1};
            char rank[40];
            sharding_save(&s, ranks);
            for (int r = 0; r < ranks; r++)
                CHECK(s.statuses[r] == STATUS_DIVERGED && s.is_shared[r]);
            snprintf(rank, sizeof rank, "rank %d: tensor ", ranks - 1);
            CHECK(strstr(s.messages[ranks - 1], " is nan, expected a finite value"));
            CHECK(strstr(s.messages[ranks - 1], rank));
            CHECK(!has_file(s.folder, "step-1") && !has_file(s.folder, "step-1.tmp"));
        }
}
