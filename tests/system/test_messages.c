// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"

#include <ctype.h>
#include <limits.h>
#include <unistd.h>

/* A subject: the rows of one file of tests/app/messages/, which run one after the other in a folder
 * of their own (tests/app/messages/README.md has the format). */
struct subject {
    const char *path;
    char folder[PATH_MAX];    /* where its rows run, without symbolic links */
    struct text file, script; /* what a row writes, and what each command runs first */
    struct text written;      /* the file with what the program prints now */
    int rows, different;
};

static const char indent[] = "    ";

/* Units of what a clock or the machine decides. */
static bool is_measured(const char *after)
{
    static const char *const units[] = {
        " s",         " ms",         " tok/s", " GB/s", " MB/s", " GiB available", " MiB available",
        " of memory", " documents/s"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i]);
        if (!strncmp(after, units[i], len) && !isalnum((unsigned char)after[len])) return true;
    }
    return false;
}

/* Adds a line, with FOLDER for the subject's folder and N for what is measured, indented. */
static void add_line(struct text *out, const struct subject *s, const char *at, const char *end)
{
    size_t folder = strlen(s->folder);
    while (end > at && isspace((unsigned char)end[-1])) end--;
    if (at == end) return;
    text_adds(out, indent);
    for (const char *begin = at; at < end;) {
        size_t digits = strspn(at, "0123456789.,");
        bool is_number =
            isdigit((unsigned char)*at) && (at == begin || !isalnum((unsigned char)at[-1]));
        if (!strncmp(at, s->folder, folder)) {
            text_adds(out, "FOLDER");
            at += folder;
        } else if (is_number && is_measured(at + digits)) {
            text_adds(out, "N");
            at += digits;
        } else {
            text_add(out, at++, 1);
        }
    }
    text_adds(out, "\n");
}

/* Runs a row's command: `shown` gets what it wrote and its exit code, as the file has it. */
static void run_row(const struct subject *s, const char *command, struct text *shown)
{
    struct text script = {0}, out = {0};
    text_addf(&script, "exec 2>&1; cd '%s' && %s", s->folder, s->script.data);
    text_adds(&script, command);
    int code = test_run((const char *[]){"sh", "-c", script.data, NULL}, &out, NULL);
    for (const char *at = out.data, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        add_line(shown, s, at, end);
    }
    if (code) text_addf(shown, "exit %d\n", code);
    text_release(&script), text_release(&out);
}

/* Whether the lines are those expected, of which "..." stands for any number of lines. */
static bool is_expected(const char *expected, const char *shown)
{
    static const char any[] = "    ...\n";
    if (!*expected) return !*shown;
    if (!strncmp(expected, any, strlen(any))) {
        for (const char *rest = expected + strlen(any);; shown = strchr(shown, '\n') + 1) {
            if (is_expected(rest, shown)) return true;
            if (!*shown) return false;
        }
    }
    size_t len = strcspn(expected, "\n") + 1;
    return !strncmp(expected, shown, len) && is_expected(expected + len, shown + len);
}

/* Prints a difference as `diff` does, line by line. */
static void print_lines(const char *mark, const char *lines)
{
    for (const char *at = lines; *at; at = strchr(at, '\n') + 1)
        print_error("  %s %.*s\n", mark, (int)strcspn(at, "\n"), at);
}

/* Of what follows a command or the name of a file, the lines that belong to it. */
static const char *block_end(const char *at, bool is_row)
{
    while (*at && (!strncmp(at, indent, strlen(indent)) || (is_row && !strncmp(at, "exit ", 5))))
        at = strchr(at, '\n') + 1;
    return at;
}

static void try_row(struct subject *s, int line, const char *at, const char *end)
{
    const char *next = strchr(at, '\n') + 1;
    struct text shown = {0};
    char *command = heap_string(at + 2, (size_t)(next - at) - 3);
    char *expected = heap_string(next, (size_t)(end - next));
    run_row(s, command, &shown);
    text_adds(&shown, "");
    s->rows++;
    bool same = is_expected(expected, shown.data);
    if (!same) {
        s->different++;
        print_error("%s:%d: $ %s\n", s->path, line, command);
        print_lines("-", expected);
        print_lines("+", shown.data);
    }
    text_add(&s->written, at, (size_t)(next - at));
    text_adds(&s->written, same ? expected : shown.data);
    free(command), free(expected);
    text_release(&shown);
}

/* "file NAME", then its indented lines. */
static void write_file(struct subject *s, const char *at, const char *end)
{
    const char *next = strchr(at, '\n') + 1;
    char *name = heap_string(at + 5, (size_t)(next - at) - 6);
    char *path = file_join(s->folder, name);
    text_clear(&s->file);
    for (const char *line = next; line < end; line = strchr(line, '\n') + 1)
        text_add(&s->file, line + strlen(indent),
                 (size_t)(strchr(line, '\n') + 1 - line) - strlen(indent));
    CHECK_STATUS(OK, file_write(path, s->file.len ? s->file.data : "", s->file.len));
    text_add(&s->written, at, (size_t)(end - at));
    free(name), free(path);
}

static void try_subject(struct subject *s)
{
    struct text page = {0};
    int line = 1;
    CHECK_STATUS(OK, file_read(s->path, 1 << 20, &page));
    CHECK(page.len && page.data[page.len - 1] == '\n');
    for (const char *at = page.data, *end; *at; at = end) {
        end = strchr(at, '\n') + 1;
        bool is_row = !strncmp(at, "$ ", 2), is_file = !strncmp(at, "file ", 5);
        if (is_row || is_file) end = block_end(end, is_row);
        if (is_row)
            try_row(s, line, at, end);
        else if (is_file)
            write_file(s, at, end);
        else if (*at == '#' || *at == '\n')
            text_add(&s->written, at, (size_t)(end - at));
        else
            fail_msg("%s:%d: expected \"# comment\", \"file NAME\" or \"$ command\"", s->path,
                     line);
        for (const char *c = at; c < end; c++) line += *c == '\n';
    }
    if (!s->rows) fail_msg("%s: has no rows", s->path);
    text_release(&page);
}

/* What each command runs first: no variable of the environment changes a message. */
static void begin_subject(struct subject *s)
{
    char program[PATH_MAX], repository[PATH_MAX];
    const char *named = getenv("LLAMERO");
    CHECK(realpath(test_folder(), s->folder));
    CHECK(realpath(named ? named : "build/llamero", program));
    CHECK(getcwd(repository, sizeof repository));
    text_addf(&s->script,
              "unset HF_HOME HF_TOKEN HF_ENDPOINT HF_HUB_CACHE AWS_PROFILE AWS_ACCESS_KEY_ID "
              "AWS_ENDPOINT_URL NO_COLOR LLAMERO_TRACE; "
              "export HOME='%s' LC_ALL=C OMP_NUM_THREADS=1 CONFIGS='%s/configs' HF_HUB_OFFLINE=1; "
              "llamero() { '%s' \"$@\"; }; ",
              s->folder, repository, program);
}

TEST(the_program_prints_the_messages_of_the_corpus)
{
    struct file_list subjects = {0};
    const char *mode = getenv("MESSAGES");
    bool writes = mode && !strcmp(mode, "write");
    int rows = 0, different = 0;
    CHECK_STATUS(OK, file_glob(&subjects, "tests/app/messages/*.txt"));
    for (size_t i = 0; i < subjects.count; i++) {
        struct subject s = {.path = subjects.paths[i]};
        begin_subject(&s);
        try_subject(&s);
        if (writes && s.different)
            CHECK_STATUS(OK, file_write(s.path, s.written.data, s.written.len));
        rows += s.rows, different += s.different;
        text_release(&s.file), text_release(&s.script), text_release(&s.written);
    }
    print_message("%d messages, %d differ\n", rows, different);
    file_list_release(&subjects);
    if (different && !writes)
        fail_msg("%d messages differ; if they are right, run MESSAGES=write make test T=messages",
                 different);
    CHECK(rows >= 300);
}
