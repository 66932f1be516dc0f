/* test_generate.c -- eval and generate over a model that has learned its tiny corpus. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGER "training.steps=300 lr_scheduler.total_steps=300 optimizer.lr=1e-2 "

TEST(generate_learns_the_corpus_and_is_deterministic_per_seed)
{
    static const char *const words[] = {"llama ", "walks ", "over ", "one ",    "salt ",
                                        "from ",  "town ",  "and ",  "while ",  "snow ",
                                        "falls ", "where ", "the ",  "speaks ", "again "};
    static const char *const seeds[] = {"3", "3", "4"};
    if (TEST_SLOWED) skip(); /* about what a model has learned */
    char *run = runs_trained(LONGER);
    struct text out[3] = {{0}};
    int known = 0;
    for (int i = 0; i < 3; i++)
        CHECK(LLAMERO(&out[i], NULL, "generate", run, "--prompt", "the llama ", "--seed", seeds[i],
                      "--temperature", "0.5") == 0);
    CHECK(out[0].len > 100 && !strcmp(out[0].data, out[1].data));
    CHECK(strcmp(out[0].data, out[2].data));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        known += strstr(out[0].data, words[i]) != NULL;
    CHECK(known >= 3);
    for (int i = 0; i < 3; i++) text_release(&out[i]);
    free(run);
}

/* A million texts of a run, with stdout in the file `texts`. */
static pid_t start_texts(const char *run, const char *ranks, const char *err, const char *texts)
{
    int old = dup(STDOUT_FILENO), fd = open(texts, O_WRONLY | O_CREAT, 0600);
    CHECK(old >= 0 && fd >= 0 && !fflush(stdout) && dup2(fd, STDOUT_FILENO) >= 0);
    pid_t child = RUNS_START(err, "generate", run, "--ranks", ranks, "--prompt", "the ", "--n",
                             "1000000", "--max-tokens", "20", "--json");
    CHECK(dup2(old, STDOUT_FILENO) >= 0 && !close(old) && !close(fd));
    return child;
}

TEST(generate_that_is_interrupted_ends_its_line_and_exits_with_130)
{
    char *run = runs_trained("training.steps=2");
    const char *err = test_path(test_folder(), "err.txt");
    const char *texts = test_path(test_folder(), "texts.jsonl");
    struct text said = {0}, out = {0};
    pid_t child = start_texts(run, "1", err, texts);
    runs_wait_for_bytes(err, 400); /* some texts */
    CHECK(kill(child, SIGINT) == 0);
    CHECK(runs_wait(child, err, &said) == 130);
    CHECK(!strstr(said.data, "error"));
    CHECK_STATUS(OK, file_read(texts, 1 << 28, &out));
    CHECK(out.len > 2 && !strcmp(out.data + out.len - 2, "}\n"));
    text_release(&said), text_release(&out);
    free(run);
}

/* Of a launcher's ranks only some may get it. */
TEST(generate_ends_on_all_ranks_when_one_gets_a_signal)
{
    enum { RANKS = 2, LIMIT_S = 60 };
    char *run = runs_trained("training.steps=2");
    const char *err = test_path(test_folder(), "err.txt");
    const char *texts = test_path(test_folder(), "texts.jsonl");
    struct text said = {0};
    pid_t ranks[RANKS], child = start_texts(run, "2", err, texts);
    runs_wait_for_bytes(err, 400);
    CHECK(runs_find_ranks(child, ranks, RANKS) == RANKS);
    CHECK(kill(ranks[1], SIGINT) == 0);
    for (int n = 0; n < 100 * LIMIT_S && !kill(ranks[0], 0); n++) usleep(10000);
    if (!kill(ranks[0], 0)) kill(child, SIGKILL);
    CHECK(runs_wait(child, err, &said) == 0);
    text_release(&said);
    free(run);
}

TEST(filling_masks_that_is_interrupted_prints_nothing)
{
    char *run = runs_trained("training.steps=2 objective.name=diffusion "
                             "objective.mask_token=<|mask|>");
    const char *err = test_path(test_folder(), "err.txt");
    struct text said = {0};
    pid_t child =
        RUNS_START(err, "generate", run, "--prompt", "the ", "--max-tokens", "4000", "--json");
    runs_wait_for_bytes(err, 40); /* the line "objective: ..." */
    CHECK(kill(child, SIGINT) == 0);
    CHECK(runs_wait(child, err, &said) == 130);
    CHECK(!strstr(said.data, "generated"));
    text_release(&said);
    free(run);
}

TEST(generate_ends_at_a_stop_text_and_says_why)
{
    char *run = runs_trained("training.steps=2");
    struct text whole = {0}, out = {0}, err = {0};
    struct json *v;
    CHECK(LLAMERO(&whole, NULL, "generate", run, "--prompt", "the ", "--temperature", "0",
                  "--max-tokens", "12", "--json") == 0);
    CHECK_STATUS(OK, json_parse(whole.data, whole.len, "generate", &v));
    CHECK(json_string_is(json_get(v, "finish_reason"), "length"));
    CHECK(json_count(json_get(v, "ids")) == 12 &&
          json_count(json_get(v, "log_probabilities")) == 12);
    for (const struct json *p = json_first(json_get(v, "log_probabilities")); p; p = json_next(p))
        CHECK(json_number(p) <= 0 && json_number(p) > -20);
    json_free(v);
    CHECK(LLAMERO(&whole, NULL, "generate", run, "--prompt", "the ", "--temperature", "0.9",
                  "--max-tokens", "40") == 0);
    CHECK(whole.len > 20);
    char stop[3] = {whole.data[10], whole.data[11], 0}; /* two tokens */
    if (memchr(stop, 0, 2)) skip();
    const char *first = strstr(whole.data, stop);
    CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", "the ", "--temperature", "0.9",
                  "--max-tokens", "40", "--stop", "not there", "--stop", stop, "--echo") == 0);
    CHECK(!strncmp(out.data, "the ", 4) && out.len == 4 + (size_t)(first - whole.data) + 1);
    CHECK(!strncmp(out.data + 4, whole.data, (size_t)(first - whole.data)));
    CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", "the ", "--temperature", "0.9",
                  "--max-tokens", "40", "--stop", stop, "--json") == 0);
    CHECK(strstr(out.data, "\"finish_reason\": \"stop\""));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--fill", "a", "--stop", "b") == 64);
    CHECK(strstr(
        err.data,
        "--stop requires --prompt or --prompts or --interactive; it has no effect with --fill"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--fill", "a", "--prompt", "b") == 64);
    CHECK(strstr(err.data, "--prompt and --fill: only one of them can be the input"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--bins", "3") == 64);
    CHECK(strstr(err.data, "--bins requires --session or --neurons"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--neurons", "3", "--row", "2") == 64);
    CHECK(strstr(err.data, "--row requires --session; it has no effect with --neurons"));
    text_release(&whole), text_release(&out), text_release(&err);
    free(run);
}

TEST(generate_gives_several_texts_and_reads_a_prompt_from_stdin)
{
    char *run = runs_trained("training.steps=2");
    struct text one = {0}, out = {0};
    CHECK(LLAMERO(&one, NULL, "generate", run, "--prompt", "ab", "--max-tokens", "5", "--seed", "8",
                  "--json") == 0);
    CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", "ab", "--max-tokens", "5", "--seed", "7",
                  "--n", "2", "--json") == 0);
    const char *second = strchr(out.data, '\n'), *ids = strstr(one.data, "\"ids\"");
    const char *end = ids ? strchr(ids, ']') : NULL;
    CHECK(second && end && memmem(second, strlen(second), ids, (size_t)(end - ids)));
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    static const char line[] =
        "printf ab | \"$0\" generate \"$1\" --prompt - --max-tokens 5 --seed 8 --json";
    CHECK(test_run((const char *const[]){"sh", "-c", line, program, run, NULL}, &out, NULL) == 0);
    CHECK(memmem(out.data, out.len, ids, (size_t)(end - ids)));
    text_release(&one), text_release(&out);
    free(run);
}

enum { LIMIT_S = 60 };

/* Starts `generate` with the pipe as its standard input. */
static pid_t start_with_pipe(const char *err, int ends[2], const char *const *arguments)
{
    int old = dup(STDIN_FILENO);
    CHECK(old >= 0 && !pipe2(ends, O_CLOEXEC) && dup2(ends[0], STDIN_FILENO) >= 0);
    pid_t child = runs_start(err, arguments);
    CHECK(dup2(old, STDIN_FILENO) >= 0 && !close(old));
    return child;
}

/* Waits until it has read what the pipe holds. */
static void wait_for_reading(const int ends[2])
{
    int unread = 1;
    for (int n = 0; n < 100 * LIMIT_S && unread; n++) {
        CHECK(!ioctl(ends[0], FIONREAD, &unread));
        usleep(10000);
    }
}

/* The exit code, if it ends although the pipe is still open.  Writes `line` until then. */
static int end_with_pipe(pid_t child, const char *err, const int ends[2], const char *line)
{
    struct text said = {0};
    siginfo_t ended = {0};
    for (int n = 0; n < 100 * LIMIT_S && !ended.si_pid; n++) {
        size_t bytes = n % 10 ? 0 : strlen(line);
        CHECK(write(ends[1], line, bytes) == (ssize_t)bytes);
        CHECK(!waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT));
        usleep(10000);
    }
    CHECK(!close(ends[0]) && !close(ends[1]));
    int code = runs_wait(child, err, &said);
    CHECK(ended.si_pid == child);
    text_release(&said);
    return code;
}

/* Sends SIGTERM to a command that has read what the pipe held. */
static void end_while_it_reads(const char *model, const char *flag, const char *value)
{
    const char *err = test_path(test_folder(), "err.txt");
    int ends[2];
    pid_t child =
        start_with_pipe(err, ends, (const char *const[]){"generate", model, flag, value, NULL});
    CHECK(write(ends[1], "a", 1) == 1);
    wait_for_reading(ends);
    CHECK(!kill(child, SIGTERM));
    CHECK(end_with_pipe(child, err, ends, "") == 128 + SIGTERM);
}

/* Rank 1 gets the signal, rank 0 the lines, until rank 1 has noticed the signal during a turn. */
TEST(a_text_in_turns_ends_on_all_ranks_when_one_gets_a_signal)
{
    enum { RANKS = 2 };
    char *run = runs_trained("training.steps=2");
    const char *err = test_path(test_folder(), "err.txt");
    int ends[2];
    pid_t ranks[RANKS],
        child = start_with_pipe(err, ends,
                                (const char *const[]){"generate", run, "--interactive", "--ranks",
                                                      "2", "--max-tokens", "4", NULL});
    CHECK(write(ends[1], "the \n", 5) == 5);
    wait_for_reading(ends);
    CHECK(runs_find_ranks(child, ranks, RANKS) == RANKS && !kill(ranks[1], SIGTERM));
    CHECK(end_with_pipe(child, err, ends, "the \n") == 0);
    free(run);
}

TEST(generate_that_reads_from_a_pipe_ends_at_a_signal)
{
    char *run = runs_trained("training.steps=2");
    end_while_it_reads(".", "--prompt", "-");
    end_while_it_reads(run, "--interactive", NULL);
    free(run);
}

TEST(generate_accepts_a_prompt_longer_than_a_prefill_chunk)
{
    char *run = runs_trained("training.steps=2"), prompt[1100];
    struct text out = {0};
    struct json *v;
    memset(prompt, 'a', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = 0;
    CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", prompt, "--max-tokens", "4", "--json",
                  "--temperature", "0") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "generate", &v));
    CHECK(json_number(json_get(v, "prompt_tokens")) == sizeof prompt);
    CHECK(json_count(json_get(v, "ids")) <= 4);
    CHECK(json_number(json_get(v, "prompt_seconds")) <= json_number(json_get(v, "seconds")));
    json_free(v);
    text_release(&out);
    free(run);
}

TEST(eval_of_the_training_text_agrees_with_the_training_loss)
{
    char *run = runs_trained(
        LONGER "data.validation_share=0.1 validation.enable=true validation.freq=100000");
    struct text out = {0}, corpus = {0};
    struct json *v;
    text_addf(&corpus, "%s/../corpus.txt", run);
    CHECK(LLAMERO(&out, NULL, "eval", run, corpus.data, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
    double loss = json_number(json_get(v, "loss"));
    CHECK_NEAR(loss, runs_metric(run, "validation_loss"), 0.15);
    CHECK_NEAR(json_number(json_get(v, "perplexity")), exp(loss), 1e-6);
    /* one token is one byte here, except for a few special tokens */
    CHECK_NEAR(json_number(json_get(v, "bits_per_byte")), loss / log(2), 0.02);
    CHECK(json_number(json_get(v, "tokens")) > 59000);
    json_free(v);
    text_release(&out), text_release(&corpus);
    free(run);
}

TEST(the_bound_of_a_diffusion_model_is_evaluated_on_all_tokens)
{
    char *run =
        runs_trained("objective.name=diffusion objective.mask_token=<|mask|> training.steps=30");
    struct text out = {0}, corpus = {0};
    double loss[3];
    text_addf(&corpus, "%s/../corpus.txt", run);
    for (int i = 0; i < 3; i++) {
        struct json *v;
        CHECK(LLAMERO(&out, NULL, "eval", run, corpus.data, "--json",
                      i < 2 ? "data.seed=1" : "data.seed=2") == 0);
        CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
        loss[i] = json_number(json_get(v, "loss"));
        CHECK(json_number(json_get(v, "tokens")) > 59000 && json_true(json_get(v, "is_bound")));
        CHECK_NEAR(json_number(json_get(v, "bits_per_byte")), loss[i] / log(2), 0.02);
        json_free(v);
    }
    CHECK(loss[0] == loss[1] && loss[0] != loss[2] && fabs(loss[0] - loss[2]) < 0.2);
    CHECK(LLAMERO(&out, NULL, "eval", run, corpus.data) == 0);
    CHECK(strstr(out.data, "(bound, by Monte Carlo)") && !strstr(out.data, "accuracy"));
    text_release(&out), text_release(&corpus);
    free(run);
}

TEST(a_masked_model_is_evaluated_on_masks_and_rejects_prompts)
{
    char *run =
        runs_trained("objective.name=masked objective.mask_token=<|mask|> training.steps=30");
    struct text out = {0}, err = {0}, corpus = {0};
    struct json *v;
    text_addf(&corpus, "%s/../corpus.txt", run);
    CHECK(LLAMERO(&out, NULL, "eval", run, corpus.data, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
    double tokens = json_number(json_get(v, "tokens"));
    CHECK(tokens > 0.27 * 60000 && tokens < 0.33 * 60000);
    CHECK(json_number(json_get(v, "accuracy")) > 0.02);
    json_free(v);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--prompt", "a") == 78);
    CHECK(strstr(err.data, "masked"));
    text_release(&out), text_release(&err), text_release(&corpus);
    free(run);
}
