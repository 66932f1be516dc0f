// SPDX-License-Identifier: Apache-2.0
#include "model/float8.h"
#include "model/rig.h"

#include "model/model_defaults.h"

static float from_bits(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static enum float8 format_of(const char *name) { return strcmp(name, "E4M3") ? E5M2 : E4M3; }

static struct float8_config defaults(void)
{
    return (struct float8_config){.recipe_name = FLOAT8_RECIPE_delayed,
                                  .amax_history_len = 4,
                                  .amax_compute_algo = AMAX_ALGO_max};
}

/* Every side is a multiple of 16. */
static struct model_shape float8_shape(void)
{
    struct model_shape s = rig_shape();
    s.K = 8, s.F = 32;
    return s;
}

/* Sizes the state first. */
static void open_state(struct float8_state *f, const struct float8_config *c, struct arena *run)
{
    struct model_shape s = float8_shape();
    *run = (struct arena){0};
    CHECK_STATUS(OK, float8_init(f, c, &s, run, run));
    float8_release(f);
    CHECK_STATUS(OK, arena_init(run, run->used, NULL));
    CHECK_STATUS(OK, float8_init(f, c, &s, run, run));
    CHECK(run->used == run->size);
}

static void close_state(struct float8_state *f, struct arena *run)
{
    float8_release(f);
    arena_release(run);
}

/* Records an amax as find_scale does; returns the step's scale, or 0. */
static float record_amax(struct float8_state *f, int block, enum matmul_id p, enum float8_role role,
                         float amax)
{
    struct float8_delayed d = float8_delayed_scale(f, block, p, role);
    CHECK(!d.amax == !d.scale);
    if (d.amax && amax > *d.amax) *d.amax = amax;
    return d.scale ? *d.scale : 0;
}

static void end_step(struct float8_state *f)
{
    float8_collect_amax(f);
    float8_update_scales(f);
}

/* A history of the oracle: amax and scale of each step. */
static void check_history(FILE *file, const char *head)
{
    char format[16], algorithm[16], line[128];
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena run;
    int margin, length, steps = 0;
    unsigned amax, want;
    CHECK(sscanf(head, "delayed %15s %15s %d %d", format, algorithm, &margin, &length) == 4);
    enum float8_role role = format_of(format) == E4M3 ? FLOAT8_WEIGHT : FLOAT8_GRADIENT;
    c.amax_compute_algo = strcmp(algorithm, "max") ? AMAX_ALGO_most_recent : AMAX_ALGO_max;
    c.margin = margin, c.amax_history_len = length;
    open_state(&f, &c, &run);
    for (; steps < 40 && fgets(line, sizeof line, file); steps++) {
        CHECK(sscanf(line, "%x %x", &amax, &want) == 2);
        float8_begin_step(&f);
        record_amax(&f, 2, MATMUL_attn_out, role, from_bits(amax) / 2);
        record_amax(&f, 2, MATMUL_attn_out, role, from_bits(amax));
        end_step(&f);
        float got = record_amax(&f, 2, MATMUL_attn_out, role, 0), expected = from_bits(want);
        if (memcmp(&got, &expected, sizeof got))
            fail_msg("%s step %d: %.9g, expected %.9g", head, steps, (double)got, (double)expected);
    }
    CHECK(steps == 40);
    close_state(&f, &run);
}

TEST(scales_match_the_oracle_bit_for_bit)
{
    char line[128], format[16];
    int currents = 0, histories = 0;
    unsigned amax, want;
    FILE *f = fopen("tests/model/data/float8.txt", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "current %15s %x %x", format, &amax, &want) == 3) {
            float got = float8_current_scale(from_bits(amax), format_of(format));
            CHECK(!memcmp(&got, &want, sizeof got));
            currents++;
        } else if (*line == 'd') {
            check_history(f, line);
            histories++;
        }
    }
    fclose(f);
    CHECK(currents == 150 && histories == 20);
}

TEST(non_finite_amax_is_not_recorded)
{
    CHECK(isnan(float8_current_scale(NAN, E4M3)));
    CHECK(float8_scale_from_amax(NAN, 3, E4M3, 0) == 3 &&
          float8_scale_from_amax(INFINITY, 3, E4M3, 0) == 3);
    CHECK(float8_scale_from_amax(0, 3, E4M3, 0) == 3);
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena run;
    open_state(&f, &c, &run);
    float8_begin_step(&f);
    CHECK(record_amax(&f, 0, MATMUL_attn_q, FLOAT8_INPUT, 7) == 0);
    end_step(&f);
    for (int step = 0; step < 3; step++) {
        float8_begin_step(&f);
        CHECK(record_amax(&f, 0, MATMUL_attn_q, FLOAT8_INPUT, step ? INFINITY : NAN) == 64);
        end_step(&f);
    }
    CHECK(record_amax(&f, 0, MATMUL_attn_q, FLOAT8_INPUT, 0) == 64);
    close_state(&f, &run);
}

/* Runs steps with different amaxes of every tensor. */
static void run_steps(struct float8_state *f, int first, int steps)
{
    for (int step = first; step < first + steps; step++) {
        float8_begin_step(f);
        for (int block = 0; block < f->blocks; block++)
            for (enum matmul_id p = 0; p < MATMUL_COUNT; p++)
                for (enum float8_role role = 0; role < FLOAT8_ROLES; role++) {
                    double x = rng_normal(5, RNG_TEST, (uint64_t)step,
                                          (uint64_t)(block * 97) + p * 7 + role);
                    record_amax(f, block, p, role, (float)exp(x));
                }
        end_step(f);
    }
}

static void check_same(const struct float8_state *a, const struct float8_state *b)
{
    CHECK(!memcmp(a->scales, b->scales, float8_num_amax(a) * sizeof *a->scales));
}

static struct json *saved(const struct float8_state *f)
{
    struct text text = {0};
    struct json *tree;
    float8_save(f, &(struct json_writer){.text = &text});
    CHECK_STATUS(OK, json_parse(text.data, text.len, "float8", &tree));
    text_release(&text);
    return tree;
}

TEST(loaded_state_continues_as_the_saved_one)
{
    static const int done[] = {0, 1, 3, 4, 5, 9};
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        struct float8_config c = defaults();
        struct float8_state one, other;
        struct arena run[2];
        open_state(&one, &c, &run[0]), open_state(&other, &c, &run[1]);
        run_steps(&one, 0, done[i]);
        struct json *tree = saved(&one);
        CHECK_STATUS(OK, float8_load(&other, tree));
        json_free(tree);
        for (int step = 0; step < 6; step++) {
            check_same(&one, &other);
            run_steps(&one, 20 + step, 1), run_steps(&other, 20 + step, 1);
        }
        close_state(&one, &run[0]), close_state(&other, &run[1]);
    }
}

TEST(shorter_history_keeps_the_newest_amaxes)
{
    struct float8_config c = defaults(), narrow = defaults();
    struct float8_state one, other;
    struct arena run[2];
    narrow.amax_history_len = 2;
    open_state(&one, &c, &run[0]), open_state(&other, &narrow, &run[1]);
    run_steps(&one, 0, 6);
    struct json *tree = saved(&one);
    CHECK_STATUS(OK, float8_load(&other, tree));
    json_free(tree);
    run_steps(&one, 6, 1), run_steps(&other, 6, 1);
    for (size_t i = 0; i < float8_num_amax(&other); i++) {
        float max = 0;
        for (int n = 0; n < 2; n++) max = fmaxf(max, one.history[i * 4 + (size_t)(6 - n) % 4]);
        enum float8 format = i % FLOAT8_ROLES == FLOAT8_GRADIENT ? E5M2 : E4M3;
        CHECK(other.scales[i] == float8_scale_from_amax(max, 0, format, 0));
    }
    close_state(&one, &run[0]), close_state(&other, &run[1]);
}

TEST(damaged_state_is_rejected)
{
    static const char *const broken[] = {
        "{}",
        "{\"known\": -1, \"tensors\": [\"00000000\"]}",
        "{\"known\": 1, \"tensors\": {}}",
        "{\"known\": 0, \"tensors\": [\"00000000\"]}",
        "{\"known\": 1048577, \"tensors\": []}",
    };
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena run;
    struct json *tree;
    open_state(&f, &c, &run);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        CHECK_STATUS(OK, json_parse(broken[i], strlen(broken[i]), "float8", &tree));
        CHECK(float8_load(&f, tree) != STATUS_OK);
        json_free(tree);
    }
    run_steps(&f, 0, 2);
    struct text text = {0};
    float8_save(&f, &(struct json_writer){.text = &text});
    static const char *const bad[] = {"7fc0000", "ff80000", "0000000g", "000000\",\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *at = strchr(strchr(text.data, '['), '"') + 1;
        char *copy = heap_string(text.data, text.len);
        memcpy(copy + (at - text.data), bad[i], strlen(bad[i]));
        if (!json_parse(copy, text.len, "float8", &tree)) {
            CHECK_STATUS(DATA, float8_load(&f, tree));
            json_free(tree);
        }
        free(copy);
    }
    text_release(&text);
    close_state(&f, &run);
}

TEST(missing_histories_are_reinitialized)
{
    struct float8_config c = defaults();
    struct float8_state f, current;
    struct arena run[2];
    open_state(&f, &c, &run[0]);
    CHECK_STATUS(OK, float8_load(&f, NULL));
    c.recipe_name = FLOAT8_RECIPE_tensorwise;
    open_state(&current, &c, &run[1]);
    struct json *tree = saved(&current);
    CHECK_STATUS(OK, float8_load(&f, tree));
    CHECK(f.num_steps == 0 && float8_num_amax(&current) == 0);
    CHECK_STATUS(OK, float8_load(&current, tree));
    json_free(tree);
    close_state(&f, &run[0]), close_state(&current, &run[1]);
}

TEST(filters_and_sizes_determine_which_matmuls_use_fp8)
{
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena none = {0};
    struct model_shape s = float8_shape();
    const char *filters[] = {"layers.1.", "feed_forward.w2"};
    c.filter_fqns = (struct option_list){filters, 2};
    CHECK_STATUS(OK, float8_init(&f, &c, &s, &none, &none));
    for (int block = 0; block < 3; block++)
        for (enum matmul_id p = 0; p < MATMUL_COUNT; p++)
            CHECK(f.enabled[block * MATMUL_COUNT + (int)p] == (block != 1 && p != MATMUL_mlp_down));
    float8_release(&f);
    c.filter_fqns.count = 0;
    s.F = 40, s.G = 1;
    CHECK_STATUS(OK, float8_init(&f, &c, &s, &none, &none));
    CHECK(!f.enabled[MATMUL_attn_q] && f.enabled[MATMUL_attn_out]);
    CHECK(!f.enabled[MATMUL_mlp_gate] && !f.enabled[MATMUL_mlp_down]);
    float8_release(&f);
}

TEST(filter_of_part_of_a_matrix_is_rejected)
{
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena none = {0};
    struct model_shape s = float8_shape();
    const char *filters[] = {"attention.wk"};
    c.filter_fqns = (struct option_list){filters, 1};
    CHECK_STATUS(CONFIG, float8_init(&f, &c, &s, &none, &none));
    CHECK_MESSAGE("wq, wk, wv");
    float8_release(&f);
}

TEST(float8_is_enabled_by_option_or_converter)
{
    struct float8_config c = defaults();
    struct model_config m = {0};
    const char *names[] = {"float8", "mx"};
    bool enabled;
    CHECK_STATUS(OK, float8_resolve(&m, &c, &enabled));
    CHECK(!enabled);
    m.converters = (struct option_list){names, 1};
    CHECK_STATUS(OK, float8_resolve(&m, &c, &enabled));
    CHECK(enabled);
    m.converters.count = 2;
    CHECK_STATUS(CONFIG, float8_resolve(&m, &c, &enabled));
    CHECK_MESSAGE("\"mx\"");
    m.converters.count = 0, c.enable_float8_linear = true,
    c.recipe_name = FLOAT8_RECIPE_rowwise_with_gw_hp;
    CHECK_STATUS(CONFIG, float8_resolve(&m, &c, &enabled));
    CHECK_MESSAGE("rowwise_with_gw_hp");
}

TEST(each_role_may_have_its_own_scaling)
{
    struct float8_config c = defaults();
    struct float8_state f;
    struct arena run;
    c.recipe_name = FLOAT8_RECIPE_tensorwise, c.scaling_type_weight = FLOAT8_SCALING_delayed;
    open_state(&f, &c, &run);
    CHECK(!f.delayed[FLOAT8_INPUT] && f.delayed[FLOAT8_WEIGHT] && !f.delayed[FLOAT8_GRADIENT]);
    run_steps(&f, 0, 1);
    CHECK(record_amax(&f, 0, MATMUL_attn_q, FLOAT8_INPUT, 1) == 0);
    CHECK(record_amax(&f, 0, MATMUL_attn_q, FLOAT8_WEIGHT, 1) > 0);
    close_state(&f, &run);
}
