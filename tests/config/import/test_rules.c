// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"
#include "config/import/rules.h"

static const struct import_layout_keys none = {0};

TEST(unsharded_state_is_replicated_if_the_rank_count_is_known)
{
    struct import im = {0};
    struct import_layout l = {.ranks = 16,
                              .tp = 2,
                              .pp = 1,
                              .cp = 1,
                              .vp = 1,
                              .micro_batch = 2,
                              .global_batch = 32,
                              .replicas = 1};
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    CHECK_STATUS(OK, rules_set_layout(&im, &l, &none));
    const char *const expected[] = {"parallelism.data_parallel_replicate_degree=8",
                                    "parallelism.data_parallel_shard_degree=1",
                                    "training.global_batch_size=32", NULL};
    import_add_source(&im, "mock", "text", 1);
    CHECK_STATUS(OK, rules_apply_setting(&im, "data.order=megatron"));
    imported_check(&im, expected);
    l.ranks = 0;
    CHECK_STATUS(OK, rules_set_layout(&im, &l, &none));
    CHECK(!im.config.parallelism.fsdp_shard_gradients); /* ZeRO-1: same results */
    import_release(&im);
}

TEST(a_blend_has_weights_for_all_prefixes_or_for_none)
{
    static const struct {
        const char *values[4];
        size_t count, sources;
        const char *blend;
    } cases[] = {{{"a"}, 1, 1, "auto"},
                 {{"1.0", "a"}, 2, 1, "weights"},
                 {{"a", "b"}, 2, 2, "lengths"},
                 {{".3", "a", "7e-1", "b"}, 4, 2, "weights"},
                 {{"0.3", "a", "b"}, 3, 3, "lengths"},
                 {{".3", "a", "b", "c"}, 4, 0, NULL},
                 {{NULL}, 0, 0, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, import_init(&im, "f", "a program"));
        import_add_item(&im, "--data-path", 2, cases[i].values, cases[i].count);
        const struct import_item *item = import_get(&im, "--data-path");
        enum status st = rules_add_blend(&im, item, item->values, item->count);
        CHECK(st == (cases[i].blend ? STATUS_OK : STATUS_CONFIG));
        if (!st) {
            CHECK(im.num_sources == cases[i].sources);
            CHECK(!strcmp(data_blend_word(im.config.data.blend), cases[i].blend));
            CHECK(im.config.data.order == ORDER_megatron);
        }
        import_release(&im);
    }
}
