// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"

#include "checkpoint/convert.h"
#include "train/start.h"

struct place {
    struct saved saved;
    const char *folder; /* of the run; checkpoint/ holds its checkpoints */
    struct config config;
};

/* A run with checkpoints of these steps. */
static void make(struct place *p, const int *steps, const char *initial)
{
    char dump[300], path[300];
    saved_open(&p->saved, false);
    const char *checkpoints = saved_folder(&p->saved, steps);
    p->folder = test_path(checkpoints, "..");
    snprintf(dump, sizeof dump, "job.dump_folder=%s", p->folder);
    snprintf(path, sizeof path, "checkpoint.initial_load_path=%s", initial);
    CHECK_STATUS(OK, config_load(&p->config, NULL, (const char *const[]){dump, path}, 2));
}

static void leave(struct place *p)
{
    config_release(&p->config);
    saved_close(&p->saved);
}

/* Converts step `from` to DCP as step `to`. */
static void put_dcp(const struct place *p, const char *from, const char *to)
{
    struct converted done;
    struct conversion c = {.from = test_path(p->folder, from),
                           .to = test_path(p->folder, to),
                           .target = CONVERT_DCP,
                           .dtype = SAFETENSORS_F32,
                           .model_only = true};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
}

static struct start find(const struct place *p, int64_t limit)
{
    struct start s;
    const struct start_search search = {.limit = limit};
    CHECK_STATUS(OK, start_find(&s, &p->config, &search, comm_self()));
    return s;
}

TEST(a_run_starts_from_its_own_newest_checkpoint_then_from_the_initial_path)
{
    struct place p;
    make(&p, STEPS(1, 2), "");
    struct start s = find(&p, INT64_MAX);
    CHECK(s.own && s.native && s.whole && !s.partial && s.step == 2);
    start_release(&s);
    s = find(&p, 2);
    CHECK(s.step == 1);
    start_release(&s);
    leave(&p);

    struct place next;
    make(&p, STEPS(3), "");
    make(&next, STEPS(0), p.folder);
    s = find(&next, INT64_MAX);
    CHECK(!s.own && s.step == -1 && !s.whole && strstr(s.folder, "step-3"));
    start_release(&s);
    next.config.checkpoint.initial_load_model_only = false;
    s = find(&next, INT64_MAX);
    CHECK(s.whole);
    start_release(&s);
    next.config.checkpoint.initial_load_path = "";
    s = find(&next, INT64_MAX);
    CHECK(!s.folder);
    start_release(&s);
    leave(&next), leave(&p);
}

TEST(dcp_in_the_folder_of_a_run_is_weights_at_step_0_and_a_checkpoint_later)
{
    struct place p;
    make(&p, STEPS(1), "");
    put_dcp(&p, "checkpoint/step-1", "checkpoint/step-0");
    struct start s = find(&p, 1);
    CHECK(s.own && !s.native && !s.whole && s.partial && s.step == 0);
    start_release(&s);
    s = find(&p, INT64_MAX);
    CHECK(s.native && s.step == 1);
    start_release(&s);
    put_dcp(&p, "checkpoint/step-1", "checkpoint/step-7");
    s = find(&p, INT64_MAX);
    CHECK(s.own && !s.native && s.whole && !s.partial && s.step == 7);
    start_release(&s);
    leave(&p);
}

TEST(a_run_does_not_start_over_beside_checkpoints_of_megatron)
{
    struct place p;
    make(&p, STEPS(1), "");
    CHECK_STATUS(OK, file_write(test_path(p.folder, "latest_checkpointed_iteration.txt"), "9", 1));
    CHECK_STATUS(OK, file_make_dirs(test_path(p.folder, "iter_0000009")));
    struct start s = find(&p, INT64_MAX);
    CHECK(s.own && s.step == 1);
    start_release(&s);
    CHECK_STATUS(OK, file_remove_tree(test_path(p.folder, "checkpoint/step-1")));
    const struct start_search search = {.limit = INT64_MAX};
    CHECK_STATUS(CONFIG, start_find(&s, &p.config, &search, comm_self()));
    CHECK_MESSAGE("has checkpoints of Megatron-LM");
    CHECK_MESSAGE("set checkpoint.initial_load_path");
    leave(&p);
}

TEST(damaged_checkpoints_are_never_replaced_by_the_initial_path)
{
    struct place p;
    struct start s;
    const struct start_search search = {.limit = INT64_MAX};
    make(&p, STEPS(1), "/nowhere");
    CHECK_STATUS(OK, file_remove_tree(test_path(p.folder, "checkpoint/step-1/manifest.json")));
    CHECK_STATUS(DATA, start_find(&s, &p.config, &search, comm_self()));
    CHECK_MESSAGE("no intact checkpoint found (1 damaged or incomplete)");
    CHECK_STATUS(OK, file_remove_tree(test_path(p.folder, "checkpoint/step-1")));
    CHECK_STATUS(MISSING, start_find(&s, &p.config, &search, comm_self()));
    leave(&p);
}

TEST(start_check_compares_shapes_without_reading_weights)
{
    struct place p;
    make(&p, STEPS(1), "");
    struct model_shape shape = p.saved.shape;
    const char *weights = test_path(p.folder, "checkpoint/step-1/model-00001-of-00001.safetensors");
    uint64_t size;
    CHECK_STATUS(OK, file_size(weights, &size));
    flip(weights, size - 1, 1); /* only reading weights finds this */
    CHECK_STATUS(OK, start_check(&p.config, &shape, true));
    shape.F++;
    CHECK_STATUS(CONFIG, start_check(&p.config, &shape, true));
    CHECK_MESSAGE("step-1: a resumed run cannot change these settings: model.ffn_hidden was 24, is "
                  "25. Set them back, or start a new run with another job.dump_folder");
    CHECK(!strstr(status_message(), "initial_load_path"));
    leave(&p);
}

TEST(a_resume_refuses_another_function_of_the_weights_unless_it_is_accepted)
{
    struct place p;
    make(&p, STEPS(1, 2), "");
    struct model_shape shape = p.saved.shape;
    const char *accepted = "model.norm_eps";
    shape.norm_eps *= 2;
    CHECK_STATUS(CONFIG, start_check(&p.config, &shape, false));
    CHECK_MESSAGE("model.norm_eps was 1e-05, is 2e-05. Set them back, or start a new run with "
                  "another job.dump_folder (and this checkpoint as checkpoint.initial_load_path), "
                  "or continue anyway with checkpoint.accept_changed = [\"model.norm_eps\"]");
    const struct option_list own = p.config.checkpoint.accept_changed;
    p.config.checkpoint.accept_changed = (struct option_list){&accepted, 1};
    CHECK_STATUS(OK, start_check(&p.config, &shape, false));
    shape.rope_theta *= 2; /* not named */
    CHECK_STATUS(CONFIG, start_check(&p.config, &shape, false));
    CHECK_MESSAGE("model.rope_theta was ");
    p.config.checkpoint.accept_changed = own;
    leave(&p);
}

TEST(a_damaged_config_json_is_damage_and_not_a_changed_setting)
{
    struct place p;
    make(&p, STEPS(1, 2), "");
    struct model_shape shape = p.saved.shape;
    const char *json = test_path(p.folder, "checkpoint/step-2/config.json");
    struct text t = {0};
    CHECK_STATUS(OK, file_read(json, 1 << 20, &t));
    char *eps = strstr(t.data, "rms_norm_eps");
    CHECK(eps && (eps = strpbrk(eps, "123456789")));
    flip(json, (uint64_t)(eps - t.data), 1);
    struct start s = find(&p, INT64_MAX);
    CHECK_STATUS(DATA, start_compare(&s, &p.config, &shape, false));
    CHECK_MESSAGE("step-2/config.json: checksum mismatch");
    start_release(&s);
    struct start_state state;
    CHECK_STATUS(OK, start_check(&p.config, &shape, false)); /* the run falls back */
    CHECK_STATUS(OK, start_read_state(&state, &p.config, &shape, false));
    CHECK(state.start.step == 1 && state.found.step == 1);
    start_release_state(&state);
    p.config.checkpoint.load_step = 2;
    CHECK_STATUS(DATA, start_check(&p.config, &shape, false));
    CHECK_STATUS(OK, start_read_state(&state, &p.config, &shape, false));
    CHECK(!state.start.own);
    p.config.checkpoint.load_step = -1;
    flip(test_path(p.folder, "checkpoint/step-1/state.json"), 1, 1);
    CHECK_STATUS(OK, start_check(&p.config, &shape, false));
    CHECK_STATUS(DATA, start_check(&p.config, &shape, true));
    CHECK_MESSAGE("no intact checkpoint found (2 damaged or incomplete)");
    text_release(&t);
    leave(&p);
}
