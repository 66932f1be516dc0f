// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"
#include "model/params.h"

static const struct model_shape small = {.V = 50,
                                         .D = 24,
                                         .L = 3,
                                         .H = 4,
                                         .G = 2,
                                         .K = 6,
                                         .F = 40,
                                         .rope_theta = 1e4,
                                         .norm_eps = 1e-5,
                                         .depth_init = true,
                                         .max_context = 64};

TEST(units_are_aligned_and_products_adjacent)
{
    struct layout l;
    layout_init(&l, &small, 1);
    CHECK(l.num_tensors == 3 * 9 + 3 && l.num_blocks == 3);
    for (int layer = 0; layer < small.L; layer++) {
        const struct tensor_place *norm = layout_find(&l, PARAM_attn_norm, layer);
        const struct tensor_place *q = layout_find(&l, PARAM_attn_q, layer);
        const struct tensor_place *k = layout_find(&l, PARAM_attn_k, layer);
        const struct tensor_place *v = layout_find(&l, PARAM_attn_v, layer);
        const struct tensor_place *gate = layout_find(&l, PARAM_mlp_gate, layer);
        const struct tensor_place *up = layout_find(&l, PARAM_mlp_up, layer);
        CHECK(norm->offset % 64 == 0 && q->rows == 24 && k->rows == 12 && k->columns == 24);
        CHECK(k->offset == q->offset + q->elements && v->offset == k->offset + k->elements);
        CHECK(up->offset == gate->offset + gate->elements && up->layer == layer);
    }
    CHECK(layout_find(&l, PARAM_last_norm, -1)->offset % 64 == 0 && l.elements % 64 == 0);
    CHECK(!layout_find(&l, PARAM_attn_q, 3) && !layout_find(&l, PARAM_attn_q, -1));
    CHECK(!layout_find(&l, PARAM_head, 0));
    layout_release(&l);
}

TEST(a_tied_model_has_no_head)
{
    struct model_shape s = small;
    struct layout l;
    s.tied = true;
    layout_init(&l, &s, 1);
    CHECK(!layout_find(&l, PARAM_head, -1) && !layout_find_hf(&l, "lm_head.weight"));
    CHECK(layout_find(&l, PARAM_last_norm, -1) && l.num_blocks == 3);
    layout_release(&l);
}

TEST(every_tensor_is_found_by_its_hugging_face_name)
{
    struct layout l;
    char name[96];
    layout_init(&l, &small, 1);
    for (int i = 0; i < l.num_tensors; i++) {
        tensor_place_name(&l.tensors[i], true, name);
        CHECK(layout_find_hf(&l, name) == &l.tensors[i]);
    }
    CHECK(layout_find_hf(&l, "model.layers.2.mlp.up_proj.weight")->id == PARAM_mlp_up);
    tensor_place_name(layout_find(&l, PARAM_attn_out, 1), false, name);
    assert_string_equal(name, "layers.1.attention.wo.weight");
    static const char *const wrong[] = {"model.layers.3.mlp.up_proj.weight",
                                        "model.layers.02.mlp.up_proj.weight",
                                        "model.layers.-1.mlp.up_proj.weight",
                                        "model.layers.99999999999999999999.x",
                                        "",
                                        "model.layers.1.mlp.up_proj.bias"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(!layout_find_hf(&l, wrong[i]));
    layout_release(&l);
}

static double deviation(const float *w, const struct tensor_place *t)
{
    double squares = 0;
    for (size_t i = 0; i < t->elements; i++)
        squares += (double)w[t->offset + i] * (double)w[t->offset + i];
    return sqrt(squares / (double)t->elements);
}

static void start(const struct layout *l, const struct model_shape *s, uint64_t seed, float *w)
{
    struct pieces all;
    pieces_init(&all, l, 0, 1);
    CHECK_STATUS(OK, params_start(l, &all, s, seed, w, NULL));
    pieces_release(&all);
}

TEST(weights_start_with_torchtitans_deviations)
{
    struct model_shape s = {
        .V = 512, .D = 128, .L = 2, .H = 4, .G = 2, .K = 32, .F = 256, .depth_init = true};
    struct layout l;
    layout_init(&l, &s, 1);
    float *w = heap(l.elements * sizeof *w), *again = heap(l.elements * sizeof *w);
    start(&l, &s, 7, w);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_embed, -1)), 1, 0.01);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_attn_q, 1)) / 0.02, 1, 0.02);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_attn_out, 0)) / (0.02 / sqrt(2)), 1, 0.02);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_mlp_up, 1)) / (0.02 / sqrt(4)), 1, 0.02);
    const struct tensor_place *head = layout_find(&l, PARAM_head, -1);
    double most = 0; /* a normal cut at three deviations has 0.9867 of its deviation left */
    CHECK_NEAR(deviation(w, head) * sqrt(128), 0.9867, 0.01);
    for (size_t i = 0; i < head->elements; i++) most = fmax(most, fabs(w[head->offset + i]));
    CHECK(most <= 3 / sqrt(128) && most > 2.9 / sqrt(128));
    CHECK(w[layout_find(&l, PARAM_mlp_norm, 1)->offset] == 1);
    start(&l, &s, 7, again);
    CHECK(!memcmp(w, again, l.elements * sizeof *w));
    start(&l, &s, 8, again);
    CHECK(memcmp(w, again, l.elements * sizeof *w));
    s.depth_init = false;
    start(&l, &s, 7, again);
    CHECK_NEAR(deviation(again, layout_find(&l, PARAM_attn_out, 0)) / (0.02 / sqrt(4)), 1, 0.02);
    free(w), free(again);
    layout_release(&l);
}

TEST(weights_may_start_with_one_deviation_for_all)
{
    struct model_shape s = {
        .V = 512, .D = 128, .L = 2, .H = 4, .G = 2, .K = 32, .F = 256, .init_std = 0.0134};
    struct layout l;
    layout_init(&l, &s, 1);
    float *w = heap(l.elements * sizeof *w);
    for (int scaled = 0; scaled < 2; scaled++) {
        s.init = scaled ? INIT_MEGATRON : INIT_NORMAL;
        start(&l, &s, 7, w);
        double out = deviation(w, layout_find(&l, PARAM_attn_out, 1));
        double down = deviation(w, layout_find(&l, PARAM_mlp_down, 0));
        CHECK_NEAR(out / 0.0134, scaled ? 0.5 : 1, 0.02); /* sqrt(2 L) = 2 */
        CHECK_NEAR(down / 0.0134, scaled ? 0.5 : 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_mlp_up, 1)) / 0.0134, 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_embed, -1)) / 0.0134, 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_head, -1)) / 0.0134, 1, 0.02);
        CHECK(w[layout_find(&l, PARAM_mlp_norm, 1)->offset] == 1);
    }
    free(w);
    layout_release(&l);
}

/* Every element of every tensor lies in exactly one part, at the place the part says. */
TEST(parts_of_all_units_together_are_the_model)
{
    for (int parts = 1; parts <= 7; parts += 2) {
        struct model_shape s = {.V = 31, .D = 6, .L = 3, .H = 3, .G = 1, .K = 2, .F = 9};
        struct layout l;
        layout_init(&l, &s, parts);
        float *whole = heap(l.elements * sizeof *whole), *part = heap(l.elements * sizeof *part);
        size_t seen = 0, each = l.elements / (size_t)parts;
        start(&l, &s, 5, whole);
        for (int i = 0; i < parts; i++) {
            struct pieces p;
            pieces_init(&p, &l, i, parts);
            CHECK(p.elements == each);
            CHECK_STATUS(OK, params_start(&l, &p, &s, 5, part, NULL));
            for (size_t n = 0; n < p.count; n++) {
                const struct piece *q = &p.all[n];
                const float *from = whole + l.tensors[q->tensor].offset + q->first;
                CHECK(q->at + q->count <= each && (!n || q->at >= q[-1].at + q[-1].count));
                CHECK(!memcmp(part + q->at, from, q->count * sizeof *from));
                seen += q->count;
            }
            pieces_release(&p);
        }
        CHECK(seen == (size_t)l.parameters);
        for (int u = 0; u < l.num_units; u++)
            CHECK(l.units[u].elements % (64 * (size_t)parts) == 0);
        free(whole), free(part);
        layout_release(&l);
    }
}

TEST(a_layout_of_some_stages_has_their_tensors_only)
{
    const struct stage some[] = {{.begin = 0, .end = 1, .embeds = true}, {.begin = 2, .end = 3}};
    const struct stage end = {.begin = 2, .end = 3, .heads = true};
    struct model_shape s = small;
    struct layout whole, l;
    struct pieces p;
    layout_init(&whole, &s, 1);
    layout_init_stages(&l, &s, some, 2, 4);
    CHECK(l.num_units == 3 && l.num_tensors == 1 + 2 * 9 && l.num_blocks == 3);
    CHECK(l.units[0].stage == 0 && l.units[1].stage == 0 && l.units[2].stage == 1);
    CHECK(layout_unit(&l, PARAM_attn_q, 2) == 2 && layout_unit(&l, PARAM_attn_q, 1) == -1);
    CHECK(!layout_find(&l, PARAM_mlp_up, 1) && !layout_find(&l, PARAM_last_norm, -1));
    CHECK(layout_find(&l, PARAM_mlp_up, 2)->layer == 2);
    CHECK(!layout_find_hf(&l, "model.layers.1.mlp.up_proj.weight"));
    CHECK(layout_find_hf(&l, "model.layers.2.mlp.up_proj.weight"));
    size_t held = 0;
    for (int part = 0; part < 4; part++) { /* pieces number the whole model's tensors */
        pieces_init_cut(&p, &l, part, 4, &whole, 0, 1);
        for (size_t i = 0; i < p.count; i++) {
            const struct tensor_place *t = &whole.tensors[p.all[i].tensor];
            CHECK(layout_find(&l, t->id, t->layer));
            CHECK(p.all[i].first + p.all[i].count <= t->elements);
            held += p.all[i].count;
        }
        pieces_release(&p);
    }
    CHECK((int64_t)held == l.parameters);
    layout_release(&l), layout_release(&whole);

    s.tied = true; /* the stage with the head needs what serves as one */
    layout_init_stages(&l, &s, &end, 1, 1);
    CHECK(l.num_units == 3 && layout_unit(&l, PARAM_embed, -1) == 1);
    CHECK(layout_unit(&l, PARAM_last_norm, -1) == 2 && !layout_find(&l, PARAM_head, -1));
    layout_release(&l);
}
