// SPDX-License-Identifier: Apache-2.0
#include "system/gpu_budget.h"

#include "base/file.h"
#include "test.h"

/* The line that begins with "| name |" in the section of the page, or NULL. */
static const char *find_row(const char *section, const char *name)
{
    char start[80];
    int length = snprintf(start, sizeof start, "| %s |", name);
    const char *end = strstr(section, "\n## ");
    for (const char *at = section; at && (!end || at < end); at = strchr(at, '\n'), at += !!at)
        if (!strncmp(at, start, (size_t)length)) return at;
    return NULL;
}

static bool line_has(const char *line, const char *word)
{
    const char *at = strstr(line, word);
    return at && at < strchr(line, '\n');
}

static bool row_is_documented(const char *section, const char *name, const struct budget_row *row)
{
    const char *line = find_row(section, name);
    for (int i = 0; line && i < row->num_kernels; i++) {
        char kernel[48];
        snprintf(kernel, sizeof kernel, "%s", row->kernels[i].name);
        char *suffix = strstr(kernel, "_kernel");
        if (suffix) *suffix = 0;
        if (!line_has(line, kernel)) return false;
    }
    return line;
}

/* Compares names, not numbers: those change with every improvement. */
TEST(gpu_budget_page_lists_every_operation_and_kernel_of_a_step)
{
    struct text page = {0};
    CHECK_STATUS(OK, file_read("docs/gpu-budget.md", UINT64_MAX, &page));
    for (int i = 0; i < BUDGET_CASES; i++) {
        static struct budget b;
        struct budget_case dry = budget_cases[i];
        char heading[64];
        dry.executes = false;
        CHECK_STATUS(OK, budget_count(&dry, NULL, &b));
        snprintf(heading, sizeof heading, "\n## %s\n", dry.name);
        const char *section = strstr(page.data, heading);
        CHECK(section);
        for (size_t op = 0; op <= OP_COUNT; op++) {
            const struct budget_row *row = &b.rows[op];
            const char *name = op < OP_COUNT ? op_name(op) : "outside";
            if (budget_launches(row) && !row_is_documented(section + 1, name, row))
                fail_msg("docs/gpu-budget.md, %s: %s is missing or has other kernels: run make "
                         "gpu-budget",
                         dry.name, name);
        }
        CHECK(dry.warmup || budget_launches(&b.rows[OP_linear_forward]) > 8);
    }
    text_release(&page);
}

TEST(gpu_budget_counts_the_launches_of_each_operation)
{
    static struct budget b;
    struct budget_case dry = budget_cases[0];
    dry.executes = false;
    CHECK_STATUS(OK, budget_count(&dry, NULL, &b));
    const struct budget_row *norms = &b.rows[OP_rmsnorm_forward];
    CHECK(norms->calls == 5 && budget_launches(norms) == 5 && norms->num_kernels == 1);
    CHECK(!strcmp(norms->kernels[0].name, "rmsnorm_forward_short_kernel"));
    CHECK(b.rows[OP_adamw].calls == 1 && b.rows[OP_sum_squares].waits == 1);
    CHECK(!b.rows[OP_quantize].calls);
}

#define SELECTIVE "activation_checkpoint.mode=selective"
#define FLOAT8    "model.converters=[\"float8\"]"

/* A step of two microbatches under tensor parallelism. */
static void count_sharded(const char *checkpoint, const char *fp8, struct budget *b)
{
    struct budget_case c = {
        .name = "tensor parallelism",
        .settings = {"model.dim=256", "model.n_layers=4", "model.n_heads=4", "model.n_kv_heads=2",
                     "model.ffn_hidden=1024", "model.vocab_size=2048", "training.seq_len=512",
                     "training.local_batch_size=1", "training.global_batch_size=2",
                     "training.mixed_precision_param=bfloat16", "training.dataset_path=none",
                     "parallelism.tensor_parallel_degree=2", checkpoint, fp8},
        .num_ranks = 2};
    CHECK_STATUS(OK, budget_count(&c, NULL, b));
}

static uint64_t count_waits(const struct budget *b)
{
    uint64_t waits = 0;
    for (size_t op = 0; op <= OP_COUNT; op++) waits += b->rows[op].waits;
    return waits;
}

TEST(fp8_under_tensor_parallelism_waits_for_no_block)
{
    static struct budget plain, float8;
    count_sharded(SELECTIVE, NULL, &plain);
    count_sharded(SELECTIVE, FLOAT8, &float8);
    print_message("waits: bf16 %d, FP8 %d\n", (int)count_waits(&plain), (int)count_waits(&float8));
    CHECK(count_waits(&plain) > 0 && count_waits(&float8) <= count_waits(&plain) + 1);
}

/* As on one rank.  Quantized are the input and the gradient of each matrix multiply, and in a step
 * its weights; what is gathered in FP8, norms and gradients of outputs, gets its other order. */
TEST(fp8_under_tensor_parallelism_quantizes_instead_of_storing)
{
    enum { BLOCKS = 4, MICROBATCHES = 2, PASSES = BLOCKS * MICROBATCHES };
    static struct budget b;
    count_sharded("activation_checkpoint.mode=none", FLOAT8, &b);
    const struct budget_row *rows = b.rows;
    uint64_t quantized = PASSES * 8 + BLOCKS * 4, gathered = PASSES * 4;
    CHECK(!rows[OP_amax].calls && !rows[OP_find_scale].calls);
    CHECK(!rows[OP_swiglu_forward].calls && !rows[OP_swiglu_backward].calls);
    CHECK(rows[OP_rmsnorm_forward].calls == MICROBATCHES); /* the last */
    CHECK(rows[OP_fused_amax].calls == quantized);
    CHECK(rows[OP_fused_quantize].calls == quantized + gathered);
    CHECK(rows[OP_quantize].calls == PASSES); /* wo's input, in backward */
}

TEST(gpu_budget_counts_a_graph_as_one_launch)
{
    static struct budget b;
    const struct budget_case *small = &budget_cases[BUDGET_CASES - 1];
    CHECK(!strcmp(small->name, "135M"));
    CHECK_STATUS(OK, budget_count(small, NULL, &b));
    const struct budget_row *outside = &b.rows[OP_COUNT];
    uint64_t submitted = 0, graphs = 0;
    for (size_t op = 0; op <= OP_COUNT; op++) submitted += budget_launches(&b.rows[op]);
    for (int i = 0; i < outside->num_kernels; i++)
        if (!strcmp(outside->kernels[i].name, "graph")) graphs += outside->kernels[i].launches;
    CHECK(graphs == 1 && submitted < 10 && !b.rows[OP_linear_forward].calls);
}
