/* test_step_data.c -- compares the rows that are found for a step with those that readers got,
 * in simulated runs: they have checkpoints with a data position, but no model. */
// SPDX-License-Identifier: Apache-2.0
#include "train/step_data.h"

#include "data/rig.h"

#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "config/batch_ramp.h"
#include "data/stream.h"
#include "formats/torch_writer.h"
#include "ops/cross_entropy.h"
#include "train/inputs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { T = 12, MAX_STEPS = 40, MOST_READERS = 4 };

/* What the readers got in a step. */
struct taught {
    int64_t rows;
    int readers, B;
    int32_t *ids, *labels; /* readers x B x T */
};

struct simulated {
    const char *folder;
    char *toml;
    struct config config;
    struct tokenizer *tokenizer;
    struct source_config one;
    struct data_config data, shadow_data;
    struct batch_ramp ramp;
    struct loader *shadow; /* a single reader, whose cursor is saved */
    struct text cursor;    /* of the newest checkpoint */
    struct taught steps[MAX_STEPS + 1];
    int64_t done, rows_done;                                    /* steps, rows */
    int64_t rows_at[MAX_STEPS + 1], next_row_at[MAX_STEPS + 1]; /* after each step */
};

static void simulated_open(struct simulated *s, const char *const *settings)
{
    const char *list[24];
    struct text dump = {0};
    int n = 0;
    *s = (struct simulated){.folder = test_folder()};
    static const char toml[] = "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\ndim = 16\n"
                               "n_layers = 1\nn_heads = 2\nn_kv_heads = 1\nffn_hidden = 24\n"
                               "vocab_size = 264\n"
                               "[training]\nlocal_batch_size = 2\nglobal_batch_size = 8\n"
                               "seq_len = 12\nsteps = 40\n"
                               "[data]\ntokenizer = \"bytes\"\nstreams = 8\nshuffle_window = 4\n";
    s->toml = heap_strdup(test_path(s->folder, "run.toml"));
    CHECK_STATUS(OK, file_write(s->toml, toml, sizeof toml - 1));
    text_addf(&dump, "job.dump_folder=%s", test_path(s->folder, "out"));
    list[n++] = dump.data;
    while (*settings) list[n++] = *settings++;
    CHECK_STATUS(OK, config_load(&s->config, s->toml, list, n));
    CHECK_STATUS(OK, inputs_open_tokenizer(&s->config, false, &s->tokenizer));
    s->data = inputs_data_config(&s->config, &s->one);
    text_release(&dump);
}
#define SIMULATED_OPEN(s, ...) simulated_open(s, (const char *const[]){__VA_ARGS__, NULL})

static void simulated_close(struct simulated *s)
{
    for (int i = 0; i <= MAX_STEPS; i++) free(s->steps[i].ids), free(s->steps[i].labels);
    loader_close(s->shadow);
    tokenizer_close(s->tokenizer);
    text_release(&s->cursor);
    config_release(&s->config);
    free(s->toml);
}

static struct loader *open_reader(struct simulated *s, const struct mesh *mesh, bool alone)
{
    struct loader *l;
    struct json *cursor;
    const struct data_config *data = alone ? &s->shadow_data : &s->data;
    int vocab_size = (int)s->config.model.vocab_size;
    struct loader_options o =
        inputs_loader_options(&s->config, mesh, data, s->tokenizer, vocab_size);
    s->shadow_data = s->data, s->shadow_data.sampler_ranks = o.num_readers;
    if (alone) o.num_readers = 1, o.reader = 0;
    CHECK_STATUS(OK, loader_open(&l, &o));
    if (!s->cursor.len) return l;
    CHECK_STATUS(OK, json_parse(s->cursor.data, s->cursor.len, "cursor", &cursor));
    CHECK_STATUS(OK, loader_load(l, cursor));
    json_free(cursor);
    return l;
}

static void save(struct simulated *s)
{
    struct text state = {0};
    char *folder = file_join(s->config.job.dump_folder, s->config.checkpoint.folder);
    char *path = folder_step_path(folder, s->done);
    struct manifest m = {.folder = path, .step = s->done};
    text_clear(&s->cursor);
    loader_save(s->shadow, &(struct json_writer){.text = &s->cursor});
    text_addf(&state, "{\"step\": %d, \"train\": {\"rows_done\": %d, \"data\": %s}}", (int)s->done,
              (int)s->rows_done, s->cursor.data);
    CHECK_STATUS(OK, file_make_dirs(path));
    CHECK_STATUS(OK, manifest_write_file(&m, "state.json", state.data, state.len));
    CHECK_STATUS(OK, manifest_finish(&m));
    manifest_release(&m);
    text_release(&state);
    free(folder), free(path);
}

/* Reads rows that nobody keeps. */
static void read_shadow(struct simulated *s, int64_t rows)
{
    struct rows got = {0};
    rows_read(&got, s->shadow, T, 1, rows);
    rows_release(&got);
}

static void train_step(struct simulated *s, struct loader **readers, const struct mesh *mesh)
{
    int64_t rows = batch_ramp_rows(&s->ramp, s->rows_done);
    struct taught *t = &s->steps[s->done + 1];
    free(t->ids), free(t->labels);
    t->rows = rows, t->readers = mesh_group_size(mesh, GROUP_data);
    t->B = (int)config_reader_rows(&s->config, mesh, rows);
    size_t each = (size_t)t->B * T, all = (size_t)t->readers * each;
    t->ids = heap(all * 4), t->labels = heap(all * 4);
    int32_t *start = heap(each * 4), *end = heap(each * 4);
    for (int r = 0; r < t->readers; r++) {
        int got;
        size_t at = (size_t)r * each;
        struct batch b = {.B = t->B,
                          .T = T,
                          .ids_BT = t->ids + at,
                          .labels_BT = t->labels + at,
                          .start_BT = start,
                          .end_BT = end};
        CHECK_STATUS(OK, loader_next_step(readers[r], &b, (uint64_t)rows, &got));
    }
    read_shadow(s, rows);
    free(start), free(end);
    s->done++, s->rows_done += rows;
    s->rows_at[s->done] = s->rows_done;
    s->next_row_at[s->done] = (int64_t)loader_position(s->shadow);
}

/* Trains on `ranks` ranks until step `until`, from the newest checkpoint; saves every `every`
 * steps; rolls back once at step `spike` to step `to`. */
struct job {
    int ranks, until, every, spike, to;
};

static void train(struct simulated *s, struct job job)
{
    struct loader *readers[MOST_READERS];
    struct mesh mesh;
    CHECK_STATUS(OK, config_check(&s->config, job.ranks));
    for (int r = job.ranks; r-- > 0;) {
        CHECK_STATUS(OK, mesh_resolve(&mesh, &s->config.parallelism, r, job.ranks));
        readers[r] = open_reader(s, &mesh, false);
    }
    s->ramp = batch_ramp_of(&s->config.training, config_step_rows(&s->config, &mesh));
    loader_close(s->shadow);
    s->shadow = open_reader(s, &mesh, true);
    while (s->done < job.until) {
        train_step(s, readers, &mesh);
        if (s->done == job.spike) {
            loader_record_skipped(s->shadow, (struct row_interval){(uint64_t)s->next_row_at[job.to],
                                                                   loader_position(s->shadow)});
            s->done = job.to, s->rows_done = s->rows_at[job.to], job.spike = -1;
            continue;
        }
        if (s->done % job.every == 0) save(s);
    }
    for (int r = 0; r < job.ranks; r++) loader_close(readers[r]);
}

/* Compares a step with what the readers got: each row once, at its reader's place. */
static void check_step(const struct simulated *s, int step, int ranks)
{
    const struct taught *t = &s->steps[step];
    unsigned char *seen = heap((size_t)t->readers * (size_t)t->B);
    struct step_data d;
    struct step_row row;
    bool none;
    CHECK_STATUS(OK, step_data_open(&d, &s->config, ranks, step));
    CHECK(d.num_rows == t->rows);
    for (int64_t i = 0; i < t->rows; i++) {
        CHECK_STATUS(OK, step_data_next(&d, &row, &none));
        CHECK(!none && row.reader < t->readers && row.place < t->B);
        int at = row.reader * t->B + row.place;
        const int32_t *ids = t->ids + at * T, *labels = t->labels + at * T, *has = row.tokens->ids;
        bool is_masked = s->config.objective.name == OBJECTIVE_masked;
        int tokens = 0;
        CHECK(!seen[at]++);
        for (int k = 0; k < T; k++) {
            if (is_masked)
                CHECK(has[k] == (labels[k] == LABEL_IGNORED ? ids[k] : labels[k]));
            else
                CHECK(has[k] == ids[k] && (labels[k] == LABEL_IGNORED || labels[k] == has[k + 1]));
        }
        for (size_t k = 0; k < row.tokens->spans->count; k++)
            tokens += row.tokens->spans->items[k].count;
        CHECK(tokens == row.tokens->filled && tokens == T + !is_masked);
    }
    CHECK_STATUS(OK, step_data_next(&d, &row, &none));
    CHECK(none);
    step_data_close(&d);
    free(seen);
}

static void remove_checkpoint(const struct simulated *s, int step)
{
    char *folder = file_join(s->config.job.dump_folder, s->config.checkpoint.folder);
    char *path = folder_step_path(folder, step);
    CHECK_STATUS(OK, file_remove_tree(path));
    free(folder), free(path);
}

static const char *write_lines(void)
{
    struct text lines = {0};
    rig_lines(&lines, "doc", 300);
    const char *path = rig_text(test_folder(), "a.jsonl", lines.data);
    text_release(&lines);
    return path;
}

static const char *setting(const char *key, const char *value)
{
    static char kept[4][400];
    static int next;
    char *to = kept[next++ % 4];
    snprintf(to, sizeof kept[0], "%s=%s", key, value);
    return to;
}

TEST(rows_of_past_and_future_steps_are_those_that_were_trained_on)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    train(&s, (struct job){.ranks = 2, .until = 14, .every = 5});
    for (int step = 1; step <= 14; step++) check_step(&s, step, 2);
    s.done = 10, s.rows_done = s.rows_at[10];
    train(&s, (struct job){.ranks = 4, .until = 23, .every = 100}); /* resumed, not saved */
    for (int step = 11; step <= 23; step++) check_step(&s, step, 4);
    remove_checkpoint(&s, 5);
    check_step(&s, 7, 2);
    simulated_close(&s);
}

TEST(rows_that_a_rollback_skipped_are_in_no_step)
{
    struct simulated s;
    char line[200];
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    train(&s, (struct job){.ranks = 2, .until = 19, .every = 5, .spike = 13, .to = 10});
    CHECK(s.next_row_at[19] == 8 * 22);
    for (int step = 1; step <= 15; step++) check_step(&s, step, 2); /* step-15 has the rows */
    remove_checkpoint(&s, 15);
    snprintf(
        line, sizeof line,
        "{\"step\":9,\"loss\":1}\n{\"step\":10,\"rollback_from\":13,\"rows_skipped\":[80,103]}\n"
        "{\"step\":11,\"loss\":1}\n{\"step\":12,\"rollback_from\"");
    const char *metrics = test_path(s.config.job.dump_folder, "metrics.jsonl");
    CHECK_STATUS(OK, file_write(metrics, line, strlen(line)));
    for (int step = 8; step <= 19; step++) check_step(&s, step, 2);
    simulated_close(&s);
}

TEST(rows_of_steps_follow_a_batch_ramp_that_does_not_divide_among_ranks)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()),
                   "training.global_batch_size=9", "training.batch_ramp=[4,1,60]");
    train(&s, (struct job){.ranks = 4, .until = 24, .every = 7});
    CHECK(s.steps[1].rows == 4 && s.steps[24].rows == 9);
    for (int step = 1; step <= 24; step++) check_step(&s, step, 4);
    simulated_close(&s);
}

TEST(rows_of_masked_and_elastic_runs_are_at_their_places)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()), "objective.name=masked",
                   "objective.mask_token=<|mask|>", "training.determinism=elastic",
                   "training.global_batch_size=16");
    train(&s, (struct job){.ranks = 2, .until = 9, .every = 4});
    for (int step = 1; step <= 9; step++) check_step(&s, step, 2);
    simulated_close(&s);
}

TEST(rows_of_skipped_records_are_left_out)
{
    struct simulated s;
    struct text lines = {0};
    for (int i = 0; i < 3000; i++)
        text_addf(&lines, i % 2 ? "{\"text\": \"number %d\"}\n" : "{\"no\": %d}\n", i);
    const char *path = rig_text(test_folder(), "b.jsonl", lines.data);
    SIMULATED_OPEN(&s, setting("training.dataset_path", path), "data.on_bad_record=skip",
                   "data.bad_record_limit=1", "data.streams=2");
    train(&s, (struct job){.ranks = 2, .until = 40, .every = 100});
    for (int step = 1; step <= 40; step += 13) check_step(&s, step, 2);
    simulated_close(&s);
    text_release(&lines);
}

TEST(rows_in_megatrons_order_are_those_of_each_sampler)
{
    static const char *const samplers[] = {"single", "cyclic", "cyclic_unsharded"};
    int lengths[400];
    const char *folder = test_folder();
    for (int d = 0; d < 400; d++) lengths[d] = 1 + d * 7 % 23;
    rig_tokens(folder, "t", lengths, 400, 0);
    for (int k = 0; k < 3; k++) {
        struct simulated s;
        SIMULATED_OPEN(&s, setting("training.dataset_path", test_path(folder, "t")),
                       setting("data.sampler", samplers[k]), "data.order=megatron", "data.split=1",
                       "model.vocab_size=8000", "data.tokenizer=");
        train(&s, (struct job){.ranks = 2, .until = 17, .every = 6});
        for (int step = 1; step <= 17; step++) check_step(&s, step, 2);
        simulated_close(&s);
    }
}

static enum status open_at(struct simulated *s, int64_t step, int ranks)
{
    struct step_data d;
    enum status st = step_data_open(&d, &s->config, ranks, step);
    step_data_close(&d);
    return st;
}

TEST(steps_that_a_run_does_not_have_are_errors)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    CHECK_STATUS(USAGE, open_at(&s, 0, 1));
    CHECK_STATUS(USAGE, open_at(&s, 41, 1));
    CHECK_MESSAGE("step 41: must be between 1 and training.steps = 40");
    CHECK_STATUS(OK, open_at(&s, 40, 1));
    simulated_close(&s);
}

TEST(rows_are_refused_if_the_number_of_ranks_is_not_that_of_the_run)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()),
                   "training.global_batch_size=-1");
    train(&s, (struct job){.ranks = 4, .until = 12, .every = 5});
    for (int step = 1; step <= 12; step += 5) check_step(&s, step, 4);
    CHECK_STATUS(CONFIG, open_at(&s, 7, 2));
    CHECK_MESSAGE("steps 6 to 10 trained on 40 rows, but on 2 ranks this configuration trains on "
                  "20: set --ranks");
    CHECK_STATUS(OK, open_at(&s, 12, 2)); /* the run may resume on 2 */
    simulated_close(&s);
}

TEST(rows_are_refused_if_the_data_have_changed)
{
    struct simulated s;
    struct text lines = {0};
    const char *path = write_lines();
    SIMULATED_OPEN(&s, setting("training.dataset_path", path));
    train(&s, (struct job){.ranks = 1, .until = 6, .every = 5});
    CHECK_STATUS(OK, file_read(path, 1 << 20, &lines));
    test_flip_bit(lines.data, 8 * 60);
    CHECK_STATUS(OK, file_write(path, lines.data, lines.len));
    for (int step = 1; step <= 7; step += 6) { /* before and after the checkpoint */
        CHECK_STATUS(CONFIG, open_at(&s, step, 1));
        CHECK_MESSAGE("a.jsonl: the content of the file has changed");
    }
    simulated_close(&s);
    text_release(&lines);
}

TEST(rows_after_a_restart_of_the_data_are_refused)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    train(&s, (struct job){.ranks = 1, .until = 5, .every = 5});
    text_clear(&s.cursor); /* as exclude_from_loading = ["dataloader"] */
    train(&s, (struct job){.ranks = 1, .until = 11, .every = 5});
    check_step(&s, 4, 1);
    CHECK_STATUS(CONFIG, open_at(&s, 7, 1));
    CHECK_MESSAGE("steps 6 to 10 do not follow");
    check_step(&s, 11, 1);
    simulated_close(&s);
}

TEST(damaged_checkpoints_and_those_of_the_model_alone_are_skipped)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    train(&s, (struct job){.ranks = 1, .until = 17, .every = 5});
    const char *out = s.config.job.dump_folder;
    CHECK(!unlink(test_path(out, "checkpoint/step-10/manifest.json")));
    struct manifest m = {.folder = test_path(out, "checkpoint/step-15"), .step = 15};
    CHECK(!unlink(test_path(out, "checkpoint/step-15/state.json")));
    static const char state[] = "{\"step\": 15, \"train\": null}";
    CHECK_STATUS(OK, manifest_write_file(&m, "state.json", state, sizeof state - 1));
    CHECK_STATUS(OK, manifest_finish(&m));
    manifest_release(&m);
    struct step_data d;
    CHECK_STATUS(OK, step_data_open(&d, &s.config, 1, 17));
    CHECK(d.from_step == 5 && strstr(d.checkpoint, "step-5"));
    step_data_close(&d);
    for (int step = 4; step <= 17; step++) check_step(&s, step, 1);
    simulated_close(&s);
}

TEST(rows_follow_from_the_checkpoint_that_a_run_begins_with)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    train(&s, (struct job){.ranks = 2, .until = 14, .every = 5});
    char *first = heap_strdup(s.config.job.dump_folder);
    const char *other = test_path(s.folder, "other");
    CHECK_STATUS(OK, config_assign(&s.config, "job.dump_folder", other, "test"));
    CHECK_STATUS(OK, config_assign(&s.config, "checkpoint.initial_load_path", first, "test"));
    check_step(&s, 3, 2); /* only the model is loaded */
    CHECK_STATUS(OK,
                 config_assign(&s.config, "checkpoint.initial_load_model_only", "false", "test"));
    for (int step = 11; step <= 14; step++) check_step(&s, step, 2);
    CHECK_STATUS(USAGE, open_at(&s, 10, 2));
    CHECK_MESSAGE("step 10: the run begins after step 10 of ");
    free(first);
    simulated_close(&s);
}

TEST(rows_after_a_checkpoint_that_cannot_be_read_are_unknown)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
    const char *folder = test_path(s.config.job.dump_folder, "checkpoint/step-10");
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, file_write(test_path(folder, ".metadata"), "", 0));
    CHECK_STATUS(DATA, open_at(&s, 11, 1));
    CHECK_MESSAGE("step-10/.metadata: ");
    CHECK_STATUS(OK, open_at(&s, 9, 1));
    simulated_close(&s);
}

/* torchtitan's checkpoint of step 3, without a data position that is read, and a model alone. */
#define WITH_MOMENTS "tests/checkpoint/data/dcp-state"
#define MODEL_ALONE  "tests/checkpoint/data/dcp"

TEST(data_start_from_the_first_row_after_a_checkpoint_without_a_data_position)
{
    static const char *const initial[] = {WITH_MOMENTS, MODEL_ALONE};
    for (int i = 0; i < 2; i++) {
        struct simulated s;
        SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()),
                       setting("checkpoint.initial_load_path", initial[i]),
                       "checkpoint.initial_load_model_only=false");
        int begin = i ? 0 : 3;
        s.done = begin, s.rows_done = 8 * begin;
        train(&s, (struct job){.ranks = 2, .until = 9, .every = 100}); /* not saved */
        for (int step = begin + 1; step <= 9; step++) check_step(&s, step, 2);
        save(&s);
        for (int step = begin + 1; step <= 9; step++) check_step(&s, step, 2);
        if (begin) CHECK_STATUS(USAGE, open_at(&s, begin, 2));
        simulated_close(&s);
    }
}

/* Weights of a rank of Megatron-LM, without args or an optimizer. */
static const char *write_megatron_rank(void)
{
    const char *root = test_folder(), *rank = test_path(root, "mp_rank_00");
    const char *path = test_path(rank, "model_optim_rng.pt");
    char name[] = "model.decoder.layers.0.mlp.linear_fc2.weight";
    struct torch_tensor weight = {
        .name = name, .dtype = SAFETENSORS_F32, .num_dims = 2, .shape = {16, 24}};
    static const float values[16 * 24];
    struct torch_writer w;
    uint64_t size;
    CHECK_STATUS(OK, file_make_dirs(rank));
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, &weight, 1));
    CHECK_STATUS(OK, torch_writer_put(&w, values, sizeof values));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    CHECK(!close(fd));
    return root;
}

TEST(data_start_from_the_first_row_after_weights_of_megatrons_ranks_without_args)
{
    struct simulated s;
    SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()),
                   setting("checkpoint.initial_load_path", write_megatron_rank()),
                   "checkpoint.initial_load_model_only=false");
    train(&s, (struct job){.ranks = 1, .until = 3, .every = 100});
    for (int step = 1; step <= 3; step++) check_step(&s, step, 1);
    simulated_close(&s);
}

static void copy_file(const char *from, const char *to, const char *name)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(test_path(from, name), 1 << 20, &bytes));
    CHECK_STATUS(OK, file_write(test_path(to, name), bytes.data, bytes.len));
    text_release(&bytes);
}

TEST(rows_after_a_runs_own_checkpoint_without_a_data_position_are_unknown)
{
    static const char *const own[] = {WITH_MOMENTS, MODEL_ALONE};
    for (int i = 0; i < 2; i++) {
        struct simulated s;
        SIMULATED_OPEN(&s, setting("training.dataset_path", write_lines()));
        const char *folder = test_path(s.config.job.dump_folder, "checkpoint/step-3");
        CHECK_STATUS(OK, file_make_dirs(folder));
        copy_file(own[i], folder, ".metadata"), copy_file(own[i], folder, "__0_0.distcp");
        copy_file(own[i], folder, "__1_0.distcp"), copy_file(own[i], folder, "params.json");
        CHECK_STATUS(UNSUPPORTED, open_at(&s, 5, 1));
        CHECK_MESSAGE("step-3: the checkpoint has no data position, so the rows");
        CHECK_STATUS(OK, open_at(&s, 3, 1));
        simulated_close(&s);
    }
}
