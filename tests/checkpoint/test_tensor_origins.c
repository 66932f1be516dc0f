// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"

#include "checkpoint/tensor_origins.h"

#define TIED "tests/checkpoint/data/tied" /* a Hugging Face folder */

/* The model of that folder, changed, and what its tensors come from. */
struct found {
    struct model_shape shape;
    struct layout layout;
    struct model_files files;
    struct tensor_origins origins;
};

static enum status find(struct found *f, const char *const *exclude,
                        const struct tensor_rules *rules)
{
    struct tensor_rules all = *rules;
    struct option_list list = {.items = (const char **)(uintptr_t)exclude};
    while (exclude && exclude[list.count]) list.count++;
    all.exclude = &list;
    layout_init(&f->layout, &f->shape, 1);
    CHECK_STATUS(OK, model_files_open(&f->files, TIED));
    return tensor_origins_find(&f->origins, &f->files, &f->layout, "", &all);
}

static void release(struct found *f)
{
    tensor_origins_release(&f->origins);
    model_files_close(&f->files);
    layout_release(&f->layout);
}

static struct found tied_model(void)
{
    struct found f = {0};
    CHECK_STATUS(OK, checkpoint_read_shape(TIED, &f.shape));
    CHECK(f.shape.tied);
    return f;
}

static void check_list(const struct found *f, enum tensor_origin origin, const char *want)
{
    struct text list = {0};
    text_adds(&list, "");
    tensor_origins_list(&f->origins, origin, &list);
    if (strcmp(list.data, want)) fail_msg("%s, expected %s", list.data, want);
    text_release(&list);
}

TEST(every_tensor_of_the_same_model_comes_from_the_files)
{
    struct found f = tied_model();
    char want[120];
    CHECK_STATUS(OK, find(&f, NULL, &(struct tensor_rules){0}));
    CHECK(tensor_origins_count(&f.origins, ORIGIN_FILE) == f.layout.num_tensors);
    snprintf(want, sizeof want, "model.embed_tokens.weight, model.layers.0-%d.*, model.norm.weight",
             f.shape.L - 1);
    check_list(&f, ORIGIN_FILE, want);
    check_list(&f, ORIGIN_MISSING, "");
    release(&f);
}

TEST(head_of_an_untied_model_is_the_embedding_of_a_tied_one_or_missing)
{
    for (int tied = 0; tied < 2; tied++) {
        struct found f = tied_model();
        f.shape.tied = false;
        enum status st = find(&f, NULL, &(struct tensor_rules){.tied = tied});
        if (tied) {
            CHECK_STATUS(OK, st);
            check_list(&f, ORIGIN_EMBEDDING, "lm_head.weight");
        } else {
            CHECK_STATUS(CONFIG, st);
            CHECK_MESSAGE("tensor lm_head.weight is missing; to start from its initial values, add "
                          "it to checkpoint.exclude_from_loading");
        }
        release(&f);
    }
}

TEST(missing_moment_is_reported_with_the_way_to_start_without_moments)
{
    struct found f = tied_model();
    layout_init(&f.layout, &f.shape, 1);
    CHECK_STATUS(OK, model_files_open(&f.files, TIED));
    CHECK_STATUS(CONFIG, tensor_origins_find(&f.origins, &f.files, &f.layout, ".exp_avg",
                                             &(struct tensor_rules){0}));
    CHECK_MESSAGE("model.embed_tokens.weight.exp_avg is missing, so this is not the whole state of "
                  "AdamW; to start with empty moments, set checkpoint.exclude_from_loading = "
                  "[\"optimizer\"]");
    release(&f);
}

TEST(excluded_and_missing_tensors_keep_their_initialization)
{
    static const char *const exclude[] = {"model.layers.0.*", "*.1.mlp.up_proj.weight", NULL};
    struct found f = tied_model();
    f.shape.L += 2;
    CHECK_STATUS(CONFIG, find(&f, exclude, &(struct tensor_rules){0}));
    release(&f);
    f = tied_model();
    char want[80];
    snprintf(want, sizeof want, "model.layers.%d-%d.*", f.shape.L, f.shape.L + 1);
    f.shape.L += 2;
    CHECK_STATUS(OK, find(&f, exclude, &(struct tensor_rules){.partial = true}));
    check_list(&f, ORIGIN_EXCLUDED, "model.layers.0.*, model.layers.1.mlp.up_proj.weight");
    check_list(&f, ORIGIN_MISSING, want);
    for (int i = 0; i < f.layout.num_tensors; i++)
        CHECK(tensor_reader_is_open(&f.origins.readers[i]) == (f.origins.of[i] == ORIGIN_FILE));
    release(&f);
}

TEST(other_shapes_name_the_tensor_and_the_key)
{
    struct found f = tied_model();
    int F = f.shape.F;
    char want[160];
    snprintf(
        want, sizeof want,
        "tensor model.layers.0.mlp.gate_proj.weight has shape [%d, %d], expected [%d, %d]: set "
        "model.ffn_hidden to fit",
        F, f.shape.D, F + 1, f.shape.D);
    f.shape.F++;
    CHECK_STATUS(CONFIG, find(&f, NULL, &(struct tensor_rules){.partial = true}));
    CHECK_MESSAGE(want);
    release(&f);
    f = tied_model();
    f.shape.V++;
    CHECK_STATUS(CONFIG, find(&f, NULL, &(struct tensor_rules){0}));
    CHECK_MESSAGE("set model.vocab_size to fit, or leave it out");
    release(&f);
}

TEST(excluded_names_must_be_parts_or_match_tensors)
{
    static const char *const good[] = {"optimizer",      "dataloader",
                                       "lr_scheduler",   "lm_head.weight",
                                       "model.layers.*", "model.layers.0.mlp.up_proj.weight"};
    static const char *const wrong[] = {"dataloadr", "lm_head", "layers.0", ""};
    struct found f = tied_model();
    layout_init(&f.layout, &f.shape, 1);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *item = good[i];
        CHECK_STATUS(OK, tensor_origins_check_excluded(&(struct option_list){&item, 1}, &f.layout));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *item = wrong[i];
        CHECK_STATUS(CONFIG,
                     tensor_origins_check_excluded(&(struct option_list){&item, 1}, &f.layout));
        CHECK_MESSAGE("matches no tensor of the model: expected optimizer, lr_scheduler");
    }
    layout_release(&f.layout);
}
