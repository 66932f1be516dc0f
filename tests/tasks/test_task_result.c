// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tasks/task_result.h"

/* Two items of two choices. */
static struct task_item items[] = {{0, 2, 0}, {2, 2, 1}};
static int64_t lengths[] = {10, 2, 4, 4};
static char name[] = "t";

static struct task task_of(enum task_format_id format)
{
    return (struct task){.name = name,
                         .format = &task_formats[format],
                         .items = items,
                         .num_items = 2,
                         .num_requests = 4,
                         .lengths = lengths};
}

TEST(accuracies_follow_the_rules_of_lm_eval)
{
    double log_likelihoods[] = {-5, -4, -3, -3}; /* a tie: the first is chosen */
    int64_t misses[] = {0, 1, 1, 0};
    struct task t = task_of(TASK_FORMAT_piqa);
    struct task_scores s = {log_likelihoods, misses, false};
    struct task_result r = task_result_compute(&t, &s);
    struct task_value values[TASK_MAX_VALUES];
    CHECK(r.items == 2 && r.correct == 0 && r.correct_norm == 1);
    CHECK(task_result_values(&t, &r, values) == 2);
    CHECK(!strcmp(values[1].name, "acc_norm") && values[1].value == 0.5);
    CHECK_NEAR(values[1].error, 0.5, 1e-12); /* sqrt(0.5 * 0.5 / 1) */
    t.num_items = 1;
    r = task_result_compute(&t, &s);
    task_result_values(&t, &r, values);
    CHECK(isnan(values[0].error));
}

TEST(cloze_tasks_count_greedy_matches_and_have_a_perplexity)
{
    double log_likelihoods[] = {-2, 0, -4, 0};
    int64_t misses[] = {0, 0, 1, 0};
    struct task_item cloze[] = {{0, 1, 0}, {2, 1, 0}};
    struct task t = task_of(TASK_FORMAT_lambada);
    struct task_scores s = {log_likelihoods, misses, false};
    t.items = cloze;
    struct task_result r = task_result_compute(&t, &s);
    CHECK(r.correct == 1 && r.log_likelihood_sum == -6);
    struct text json = {0};
    struct json_writer w = {.text = &json};
    json_begin_object(&w, NULL, JSON_COMPACT);
    task_result_write_json(&t, &r, &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK(!strcmp(json.data, "{\"task\":\"t\",\"format\":\"lambada\",\"items\":2,\"acc\":0.5,"
                             "\"acc_stderr\":0.5,\"perplexity\":20.0855369}"));
    text_clear(&json);
    task_result_write_items(&t, &s, &json);
    const char *line = "{\"task\": \"t\", \"item\": 0, \"gold\": 0, \"choice\": 0, "
                       "\"log_likelihoods\": [-2], \"greedy\": [true]}\n";
    CHECK(!strncmp(json.data, line, strlen(line)));
    text_release(&json);
}

/* A NaN is never the largest, so that the first choice would win each time. */
TEST(scores_that_are_not_finite_are_rejected)
{
    double log_likelihoods[] = {-5, -4, -3, -3};
    int64_t misses[4] = {0};
    struct task t = task_of(TASK_FORMAT_piqa);
    struct task_scores s = {log_likelihoods, misses, false};
    CHECK_STATUS(OK, task_result_check(&t, &s));
    log_likelihoods[2] = -(double)NAN;
    CHECK_STATUS(DIVERGED, task_result_check(&t, &s));
    CHECK_MESSAGE("t: the log-likelihood of request 2 is nan");
    log_likelihoods[2] = -(double)INFINITY;
    CHECK_STATUS(DIVERGED, task_result_check(&t, &s));
}
