// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"
#include "model/init_weights.h"

/* Every element of every tensor is in exactly one shard, at the offset that the shard gives. */
TEST(shards_partition_the_model)
{
    for (int shards = 1; shards <= 7; shards += 2) {
        struct model_shape s = {.V = 31, .D = 6, .L = 3, .H = 3, .G = 1, .K = 2, .F = 9};
        struct layout l;
        struct shard all;
        layout_init(&l, &s, shards);
        float *whole = heap(l.elements * sizeof *whole), *part = heap(l.elements * sizeof *part);
        size_t seen = 0, each = l.elements / (size_t)shards;
        const struct store to_whole = store_f32(whole, NULL), to_part = store_f32(part, NULL);
        shard_init(&all, &l, 0, 1);
        CHECK_STATUS(OK, init_weights_store(&l, &all, &s, 5, &to_whole));
        shard_release(&all);
        for (int i = 0; i < shards; i++) {
            struct shard p;
            shard_init(&p, &l, i, shards);
            CHECK(p.elements == each);
            CHECK_STATUS(OK, init_weights_store(&l, &p, &s, 5, &to_part));
            for (size_t n = 0; n < p.count; n++) {
                const struct shard_run *q = &p.runs[n];
                const float *from = whole + l.tensors[q->tensor].offset + q->first;
                CHECK(q->at + q->count <= each && (!n || q->at >= q[-1].at + q[-1].count));
                CHECK(!memcmp(part + q->at, from, q->count * sizeof *from));
                seen += q->count;
            }
            shard_release(&p);
        }
        CHECK(seen == (size_t)l.parameters);
        for (int u = 0; u < l.num_units; u++)
            CHECK(l.units[u].elements % (64 * (size_t)shards) == 0);
        free(whole), free(part);
        layout_release(&l);
    }
}

TEST(shards_of_stages_refer_to_tensors_of_the_whole_model)
{
    const struct stage some[] = {{.begin = 0, .end = 1, .embeds = true}, {.begin = 2, .end = 3}};
    struct model_shape s = {.V = 50, .D = 24, .L = 3, .H = 4, .G = 2, .K = 6, .F = 40};
    struct layout whole, l;
    struct shard p;
    layout_init(&whole, &s, 1);
    layout_init_part(&l, &s, &(struct model_part){some, 2, 4, 0});
    size_t held = 0;
    for (int shard = 0; shard < 4; shard++) {
        shard_init_sliced(&p, &l, &whole, (struct shard_position){shard, 4, 0, 1});
        for (size_t i = 0; i < p.count; i++) {
            const struct tensor_slot *t = &whole.tensors[p.runs[i].tensor];
            CHECK(layout_find(&l, t->id, t->layer));
            CHECK(p.runs[i].first + p.runs[i].count <= t->elements);
            held += p.runs[i].count;
        }
        shard_release(&p);
    }
    CHECK((int64_t)held == l.parameters);
    layout_release(&l), layout_release(&whole);
}

/* What follows an omitted matrix moves by its elements; padding stays. */
TEST(a_shard_without_some_weights_has_the_other_runs_closer_together)
{
    struct model_shape s = {.V = 31, .D = 6, .L = 3, .H = 3, .G = 1, .K = 2, .F = 9};
    const uint32_t omitted = param_set_of(PARAM_attn_q) | param_set_of(PARAM_mlp_down);
    struct layout l;
    layout_init(&l, &s, 3);
    for (int i = 0; i < 3; i++) {
        struct shard all, some;
        size_t gone = 0, k = 0;
        shard_init(&all, &l, i, 3);
        shard_init_without(&some, &all, &l, omitted);
        for (size_t n = 0; n < all.count; n++) {
            const struct shard_run *p = &all.runs[n], *q = &some.runs[k];
            enum param_id id = l.tensors[p->tensor].id;
            if (id == PARAM_attn_q || id == PARAM_mlp_down) {
                gone += p->count;
                continue;
            }
            CHECK(q->tensor == p->tensor && q->first == p->first && q->count == p->count);
            CHECK(q->at == p->at - gone);
            CHECK(shard_find_run(&some, p->tensor, p->first) == q);
            CHECK(shard_find_run(&some, p->tensor, p->first + p->count - 1) == q);
            k++;
        }
        CHECK(gone && some.count == k && some.elements == all.elements - gone);
        shard_release(&all), shard_release(&some);
    }
    layout_release(&l);
}

/* Slices of all ranks together are the model; with more slices than heads, neighbors share one. */
static void check_slices(int vocabulary, int multiple)
{
    struct model_shape s = {.V = vocabulary,
                            .D = 8,
                            .L = 1,
                            .H = 4,
                            .G = 2,
                            .K = 2,
                            .F = 12,
                            .vocab_multiple = multiple};
    struct layout whole;
    layout_init(&whole, &s, 1);
    for (int slices = 1; slices <= 4; slices *= 2) {
        struct model_shape slice = model_shape_slice(&s, 0, slices);
        struct layout l;
        int *seen = heap(whole.elements * sizeof *seen);
        layout_init(&l, &slice, 1);
        for (int i = 0; i < slices; i++) {
            struct shard p;
            shard_init_sliced(&p, &l, &whole, (struct shard_position){0, 1, i, slices});
            for (size_t n = 0; n < p.count; n++)
                for (size_t k = 0; k < p.runs[n].count; k++)
                    seen[whole.tensors[p.runs[n].tensor].offset + p.runs[n].first + k]++;
            shard_release(&p);
        }
        for (int t = 0; t < whole.num_tensors; t++) {
            char tp = params[whole.tensors[t].id].tp;
            int want = !tp ? slices : tp == 'P' ? (slices > s.G ? slices / s.G : 1) : 1;
            for (size_t k = 0; k < whole.tensors[t].elements; k++)
                CHECK(seen[whole.tensors[t].offset + k] == want);
        }
        free(seen);
        layout_release(&l);
    }
    layout_release(&whole);
}

TEST(slices_partition_matrices_and_repeat_key_value_heads) { check_slices(32, 1); }

TEST(slices_of_a_padded_vocabulary_partition_its_tokens)
{
    check_slices(31, 1);
    check_slices(5, 8);
    check_slices(4, 3);
}

/* Sharded, too: a shard may end within the padding, or have nothing else. */
TEST(shards_of_padded_slices_hold_every_token_once)
{
    struct model_shape s = {
        .V = 5, .D = 24, .L = 1, .H = 4, .G = 2, .K = 6, .F = 40, .vocab_multiple = 16};
    enum { SLICES = 2, SHARDS = 4 };
    struct layout whole;
    int seen[5 * 24] = {0};
    layout_init(&whole, &s, 1);
    for (int rank = 0; rank < SLICES * SHARDS; rank++) {
        struct model_shape slice = model_shape_slice(&s, rank / SHARDS, SLICES);
        struct layout l;
        struct shard p;
        layout_init(&l, &slice, SHARDS);
        CHECK(layout_find(&l, PARAM_embed, -1)->rows == 16);
        shard_init_sliced(&p, &l, &whole,
                          (struct shard_position){rank % SHARDS, SHARDS, rank / SHARDS, SLICES});
        for (size_t i = 0; i < p.count; i++)
            for (size_t k = 0; k < p.runs[i].count && p.runs[i].tensor == 0; k++)
                seen[p.runs[i].first + k]++;
        shard_release(&p), layout_release(&l);
    }
    for (int i = 0; i < 5 * 24; i++) CHECK(seen[i] == 1);
    layout_release(&whole);
}
