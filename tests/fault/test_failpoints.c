/* The named places of failpoints.def. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

enum failing_scene { TRAIN, KEEP, RESUME, RECOUNT, REWIND, ROLLBACK, STAGE, RANKS };
struct failpoint {
    const char *name;
    enum failing_scene scene;
    int exit_code;
    const char *fault;
};
static const struct failpoint failpoints[] = {
#define FAILPOINT(name, scene, exit_code, fault) {name, scene, exit_code, fault},
#include "fault/failpoints.def"
#undef FAILPOINT
};

/* Returns how many were lost.  Every point must be reached. */
static int try_points(const struct scene *s, enum failing_scene scene)
{
    int lost = 0;
    bool is_known = false;
    const char *only = getenv("LLAMERO_FAULT_POINT");
    for (size_t i = 0; i < sizeof failpoints / sizeof *failpoints; i++) {
        const struct failpoint *p = &failpoints[i];
        struct tally t = {0};
        is_known |= only && !strcmp(only, p->name);
        if (p->scene != scene || (only && strcmp(only, p->name) != 0)) continue;
        trial_run(s, p->fault, p->exit_code, &t);
        if (!t.tried) print_message("lost: %s: no call matches %s\n", p->name, p->fault), t.lost++;
        tally_add_row(&t, s->name, p->name);
        lost += t.lost;
    }
    if (only && !is_known)
        fail_msg("LLAMERO_FAULT_POINT=%s: no such point in failpoints.def", only);
    return lost;
}

/* Moves the folder of the run without faults to where another scene starts from it. */
static const char *take_straight(const struct scene *s)
{
    const char *start = test_path(s->folder, "start");
    CHECK_STATUS(OK, file_rename(s->straight, start));
    return start;
}

TEST(failpoints_of_a_run_are_survived)
{
    struct scene s;
    scene_train(&s, 1, "");
    CHECK(try_points(&s, TRAIN) == 0);
}

TEST(failpoints_of_deleting_checkpoints_are_survived)
{
    struct scene s;
    scene_train(&s, 1, "checkpoint.interval=1 checkpoint.keep_latest_k=2");
    CHECK(try_points(&s, KEEP) == 0);
}

TEST(failpoints_of_a_resume_are_survived)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_interrupt(&s, "call=rename,on=checkpoint/step-4,action=kill");
    const char *start = test_path(s.folder, "start");
    CHECK_STATUS(OK, file_rename(s.output, start));
    s.name = "resume", s.start = start;
    CHECK(try_points(&s, RESUME) == 0);
}

TEST(failpoints_of_a_run_that_counts_its_steps_again_are_survived)
{
    struct scene s;
    scene_train(&s, 1,
                "training.steps=5 checkpoint.interval=9 "
                "checkpoint.enable_first_step_checkpoint=true");
    const char *start = take_straight(&s); /* with step-1 and step-5 */
    CHECK_STATUS(OK, file_remove_tree(test_path(start, "metrics.jsonl")));
    scene_init_train(&s, 1, "checkpoint.exclude_from_loading=lr_scheduler");
    s.name = "recount", s.start = start;
    scene_open(&s);
    CHECK(try_points(&s, RECOUNT) == 0);
}

TEST(failpoints_of_a_run_that_goes_back_to_a_step_are_survived)
{
    struct scene s;
    scene_train(&s, 1, "");
    const char *start = take_straight(&s); /* with step-2, step-4 and step-6 */
    scene_init_train(&s, 1, "checkpoint.load_step=2 optimizer.lr=1e-4");
    s.name = "rewind", s.start = start, s.goes_back = true;
    scene_open(&s);
    CHECK(try_points(&s, REWIND) == 0);
}

/* The text changes for steps 71 to 80, of 32 tokens each. */
TEST(failpoints_of_a_rollback_are_survived)
{
    struct scene s;
    struct text text = {0};
    scene_init_train(&s, 1,
                     "training.steps=90 lr_scheduler.total_steps=90 training.global_batch_size=2 "
                     "training.seq_len=16 data.streams=1 data.shuffle_window=1 optimizer.lr=1e-2 "
                     "lr_scheduler.warmup_steps=2 checkpoint.interval=5 guard.on_spike=rollback "
                     "guard.spike_zscore=1000");
    for (int i = 0; i < 500; i++)
        text_adds(&text, i / 10 == 7 ? "ZQX!&7K#W@9PJ(Y)2+$ZQX!&7K#W@9\n"
                                     : "abcdefgh abcdefgh abcdefgh abcd\n");
    CHECK_STATUS(OK, file_write(test_path(s.folder, "corpus.txt"), text.data, text.len));
    text_release(&text);
    scene_open(&s);
    CHECK(file_exists(test_path(s.straight, "checkpoint/abandoned-65-1/step-80")));
    s.name = "rollback", s.goes_back = true;
    CHECK(try_points(&s, ROLLBACK) == 0);
}

TEST(failpoints_of_a_data_stage_are_survived)
{
    struct scene s;
    scene_train(&s, 1, "training.steps=4");
    const char *start = take_straight(&s); /* with step-2 and step-4 */
    scene_init_train(&s, 1,
                     "training.steps=8 checkpoint.exclude_from_loading=optimizer "
                     "data.stage.0.at_step=6 data.stage.0.attn_mask_type=block_causal");
    s.name = "stage", s.start = start;
    scene_open(&s);
    CHECK(try_points(&s, STAGE) == 0);
}

TEST(failpoints_of_ranks_are_survived)
{
    struct scene s;
    scene_train(&s, 2, "");
    CHECK(try_points(&s, RANKS) == 0);
}
