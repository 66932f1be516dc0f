// SPDX-License-Identifier: Apache-2.0
#include "base/pty.h"
#include "system/runs.h"

#include <signal.h>

#define FEW_STEPS "training.steps=2 training.mixed_precision_param=float32"

/* Types `lines` into the command; `setting` is one more argument. */
static void type(const char *run, const char *lines, const char *setting, struct text *out,
                 struct text *err)
{
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    static const char command[] = "printf \"$3\" | \"$0\" generate \"$1\" --interactive "
                                  "--temperature 0 --max-tokens 6 \"$2\"";
    const char *argv[] = {"sh", "-c", command, program, run, setting, lines, NULL};
    CHECK(test_run(argv, out, err) == 0);
}

TEST(turns_continue_one_text)
{
    char *run = runs_trained(FEW_STEPS);
    struct text whole = {0}, turns = {0}, again = {0}, err = {0};
    CHECK(LLAMERO(&whole, NULL, "generate", run, "--prompt", "the ", "--temperature", "0",
                  "--max-tokens", "12") == 0);
    type(run, "the \\n\\n", "training.seq_len=64", &turns, &err);
    /* two parts of six tokens, each with a line end */
    size_t first = strcspn(turns.data, "\n");
    CHECK(first > 0 && !strncmp(whole.data, turns.data, first));
    CHECK(!strncmp(whole.data + first, turns.data + first + 1,
                   strcspn(turns.data + first + 1, "\n")));
    type(run, "salt\\n/new\\nthe \\n\\n/quit\\nthe \\n", "training.seq_len=64", &again, &err);
    const char *rest = strchr(again.data, '\n');
    CHECK(rest && !strcmp(rest + 1, turns.data));
    text_release(&whole), text_release(&turns), text_release(&again), text_release(&err);
    free(run);
}

TEST(generate_continues_beyond_the_context)
{
    char *run = runs_trained(FEW_STEPS);
    struct text out = {0}, err = {0};
    type(run, "one\\ntwo\\nthree\\nfour\\nfive\\nand a line that alone is longer than all of it\\n",
         "training.seq_len=24", &out, &err);
    int lines = 0;
    for (const char *at = out.data; (at = strchr(at, '\n')); at++) lines++;
    CHECK(lines >= 6);
    CHECK(strstr(err.data, "the text is longer than the context of 24 tokens"));
    text_release(&out), text_release(&err);
    free(run);
}

TEST(commands_begin_with_a_slash)
{
    char *run = runs_trained(FEW_STEPS);
    struct text out = {0}, err = {0};
    type(run, "/help\\n/nothing\\n//a\\n", "training.seq_len=64", &out, &err);
    CHECK(strstr(out.data, "/new   begin another text"));
    CHECK(strstr(err.data, "unknown command /nothing; /help lists them"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--interactive", "--prompt", "a") == 64);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--interactive", "--json") == 64);
    text_release(&out), text_release(&err);
    free(run);
}

/* Sends a signal to the command while it waits at its prompt, then types `keys`; checks the exit
 * code, and that the output ends in a line end. */
static void signal_at_the_prompt(int signal, const char *keys, int code)
{
    char *run = runs_trained(FEW_STEPS);
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    const char *argv[] = {program, "generate", run, "--interactive", "--max-tokens", "2", NULL};
    struct pty p;
    bool raw;
    pty_start_program(&p, argv);
    CHECK(pty_shows(&p, 0, "> ") && !kill(p.job, signal));
    pty_type(&p, keys);
    CHECK(pty_finish(&p, &raw) == code && !raw);
    CHECK(p.seen.len && p.seen.data[p.seen.len - 1] == '\n');
    text_release(&p.seen);
    free(run);
}

TEST(the_prompt_reads_on_after_the_window_has_changed)
{
    signal_at_the_prompt(SIGWINCH, "/quit\r", 0);
}

TEST(a_signal_at_the_prompt_ends_the_process) { signal_at_the_prompt(SIGTERM, "", 128 + SIGTERM); }

TEST(a_nul_byte_in_a_line_is_an_error)
{
    char *run = runs_trained(FEW_STEPS);
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    static const char command[] = "printf 'a\\0b\\n' | \"$0\" generate \"$1\" --interactive";
    struct text err = {0};
    CHECK(test_run((const char *const[]){"sh", "-c", command, program, run, NULL}, NULL, &err) ==
          65);
    CHECK(strstr(err.data, "standard input: a line has a NUL byte"));
    text_release(&err);
    free(run);
}

TEST(a_nul_byte_in_a_continued_line_is_an_error_before_the_model_continues)
{
    char *run = runs_trained(FEW_STEPS);
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    static const char command[] =
        "printf 'a\\\\\\nb\\0c\\n' | \"$0\" generate \"$1\" --interactive";
    struct text out = {0}, err = {0};
    CHECK(test_run((const char *const[]){"sh", "-c", command, program, run, NULL}, &out, &err) ==
          65);
    CHECK(strstr(err.data, "standard input: a line has a NUL byte"));
    CHECK(!out.len);
    text_release(&out), text_release(&err);
    free(run);
}

TEST(input_that_cannot_be_read_is_an_error)
{
    char *run = runs_trained(FEW_STEPS);
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    const char *argv[] = {"sh",    "-c", "\"$0\" generate \"$1\" --interactive </",
                          program, run,  NULL};
    struct text out = {0}, err = {0};
    CHECK(test_run(argv, &out, &err) == 74);
    CHECK(strstr(err.data, "standard input: Is a directory"));
    text_release(&out), text_release(&err);
    free(run);
}
