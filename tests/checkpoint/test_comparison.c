// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/comparison.h"

#include "checkpoint/convert.h"
#include "checkpoint/rig.h"

static const struct difference *find_difference(const struct comparison *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->all[i].name, name)) return &c->all[i];
    return NULL;
}

TEST(checkpoint_equals_itself)
{
    struct saved s;
    struct comparison c;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(2)), "step-2");
    CHECK_STATUS(OK, comparison_make(&c, step, step));
    CHECK(c.count == 0 && c.num_tensors == 3 * s.layout.num_tensors);
    CHECK(c.num_elements == 3 * s.layout.parameters);
    comparison_release(&c);
    saved_close(&s);
}

/* Saves three steps.  In the last norm of the moving average `ema`, or without one of the weights,
 * all values are 2, except a 5 in steps 2 and 3.  Step 3 has no moving average, or else no moments.
 * Returns the folder. */
static const char *save_steps(struct saved *s, float *ema)
{
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *to = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(s, 1);
    const struct tensor_slot *norm = layout_find(&s->layout, PARAM_last_norm, -1);
    float *values = (ema ? ema : s->weights) + norm->offset;
    state.ema = ema;
    for (size_t i = 0; i < norm->elements; i++) values[i] = 2;
    CHECK_STATUS(OK, checkpointer_save(to, &state));
    values[3] = 5;
    state.step = 2;
    CHECK_STATUS(OK, checkpointer_save(to, &state));
    if (!ema) state.exp_avg = state.exp_avg_sq = NULL;
    state.step = 3, state.ema = NULL;
    CHECK_STATUS(OK, checkpointer_save(to, &state));
    CHECK_STATUS(OK, checkpointer_close(to, false));
    return folder;
}

TEST(differing_tensors_are_reported_with_their_error)
{
    struct saved s;
    struct comparison c;
    saved_open(&s, false);
    const char *folder = save_steps(&s, NULL);
    const struct tensor_slot *up = layout_find(&s.layout, PARAM_mlp_up, 1);
    const char *one = test_path(folder, "step-1"), *two = test_path(folder, "step-2");
    replace_value(two, 2, s.exp_avg[up->offset], NAN);
    CHECK_STATUS(OK, comparison_make(&c, one, two));
    const struct difference *d = find_difference(&c, "model.norm.weight");
    CHECK(d && d->kind == DIFFERENCE_NUMBERS && d->most == 3);
    CHECK_NEAR(d->relative, 3.0 / 8, 1e-12);
    d = find_difference(&c, "model.layers.1.mlp.up_proj.weight.exp_avg");
    CHECK(d && d->kind == DIFFERENCE_NUMBERS && isinf(d->most));
    d = find_difference(&c, "state.json: step");
    CHECK(d && d->kind == DIFFERENCE_VALUE && !strcmp(d->first, "1") && !strcmp(d->second, "2"));
    CHECK(c.count == 3);
    comparison_release(&c);
    /* NaN equals NaN. */
    CHECK_STATUS(OK, comparison_make(&c, two, two));
    CHECK(c.count == 0);
    comparison_release(&c);
    CHECK_STATUS(OK, comparison_make(&c, two, test_path(folder, "step-3")));
    d = find_difference(&c, "optimizer's moments");
    CHECK(d && d->kind == DIFFERENCE_ONLY_FIRST && c.count == 2);
    comparison_release(&c);
    saved_close(&s);
}

TEST(moving_averages_are_compared)
{
    struct saved s;
    struct comparison c;
    saved_open(&s, false);
    float *ema = heap(s.layout.elements * sizeof *ema);
    memcpy(ema, s.weights, s.layout.elements * sizeof *ema);
    const char *folder = save_steps(&s, ema);
    const char *one = test_path(folder, "step-1");
    CHECK_STATUS(OK, comparison_make(&c, one, test_path(folder, "step-2")));
    const struct difference *d = find_difference(&c, "ema: model.norm.weight");
    CHECK(d && d->kind == DIFFERENCE_NUMBERS && d->most == 3);
    CHECK(c.count == 2 && c.num_tensors == 4 * s.layout.num_tensors);
    comparison_release(&c);
    CHECK_STATUS(OK, comparison_make(&c, one, test_path(folder, "step-3")));
    d = find_difference(&c, "ema: all tensors");
    CHECK(d && d->kind == DIFFERENCE_ONLY_FIRST && c.count == 2);
    comparison_release(&c);
    free(ema);
    saved_close(&s);
}

TEST(models_of_different_shapes_differ_in_tensors_and_config_keys)
{
    struct saved a, b;
    struct comparison c;
    saved_open(&a, false);
    saved_open(&b, true);
    const char *first = test_path(saved_folder(&a, STEPS(1)), "step-1");
    const char *second = test_path(saved_folder(&b, STEPS(1)), "step-1");
    CHECK_STATUS(OK, comparison_make(&c, first, second));
    CHECK(find_difference(&c, "lm_head.weight")->kind == DIFFERENCE_ONLY_FIRST);
    CHECK(!strcmp(find_difference(&c, "config.json: tie_word_embeddings")->second, "true"));
    comparison_release(&c);
    CHECK_STATUS(OK, comparison_make(&c, second, first));
    CHECK(find_difference(&c, "lm_head.weight")->kind == DIFFERENCE_ONLY_SECOND);
    comparison_release(&c);
    layout_release(&b.layout);
    b.shape.F = 20;
    layout_init(&b.layout, &b.shape, 1);
    second = test_path(saved_folder(&b, STEPS(1)), "step-1");
    CHECK_STATUS(OK, comparison_make(&c, first, second));
    const struct difference *d = find_difference(&c, "model.layers.0.mlp.down_proj.weight");
    CHECK(d && d->kind == DIFFERENCE_SHAPE);
    CHECK(!strcmp(d->first, "[16, 24]") && !strcmp(d->second, "[16, 20]"));
    comparison_release(&c);
    saved_close(&a);
    saved_close(&b);
}

static void compare_states(const char *a, const char *b, struct comparison *c)
{
    struct saved s;
    const char *const texts[] = {a, b};
    const char *folders[2];
    saved_open(&s, false);
    for (int i = 0; i < 2; i++) {
        folders[i] = test_path(saved_folder(&s, STEPS(1)), "step-1");
        CHECK_STATUS(OK,
                     file_write(test_path(folders[i], "state.json"), texts[i], strlen(texts[i])));
    }
    CHECK_STATUS(OK, comparison_make(c, folders[0], folders[1]));
    saved_close(&s);
}

TEST(json_members_are_compared_individually_and_arrays_as_a_whole)
{
    struct comparison c;
    compare_states("{\"a\": {\"b\": [1, [2, 3]], \"c\": true}, \"d\": null, \"e\": \"x\"}",
                   "{\"e\": \"x\", \"d\": null, \"a\": {\"c\": true, \"b\": [1, [2, 3]]}}", &c);
    CHECK(c.count == 0);
    comparison_release(&c);
    compare_states("{\"a\": {\"b\": [1, [2, 3]]}, \"d\": null, \"e\": \"x\", \"g\": [], \"h\": 1}",
                   "{\"a\": {\"b\": [1, [2, 4]]}, \"d\": 0, \"f\": \"x\", \"g\": [1], \"h\": {}}",
                   &c);
    CHECK(c.count == 6);
    CHECK(!strcmp(find_difference(&c, "state.json: a.b")->first, "[2 items]"));
    CHECK(!strcmp(find_difference(&c, "state.json: d")->first, "null"));
    CHECK(find_difference(&c, "state.json: e")->kind == DIFFERENCE_ONLY_FIRST);
    CHECK(find_difference(&c, "state.json: f")->kind == DIFFERENCE_ONLY_SECOND);
    CHECK(find_difference(&c, "state.json: g")->kind == DIFFERENCE_VALUE);
    CHECK(!strcmp(find_difference(&c, "state.json: h")->second, "{0 members}"));
    comparison_release(&c);
}

TEST(comparing_unreadable_folders_fails)
{
    struct saved s;
    struct comparison c;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(2)), "step-2");
    CHECK_STATUS(MISSING, comparison_make(&c, step, test_folder()));
    comparison_release(&c);
    CHECK_STATUS(OK, file_write(test_path(step, "state.json"), "[", 1));
    CHECK_STATUS(DATA, comparison_make(&c, step, step));
    comparison_release(&c);
    saved_close(&s);
}

static void convert(const char *from, const char *to, enum conversion_target target)
{
    static const struct optimizer_config adamw = {.lr = 1e-3,
                                                  .implementation = IMPLEMENTATION_fused};
    static const struct lr_scheduler_config schedule = {0};
    struct converted done;
    struct conversion c = {.from = from,
                           .to = to,
                           .target = target,
                           .keep_dtype = true,
                           .optimizer = &adamw,
                           .lr_scheduler = &schedule,
                           .schedule_steps = 9,
                           .rows = 1};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
}

TEST(phi3_checkpoints_are_compared_in_parts_of_their_fused_matrices)
{
    struct saved s;
    struct comparison c;
    struct model_shape shape = small_shape();
    const char *other = test_path(test_folder(), "hf");
    shape.partial_rotary_factor = 0.5;
    saved_open_shape(&s, &shape);
    const char *steps = saved_folder(&s, STEPS(2, 3));
    CHECK_STATUS(OK, comparison_make(&c, test_path(steps, "step-2"), test_path(steps, "step-2")));
    CHECK(c.count == 0 && c.num_tensors == 3 * s.layout.num_tensors);
    comparison_release(&c);
    convert(test_path(steps, "step-2"), other, CONVERT_HF);
    CHECK_STATUS(OK, comparison_make(&c, other, test_path(steps, "step-3")));
    CHECK(c.num_tensors == s.layout.num_tensors);
    CHECK(find_difference(&c, "model.layers.1.self_attn.k_proj.weight"));
    comparison_release(&c);
    saved_close(&s);
}

TEST(checkpoint_equals_its_conversion_to_dcp)
{
    struct saved s;
    struct comparison c;
    const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
    const char *meta = test_path(folder, "meta");
    saved_open(&s, false);
    const char *steps = saved_folder(&s, STEPS(2, 3));
    convert(test_path(steps, "step-2"), dcp, CONVERT_DCP);
    convert(test_path(steps, "step-2"), meta, CONVERT_META);
    CHECK_STATUS(OK, comparison_make(&c, test_path(steps, "step-2"), dcp));
    CHECK(c.count == 0 && c.num_tensors == 3 * s.layout.num_tensors);
    comparison_release(&c);
    CHECK_STATUS(OK, comparison_make(&c, dcp, test_path(steps, "step-3")));
    const struct difference *d =
        find_difference(&c, "model.layers.1.self_attn.q_proj.weight.exp_avg");
    CHECK(d && d->kind == DIFFERENCE_NUMBERS && d->most > 0.1);
    CHECK(find_difference(&c, "state.json: step") &&
          c.count == 3 * (size_t)s.layout.num_tensors + 1);
    comparison_release(&c);
    CHECK_STATUS(OK, comparison_make(&c, meta, dcp));
    CHECK(c.num_tensors == s.layout.num_tensors && c.count == 2);
    CHECK(find_difference(&c, "optimizer's moments")->kind == DIFFERENCE_ONLY_SECOND);
    CHECK(find_difference(&c, "state.json")->kind == DIFFERENCE_ONLY_SECOND);
    comparison_release(&c);
    saved_close(&s);
}
