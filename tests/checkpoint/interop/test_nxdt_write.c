// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/rig.h"

struct cut {
    struct nxdt_target target;
    int vocabulary, heads, kv_heads, layers, width;
};

static void saved_resize(struct saved *s, const struct cut *c)
{
    shard_release(&s->shard);
    layout_release(&s->layout);
    s->shape.V = c->vocabulary, s->shape.H = c->heads, s->shape.G = c->kv_heads;
    s->shape.L = c->layers, s->shape.D = c->width, s->shape.K = c->width / c->heads;
    layout_init(&s->layout, &s->shape, 1);
    shard_init(&s->shard, &s->layout, 0, 1);
    float **all[] = {&s->weights, &s->exp_avg, &s->exp_avg_sq};
    for (int i = 0; i < 3; i++) {
        free(*all[i]);
        *all[i] = heap(s->layout.elements * sizeof(float));
    }
    saved_fill(s, 3);
}

static size_t count_files(const char *folder)
{
    struct file_list names;
    CHECK_STATUS(OK, file_list_dir(&names, folder));
    size_t count = names.count;
    file_list_release(&names);
    return count;
}

static const char *write_model(struct saved *s, const struct nxdt_target *t)
{
    const char *native = saved_folder(s, STEPS(3)), *to = test_path(native, "../nxdt");
    struct conversion c = {.from = test_path(native, "step-3"),
                           .to = to,
                           .target = CONVERT_NXDT,
                           .keep_dtype = true,
                           .nxdt = *t};
    struct converted done;
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.num_tensors == s->layout.num_tensors && done.step == -1);
    return to;
}

TEST(nxdt_checkpoints_of_any_layout_round_trip)
{
    static const struct cut cuts[] = {
        {{0}, 37, 4, 2, 2, 16},
        {{.tp_size = 4, .kv_size_multiplier = 2}, 40, 4, 2, 2, 16},
        {{.tp_size = 8, .kv_size_multiplier = 4, .fuse_qkv = true, .pp_size = 2}, 40, 16, 2, 3, 64},
        {{.tp_size = 4, .kv_size_multiplier = 2, .adjacent = true, .no_xser = true},
         40,
         8,
         2,
         2,
         32},
        {{.tp_size = 2, .pp_size = 2, .virtual_pp_size = 2, .qkv_linear = true}, 40, 4, 2, 5, 16},
        {{.tp_size = 2, .coalesce_qkv = true}, 40, 4, 4, 2, 16},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (int tied = 0; tied < 2; tied++) {
            struct saved s;
            struct loaded_state l;
            saved_open(&s, tied);
            saved_resize(&s, &cuts[i]);
            const struct nxdt_target *t = &cuts[i].target;
            const char *to = write_model(&s, t);
            int tp = t->tp_size ? t->tp_size : 1, pp = t->pp_size ? t->pp_size : 1;
            CHECK(count_files(test_path(to, "model")) == (size_t)(tp * pp * (t->no_xser ? 1 : 3)));
            CHECK(has_file(to, "done") && has_file(to, "checkpoint") &&
                  has_file(to, "config.json"));
            CHECK_STATUS(OK, load_into(&l, &s, to));
            CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && !l.found.has_moments);
            loaded_release(&l);
            saved_close(&s);
        }
}

TEST(remaining_layers_go_to_the_last_pipeline_ranks)
{
    static const struct cut cut = {{.pp_size = 3, .no_xser = true}, 37, 4, 2, 5, 16};
    static const char *const layers[] = {"model.layers.0.", "model.layers.1.model.layers.2.",
                                         "model.layers.3.model.layers.4."};
    struct saved s;
    saved_open(&s, false);
    saved_resize(&s, &cut);
    const char *to = write_model(&s, &cut.target);
    for (int r = 0; r < 3; r++) {
        struct text bytes = {0}, seen = {0};
        struct torch_archive a;
        struct torch_tensors t;
        char name[80];
        snprintf(name, sizeof name, "model/dp_rank_00_tp_rank_00_pp_rank_%02d.pt", r);
        CHECK_STATUS(OK, file_read(test_path(to, name), 1 << 20, &bytes));
        CHECK_STATUS(OK, torch_archive_open(&a, (unsigned char *)bytes.data, bytes.len, name));
        CHECK_STATUS(OK, torch_archive_tensors(&a, &t));
        for (size_t i = 0; i < t.count; i++) {
            const char *norm = strstr(t.all[i].name, "input_layernorm");
            if (norm) text_addf(&seen, "%.*s", (int)(norm - t.all[i].name), t.all[i].name);
        }
        CHECK(!strcmp(seen.data, layers[r]));
        torch_tensors_release(&t);
        torch_archive_close(&a);
        text_release(&bytes), text_release(&seen);
    }
    saved_close(&s);
}

TEST(layouts_that_do_not_divide_the_model_are_rejected)
{
    static const struct {
        struct nxdt_target target;
        const char *message;
    } cases[] = {
        {{.tp_size = 3}, "40 vocabulary entries"},
        {{.tp_size = 8}, "4 query heads"},
        {{.tp_size = 4}, "--kv-size-multiplier"},
        {{.tp_size = 4, .kv_size_multiplier = 4}, "2 key/value heads times 4 is 8"},
        {{.pp_size = 2, .virtual_pp_size = 2}, "4 stages, but the model has only 2 layers"},
        {{.tp_size = 2, .coalesce_qkv = true}, "--coalesce-qkv"},
    };
    struct saved s;
    saved_open(&s, false);
    s.shape.V = 40;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(CONFIG, nxdt_write_check(&cases[i].target, &s.shape));
        CHECK_MESSAGE(cases[i].message);
    }
    saved_close(&s);
}
