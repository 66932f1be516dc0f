// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_process.h"

#include "base/clock.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_BYTES = 64 << 10, MAX_ERROR = 300, TIMEOUT_S = 60, POLL_MS = 50 };

/* Appends the next word; *at moves past it.  False: not closed. */
static bool read_word(const char **at, struct text *word)
{
    char quote = 0;
    text_clear(word);
    text_adds(word, "");
    for (; **at && (quote || !strchr(" \t\r\n", **at)); (*at)++) {
        char c = **at;
        bool is_quote = c == '\'' || c == '"';
        if (quote ? c == quote : is_quote) {
            quote = quote ? 0 : c;
            continue;
        }
        if (c == '\\' && quote != '\'') {
            char next = (*at)[1];
            if (!next) return false;
            bool keeps = quote == '"' && next != '"' && next != '\\';
            if (keeps) text_add(word, "\\", 1);
            c = next, (*at)++;
        }
        text_add(word, &c, 1);
    }
    return !quote;
}

static void free_words(char **words)
{
    for (size_t i = 0; words && words[i]; i++) free(words[i]);
    free(words);
}

char **s3_process_split(const char *command)
{
    size_t count = 0;
    char **words = heap(sizeof *words);
    struct text word = {0};
    for (;;) {
        command += strspn(command, " \t\r\n");
        if (!*command) break;
        if (!read_word(&command, &word)) {
            free_words(words);
            words = NULL;
            break;
        }
        words = heap_grow(words, count + 2, sizeof *words);
        words[count++] = heap_string(word.data, word.len);
        words[count] = NULL;
    }
    text_release(&word);
    return words;
}

/* A process whose stdout is a pipe to this one. */
struct s3_process {
    pid_t pid; /* 0: it has ended */
    int out;
    FILE *errors; /* its stderr */
};

/* The caller's blocked and ignored signals are its own business. */
static int start(char *const *words, struct s3_process *p, int write_end)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, pipe;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, write_end, 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(p->errors), 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setpgroup(&attributes, 0);
    int error = posix_spawnp(&p->pid, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error) p->pid = 0;
    return error;
}

static enum status open_process(const char *command, struct s3_process *p)
{
    int ends[2] = {-1, -1};
    char **words = s3_process_split(command);
    enum status st = STATUS_OK;
    *p = (struct s3_process){.out = -1};
    if (!words || !words[0])
        FAIL_OUT(CONFIG, "s3://: credential_process: %s",
                 words ? "the command is empty" : "a quote or a backslash is not closed");
    p->errors = tmpfile();
    if (!p->errors) FAIL_OUT(IO, "cannot create a temporary file: %s", strerror(errno));
    if (pipe2(ends, O_CLOEXEC)) FAIL_OUT(IO, "cannot create a pipe: %s", strerror(errno));
    p->out = ends[0];
    int error = start(words, p, ends[1]);
    close(ends[1]);
    if (error)
        FAIL_OUT(CONFIG, "s3://: credential_process: cannot run %.200s: %s", words[0],
                 strerror(error));
out:
    free_words(words);
    return st;
}

static void close_process(struct s3_process *p)
{
    if (p->pid) {
        kill(-p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->out >= 0) close(p->out);
    if (p->errors) fclose(p->errors);
}

/* Waits up to POLL_MS for output.  *ended: the other end is closed. */
static enum status read_some(struct s3_process *p, struct text *output, bool *ended)
{
    char chunk[4096];
    struct pollfd ready = {.fd = p->out, .events = POLLIN};
    if (poll(&ready, 1, POLL_MS) <= 0) return STATUS_OK;
    ssize_t n = read(p->out, chunk, sizeof chunk);
    if (n < 0 && errno != EINTR) FAIL(IO, "s3://: credential_process: %s", strerror(errno));
    *ended = n == 0;
    if (n > 0 && (size_t)n > MAX_BYTES - output->len)
        FAIL(DATA, "s3://: credential_process: more than %d bytes of output", MAX_BYTES);
    if (n > 0) text_add(output, chunk, (size_t)n);
    return STATUS_OK;
}

/* Reads the output until the process has ended. */
static enum status wait_process(struct s3_process *p, const atomic_bool *cancel,
                                struct text *output, int *code)
{
    double end = clock_monotonic_s() + TIMEOUT_S;
    bool ended = false;
    while (!ended || p->pid) {
        if (!ended)
            TRY(read_some(p, output, &ended));
        else
            poll(NULL, 0, POLL_MS / 10);
        if (ended && waitpid(p->pid, code, WNOHANG)) p->pid = 0;
        if (cancel ? atomic_load(cancel) : signals_pending() != 0)
            FAIL(REQUEUE, "interrupted during credential_process");
        if (clock_monotonic_s() > end)
            FAIL(IO, "s3://: credential_process has not ended after %d s", TIMEOUT_S);
    }
    return STATUS_OK;
}

static enum status fail_exit(const struct s3_process *p, int code)
{
    char errors[MAX_ERROR + 1] = "";
    ssize_t n = pread(fileno(p->errors), errors, MAX_ERROR, 0);
    errors[n > 0 ? n : 0] = 0;
    errors[strcspn(errors, "\n")] = 0;
    FAIL(CONFIG, "s3://: credential_process failed with %s %d%s%s",
         WIFEXITED(code) ? "exit code" : "signal",
         WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code), errors[0] ? ": " : "", errors);
}

enum status s3_process_fetch(const char *command, const atomic_bool *cancel, struct s3_keys *out)
{
    struct s3_process p;
    struct text output = {0};
    int code = 0;
    enum status st = STATUS_OK;
    TRY_OUT(open_process(command, &p));
    TRY_OUT(wait_process(&p, cancel, &output, &code));
    if (!WIFEXITED(code) || WEXITSTATUS(code)) {
        st = fail_exit(&p, code);
        goto out;
    }
    TRY_OUT(s3_keys_parse_process(&output, "s3://: credential_process", out));
out:
    close_process(&p);
    text_release(&output);
    return st;
}
